"""Forced decoding: the log-probabilities that a model gives to translations it is handed.

Every target token is predicted from the source and the true tokens before it, a whole sentence in one pass. Only real tokens
reach the output layer, a block of rows at a time: the logits of a whole batch are never in memory at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from nmt_cli.errors import DataError
from nmt_cli.models.interface import Seq2Seq
from nmt_cli.text.batching import group_by_budget, make_batch
from nmt_cli.text.tokenizers import Tokenizer
from nmt_cli.text.vocab import EOS, SPECIALS, UNK

BLOCK_ROWS = 512


@torch.inference_mode()
def forced_log_probabilities(
    model: Seq2Seq, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], device: torch.device
) -> list[NDArray[np.float32]]:
    """Return the log-probability of every token of each target, given its source, from one forced pass over a batch.

    Args:
        model: In evaluation mode, on `device`.
        sources: Ids of each source sentence, without end mark; none is empty.
        targets: Ids of the translation of each, without end mark.
        device: Where to compute.

    Returns:
        For each sentence float32 `(T,)`: one number for each token of the target, the last one for its end mark.
    """
    source_ids, target_ids = ([np.array(ids, dtype=np.int32) for ids in side] for side in (sources, targets))
    batch = make_batch(source_ids, target_ids, range(len(sources))).to(device)
    output = model(batch.source_ids, batch.source_visible, batch.target_in)
    hidden = output.hidden[batch.target_visible]  # (B, T, D) -> (N, D)
    truth = batch.target_out[batch.target_visible]  # (B, T) -> (N,)
    blocks = []
    for start in range(0, len(hidden), BLOCK_ROWS):
        logits = model.decoder.project(hidden[start : start + BLOCK_ROWS]).float()  # (n, D) -> (n, V)
        true_logits = logits.gather(1, truth[start : start + BLOCK_ROWS, None]).squeeze(1)  # (n, V) -> (n,)
        blocks.append(true_logits - logits.logsumexp(dim=1))
    ends = np.cumsum([len(target) + 1 for target in targets])
    return np.split(torch.cat(blocks).cpu().numpy(), ends[:-1])


def perplexity(log_probability: float, tokens: int) -> float:
    """Return exp(-log-probability / tokens), at most exp(700) as in training."""
    return math.exp(min(-log_probability / tokens, 700.0))


@dataclass(frozen=True)
class ScoredLine:
    """A line, a translation of it, and what a model makes of the two.

    Args:
        line: Line number, from 1.
        source: The raw line.
        target: The raw translation.
        tokens: Names of the target's tokens, its end mark last; none where the source is blank.
        log_probabilities: Of each of `tokens`; natural logarithm.
        log_probability: Their sum. A blank source never reaches the model: 0 where the target is blank as well, since a blank
            line is all that it is ever translated to; None, no score, where the target is not.
    """

    line: int
    source: str
    target: str
    tokens: tuple[str, ...]
    log_probabilities: tuple[float, ...]
    log_probability: float | None

    @property
    def unknown(self) -> int:
        """Number of tokens that are not in the vocabulary and were scored as the unknown token."""
        return self.tokens.count(SPECIALS[UNK])

    @property
    def perplexity(self) -> float | None:
        """Perplexity per token, the end mark included; None where there are no tokens."""
        if self.log_probability is None or not self.tokens:
            return None
        return perplexity(self.log_probability, len(self.tokens))


class ForcedScorer:
    """Scores raw lines and given translations of them.

    Args:
        model: In evaluation mode, on `device`.
        source: Tokenizer of the source side.
        target: Tokenizer of the target side.
        device: Where to compute.
        batch_tokens: Sentences x longest side with its end mark, padding included, in one batch.
        max_source_length: Longest source in tokens, end mark included; longer ones are cut, with a warning.
        warn: Called with each warning.
        on_progress: Called with the number of lines done since the last call.
    """

    def __init__(
        self,
        model: Seq2Seq,
        source: Tokenizer,
        target: Tokenizer,
        *,
        device: torch.device,
        batch_tokens: int,
        max_source_length: int,
        warn: Callable[[str], None],
        on_progress: Callable[[int], None],
    ) -> None:
        self._model, self._source, self._target, self._device = model, source, target, device
        self._batch_tokens, self._warn, self._on_progress = batch_tokens, warn, on_progress
        self._max_source_tokens = min(max_source_length, model.max_positions or max_source_length)

    def score_chunk(self, pairs: Sequence[tuple[str, str]], *, first_line: int = 1) -> list[ScoredLine]:
        """Return the score of each pair (line, translation) in order; the first has line number `first_line`.

        Raises:
            DataError: A translation is longer than the model can take.
        """
        encoded = [self._encode(*pair, number) for number, pair in enumerate(pairs, start=first_line)]
        asked = [index for index, (source, _) in enumerate(encoded) if source]
        found: list[tuple[float, ...]] = [()] * len(pairs)
        self._on_progress(len(pairs) - len(asked))
        for batch in self._batches(asked, encoded):
            sources, targets = zip(*(encoded[index] for index in batch), strict=True)
            rows = forced_log_probabilities(self._model, sources, targets, self._device)
            for index, row in zip(batch, rows, strict=True):
                found[index] = tuple(row.tolist())
            self._on_progress(len(batch))
        return [self._scored(first_line + index, pair, encoded[index][1], found[index]) for index, pair in enumerate(pairs)]

    def _encode(self, source: str, target: str, number: int) -> tuple[list[int], list[int]]:
        """Return the ids of line `number`, the source cut to the limit.

        Raises:
            DataError: The target is too long.
        """
        source_ids, target_ids = self._source.encode(source), self._target.encode(target)
        limit, positions = self._max_source_tokens, self._model.max_positions
        if target_ids and not source_ids:
            self._warn(f"line {number}: the source is blank, but the target is not: it has no score")
        if len(source_ids) + 1 > limit:
            found = f"the source has {len(source_ids) + 1} tokens with its end mark"
            self._warn(f"line {number}: {found}, more than the limit of {limit}; it was cut")
        if source_ids and positions is not None and len(target_ids) + 1 > positions:
            raise DataError(
                f"line {number}: the target has {len(target_ids) + 1} tokens with its end mark, but this model has learned "
                f"positions for {positions}; shorten it, or train with sinusoidal positions or a larger model.max_positions"
            )
        return source_ids[: max(1, limit - 1)], target_ids

    def _batches(self, asked: Sequence[int], encoded: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[NDArray[np.int64]]:
        """Return the indices `asked` in batches of similar lengths, longest first."""
        if not asked:
            return []
        lengths = np.array([max(map(len, pair)) + 1 for pair in encoded], dtype=np.int64)
        order = np.array(sorted(asked, key=lambda index: -lengths[index]), dtype=np.int64)
        return group_by_budget(order, lengths, tokens=self._batch_tokens, sentences=None)

    def _scored(
        self, number: int, pair: tuple[str, str], target: Sequence[int], log_probabilities: tuple[float, ...]
    ) -> ScoredLine:
        if log_probabilities:
            tokens = tuple(self._target.vocabulary.tokens([*target, EOS]))
            return ScoredLine(number, *pair, tokens, log_probabilities, sum(log_probabilities))
        return ScoredLine(number, *pair, (), (), None if target else 0.0)
