"""Batches: sentences of similar length side by side, in an order that can be saved and taken up again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.text.examples import Examples, Ids
from nmt_cli.text.vocab import BOS, EOS, PAD

POOL_BATCHES = 500
"""Batches that are filled from one random part of the corpus, sorted by length."""
WINDOW = 1_000_000
"""Most pairs that a sampler holds in memory and orders at a time."""
FEISTEL_ROUNDS = 6

Resample = Callable[[int, int, NDArray[np.int64]], tuple[list[Ids], list[Ids]]]
"""Epoch, batch and indices of examples -> sources and targets to be used in the place of the usual ones."""
Flat = tuple[NDArray[Any], NDArray[np.int64]]
"""Ids of several sentences, one after the other, and how many each has."""


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
    return _batch(_flat(sources), _flat(targets), np.asarray(lines))


def batch_of(examples: Examples, indices: Sequence[int] | NDArray[np.int64]) -> Batch:
    """Return the batch of the examples at `indices`."""
    indices = np.asarray(indices)
    return _batch(examples.sources(indices), examples.targets(indices), examples.lines[indices])


def _batch(source: Flat, target: Flat, lines: NDArray[np.int64]) -> Batch:
    source_ids, source_visible = _with_end(*source)
    target_out, target_visible = _with_end(*target)
    target_in = np.full_like(target_out, PAD)
    target_in[:, 0] = BOS
    target_in[:, 1:][target_visible[:, 1:]] = target[0]  # a sentence with its begin mark is as long as with its end mark
    target_rows = np.flatnonzero(target_visible)
    return Batch(
        source_ids=torch.from_numpy(source_ids),
        source_visible=torch.from_numpy(source_visible),
        target_in=torch.from_numpy(target_in),
        target_out=torch.from_numpy(target_out),
        target_visible=torch.from_numpy(target_visible),
        target_rows=torch.from_numpy(target_rows),
        tokens=len(target_rows),
        lines=tuple(lines.tolist()),
    )


def _flat(sequences: Sequence[Sequence[int] | NDArray[np.int32]]) -> Flat:
    """Return all ids one after the other, and the length of each sequence `(B,)`."""
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    return np.concatenate(sequences, dtype=np.int64, casting="unsafe"), lengths  # an empty list would be of floats


def _within(lengths: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
    """Return bool `(B, size)`, True at the first positions of each row, as many as its length."""
    return np.arange(size) < lengths[:, None]


def _scattered(flat: NDArray[Any], visible: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return ids of the shape of `visible`, those of `flat` row by row where it is True, padding elsewhere."""
    ids = np.full(visible.shape, PAD, dtype=np.int64)
    ids[visible] = flat
    return ids


def _with_end(flat: NDArray[Any], lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return padded ids `(B, longest + 1)` with an end mark behind each sequence, and which are real."""
    size = lengths.max() + 1
    ids = _scattered(flat, _within(lengths, size))
    ids[np.arange(len(lengths)), lengths] = EOS
    return ids, _within(lengths + 1, size)


def group_by_budget(
    order: NDArray[np.int64], lengths: NDArray[np.int64], *, tokens: int | None, sentences: int | None
) -> list[NDArray[np.int64]]:
    """Cut `order` into batches whose sentences x longest (padding included) stay within `tokens`, or of `sentences` each."""
    ordered, most = lengths[order], sentences or max(1, len(order))
    batches = []
    start = count = 0
    while start < len(order):
        count = most if tokens is None else _fitting(ordered[start : start + most], tokens, guess=2 * count)
        batches.append(order[start : start + count])
        start += count
    return batches or [order]


def _fitting(lengths: NDArray[np.int64], budget: int, *, guess: int) -> int:
    """Return how many of the first `lengths` fill a budget of count x longest: one at least. The `guess` saves time only."""
    reach = max(16, guess)
    while True:
        costs = np.maximum.accumulate(lengths[:reach]) * np.arange(1, len(lengths[:reach]) + 1)
        count = int(np.searchsorted(costs, budget, side="right"))
        if count < reach or reach >= len(lengths):
            return max(1, count)
        reach *= 4


def shuffled_range(start: int, stop: int, size: int, seed: Sequence[int]) -> NDArray[np.int64]:
    """Return what stands at places `start` to `stop` of a pseudo-random order of 0 … `size` - 1, without making all of it.

    A Feistel network orders the numbers of as many bits; where it leads out of the range, it is followed until it comes back.

    Reference: Luby, Rackoff 1988 (the network); Black, Rogaway 2002 (ranges that are no power of two).
    """
    keys = np.random.SeedSequence(seed).generate_state(FEISTEL_ROUNDS, np.uint64).astype(np.uint64)
    bits = max(2, (size - 1).bit_length())
    found = _feistel(np.arange(start, stop, dtype=np.uint64), keys, bits)
    while len(outside := np.flatnonzero(found >= size)):
        found[outside] = _feistel(found[outside], keys, bits)
    return found.astype(np.int64)


def _feistel(values: NDArray[np.uint64], keys: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    """Return values of `bits` bits, each exchanged for another one."""
    low, high = bits // 2, bits - bits // 2
    left, right = values >> np.uint64(low), values & np.uint64((1 << low) - 1)
    for key in keys:
        mixed = (right + key) * np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio, odd
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
        left, right = right, left ^ ((mixed >> np.uint64(32)) & np.uint64((1 << high) - 1))
        low, high = high, low
    return (left << np.uint64(low)) | right


class BatchSampler:
    """Shuffled batches of similar lengths, epoch after epoch.

    The order of an epoch follows from (seed, epoch) alone, so (epoch, batch) is the whole position. A corpus of more than
    `window` pairs is gone through in windows, each a random part of it that is read into memory.

    Args:
        examples: The pairs.
        tokens: Budget of a batch in sentences x longest target, padding included, or None.
        sentences: Sentences of a batch, or None.
        seed: Seed of the order.
        resample: Gives other ids for the pairs of a batch, or None. Batches are made up by the usual lengths all the same.
        window: Most pairs that are held in memory and ordered at a time.
    """

    def __init__(
        self,
        examples: Examples,
        *,
        tokens: int | None,
        sentences: int | None,
        seed: int,
        resample: Resample | None = None,
        window: int = WINDOW,
    ) -> None:
        self._examples, self._resample = examples, resample
        self._tokens, self._sentences, self._seed = tokens, sentences, seed
        self.windows = max(1, -(-len(examples) // window))
        self.epoch = 0
        self.position = 0
        self._batches: list[NDArray[np.int64]] = []  # places in the window
        self._here: Examples | None = None  # the pairs of the window
        self._members = np.arange(0)  # which of all examples they are, where there are several windows
        self._enter(0, 0, first=0)

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches of the current epoch; estimated from the windows so far until the last one is reached."""
        known = self._first + len(self._batches)
        if self._in_last_window:
            return known
        return max(known + 1, round(known * len(self._examples) / self._bound(self._window + 1)))

    def next_batch(self) -> Batch:
        """Return the next batch; an exhausted epoch is followed by the next one."""
        if self.epoch_is_over:
            self.move_to(self.epoch + 1, 0)
        elif self.position == self._first + len(self._batches):
            self._enter(self.epoch, self._window + 1, first=self.position)
        if self._here is None:
            self._here = self._examples.take(self._members)
        indices = self._batches[self.position - self._first]
        self.position += 1
        if self._resample is None:
            return batch_of(self._here, indices)
        chosen = indices if self.windows == 1 else self._members[indices]
        sources, targets = self._resample(self.epoch, self.position - 1, chosen)
        return make_batch(sources, targets, self._here.lines[indices])

    @property
    def epoch_is_over(self) -> bool:
        """Whether the last batch of the epoch has been given."""
        return self._in_last_window and self.position == self._first + len(self._batches)

    def move_to(self, epoch: int, position: int) -> None:
        """Go to batch `position` of `epoch`."""
        if epoch != self.epoch or position < self._first:
            self._enter(epoch, 0, first=0)
        while position > self._first + len(self._batches) and not self._in_last_window:
            self._enter(epoch, self._window + 1, first=self._first + len(self._batches))
        self.epoch, self.position = epoch, position

    @property
    def _in_last_window(self) -> bool:
        return self._window + 1 == self.windows

    def _bound(self, window: int) -> int:
        """Return how many pairs come before a window."""
        return len(self._examples) * window // self.windows

    def _enter(self, epoch: int, window: int, *, first: int) -> None:
        """Find the batches of a window, whose first one is batch `first` of the epoch. Their ids are read when asked for."""
        self._window, self._first = window, first
        self._batches, self._here = [], None  # what is no longer needed makes room first
        if self.windows == 1:
            self._here = self._examples
            self._batches = self._order([epoch], self._here.source_lengths, self._here.target_lengths)
            return
        order = shuffled_range(self._bound(window), self._bound(window + 1), len(self._examples), [self._seed, epoch])
        self._members = np.sort(order)
        self._batches = self._order([epoch, window], *self._examples.lengths_of(self._members))

    def _order(
        self, place: Sequence[int], source_lengths: NDArray[np.int64], target_lengths: NDArray[np.int64]
    ) -> list[NDArray[np.int64]]:
        random = np.random.default_rng([self._seed, *place])
        shuffled = random.permutation(len(target_lengths))
        size = self._pool_size(target_lengths)
        batches = []
        for start in range(0, len(shuffled), size):  # sorted by length inside a pool only
            pool = shuffled[start : start + size]
            sources, targets = source_lengths[pool], target_lengths[pool]
            turned = np.where(targets % 2, -sources, sources)  # at the next target length, sources go on where they were
            ranked = pool[np.lexsort((turned, targets))]
            batches += group_by_budget(ranked, target_lengths, tokens=self._tokens, sentences=self._sentences)
        return [batches[i] for i in random.permutation(len(batches))]

    def _pool_size(self, target_lengths: NDArray[np.int64]) -> int:
        """Return the number of pairs in about `POOL_BATCHES` batches."""
        batch = self._sentences or max(1, int((self._tokens or 1) / float(target_lengths.mean())))
        return batch * POOL_BATCHES


def in_order(examples: Examples, *, tokens: int) -> Iterator[Batch]:
    """Yield every pair once, sorted by length, in batches of at most `tokens` sentences x longest side."""
    lengths = np.maximum(examples.source_lengths, examples.target_lengths)
    for group in group_by_budget(np.argsort(lengths, kind="stable"), lengths, tokens=tokens, sentences=None):
        yield batch_of(examples, group)
