"""Batches: sentences of similar length side by side, in an order that can be saved and taken up again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.text.examples import Examples, Ids
from nmt_cli.text.vocab import BOS, EOS, PAD

POOL_BATCHES = 100

Resample = Callable[[int, int, NDArray[np.int64]], tuple[list[Ids], list[Ids]]]
"""Epoch, batch and indices of examples -> sources and targets to be used in the place of the usual ones."""


@dataclass(frozen=True)
class Batch:
    """B sentence pairs, padded to S source and T target tokens.

    Args:
        source_ids: `(B, S)` int64, each sentence with its end mark.
        source_visible: `(B, S)` bool, True where there is a token.
        target_in: `(B, T)` int64, what the decoder reads: begin mark, then the sentence.
        target_out: `(B, T)` int64, what it should say: the sentence, then the end mark.
        target_visible: `(B, T)` bool, True where there is a token.
        tokens: Number of real target tokens, end marks included.
        lines: Corpus line numbers.
    """

    source_ids: Tensor
    source_visible: Tensor
    target_in: Tensor
    target_out: Tensor
    target_visible: Tensor
    tokens: int
    lines: tuple[int, ...]

    def to(self, device: torch.device) -> Batch:
        """Return the batch with its tensors on `device`."""
        if device.type == "cpu":
            return self
        return replace(
            self,
            source_ids=self.source_ids.to(device),
            source_visible=self.source_visible.to(device),
            target_in=self.target_in.to(device),
            target_out=self.target_out.to(device),
            target_visible=self.target_visible.to(device),
        )


def pad(sequences: Sequence[Sequence[int] | NDArray[np.int32]]) -> tuple[Tensor, Tensor]:
    """Return ids `(B, S)` int64, padded on the right, and which are real `(B, S)` bool."""
    longest = max(len(sequence) for sequence in sequences)
    ids = np.full((len(sequences), longest), PAD, dtype=np.int64)
    visible = np.zeros((len(sequences), longest), dtype=np.bool_)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = sequence
        visible[row, : len(sequence)] = True
    return torch.from_numpy(ids), torch.from_numpy(visible)


def make_batch(sources: Sequence[Ids], targets: Sequence[Ids], lines: Sequence[int] | NDArray[np.int64]) -> Batch:
    """Return the batch of pairs given as ids without marks, with their corpus line numbers."""
    end, begin = np.array([EOS], dtype=np.int32), np.array([BOS], dtype=np.int32)
    source_ids, source_visible = pad([np.concatenate((source, end)) for source in sources])
    target_in, _ = pad([np.concatenate((begin, target)) for target in targets])
    target_out, target_visible = pad([np.concatenate((target, end)) for target in targets])
    tokens = sum(len(target) + 1 for target in targets)
    return Batch(source_ids, source_visible, target_in, target_out, target_visible, tokens, tuple(int(n) for n in lines))


def batch_of(examples: Examples, indices: Sequence[int] | NDArray[np.int64]) -> Batch:
    """Return the batch of the examples at `indices`."""
    sources, targets = [examples.source(int(i)) for i in indices], [examples.target(int(i)) for i in indices]
    return make_batch(sources, targets, examples.lines[np.asarray(indices)])


def group_by_budget(
    order: NDArray[np.int64], lengths: NDArray[np.int64], *, tokens: int | None, sentences: int | None
) -> list[NDArray[np.int64]]:
    """Cut `order` into batches whose sentences x longest (padding included) stay within `tokens`, or of `sentences` each."""
    batches = []
    start = longest = 0
    for position, index in enumerate(order):
        longest = max(longest, int(lengths[index]))
        count = position - start + 1
        full = count > 1 and (
            (tokens is not None and count * longest > tokens) or (sentences is not None and count > sentences)
        )
        if full:
            batches.append(order[start:position])
            start, longest = position, int(lengths[index])
    batches.append(order[start:])
    return batches


class BatchSampler:
    """Shuffled batches of similar lengths, epoch after epoch.

    The order of an epoch follows from (seed, epoch) alone, so (epoch, batch) is the whole position.

    Args:
        examples: The pairs.
        tokens: Budget of a batch in sentences x longest target, padding included, or None.
        sentences: Sentences of a batch, or None.
        seed: Seed of the order.
        resample: Gives other ids for the pairs of a batch, or None. Batches are made up by the usual lengths all the same.
    """

    def __init__(
        self,
        examples: Examples,
        *,
        tokens: int | None,
        sentences: int | None,
        seed: int,
        resample: Resample | None = None,
    ) -> None:
        self._examples, self._resample = examples, resample
        self._tokens, self._sentences, self._seed = tokens, sentences, seed
        self._source_lengths, self._target_lengths = examples.source_lengths, examples.target_lengths
        self.epoch = 0
        self.position = 0
        self._batches = self._order(0)

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches of the current epoch."""
        return len(self._batches)

    def next_batch(self) -> Batch:
        """Return the next batch; an exhausted epoch is followed by the next one."""
        if self.position == len(self._batches):
            self.move_to(self.epoch + 1, 0)
        indices = self._batches[self.position]
        self.position += 1
        if self._resample is None:
            return batch_of(self._examples, indices)
        sources, targets = self._resample(self.epoch, self.position - 1, indices)
        return make_batch(sources, targets, self._examples.lines[indices])

    @property
    def epoch_is_over(self) -> bool:
        """Whether the last batch of the epoch has been given."""
        return self.position == len(self._batches)

    def move_to(self, epoch: int, position: int) -> None:
        """Go to batch `position` of `epoch`."""
        if epoch != self.epoch:
            self._batches = self._order(epoch)
        self.epoch, self.position = epoch, position

    def _order(self, epoch: int) -> list[NDArray[np.int64]]:
        random = np.random.default_rng([self._seed, epoch])
        shuffled = random.permutation(len(self._examples))
        batches = []
        for pool in self._pools(shuffled):
            ranked = pool[np.lexsort((self._source_lengths[pool], self._target_lengths[pool]))]
            batches += group_by_budget(ranked, self._target_lengths, tokens=self._tokens, sentences=self._sentences)
        return [batches[i] for i in random.permutation(len(batches))]

    def _pools(self, shuffled: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Yield stretches of about `POOL_BATCHES` batches; batches are sorted by length inside a stretch only."""
        mean = float(self._target_lengths.mean())
        batch = self._sentences or max(1, int((self._tokens or 1) / mean))
        size = batch * POOL_BATCHES
        for start in range(0, len(shuffled), size):
            yield shuffled[start : start + size]


def in_order(examples: Examples, *, tokens: int) -> Iterator[Batch]:
    """Yield every pair once, sorted by length, in batches of at most `tokens` sentences x longest side."""
    lengths = np.maximum(examples.source_lengths, examples.target_lengths)
    for group in group_by_budget(np.argsort(lengths, kind="stable"), lengths, tokens=tokens, sentences=None):
        yield batch_of(examples, group)
