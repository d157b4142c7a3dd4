"""Lines from files and from standard input, in chunks, so that memory does not grow with their number."""

from __future__ import annotations

import itertools
import os
import select
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO

from nmt_cli.decoding.translator import CHUNK_LINES
from nmt_cli.errors import DataError
from nmt_cli.text.parallel import decode_lines, open_corpus_file

STANDARD_INPUT = "-"
MAX_LINE_BYTES = 1 << 24
"""A pipe whose line is longer than this is no text, and would fill the memory."""


def line_chunks(
    file: str, *, at_least: int = 1, done: int = 0, on_invalid: Callable[[str], None] | None = None
) -> Iterator[list[str]]:
    """Yield the lines of a file (.gz too) a few thousand at a time, or those of standard input as they come.

    Args:
        file: Path, or `-`.
        at_least: Lines of standard input to wait for.
        done: Lines of a file to leave out at its start.
        on_invalid: See `decode_lines`.

    Raises:
        DataError: It cannot be read, or is no text.
    """
    if file == STANDARD_INPUT:
        if sys.stdin is None:  # `<&-`
            raise DataError("standard input: cannot read it: it is closed")
        first = 1
        for block in pipe_chunks(sys.stdin.buffer, at_least=at_least):
            yield list(decode_lines(block, "standard input", first=first, on_invalid=on_invalid))
            first += len(block)
        return
    with open_corpus_file(file) as stream:
        lines = itertools.islice(decode_lines(stream, file, on_invalid=on_invalid), done, None)
        while chunk := list(itertools.islice(lines, CHUNK_LINES)):
            yield chunk


def pipe_chunks(stream: BinaryIO, *, at_least: int = 1) -> Iterator[list[bytes]]:
    """Yield the byte lines that are at hand, waiting only for `at_least` so many: a line is answered before the next one comes.

    Raises:
        DataError: A line is longer than 16 MiB.
    """
    handle = stream.fileno()
    lines: list[bytes] = []
    pending: list[bytes] = []  # blocks of the line that has not ended yet
    done = held = 0
    while block := os.read(handle, 1 << 16):
        first, *rest = block.split(b"\n")
        pending.append(first)
        if rest:
            lines += [b"".join(pending), *rest[:-1]]
            pending = [rest[-1]]
        held += len(block)
        if sum(map(len, pending)) > MAX_LINE_BYTES:
            raise DataError(f"standard input:{done + len(lines) + 1}: expected text, but this line is longer than 16 MiB")
        while len(lines) >= CHUNK_LINES:
            done += CHUNK_LINES
            yield lines[:CHUNK_LINES]
            lines, held = lines[CHUNK_LINES:], 0
        enough = len(lines) >= at_least and not select.select([handle], [], [], 0)[0]
        if lines and (enough or held > MAX_LINE_BYTES):
            done += len(lines)
            yield lines
            lines, held = [], 0
    if any(pending):
        lines.append(b"".join(pending))
    if lines:
        yield lines
