"""Decoding by our own models in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from nmt_cli.decoding.engine import Hypothesis, SearchSettings
from nmt_cli.decoding.search import search
from nmt_cli.devices import autocast
from nmt_cli.models.interface import Seq2Seq
from nmt_cli.text.batching import pad
from nmt_cli.text.vocab import EOS


class TorchEngine:
    """Engine over a model.

    Args:
        model: The model, on `device`; its mode is left as it was.
        device: Where to compute.
        precision: float32, or bfloat16 for autocast.
    """

    def __init__(self, model: Seq2Seq, device: torch.device, precision: torch.dtype = torch.float32) -> None:
        self.model, self.device, self.precision = model, device, precision
        self.max_source_tokens = model.max_positions

    @torch.inference_mode()
    def translate(self, sources: Sequence[Sequence[int]], settings: SearchSettings) -> list[list[Hypothesis]]:
        """Translate one batch; see `Engine`."""
        training = self.model.training
        self.model.eval()
        ids, visible = pad([np.array([*source, EOS], dtype=np.int32) for source in sources])
        limits = [self._limit(len(source) + 1, settings) for source in sources]
        try:
            with autocast(self.device, self.precision):
                encoded = self.model.encoder(ids.to(self.device), visible.to(self.device))
                return search(self.model, encoded, limits, settings)
        finally:
            self.model.train(training)

    def _limit(self, source_tokens: int, settings: SearchSettings) -> int:
        limit = settings.limit(source_tokens)
        return limit if self.model.max_positions is None else min(limit, self.model.max_positions)
