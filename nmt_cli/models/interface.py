"""The one contract between models and everything else: encoder, decoder, and states that are values.

B sentences, S source length, T target length, D model width, H heads, V vocabulary. Modules hold parameters only; what a
decoder remembers between steps is a `DecoderState` that the caller owns. The same call trains (T tokens) and steps (one token).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Protocol, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

Weights = dict[str, Tensor]
"""Name such as `encoder.0`, `decoder.1`, `cross.0` -> attention weights `(B, H, rows, columns)`."""


@dataclass(frozen=True)
class Encoded:
    """What an encoder made of B source sentences.

    Args:
        memory: `(B, S, D)`, what a decoder attends to.
        visible: Bool `(B, S)`, True at real tokens.
        final: State at the last real token, one tensor `(layers, B, D)` per kind of state; empty for models without.
        weights: Attention weights, when they were wanted.
    """

    memory: Tensor
    visible: Tensor
    final: tuple[Tensor, ...] = ()
    weights: Weights = field(default_factory=dict)


@dataclass(frozen=True)
class DecoderOutput:
    """What a decoder made of T target tokens: `hidden` `(B, T, D)`, and attention weights when they were wanted."""

    hidden: Tensor
    weights: Weights = field(default_factory=dict)


class DecoderState(Protocol):
    """Everything a decoder needs of the past, source side included.

    It has as many rows for each sentence, one after the other: one at the start, and with a beam those of its hypotheses, which
    share the source side.
    """

    def reorder(self, order: Tensor, beams: int | None = None) -> Self:
        """Return the state of the rows `order`.

        An order may repeat and leave out sentences, and hypotheses within their sentence; the rows of a sentence stay together.

        Args:
            order: `(B' x beams,)` int64, which row each comes from.
            beams: Rows of each sentence from now on; None: as before.
        """


def split_order(order: Tensor, before: int, beams: int, sentences: int) -> tuple[Tensor, Tensor | None]:
    """Divide an order of rows.

    Args:
        order: `(B' x beams,)`, as `DecoderState.reorder` takes it.
        before: Rows that each sentence had.
        beams: Rows that each sentence gets.
        sentences: B, how many there were.

    Returns:
        For each row its number within its sentence before, `(B', beams)`; and the sentences that are left, `(B',)`, or None
        where they are the B ones in their order, so that nothing of the source side need be copied.
    """
    grouped = order.view(-1, beams)
    kept = grouped[:, 0] // before
    same = len(kept) == sentences and torch.equal(kept, torch.arange(sentences, device=order.device))
    return grouped % before, None if same else kept


class Encoder(nn.Module, ABC):
    """Source ids to memory."""

    @abstractmethod
    def forward(self, source_ids: Tensor, source_visible: Tensor, *, want_weights: bool = False) -> Encoded:
        """Encode.

        Args:
            source_ids: `(B, S)` int64, with end marks.
            source_visible: `(B, S)` bool.
            want_weights: Give attention weights too.
        """


class Decoder(nn.Module, ABC):
    """Target tokens so far to what comes next."""

    @abstractmethod
    def start(self, encoded: Encoded) -> DecoderState:
        """Return the state before the first token, one row for each sentence."""

    @abstractmethod
    def forward(
        self, target_ids: Tensor, state: DecoderState, *, want_weights: bool = False
    ) -> tuple[DecoderOutput, DecoderState]:
        """Read the next T tokens.

        Args:
            target_ids: `(B, T)` int64, B the rows of the state; the begin mark is the first token of a sentence. T is 1 where
                sentences have several rows.
            state: The state before them.
            want_weights: Give attention weights too (not where sentences have several rows).

        Returns:
            The output, and the state after the T tokens.
        """

    @property
    @abstractmethod
    def output_layer(self) -> tuple[Tensor, Tensor | None]:
        """Weight `(V, D)` and bias `(V,)` or None of the layer from hidden to vocabulary."""

    def project(self, hidden: Tensor) -> Tensor:
        """Return logits `(…, V)` of hidden `(…, D)`."""
        weight, bias = self.output_layer
        return functional.linear(hidden, weight, bias)


class Seq2Seq(nn.Module):
    """An encoder and a decoder.

    Args:
        encoder: Source side.
        decoder: Target side.
        max_positions: Longest sentence in tokens that the model can take; None: no limit.
    """

    def __init__(self, encoder: Encoder, decoder: Decoder, *, max_positions: int | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.max_positions = max_positions

    def forward(
        self, source_ids: Tensor, source_visible: Tensor, target_in: Tensor, *, want_weights: bool = False
    ) -> DecoderOutput:
        """Return the decoder's output for whole sentences `target_in` `(B, T)` (teacher forcing); weights of both sides."""
        encoded = self.encoder(source_ids, source_visible, want_weights=want_weights)
        output, _ = self.decoder(target_in, self.decoder.start(encoded), want_weights=want_weights)
        return DecoderOutput(output.hidden, {**encoded.weights, **output.weights})


def count_parameters(module: nn.Module) -> int:
    """Return the number of trained numbers, shared ones counted once."""
    return sum(parameter.numel() for parameter in module.parameters())


def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Set all weights: Xavier-uniform matrices, embeddings from N(0, 1/D), zero biases.

    Reference: Glorot, Bengio 2010.

    Args:
        module: The model, on the CPU.
        generator: Where the randomness comes from.
    """
    embeddings = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    norms = {id(parameter) for part in module.modules() if isinstance(part, nn.LayerNorm) for parameter in part.parameters()}
    for parameter in module.parameters():
        if id(parameter) in embeddings:
            nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5, generator=generator)
        elif parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter, generator=generator)
        elif id(parameter) not in norms:
            nn.init.zeros_(parameter)
