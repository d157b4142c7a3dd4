"""The Transformer: stacks of attention and feed-forward layers, with layer norm after each sum (post) or before it (pre).

Reference: Vaswani et al. 2017, section 3; pre-norm: Xiong et al. 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self, cast

import torch
from torch import Tensor, nn

from nmt_cli.attention.multihead import KeysValues, MultiHeadAttention
from nmt_cli.models.dropout import add_dropped
from nmt_cli.models.interface import Decoder, DecoderOutput, DecoderState, Encoded, Encoder, Weights, split_order


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2 at each position (equation 2).

    Args:
        width: D, of input and output.
        hidden: Width inside.
        dropout: Applied inside.
        output_width: Width of the output where it is not D.
    """

    def __init__(self, width: int, hidden: int, *, dropout: nn.Module, output_width: int | None = None) -> None:
        super().__init__()
        self.inner = nn.Linear(width, hidden)
        self.outer = nn.Linear(hidden, output_width or width)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """Return `(…, D)` of `(…, D)`."""
        inner = self.inner(x.reshape(-1, x.shape[-1])).relu_()  # flat: of a view, autograd would copy what is changed in place
        result: Tensor = self.outer(self.dropout(inner))
        return result.view(*x.shape[:-1], result.shape[-1])


class Residual(nn.Module):
    """Adds what a sublayer makes of x to x, with layer norm over the last axis.

    Args:
        width: D.
        pre_norm: x + dropout(sublayer(norm(x))) instead of norm(x + dropout(sublayer(x))).
        dropout: Applied to what is added.
    """

    def __init__(self, width: int, *, pre_norm: bool, dropout: nn.Module) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.pre_norm = pre_norm
        self.dropout = dropout

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return `(B, T, D)`."""
        if self.pre_norm:
            return add_dropped(x, sublayer(self.norm(x)), self.dropout)
        normed: Tensor = self.norm(add_dropped(x, sublayer(x), self.dropout))
        return normed


@dataclass(frozen=True)
class TransformerParts:
    """Sizes and shared parts of a stack's layers."""

    width: int
    heads: int
    feed_forward: int
    pre_norm: bool
    attention_bias: bool
    dropout: nn.Module
    attention_dropout: nn.Module
    activation_dropout: nn.Module

    def attention(self) -> MultiHeadAttention:
        """Return a new multi-head attention."""
        return MultiHeadAttention(self.width, self.heads, dropout=self.attention_dropout, bias=self.attention_bias)

    def residual(self) -> Residual:
        """Return a new residual connection."""
        return Residual(self.width, pre_norm=self.pre_norm, dropout=self.dropout)

    def feed_forward_layer(self) -> FeedForward:
        """Return a new feed-forward layer."""
        return FeedForward(self.width, self.feed_forward, dropout=self.activation_dropout)

    def final_norm(self) -> nn.Module:
        """Return the norm after the last layer: pre-norm stacks need one."""
        return nn.LayerNorm(self.width) if self.pre_norm else nn.Identity()


class Embedder(nn.Module):
    """Token embeddings times √D, plus positions, then dropout (section 3.4 and 3.5).

    Args:
        embedding: The table.
        positions: Adds positions, given where they start.
        dropout: Applied to the sum.
    """

    def __init__(self, embedding: nn.Embedding, positions: nn.Module, dropout: nn.Module) -> None:
        super().__init__()
        self.embedding = embedding
        self.positions = positions
        self.dropout = dropout
        self.scale = math.sqrt(embedding.embedding_dim)

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """Return `(B, T, D)` of ids `(B, T)` at positions from `start` on."""
        embedded: Tensor = self.dropout(self.positions(self.embedding(ids) * self.scale, start))
        return embedded


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each with its residual connection (section 3.1)."""

    def __init__(self, parts: TransformerParts) -> None:
        super().__init__()
        self.self_attention = parts.attention()
        self.feed_forward = parts.feed_forward_layer()
        self.attention_residual = parts.residual()
        self.feed_forward_residual = parts.residual()

    def forward(self, x: Tensor, visible: Tensor, *, want_weights: bool) -> tuple[Tensor, Tensor | None]:
        """Return `(B, S, D)` and weights `(B, H, S, S)` or None."""
        kept: list[Tensor | None] = []

        def attend(normed: Tensor) -> Tensor:
            memory = self.self_attention.project(normed)
            context, weights = self.self_attention(normed, memory, visible, want_weights=want_weights)
            kept.append(weights)
            return cast(Tensor, context)

        x = self.attention_residual(x, attend)
        return self.feed_forward_residual(x, self.feed_forward), kept[0]


class TransformerEncoder(Encoder):
    """Embedder and a stack of layers.

    Args:
        embedder: Ids to vectors with positions.
        parts: What layers are made of.
        layers: Number of layers.
    """

    def __init__(self, embedder: Embedder, parts: TransformerParts, layers: int) -> None:
        super().__init__()
        self.embedder = embedder
        self.layers = nn.ModuleList(EncoderLayer(parts) for _ in range(layers))
        self.norm = parts.final_norm()

    def forward(self, source_ids: Tensor, source_visible: Tensor, *, want_weights: bool = False) -> Encoded:
        """Encode. Weights: `encoder.0` … `(B, H, S, S)`."""
        x = self.embedder(source_ids)  # (B, S) -> (B, S, D)
        weights: Weights = {}
        for index, layer in enumerate(self.layers):
            x, wanted = layer(x, source_visible, want_weights=want_weights)
            if wanted is not None:
                weights[f"encoder.{index}"] = wanted
        return Encoded(self.norm(x), source_visible, weights=weights)


TIDY_STEPS = 4
"""Steps after which what no hypothesis came by is left out of the past."""


@dataclass(frozen=True)
class TransformerState:
    """Keys and values of each layer: of the target so far (None before the first token), and of the source.

    The hypotheses of a sentence share their storage: each step adds a position to the past for each row, and `ancestry` says
    which of all these positions a hypothesis came by. So a beam goes on without anything being copied; every few steps what
    no hypothesis came by is left out.

    Args:
        past: `(B, H, positions, K)` of each layer, B sentences.
        source: `(B, H, S, K)` of each layer.
        visible: Bool `(B, S)`.
        position: Tokens so far, of any one hypothesis.
        beams: Rows of each sentence.
        ancestry: Bool `(B, beams, positions)`; None while each sentence has had one row only.
    """

    past: tuple[KeysValues | None, ...]
    source: tuple[KeysValues, ...]
    visible: Tensor
    position: int = 0
    beams: int = 1
    ancestry: Tensor | None = None

    def reorder(self, order: Tensor, beams: int | None = None) -> Self:
        """Return the state of the rows `order`."""
        beams = beams or self.beams
        rows, sentences = split_order(order, self.beams, beams, len(self.visible))
        state = self if sentences is None else self._with_source_of(sentences)
        if beams == 1 and self.ancestry is None:
            past = self.past if sentences is None else tuple(layer and layer.reorder(sentences) for layer in self.past)
            return replace(state, past=past)
        ancestry = self.ancestry if self.ancestry is not None else self._all_visible()
        if sentences is not None:
            ancestry = ancestry.index_select(0, sentences)
        ancestry = ancestry.gather(1, rows.unsqueeze(2).expand(-1, -1, ancestry.shape[2]))
        state = replace(state, beams=beams, ancestry=ancestry)
        if sentences is None and self.position % TIDY_STEPS:
            return state
        return state._tidied(torch.arange(len(ancestry), device=order.device) if sentences is None else sentences)

    def _with_source_of(self, sentences: Tensor) -> Self:
        return replace(
            self,
            source=tuple(layer.reorder(sentences) for layer in self.source),
            visible=self.visible.index_select(0, sentences),
        )

    def _tidied(self, sentences: Tensor) -> Self:
        """Return this state with the past of the sentences only, and of that only what a hypothesis came by."""
        assert self.ancestry is not None
        needed = self.ancestry.any(dim=1)  # (B, positions)
        most = int(needed.sum(dim=1).amax()) if needed.numel() else 0
        positions = needed.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :most]  # the needed ones first
        ancestry = self.ancestry.gather(2, positions.unsqueeze(1).expand(-1, self.beams, -1))
        room = TIDY_STEPS * self.beams
        return replace(
            self, past=tuple(layer and layer.pick(sentences, positions, room) for layer in self.past), ancestry=ancestry
        )

    def _all_visible(self) -> Tensor:
        first = self.past[0] if self.past else None
        positions = 0 if first is None else first.keys.shape[2]
        return torch.ones(len(self.visible), 1, positions, dtype=torch.bool, device=self.visible.device)

    def visible_past(self) -> Tensor | None:
        """Return the ancestry with each row's own next position, bool `(B, beams, positions + beams)`; None as there."""
        if self.ancestry is None:
            return None
        own = torch.eye(self.beams, dtype=torch.bool, device=self.visible.device).expand(len(self.visible), -1, -1)
        return torch.cat((self.ancestry, own), dim=2)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the source, feed-forward (section 3.1)."""

    def __init__(self, parts: TransformerParts) -> None:
        super().__init__()
        self.self_attention = parts.attention()
        self.cross_attention = parts.attention()
        self.feed_forward = parts.feed_forward_layer()
        self.self_residual = parts.residual()
        self.cross_residual = parts.residual()
        self.feed_forward_residual = parts.residual()

    def forward(
        self,
        x: Tensor,
        past: KeysValues | None,
        source: KeysValues,
        visible: Tensor,
        visible_past: Tensor | None = None,
        *,
        want_weights: bool,
    ) -> tuple[Tensor, KeysValues, list[Tensor | None]]:
        """Return `(B, T, D)`, the grown past, and the weights of self- and cross-attention (or None).

        `visible_past` `(B, T, positions)` says what of the grown past each query may see; None: what is not after it.
        """
        kept: list[Tensor | None] = []
        grown: list[KeysValues] = []

        def attend_self(normed: Tensor) -> Tensor:
            new = self.self_attention.project(normed)
            grown.append(new if past is None else past.append(new))
            context, weights = self.self_attention(
                normed, grown[0], visible_past, causal=visible_past is None, want_weights=want_weights
            )
            kept.append(weights)
            return cast(Tensor, context)

        def attend_source(normed: Tensor) -> Tensor:
            context, weights = self.cross_attention(normed, source, visible, want_weights=want_weights)
            kept.append(weights)
            return cast(Tensor, context)

        x = self.self_residual(x, attend_self)
        x = self.cross_residual(x, attend_source)
        return self.feed_forward_residual(x, self.feed_forward), grown[0], kept


class TransformerDecoder(Decoder):
    """Embedder, a stack of layers, and the layer to the vocabulary.

    Args:
        embedder: Ids to vectors with positions.
        parts: What layers are made of.
        layers: Number of layers.
        output: Layer from hidden to the vocabulary.
    """

    def __init__(self, embedder: Embedder, parts: TransformerParts, layers: int, output: nn.Linear) -> None:
        super().__init__()
        self.embedder = embedder
        self.layers = nn.ModuleList(DecoderLayer(parts) for _ in range(layers))
        self.norm = parts.final_norm()
        self.output = output

    def start(self, encoded: Encoded) -> TransformerState:
        """Return the state before the first token; the source's keys and values are projected here, once a sentence."""
        source = tuple(cast(DecoderLayer, layer).cross_attention.project(encoded.memory) for layer in self.layers)
        return TransformerState((None,) * len(self.layers), source, encoded.visible)

    def forward(
        self, target_ids: Tensor, state: DecoderState, *, want_weights: bool = False
    ) -> tuple[DecoderOutput, TransformerState]:
        """Read T tokens. Weights: `decoder.0` … `(B, H, T, all tokens so far)` and `cross.0` … `(B, H, T, S)`."""
        assert isinstance(state, TransformerState)
        rows, length = target_ids.shape
        assert state.beams == 1 or (length == 1 and not want_weights)
        x = self.embedder(target_ids, state.position)  # (B, T) -> (B, T, D)
        if state.beams > 1:
            x = x.view(-1, state.beams, x.shape[2])  # (B x beams, 1, D) -> (B, beams, D): a sentence's rows as its queries
        visible_past = state.visible_past()
        weights: Weights = {}
        past: list[KeysValues] = []
        for index, layer in enumerate(self.layers):
            x, grown, wanted = layer(
                x, state.past[index], state.source[index], state.visible, visible_past, want_weights=want_weights
            )
            past.append(grown)
            for name, values in zip(("decoder", "cross"), wanted, strict=True):
                if values is not None:
                    weights[f"{name}.{index}"] = values
        after = replace(state, past=tuple(past), position=state.position + length, ancestry=visible_past)
        return DecoderOutput(self.norm(x).view(rows, length, -1), weights), after

    @property
    def output_layer(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of the output layer."""
        return self.output.weight, self.output.bias
