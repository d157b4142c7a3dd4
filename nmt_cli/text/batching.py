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
        target_rows: `(tokens,)` int64, where the tokens are in the flattened `(B x T)`; to select them by the mask, a device
            would have to say first how many there are.
        tokens: Number of real target tokens, end marks included.
        lines: Corpus line numbers.
    """

    source_ids: Tensor
    source_visible: Tensor
    target_in: Tensor
    target_out: Tensor
    target_visible: Tensor
    target_rows: Tensor
    tokens: int
    lines: tuple[int, ...]

    def to(self, device: torch.device) -> Batch:
        """Return the batch with its tensors on `device`. To a GPU they go through pinned memory, and nobody waits for it."""
        if device.type == "cpu":
            return self

        def moved(tensor: Tensor) -> Tensor:
            pinned = tensor.pin_memory() if device.type == "cuda" else tensor
            return pinned.to(device, non_blocking=True)

        return replace(
            self,
            source_ids=moved(self.source_ids),
            source_visible=moved(self.source_visible),
            target_in=moved(self.target_in),
            target_out=moved(self.target_out),
            target_visible=moved(self.target_visible),
            target_rows=moved(self.target_rows),
        )


def pad(sequences: Sequence[Sequence[int] | NDArray[np.int32]]) -> tuple[Tensor, Tensor]:
    """Return ids `(B, S)` int64, padded on the right, and which are real `(B, S)` bool."""
    flat, lengths = _flat(sequences)
    visible = _within(lengths, lengths.max())
    return torch.from_numpy(_scattered(flat, visible)), torch.from_numpy(visible)


def make_batch(sources: Sequence[Ids], targets: Sequence[Ids], lines: Sequence[int] | NDArray[np.int64]) -> Batch:
    """Return the batch of pairs given as ids without marks, with their corpus line numbers."""
    source_ids, source_visible = _with_end(*_flat(sources))
    flat, lengths = _flat(targets)
    target_out, target_visible = _with_end(flat, lengths)
    target_in = np.full_like(target_out, PAD)
    target_in[:, 0] = BOS
    target_in[:, 1:][target_visible[:, 1:]] = flat  # a sentence with its begin mark is as long as with its end mark
    target_rows = np.flatnonzero(target_visible)
    return Batch(
        source_ids=torch.from_numpy(source_ids),
        source_visible=torch.from_numpy(source_visible),
        target_in=torch.from_numpy(target_in),
        target_out=torch.from_numpy(target_out),
        target_visible=torch.from_numpy(target_visible),
        target_rows=torch.from_numpy(target_rows),
        tokens=len(target_rows),
        lines=tuple(np.asarray(lines).tolist()),
    )


def _flat(sequences: Sequence[Sequence[int] | NDArray[np.int32]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all ids one after the other, and the length of each sequence `(B,)`."""
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    return np.concatenate(sequences, dtype=np.int64, casting="unsafe"), lengths  # an empty list would be of floats


def _within(lengths: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
    """Return bool `(B, size)`, True at the first positions of each row, as many as its length."""
    return np.arange(size) < lengths[:, None]


def _scattered(flat: NDArray[np.int64], visible: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return ids of the shape of `visible`, those of `flat` row by row where it is True, padding elsewhere."""
    ids = np.full(visible.shape, PAD, dtype=np.int64)
    ids[visible] = flat
    return ids


def _with_end(flat: NDArray[np.int64], lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return padded ids `(B, longest + 1)` with an end mark behind each sequence, and which are real."""
    size = lengths.max() + 1
    ids = _scattered(flat, _within(lengths, size))
    ids[np.arange(len(lengths)), lengths] = EOS
    return ids, _within(lengths + 1, size)


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
