"""Decoding by our own models in PyTorch."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import torch

from nmt_cli.decoding.beam import search
from nmt_cli.decoding.engine import Hypothesis, SearchSettings
from nmt_cli.devices import autocast, use_one_thread
from nmt_cli.models.interface import Seq2Seq
from nmt_cli.text.batching import pad
from nmt_cli.text.vocab import EOS


class TorchEngine:
    """Engine over a model, or over several that vote.

    Args:
        models: One model, or an ensemble of models with the same vocabularies, on `device`; with several workers they are put
            into evaluation mode for good, else their mode is left as it was.
        device: Where to compute.
        precision: float32, or bfloat16 for autocast.
        workers: How many batches may be translated at once, each by one thread of a CPU.
    """

    def __init__(
        self,
        models: Seq2Seq | Sequence[Seq2Seq],
        device: torch.device,
        precision: torch.dtype = torch.float32,
        *,
        workers: int = 1,
    ) -> None:
        self.models = [models] if isinstance(models, Seq2Seq) else list(models)
        self.device, self.precision, self.workers = device, precision, workers
        limits = [model.max_positions for model in self.models if model.max_positions is not None]
        self.max_source_tokens = min(limits, default=None)
        self._threads = threading.local()
        if workers > 1:
            for model in self.models:
                model.eval()

    @property
    def model(self) -> Seq2Seq:
        """The model, or the first of an ensemble."""
        return self.models[0]

    @torch.inference_mode()
    def translate(
        self,
        sources: Sequence[Sequence[int]],
        settings: SearchSettings,
        *,
        prefixes: Sequence[Sequence[int]] | None = None,
        lines: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]:
        """Translate one batch; see `Engine`."""
        self._prepare_thread()
        modes = [model.training for model in self.models]
        for model in self.models:
            model.eval()
        ids, visible = pad([np.array([*source, EOS], dtype=np.int32) for source in sources])
        ids, visible = ids.to(self.device), visible.to(self.device)
        limits = [self._limit(len(source) + 1, settings) for source in sources]
        try:
            with autocast(self.device, self.precision):
                encoded = [model.encoder(ids, visible) for model in self.models]
                return search(self.models, encoded, limits, settings, prefixes=prefixes, lines=lines)
        finally:
            for model, mode in zip(self.models, modes, strict=True):
                model.train(mode)

    def _prepare_thread(self) -> None:
        """Let each worker thread have one core, when it comes for the first time."""
        if self.workers > 1 and not getattr(self._threads, "ready", False):
            if threading.current_thread() is not threading.main_thread():
                use_one_thread()
            self._threads.ready = True

    def _limit(self, source_tokens: int, settings: SearchSettings) -> int:
        limit = settings.limit(source_tokens)
        return limit if self.max_source_tokens is None else min(limit, self.max_source_tokens)
