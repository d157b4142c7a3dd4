"""Attention as data: every layer and head of sentence pairs, each map with its row and column tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from nmt_cli.errors import ConfigError
from nmt_cli.models.interface import Seq2Seq
from nmt_cli.text.batching import pad
from nmt_cli.text.vocab import BOS, EOS

Kind = Literal["encoder", "decoder", "cross"]
KINDS: tuple[Kind, ...] = ("encoder", "decoder", "cross")
Place = int | Literal["mean"]
"""A layer or a head by its number from 0, or the mean of several."""


@dataclass(frozen=True)
class AttentionMap:
    """Weights of one layer: `(H, rows, columns)` float32; each row sums to 1.

    Args:
        kind: `encoder` (source x source), `decoder` (outputs x inputs so far), or `cross` (outputs x source).
        layer: Which one.
        heads: Which one each of the H matrices is.
        row_tokens: What asks: the tokens of the rows.
        column_tokens: What is looked at: the tokens of the columns.
        weights: The weights of every head.
    """

    kind: Kind
    layer: Place
    heads: tuple[Place, ...]
    row_tokens: tuple[str, ...]
    column_tokens: tuple[str, ...]
    weights: NDArray[np.float32]


@dataclass(frozen=True)
class TokenPair:
    """A source and an output, as ids and as they are shown.

    Args:
        source: Ids without end mark.
        target: Ids, with the end mark where there was one.
        source_tokens: Names of the source ids and of the end mark.
        target_tokens: Names of the output ids.
    """

    source: Sequence[int]
    target: Sequence[int]
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]


@dataclass(frozen=True)
class ForcedPass:
    """What a model makes of a pair that it is given: every map, and the log-probability of the output."""

    maps: list[AttentionMap]
    log_probability: float


@torch.inference_mode()
def forced_passes(model: Seq2Seq, pairs: Sequence[TokenPair], device: torch.device) -> list[ForcedPass]:
    """Return what one forced pass over pairs gives for each of them, without padding.

    Rows of decoder and cross maps are the outputs; columns of decoder maps are the inputs: the begin mark and all outputs but
    the last.

    Args:
        model: In evaluation mode, on `device`.
        pairs: The pairs, all in one batch.
        device: Where to compute.
    """
    source_ids, visible = pad([[*pair.source, EOS] for pair in pairs])
    target_in, _ = pad([[BOS, *pair.target[:-1]] for pair in pairs])
    target_out, _ = pad([pair.target for pair in pairs])
    output = model(source_ids.to(device), visible.to(device), target_in.to(device), want_weights=True)
    logits = model.decoder.project(output.hidden).float()
    chosen = logits.log_softmax(dim=-1).gather(2, target_out.to(device).unsqueeze(2))[..., 0].cpu()  # (B, T, V) -> (B, T)
    arrays = {name: weights.float().cpu().numpy() for name, weights in output.weights.items()}
    return [
        ForcedPass(_maps_of(pair, arrays, row), float(chosen[row, : len(pair.target)].sum())) for row, pair in enumerate(pairs)
    ]


def _maps_of(pair: TokenPair, arrays: dict[str, NDArray[np.float32]], row: int) -> list[AttentionMap]:
    outputs, inputs, sources = pair.target_tokens, ("<bos>", *pair.target_tokens[:-1]), pair.source_tokens
    axes = {"encoder": (sources, sources), "decoder": (outputs, inputs), "cross": (outputs, sources)}
    maps = []
    for kind in KINDS:
        layers = sorted(int(name.partition(".")[2]) for name in arrays if name.startswith(f"{kind}."))
        for layer in layers:
            rows, columns = axes[kind]
            weights = arrays[f"{kind}.{layer}"][row, :, : len(rows), : len(columns)].copy()
            maps.append(AttentionMap(kind, layer, tuple(range(len(weights))), rows, columns, weights))
    return maps


@dataclass(frozen=True)
class Selection:
    """Which maps are wanted, and what is averaged.

    Args:
        kinds: Which kinds; of all of them, those that a model does not have are passed over.
        layers: Which layers, from 0; None: all.
        heads: Which heads, from 0; None: all.
        average_heads: One mean map over the selected heads of each layer.
        average_layers: One mean map over the selected layers of each kind.
    """

    kinds: tuple[Kind, ...] = KINDS
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    average_heads: bool = False
    average_layers: bool = False

    def of(self, maps: Sequence[AttentionMap]) -> list[AttentionMap]:
        """Return the selected maps, averaged as wanted.

        Raises:
            ConfigError: A kind, a layer or a head is not there.
        """
        found: list[AttentionMap] = []
        for kind in self.kinds:
            layers = [one for one in maps if one.kind == kind]
            if not layers and self.kinds != KINDS:
                raise ConfigError(
                    f"--kind {kind}: this model has only {', '.join(dict.fromkeys(m.kind for m in maps))} attention"
                )
            if layers:
                chosen = [self._heads(layers[index]) for index in _checked("--layer", self.layers, len(layers), kind)]
                found += [_mean_layer(chosen)] if self.average_layers else chosen
        return found

    def _heads(self, one: AttentionMap) -> AttentionMap:
        heads = _checked("--head", self.heads, len(one.heads), one.kind)
        weights = one.weights[heads]
        if self.average_heads:
            return replace(one, heads=("mean",), weights=weights.mean(axis=0, keepdims=True))
        return replace(one, heads=tuple(heads), weights=weights)


def _checked(option: str, wanted: tuple[int, ...] | None, count: int, kind: str) -> list[int]:
    if wanted is None:
        return list(range(count))
    for number in wanted:
        if not 0 <= number < count:
            last = f"0 to {count - 1}" if count > 1 else "0 only"
            raise ConfigError(f"{option} {number}: {kind} attention has {option.removeprefix('--')}s {last}")
    return list(wanted)


def _mean_layer(layers: Sequence[AttentionMap]) -> AttentionMap:
    return replace(layers[0], layer="mean", weights=np.mean([one.weights for one in layers], axis=0))
