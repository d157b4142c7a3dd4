"""Reading ahead: the batches and positions of the sampler itself, whatever the thread has read already."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from numpy.typing import NDArray

from nmt_cli.errors import DataError
from nmt_cli.text.batching import BatchSampler
from nmt_cli.text.examples import Examples, Ids
from nmt_cli.training.read_ahead import ReadAhead


def corpus() -> Examples:
    lengths = np.array([i % 4 + 1 for i in range(22)], dtype=np.int64)
    ids = (np.arange(lengths.sum()) % 9 + 4).astype(np.int32)
    return Examples(ids, lengths.cumsum(), ids[::-1].copy(), lengths.cumsum(), np.arange(22))


def resampled(epoch: int, batch: int, indices: NDArray[np.int64]) -> tuple[list[Ids], list[Ids]]:
    """Ids that tell for which epoch and batch they were drawn."""
    ids = [np.array([4 + epoch, 100 + batch, 1000 + int(i)], dtype=np.int32) for i in indices]
    return ids, ids


def sampler(*, sampled: bool = False, window: int = 100) -> BatchSampler:
    resample = resampled if sampled else None
    return BatchSampler(corpus(), tokens=None, sentences=4, seed=2, resample=resample, window=window)  # 6 batches an epoch


Step = tuple[tuple[int, ...], list[list[int]], int, int, int, bool]


def steps(of: BatchSampler | ReadAhead, count: int) -> list[Step]:
    found = []
    for _ in range(count):
        batch = of.next_batch()
        place = (of.epoch, of.position, of.batches_per_epoch, of.epoch_is_over)
        found.append((batch.lines, batch.target_out.tolist(), *place))
    return found


@pytest.mark.parametrize("ahead", [1, 2, 9])
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("window", [100, 8])  # the corpus as a whole, or in three parts
def test_batches_and_positions_are_those_of_the_sampler(ahead: int, sampled: bool, window: int) -> None:
    reader, plain = (sampler(sampled=sampled, window=window) for _ in range(2))
    found = ReadAhead(reader, ahead)
    assert (found.epoch, found.position, found.batches_per_epoch, found.epoch_is_over) == (0, 0, plain.batches_per_epoch, False)
    assert steps(found, 15) == steps(plain, 15)


@pytest.mark.parametrize("done", [0, 1, 5, 6, 7, 13])
def test_a_training_goes_on_from_the_position_it_reports(done: int) -> None:
    first = ReadAhead(sampler(sampled=True))
    steps(first, done)
    again = sampler(sampled=True)
    again.move_to(first.epoch, first.position)
    assert steps(ReadAhead(again), 8) == steps(first, 8)


def test_a_position_can_be_gone_back_to() -> None:
    reader = ReadAhead(sampler())
    expected = steps(reader, 9)
    reader.move_to(0, 3)
    assert (reader.epoch, reader.position) == (0, 3)
    assert steps(reader, 6) == expected[3:]


class Watched(BatchSampler):
    """Notes who reads, and breaks at the fourth batch."""

    def next_batch(self):  # type: ignore[no-untyped-def]
        """Return the next batch."""
        self.readers = {*getattr(self, "readers", set()), threading.get_ident()}
        if self.position == 3:
            raise DataError("the corpus is gone")
        return super().next_batch()


def test_one_other_thread_reads_and_its_errors_are_raised_where_the_batch_is_asked_for() -> None:
    watched = Watched(corpus(), tokens=None, sentences=4, seed=2)
    reader = ReadAhead(watched)
    assert steps(reader, 3) == steps(sampler(), 3)
    with pytest.raises(DataError, match="the corpus is gone"):
        reader.next_batch()
    assert reader.position == 3
    assert len(watched.readers) == 1
    assert threading.get_ident() not in watched.readers
