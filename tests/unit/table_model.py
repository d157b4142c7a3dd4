"""A model whose log-probabilities are a table: random, but always the same. Sequences over it can be counted through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from nmt_cli.decoding.beam import search
from nmt_cli.decoding.engine import Hypothesis, SearchSettings
from nmt_cli.models.interface import Decoder, DecoderOutput, DecoderState, Encoded, Encoder, Seq2Seq
from nmt_cli.text.vocab import BOS, EOS

VOCABULARY = 9  # four specials and five words
Prefix = tuple[int, ...]


@cache
def table(sentence: int, prefix: Prefix) -> tuple[float, ...]:
    """Log-probabilities of the next token of a sentence after a prefix: random, but always the same."""
    logits = np.random.default_rng([sentence, len(prefix), *prefix]).normal(size=VOCABULARY)
    logits[EOS] += 0.3 * len(prefix) - 0.5  # ends become likelier
    return tuple((logits - np.logaddexp.reduce(logits)).tolist())


@dataclass(frozen=True)
class TableState:
    rows: tuple[tuple[int, Prefix], ...]

    def reorder(self, order: Tensor, beams: int | None = None) -> TableState:
        return TableState(tuple(self.rows[index] for index in order.tolist()))


class TableEncoder(Encoder):
    """The only token of a source is its number in the table."""

    def forward(self, source_ids: Tensor, source_visible: Tensor, *, want_weights: bool = False) -> Encoded:
        return Encoded(source_ids.unsqueeze(-1), source_visible)


class TableDecoder(Decoder):
    """Hidden states are the log-probabilities of `table`, and the output layer leaves them as they are."""

    def start(self, encoded: Encoded) -> DecoderState:
        return TableState(tuple((int(number), ()) for number in encoded.memory[:, 0, 0]))

    def forward(
        self, target_ids: Tensor, state: DecoderState, *, want_weights: bool = False
    ) -> tuple[DecoderOutput, DecoderState]:
        assert isinstance(state, TableState)
        assert target_ids.shape == (len(state.rows), 1)
        after = tuple((n, (*prefix, int(last))) for (n, prefix), last in zip(state.rows, target_ids[:, 0], strict=True))
        assert all(prefix[0] == BOS for _, prefix in after)
        hidden = torch.tensor([[table(n, prefix[1:])] for n, prefix in after], dtype=torch.float32)
        return DecoderOutput(hidden), TableState(after)

    @property
    def output_layer(self) -> tuple[Tensor, Tensor | None]:
        return torch.eye(VOCABULARY), None


def encoded(sentences: Sequence[int]) -> Encoded:
    """Return sentences of the table, encoded."""
    ids = torch.tensor(sentences).unsqueeze(1)
    return TableEncoder().forward(ids, torch.ones_like(ids, dtype=torch.bool))


def run_search(
    sentences: Sequence[int],
    limits: Sequence[int],
    settings: SearchSettings,
    *,
    prefixes: Sequence[Prefix] | None = None,
    lines: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """Search in the table: sentence number `n` has its own random probabilities."""
    model = Seq2Seq(TableEncoder(), TableDecoder())
    return search([model], [encoded(sentences)], limits, settings, prefixes=prefixes, lines=lines)
