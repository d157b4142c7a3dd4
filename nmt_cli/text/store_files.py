"""The files of a store: training text as token ids, written chunk by chunk, memory-mapped. `store.py` finds and keeps them."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from nmt_cli.errors import disk_errors
from nmt_cli.text.encoding import Task, encoded_chunks
from nmt_cli.text.examples import CorpusFigures, Examples, FigureCount, Filters, pair_digests, repeats
from nmt_cli.text.parallel import PairChunk
from nmt_cli.text.tokenizers import Tokenizer

MANIFEST = "store.json"
NARROW_SIZE = 1 << 16
"""Up to so many entries of a vocabulary, an id takes two bytes."""
DIGEST_PARTS = 64
SIDES = ("source", "target")


@dataclass(frozen=True)
class StoredPairs:
    """Text of the pairs in a store.

    Args:
        source: All source lines as UTF-8, uint8, and where each ends, int64 `(N,)`.
        target: The same of the target lines.
    """

    source: tuple[NDArray[np.uint8], NDArray[np.int64]]
    target: tuple[NDArray[np.uint8], NDArray[np.int64]]

    def __getitem__(self, index: int) -> tuple[str, str]:
        return self._line(*self.source, index), self._line(*self.target, index)

    @staticmethod
    def _line(text: NDArray[np.uint8], ends: NDArray[np.int64], index: int) -> str:
        return text[ends[index - 1] if index else 0 : ends[index]].tobytes().decode("utf-8")


@dataclass(frozen=True)
class Stored:
    """An open store.

    Args:
        examples: The pairs as ids, in memory-mapped files.
        figures: What the corpus holds, and what was dropped.
        pairs: Their text, where it was asked for.
    """

    examples: Examples
    figures: CorpusFigures
    pairs: StoredPairs | None


def with_repeats(read: Callable[[], Iterator[PairChunk]], pairs: int, folder: Path) -> Iterator[Task]:
    """Yield the chunks of a text with the pairs in them that came before. It is read twice; a pair takes a byte of memory.

    Args:
        read: Reads the text from its start.
        pairs: Number of its pairs.
        folder: Where digests are kept meanwhile: 24 bytes a pair.

    Raises:
        ResourceError: The disk is full.
        RunError: They cannot be written for another reason.
    """
    repeated, done = np.zeros(pairs, dtype=np.bool_), 0
    with contextlib.ExitStack() as files:
        with disk_errors(folder):
            place = Path(files.enter_context(tempfile.TemporaryDirectory(dir=folder)))
        parts = [files.enter_context(_output(place / str(part), "w+b")) for part in range(DIGEST_PARTS)]
        for chunk in read():
            digests = pair_digests(chunk.sources, chunk.targets)
            rows = np.column_stack((digests, np.arange(done, done + len(chunk), dtype=np.uint64)))
            with disk_errors(folder):
                for part, stream in enumerate(parts):  # equal pairs come into the same part
                    stream.write(rows[digests[:, 0] % DIGEST_PARTS == part].tobytes())
            done += len(chunk)
        for stream in parts:
            with disk_errors(folder):  # what is not yet written is written now
                stream.seek(0)
            rows = np.frombuffer(stream.read(), dtype=np.uint64).reshape(-1, 3)
            repeated[rows[:, 2]] = repeats(rows[:, :2])
    done = 0
    for chunk in read():
        yield chunk, repeated[done : done + len(chunk)]
        done += len(chunk)


def write_store(
    folder: Path,
    tasks: Iterable[Task],
    tokenizers: tuple[Tokenizer, Tokenizer],
    filters: Filters,
    *,
    keep_text: bool,
    processes: int,
    on_progress: Callable[[int], None],
) -> None:
    """Write the files of a store.

    Raises:
        DataError: The text cannot be read as it should be, or no pair is left.
        ResourceError: A process was killed, or the disk is full.
        RunError: A file cannot be written for another reason.
    """
    types = ["<u2" if len(tokenizer.vocabulary) <= NARROW_SIZE else "<i4" for tokenizer in tokenizers]
    count, read, file = FigureCount(filters), 0, "the corpus"
    with contextlib.ExitStack() as files:

        def opened(name: str) -> BinaryIO:
            return files.enter_context(_output(folder / name, "wb", buffering=1 << 20))

        ids, ends = [opened(f"{side}.ids") for side in SIDES], [_Ends(opened(f"{side}.ids.ends")) for side in SIDES]
        lines = opened("lines")
        texts = [opened(f"{side}.text") for side in SIDES] if keep_text else []
        text_ends = [_Ends(opened(f"{side}.text.ends")) for side in SIDES] if keep_text else []
        for chunk, encoded in encoded_chunks(tasks, tokenizers, filters, processes=processes):
            file = file if read else chunk.file
            kept = np.flatnonzero(encoded.reasons == 0)
            with disk_errors(folder):
                for side, (values, lengths) in enumerate(encoded.sides):
                    ids[side].write(values.astype(types[side]).tobytes())
                    ends[side].write(lengths)
                lines.write((chunk.first_line + kept).tobytes())
                for side, raw in enumerate((chunk.sources, chunk.targets)[: len(texts)]):
                    content = [raw[place].encode("utf-8") for place in kept.tolist()]
                    texts[side].write(b"".join(content))
                    text_ends[side].write(np.array([len(line) for line in content], dtype=np.int64))
            count.add(encoded)
            read += len(chunk)
            on_progress(len(chunk))
    manifest = {"types": types, "text": keep_text, "figures": asdict(count.figures(file))}
    with disk_errors(folder):
        (folder / MANIFEST).write_text(json.dumps(manifest, ensure_ascii=False, indent=2), encoding="utf-8")


@contextlib.contextmanager
def _output(path: Path, mode: Literal["wb", "w+b"], *, buffering: int = -1) -> Iterator[BinaryIO]:
    with disk_errors(path.parent):
        stream = open(path, mode, buffering=buffering)  # noqa: SIM115 - closed below
    try:
        yield stream
    finally:
        with disk_errors(path.parent):
            stream.close()


class _Ends:
    """A file of int64 that says where each of many things ends."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._end = stream, 0

    def write(self, lengths: NDArray[np.int64]) -> None:
        ends = self._end + lengths.cumsum()
        self._stream.write(ends.tobytes())
        self._end = int(ends[-1]) if len(ends) else self._end


def open_store(folder: Path) -> Stored:
    """Return what `write_store` wrote.

    Raises:
        OSError, ValueError, KeyError, TypeError: It is damaged.
    """
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    maps: list[mmap.mmap] = []

    def mapped(name: str, kind: str) -> NDArray[Any]:
        with open(folder / name, "rb") as stream:
            if not os.fstat(stream.fileno()).st_size:
                return np.empty(0, dtype=kind)  # nothing cannot be mapped
            maps.append(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
        return np.frombuffer(maps[-1], dtype=kind)

    def release() -> None:
        for each in maps:
            each.madvise(mmap.MADV_DONTNEED)

    def both(name: str, kinds: Sequence[str]) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        return [
            (mapped(f"{side}.{name}", kind), mapped(f"{side}.{name}.ends", "<i8"))
            for side, kind in zip(SIDES, kinds, strict=True)
        ]

    source, target = both("ids", manifest["types"])
    examples = Examples(*source, *target, mapped("lines", "<i8"), release)
    pairs = StoredPairs(*both("text", ("u1", "u1"))) if manifest["text"] else None
    return Stored(examples, CorpusFigures(**manifest["figures"]), pairs)
