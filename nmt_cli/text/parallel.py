r"""Lines and aligned pairs of lines, read strictly.

A line ends at `\\n` only, with one `\\r` before it dropped; a byte-order mark at the start of a file is dropped; text is
UTF-8 whatever the locale; gzip is recognised by content. Pairs never shift: two files must have the same number of lines.
"""

from __future__ import annotations

import gzip
import hashlib
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nmt_cli.errors import DataError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Pair:
    """A source line and its target line; `line` is the line number (from 1) in the file `file`."""

    source: str
    target: str
    file: str
    line: int


@dataclass(frozen=True)
class FileRecord:
    """What identifies a corpus file: its path, the SHA-256 of its bytes, and its number of lines."""

    path: str
    sha256: str
    lines: int


@contextmanager
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
        raise DataError(f"{path}: this gzip file is damaged or cut short: {error}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot read this file: {error.strerror or error}") from None


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


def read_lines(path: str | Path) -> list[str]:
    r"""Return all lines of a plain or gzipped text file. A last line without `\\n` is still a line."""
    with open_corpus_file(path) as stream:
        return list(decode_lines(stream, str(path)))


def read_pairs(files: Iterable[Sequence[str]], *, max_pairs: int | None = None) -> list[Pair]:
    """Read sets of files, one after the other, into aligned pairs.

    Args:
        files: For each set either one .tsv path or a source path and a target path.
        max_pairs: Stop after so many pairs.

    Raises:
        DataError: A file cannot be read, two files differ in length, or a .tsv line has no two or three columns.
    """
    pairs: list[Pair] = []
    for paths in files:
        pairs += _read_tsv(paths[0]) if len(paths) == 1 else _read_two_files(paths[0], paths[1])
        if max_pairs is not None and len(pairs) >= max_pairs:
            return pairs[:max_pairs]
    return pairs


def describe_file(path: str | Path) -> FileRecord:
    """Return path, SHA-256 and number of lines of a file, reading it once in blocks."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as raw:
            while block := raw.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise DataError(f"{path}: cannot read this file: {error.strerror}") from None
    with open_corpus_file(path) as stream:
        return FileRecord(str(path), digest.hexdigest(), sum(1 for _ in stream))


def _read_tsv(path: str) -> list[Pair]:
    pairs = []
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if len(columns) not in (2, 3):
            raise DataError(
                f"{path}:{number}: expected source<TAB>target, and at most one column more, but found {len(columns)} "
                f"column{'s' if len(columns) > 1 else ''}: {line[:60]!r}"
            )
        pairs.append(Pair(columns[0], columns[1], path, number))
    return pairs


def _read_two_files(source_path: str, target_path: str) -> list[Pair]:
    sources, targets = read_lines(source_path), read_lines(target_path)
    if len(sources) != len(targets):
        raise DataError(
            f"expected as many source as target lines, but {source_path} has {len(sources)} and {target_path} has "
            f"{len(targets)}; line N of one must be the translation of line N of the other"
        )
    return [
        Pair(source, target, source_path, number)
        for source, target, number in zip(sources, targets, itertools.count(1), strict=False)
    ]
