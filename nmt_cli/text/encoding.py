"""Work on large texts in processes of their own: they import no torch, and take their memory with them when they end."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from nmt_cli.errors import ResourceError
from nmt_cli.text.examples import Encoded, Filters, cores, encode_pairs
from nmt_cli.text.parallel import PairChunk
from nmt_cli.text.tokenizers import Tokenizer

WAITING_CHUNKS = 2
"""Chunks that are handed out before they are needed, for each process."""

Task = tuple[PairChunk, NDArray[np.bool_] | None]
"""A chunk, and which of its pairs came before in the corpus; None: they may come again."""
Result = TypeVar("Result")


def encoded_chunks(
    tasks: Iterable[Task], tokenizers: tuple[Tokenizer, Tokenizer], filters: Filters, *, processes: int
) -> Iterator[tuple[PairChunk, Encoded]]:
    """Yield each chunk with its ids, in order.

    Args:
        tasks: The chunks; read only as far as the processes can keep up with.
        tokenizers: Of the source and the target side; sent to each process once.
        filters: Which pairs to drop.
        processes: How many processes; 1: the work is done here, on all cores where a tokenizer can use them.

    Raises:
        ResourceError: A process was killed, or cannot be started.
    """
    if processes == 1:
        for chunk, repeated in tasks:
            yield chunk, encode_pairs(chunk.sources, chunk.targets, tokenizers, filters, repeated=repeated, threads=cores())
        return
    waiting: deque[tuple[PairChunk, Future[Encoded]]] = deque()
    with _processes(processes, "tokenises", _Encoder.start, tokenizers, filters) as submit:
        for chunk, repeated in tasks:
            waiting.append((chunk, submit(_Encoder.encode, chunk, repeated)))
            if len(waiting) > WAITING_CHUNKS * processes:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()


def in_another_process(work: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
    """Return what `work` returns for these arguments in a new process.

    Raises:
        ResourceError: The process was killed, or cannot be started.
    """
    with _processes(1, "learns the vocabulary", _leave_with_parent) as submit:
        result: Result = submit(work, *arguments, **named).result()
        return result


class _Encoder:
    """What a process that tokenises was handed at its start."""

    tokenizers: tuple[Tokenizer, Tokenizer]
    filters: Filters

    @classmethod
    def start(cls, tokenizers: tuple[Tokenizer, Tokenizer], filters: Filters) -> None:
        _leave_with_parent()
        cls.tokenizers, cls.filters = tokenizers, filters

    @classmethod
    def encode(cls, chunk: PairChunk, repeated: NDArray[np.bool_] | None) -> Encoded:
        return encode_pairs(chunk.sources, chunk.targets, cls.tokenizers, cls.filters, repeated=repeated)


@contextlib.contextmanager
def _processes(
    count: int, what: str, initializer: Callable[..., None], *arguments: Any
) -> Iterator[Callable[..., Future[Any]]]:
    """Give a function that has work done in other processes, which end with the block: at once where an error ends it.

    Args:
        count: How many processes.
        what: What each of them does, for messages.
        initializer: Called in each process first.
        arguments: For `initializer`.

    Raises:
        ResourceError: A process was killed, or cannot be started.
    """

    @contextlib.contextmanager
    def starting() -> Iterator[None]:
        try:
            yield
        except OSError as error:
            advice = "free memory, or raise the limits of processes and open files (ulimit), and run again"
            raise ResourceError(f"cannot start a process that {what}: {error.strerror or error}; {advice}") from None

    def submit(work: Callable[..., Result], *given: Any, **named: Any) -> Future[Result]:
        with starting():
            return pool.submit(work, *given, **named)

    with starting():
        # not forked: the parent may have threads and a GPU
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(count, mp_context=context, initializer=initializer, initargs=arguments)
    try:
        yield submit
    except BaseException as error:
        for process in list((pool._processes or {}).values()):  # shutting down would wait for what they have begun
            process.kill()
        if isinstance(error, BrokenProcessPool):
            why = "most likely because memory ran out; free some and run again"
            raise ResourceError(f"a process that {what} was killed, {why}") from None
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_with_parent() -> None:
    """Leave interrupts to the parent, and end when it has ended, however it did."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
