"""Batches read by a thread of their own, before they are asked for."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from nmt_cli.text.batching import Batch


class Sampler(Protocol):
    """Batches, epoch after epoch, from a position that can be saved. `nmt_cli.text.batching.BatchSampler` is one."""

    @property
    def epoch(self) -> int:
        """Epoch of the last batch, from 0."""

    @property
    def position(self) -> int:
        """Batches given in this epoch."""

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches of the current epoch."""

    @property
    def epoch_is_over(self) -> bool:
        """Whether the last batch of the epoch has been given."""

    def next_batch(self) -> Batch:
        """Return the next batch; an exhausted epoch is followed by the next one."""

    def move_to(self, epoch: int, position: int) -> None:
        """Go to batch `position` of `epoch`."""


@dataclass(frozen=True)
class _Place:
    epoch: int
    position: int
    batches_per_epoch: int
    epoch_is_over: bool


class ReadAhead:
    """The batches of a sampler in their order, some of them read while a device is busy with those before.

    Its position is that of the batches given, not of those read: a checkpoint holds what was trained on.

    Args:
        sampler: Where the batches come from; from now on nobody else may use it.
        ahead: Batches to be read before they are asked for.
    """

    def __init__(self, sampler: Sampler, ahead: int = 2) -> None:
        self._sampler, self._ahead = sampler, ahead
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches")
        self._reading: deque[Future[tuple[Batch, _Place]]] = deque()
        self._given = self._place()

    @property
    def epoch(self) -> int:
        """Epoch of the last batch given, from 0."""
        return self._given.epoch

    @property
    def position(self) -> int:
        """Batches given in this epoch."""
        return self._given.position

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches of the current epoch."""
        return self._given.batches_per_epoch

    @property
    def epoch_is_over(self) -> bool:
        """Whether the last batch of the epoch has been given."""
        return self._given.epoch_is_over

    def next_batch(self) -> Batch:
        """Return the next batch. What went wrong in reading it is raised here."""
        while len(self._reading) <= self._ahead:
            self._reading.append(self._thread.submit(self._read))
        batch, self._given = self._reading.popleft().result()
        return batch

    def move_to(self, epoch: int, position: int) -> None:
        """Go to batch `position` of `epoch`; what was read ahead is dropped."""
        while self._reading:
            future = self._reading.pop()
            if not future.cancel():
                future.exception()  # waits
        self._sampler.move_to(epoch, position)
        self._given = self._place()

    def _read(self) -> tuple[Batch, _Place]:
        batch = self._sampler.next_batch()
        return batch, self._place()

    def _place(self) -> _Place:
        sampler = self._sampler
        return _Place(sampler.epoch, sampler.position, sampler.batches_per_epoch, sampler.epoch_is_over)
