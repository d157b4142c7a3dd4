"""Attention as data: every layer and head of one sentence pair, each map with its row and column tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from nmt_cli.models.interface import Seq2Seq
from nmt_cli.text.vocab import BOS, EOS

Kind = Literal["encoder", "decoder", "cross"]
KINDS: tuple[Kind, ...] = ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class AttentionMap:
    """Weights of one layer: `(H, rows, columns)` float32; each row sums to 1.

    Args:
        kind: `encoder` (source x source), `decoder` (outputs x inputs so far), or `cross` (outputs x source).
        layer: From 0.
        row_tokens: What asks: the tokens of the rows.
        column_tokens: What is looked at: the tokens of the columns.
        weights: The weights of every head.
    """

    kind: Kind
    layer: int
    row_tokens: tuple[str, ...]
    column_tokens: tuple[str, ...]
    weights: NDArray[np.float32]


@torch.inference_mode()
def forced_maps(
    model: Seq2Seq,
    source: Sequence[int],
    target: Sequence[int],
    *,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    device: torch.device,
) -> list[AttentionMap]:
    """Return every map of one forced pass over a pair, without padding.

    Rows of decoder and cross maps are the outputs `target_tokens`; columns of decoder maps are the inputs: the begin mark and
    all outputs but the last.

    Args:
        model: In evaluation mode, on `device`.
        source: Source ids without end mark.
        target: Output ids, with the end mark where there was one.
        source_tokens: Names of the source ids and of the end mark.
        target_tokens: Names of the output ids.
        device: Where to compute.
    """
    source_ids = torch.tensor([[*source, EOS]], device=device)
    target_in = torch.tensor([[BOS, *target[:-1]]], device=device)
    output = model(source_ids, torch.ones_like(source_ids, dtype=torch.bool), target_in, want_weights=True)
    outputs, inputs, sources = tuple(target_tokens), ("<bos>", *target_tokens[:-1]), tuple(source_tokens)
    axes = {"encoder": (sources, sources), "decoder": (outputs, inputs), "cross": (outputs, sources)}
    maps = []
    for kind in KINDS:
        layers = sorted(int(name.partition(".")[2]) for name in output.weights if name.startswith(f"{kind}."))
        for layer in layers:
            weights = output.weights[f"{kind}.{layer}"][0].float().cpu().numpy()
            maps.append(AttentionMap(kind, layer, *axes[kind], weights))
    return maps
