r"""Lines and aligned pairs of lines, read strictly.

A line ends at `\\n` only, with one `\\r` before it dropped; a byte-order mark at the start of a file is dropped; text is
UTF-8 whatever the locale; gzip is recognised by content. Pairs never shift: two files must have the same number of lines.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import itertools
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from nmt_cli.errors import DataError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP_MAGIC = b"\x1f\x8b"
CHUNK_LINES = 20_000
"""Pairs that are read, and turned into ids, at a time."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A source line and its target line; `line` is the line number (from 1) in the file `file`."""

    source: str
    target: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class PairChunk:
    """Some pairs that follow one another in one set of files.

    Args:
        sources: Source lines.
        targets: Target lines, as many.
        file: The file that line numbers are those of.
        first_line: Line number (from 1) of the first pair.
    """

    sources: list[str]
    targets: list[str]
    file: str
    first_line: int

    def __len__(self) -> int:
        return len(self.sources)

    def pairs(self) -> Iterator[Pair]:
        """Yield the pairs one by one."""
        for number, (source, target) in enumerate(zip(self.sources, self.targets, strict=True), start=self.first_line):
            yield Pair(source, target, self.file, number)


@dataclass(frozen=True)
class FileRecord:
    """What identifies a corpus file: its path, the SHA-256 of its bytes, and its number of lines."""

    path: str
    sha256: str
    lines: int


class FileStamp(NamedTuple):
    """What differs when a file was written to or replaced: its size in bytes, times of change in nanoseconds, and its inode."""

    size: int
    modified: int
    changed: int
    inode: int


def file_stamp(path: str | Path) -> FileStamp | None:
    """Return the stamp of a file; None where it cannot be looked at."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return FileStamp(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


@contextlib.contextmanager
def open_corpus_file(path: str | Path) -> Iterator[BinaryIO]:
    """Open a plain or gzipped file for reading bytes.

    Raises:
        DataError: The file is missing, unreadable, or damaged gzip (while it is read inside the `with`).
    """
    try:
        with open(path, "rb") as raw:
            if raw.peek(2)[:2] == GZIP_MAGIC:  # a named pipe cannot be read twice
                with gzip.open(raw, "rb") as unzipped:
                    yield unzipped  # type: ignore[misc]  # a GzipFile reads like a BinaryIO
            else:
                yield raw
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _damaged(path, error) from None
    except OSError as error:
        raise _unreadable(path, error) from None


def _damaged(path: str | Path, error: Exception) -> DataError:
    return DataError(f"{path}: this gzip file is damaged or cut short: {error}")


def _unreadable(path: str | Path, error: OSError) -> DataError:
    return DataError(f"{path}: cannot read this file: {error.strerror or error}")


def read_bytes(path: str | Path) -> bytes:
    """Return the content of a plain or gzipped file.

    Raises:
        DataError: As `open_corpus_file`.
    """
    with open_corpus_file(path) as stream:
        return stream.read()


def decode_lines(
    stream: Iterable[bytes], name: str, *, first: int = 1, on_invalid: Callable[[str], None] | None = None
) -> Iterator[str]:
    r"""Yield the text of each line of a byte stream.

    Args:
        stream: Byte lines that end at `\\n`, as binary files give them.
        name: How messages call the stream.
        first: Number of the first line.
        on_invalid: None: invalid UTF-8 is an error. Otherwise each bad byte becomes U+FFFD and this is called with a warning.

    Raises:
        DataError: Invalid UTF-8, with file, line and byte.
    """
    for number, raw in enumerate(stream, start=first):
        skipped = len(BYTE_ORDER_MARK) if number == 1 and raw.startswith(BYTE_ORDER_MARK) else 0
        raw = raw[skipped:].removesuffix(b"\n").removesuffix(b"\r")
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError as error:
            place = error.start + skipped + 1
            message = f"{name}:{number}: expected UTF-8 text, but byte {place} is 0x{raw[error.start]:02x}"
            if on_invalid is None:
                raise DataError(f"{message}; convert the file to UTF-8") from None
            on_invalid(f"{message}; it was replaced")
            yield raw.decode("utf-8", errors="replace")


def stream_lines(path: str | Path) -> Iterator[str]:
    r"""Yield the lines of a plain or gzipped text file. A last line without `\\n` is still a line.

    Raises:
        DataError: As `open_corpus_file` and `decode_lines`.
    """
    with open_corpus_file(path) as stream:
        yield from decode_lines(stream, str(path))


def read_lines(path: str | Path) -> list[str]:
    """Return all lines of a file, as `stream_lines`."""
    return list(stream_lines(path))


def read_pairs(files: Iterable[Sequence[str]], *, max_pairs: int | None = None) -> list[Pair]:
    """Read sets of files, one after the other, into aligned pairs.

    Args:
        files: For each set either one .tsv path or a source path and a target path.
        max_pairs: Stop after so many pairs.

    Raises:
        DataError: A file cannot be read, two files differ in length, or a .tsv line has no two or three columns.
    """
    return [pair for chunk in stream_pairs(files, max_pairs=max_pairs) for pair in chunk.pairs()]


def stream_pairs(
    files: Iterable[Sequence[str]], *, max_pairs: int | None = None, size: int = CHUNK_LINES
) -> Iterator[PairChunk]:
    """Read sets of files as `read_pairs` does, yielding at most `size` pairs at a time. Nothing after `max_pairs` is looked at.

    Raises:
        DataError: As `read_pairs`, when the place in question is reached.
    """
    room = max_pairs
    for paths in files:
        table = len(paths) == 1
        for chunk in _stream_tsv(paths[0], size, room) if table else _stream_two_files(paths[0], paths[1], size, room):
            yield chunk
            room = None if room is None else room - len(chunk)
        if room == 0:
            return


def describe_file(path: str | Path) -> FileRecord:
    """Return path, SHA-256 and number of lines of a file, reading it once in blocks.

    Raises:
        DataError: As `open_corpus_file`.
    """
    digest, lines, last = hashlib.sha256(), 0, b"\n"
    try:
        with open(path, "rb") as raw:
            packed = raw.read(2) == GZIP_MAGIC
            raw.seek(0)
            hashed = _Hashed(raw, digest)
            text = gzip.GzipFile(fileobj=hashed, mode="rb") if packed else hashed
            while block := text.read(1 << 20):
                lines += block.count(b"\n")
                last = block[-1:]
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _damaged(path, error) from None
    except OSError as error:
        raise _unreadable(path, error) from None
    return FileRecord(str(path), digest.hexdigest(), lines + (last != b"\n"))


class _Hashed:
    """A file whose bytes go into a hash as they are read."""

    def __init__(self, raw: BinaryIO, digest: Any) -> None:
        self._raw, self._digest = raw, digest

    def read(self, size: int, /) -> bytes:
        block = self._raw.read(size)
        self._digest.update(block)
        return block

    def seek(self, offset: int, /) -> object:
        raise io.UnsupportedOperation("a file that is hashed is read once")  # what gzip asks for only to go back


def check_alignment(source: FileRecord, target: FileRecord) -> None:
    """Raise a `DataError` where two files have not the same number of lines."""
    if source.lines != target.lines:
        raise DataError(
            f"expected as many source as target lines, but {source.path} has {source.lines} and {target.path} has "
            f"{target.lines}; line N of one must be the translation of line N of the other"
        )


def _stream_tsv(path: str, size: int, limit: int | None) -> Iterator[PairChunk]:
    lines, first = itertools.islice(stream_lines(path), limit), 1
    while rows := [_columns(line, path, number) for number, line in enumerate(itertools.islice(lines, size), first)]:
        yield PairChunk([row[0] for row in rows], [row[1] for row in rows], path, first)
        first += len(rows)


def _columns(line: str, path: str, number: int) -> list[str]:
    columns = line.split("\t")
    if len(columns) not in (2, 3):
        raise DataError(
            f"{path}:{number}: expected source<TAB>target, and at most one column more, but found {len(columns)} "
            f"column{'s' if len(columns) > 1 else ''}: {line[:60]!r}"
        )
    return columns


def _stream_two_files(source_path: str, target_path: str, size: int, limit: int | None) -> Iterator[PairChunk]:
    source_file, target_file, done = stream_lines(source_path), stream_lines(target_path), 0
    source_lines, target_lines = itertools.islice(source_file, limit), itertools.islice(target_file, limit)
    while True:
        sources, targets = list(itertools.islice(source_lines, size)), list(itertools.islice(target_lines, size))
        if len(sources) != len(targets):
            found = [
                FileRecord(path, "", done + len(read) + sum(1 for _ in rest))
                for path, read, rest in ((source_path, sources, source_file), (target_path, targets, target_file))
            ]
            check_alignment(*found)
        if not sources:
            return
        yield PairChunk(sources, targets, source_path, done + 1)
        done += len(sources)
