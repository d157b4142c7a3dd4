"""Training text as token ids on disk: made once, in parallel, memory-mapped, and found again by what it was made from.

A store is a folder named after a hash of the text, the tokenizers and the filters. It is written under another name and renamed
when it is whole, so that one that was left half-written is never read. All of it may be removed at any time.

    <key>/           ids, ends, line numbers, on request text; `store.json` says what they hold
    tokenizer-<key>/ tokenizers that were learned, named after a hash of the text and the settings
    …/sizes.json     written last: the size of each file beside it
    files.json       hashes of large files, with what tells that they are still those files
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from nmt_cli.errors import DataError, NmtError, RunError, disk_errors
from nmt_cli.text.encoding import in_another_process
from nmt_cli.text.examples import Filters, cores
from nmt_cli.text.parallel import (
    CHUNK_LINES,
    FileRecord,
    FileStamp,
    PairChunk,
    check_alignment,
    describe_file,
    file_stamp,
    stream_pairs,
)
from nmt_cli.text.store_files import Stored, open_store, with_repeats, write_store
from nmt_cli.text.tokenizers import Tokenizer, load_tokenizer, tokenizer_files

FORMAT_VERSION = 1
SIZES = "sizes.json"
LARGE_CORPUS = 100_000
"""From so many pairs on, other processes tokenise; they take a second to start."""
LARGE_FILE = 16 << 20
"""From so many bytes on, the hash of a file is remembered."""
TRAINING_LINES = 2_000_000
"""Most lines that a tokenizer is learned from; of a larger corpus every second, third, … line is taken."""
SETTLED_SECONDS = 2.0
"""A file that was changed since may change again within one tick of its clock: its hash is not remembered."""

Made = TypeVar("Made")
Learn = Callable[..., Tokenizer]
"""Lines, and as `spacing_lines` those of the target side -> tokenizer; `train_tokenizer` with its settings filled in."""


def _silent(_: Any) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class TrainingText:
    """The files that are trained on. No line of them is held in memory.

    Args:
        files: For each set either one .tsv path or a source path and a target path.
        records: What is known of each of these files.
        stamps: What tells that they are still those files.
        max_pairs: Use only so many pairs, from the start.
    """

    files: tuple[tuple[str, ...], ...]
    records: tuple[tuple[FileRecord, ...], ...]
    stamps: tuple[tuple[FileStamp | None, ...], ...]
    max_pairs: int | None = None

    @classmethod
    def describe(
        cls, files: Iterable[Sequence[str]], *, max_pairs: int | None, describe: Callable[[str], FileRecord] = describe_file
    ) -> Self:
        """Look at all files.

        Args:
            files: For each set either one .tsv path or a source path and a target path.
            max_pairs: Use only so many pairs.
            describe: Path -> what is known of the file.

        Raises:
            DataError: A file cannot be read, two files differ in length, or there is no pair.
        """
        sets = tuple(tuple(paths) for paths in files)
        stamps = tuple(tuple(file_stamp(path) for path in paths) for paths in sets)  # before anything is read
        records = tuple(tuple(describe(path) for path in paths) for paths in sets)
        before = 0
        for described in records:
            if len(described) == 2 and (max_pairs is None or before < max_pairs):
                check_alignment(*described)
            before += described[0].lines
        if not before:
            raise DataError(f"{', '.join(sets[0])}: expected sentence pairs for train, but there is none")
        return cls(sets, records, stamps, max_pairs)

    def __len__(self) -> int:
        lines = sum(records[0].lines for records in self.records)
        return lines if self.max_pairs is None else min(lines, self.max_pairs)

    def chunks(self) -> Iterator[PairChunk]:
        """Read the pairs, some thousands at a time.

        Raises:
            DataError: A file cannot be read as it should be, or has changed since it was described.
        """
        read = 0
        for chunk in stream_pairs(self.files, max_pairs=self.max_pairs, size=CHUNK_LINES):
            read += len(chunk)
            if read > len(self):
                break
            yield chunk
        described = [pair for sets in zip(self.files, self.stamps, strict=True) for pair in zip(*sets, strict=True)]
        changed = [path for path, stamp in described if file_stamp(path) != stamp]
        if changed or read != len(self):
            raise DataError(f"{', '.join(changed or [path for path, _ in described])}: changed while it was read; run again")

    def identity(self) -> dict[str, Any]:
        """Return what makes this text what it is."""
        return {"files": [[record.sha256 for record in records] for records in self.records], "max_pairs": self.max_pairs}


class Store:
    """The folder that stores are kept in.

    Args:
        root: The folder, existing or not.
        others: Folders of other stores, existing or not: what is in them is used, and nothing is written there.
        on_message: Told what takes long and what was found damaged.
        processes: Processes that tokenise a large corpus; None: as many as there are cores.
    """

    def __init__(
        self,
        root: Path,
        *,
        others: Sequence[Path] = (),
        on_message: Callable[[str], None] = _silent,
        processes: int | None = None,
    ) -> None:
        self.root = root
        self._others = tuple(others)
        self._on_message = on_message
        self._processes = processes or cores()

    # -- files ---------------------------------------------------------------------------------------------------------

    def describe(self, path: str) -> FileRecord:
        """Return what is known of a file; a large one is read only when it has changed since it was last described."""
        stamp = file_stamp(path)
        if stamp is None or stamp.size < LARGE_FILE:
            return describe_file(path)  # which says what is wrong
        name = os.path.realpath(path)
        for place in (self.root, *self._others):
            known = _known_files(place).get(name)
            if known is not None and known["stamp"] == list(stamp):
                return FileRecord(path, known["sha256"], known["lines"])
        record = describe_file(path)
        if time.time_ns() - stamp.changed > SETTLED_SECONDS * 1e9:
            entry = {"stamp": stamp, "sha256": record.sha256, "lines": record.lines}
            with contextlib.suppress(OSError):  # only a saving of time
                self.root.mkdir(parents=True, exist_ok=True)
                self._replace("files.json", json.dumps({**_known_files(self.root), name: entry}, indent=2))
        return record

    def _replace(self, name: str, content: str) -> None:
        part = self.root / f".{name}.{os.getpid()}.part"  # with the permissions that other users of the folder need
        try:
            part.write_text(content, encoding="utf-8")
            os.replace(part, self.root / name)
        finally:
            part.unlink(missing_ok=True)

    # -- tokenizers ----------------------------------------------------------------------------------------------------

    def tokenizers(
        self, text: TrainingText, learn: Learn, settings: dict[str, Any], *, shared: bool
    ) -> tuple[Tokenizer, Tokenizer]:
        """Return the source and the target tokenizer of a text: those that were learned before, or new ones.

        Of a text of more than `TRAINING_LINES` lines, every second, third, … line is learned from.

        Args:
            text: What to learn from.
            learn: How; see `Learn`.
            settings: All that the outcome depends on beside the text.
            shared: One tokenizer for both sides.

        Raises:
            DataError: The text cannot be read, or nothing can be learned from it.
        """
        key = _key({"format": FORMAT_VERSION, **text.identity(), "settings": settings, "shared": shared})
        stems = ("shared",) if shared else ("source", "target")

        def read(folder: Path) -> tuple[Tokenizer, ...]:
            return tuple(load_tokenizer(folder, stem) for stem in stems)

        def write(folder: Path) -> None:
            if len(text) < LARGE_CORPUS:
                learned = learn_tokenizers(text, learn, shared=shared)
            else:
                self._on_message(f"learning the vocabulary from {len(text):,} pairs, of at most {TRAINING_LINES:,} lines")
                learned = in_another_process(learn_tokenizers, text, learn, shared=shared)
            for stem, tokenizer in zip(stems, learned, strict=True):
                for name, content in tokenizer_files(tokenizer, stem).items():
                    with disk_errors(folder):
                        (folder / name).write_bytes(content.encode("utf-8") if isinstance(content, str) else content)

        found = self._found_or_made(f"tokenizer-{key}", read, write)
        return found[0], found[-1]

    # -- ids -----------------------------------------------------------------------------------------------------------

    def examples(
        self,
        text: TrainingText,
        tokenizers: tuple[Tokenizer, Tokenizer],
        filters: Filters,
        *,
        keep_text: bool = False,
        on_progress: Callable[[int], None] = _silent,
    ) -> Stored:
        """Return a text as ids: those that were made before, or new ones.

        Args:
            text: What to tokenise.
            tokenizers: Of the source and the target side.
            filters: Which pairs are left out.
            keep_text: Also keep the text of the pairs.
            on_progress: Called with the number of pairs that were just tokenised.

        Raises:
            DataError: The text cannot be read as it should be, or no pair is left.
            ResourceError: Memory or disk space ran out.
        """
        identity = {
            "format": FORMAT_VERSION,
            **text.identity(),
            "tokenizers": [_tokenizer_identity(tokenizer) for tokenizer in tokenizers],
            "filters": asdict(filters),
            "text": keep_text,
        }

        def write(folder: Path) -> None:
            processes = self._processes if len(text) >= LARGE_CORPUS else 1
            if processes > 1:
                self._on_message(f"tokenising {len(text):,} pairs in {processes} processes")
            tasks = (
                with_repeats(text.chunks, len(text), folder)
                if filters.drop_duplicates
                else ((chunk, None) for chunk in text.chunks())
            )
            write_store(folder, tasks, tokenizers, filters, keep_text=keep_text, processes=processes, on_progress=on_progress)

        return self._found_or_made(_key(identity), open_store, write)

    # -- finding and making --------------------------------------------------------------------------------------------

    def _found_or_made(self, name: str, read: Callable[[Path], Made], write: Callable[[Path], None]) -> Made:
        """Return what `read` makes of a folder, which `write` fills first if need be. Only one process at a time writes it."""
        path, part = self.root / name, self.root / f".{name}.part"
        with contextlib.suppress(_DamagedError):  # told below: another process may be making it again
            if (found := _kept(path, read)) is not None:
                self._remove_leftovers()
                return found
        for other in self._others:
            with contextlib.suppress(_DamagedError, RunError):  # what cannot be read there is made here
                if (found := _kept(other / name, read)) is not None:
                    return found
        try:
            with self._locked(name):
                try:
                    if (found := _kept(path, read)) is not None:  # another process has made it meanwhile
                        return found
                except _DamagedError as error:
                    what = f"expected what an earlier run kept here, but it is damaged ({error})"
                    self._on_message(f"{path}: {what}; it is made again")
                self._remove_leftovers()
                try:
                    with disk_errors(path):
                        shutil.rmtree(part, ignore_errors=True)
                        part.mkdir()
                    write(part)
                    with disk_errors(path):
                        _finish(part, path)
                finally:
                    shutil.rmtree(part, ignore_errors=True)
                with _reading(path):
                    return read(path)
        finally:
            with contextlib.suppress(OSError):
                self.root.rmdir()  # where nothing came of it, no trace is left

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Be the only process that makes `name`; wait for another one that is at it."""
        path = self.root / f".{name}.lock"
        with disk_errors(path):
            while True:
                self.root.mkdir(parents=True, exist_ok=True)
                stream = open(path, "a")  # noqa: SIM115 - closed below
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self._on_message(f"{self.root / name}: another process is making this; waiting for it")
                    fcntl.flock(stream, fcntl.LOCK_EX)
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(stream.fileno()), os.stat(path)):
                        break
                stream.close()  # who held it before has removed the file
        with stream:
            try:
                yield
            finally:
                path.unlink(missing_ok=True)

    def _remove_leftovers(self) -> None:
        """Remove what processes that were killed have left, where nobody holds the lock."""
        for name in {path.stem for kind in ("part", "lock") for path in self.root.glob(f".*.{kind}")}:
            part, lock = self.root / f"{name}.part", self.root / f"{name}.lock"
            with contextlib.suppress(OSError), open(lock, "a") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if part.is_dir():
                    shutil.rmtree(part, ignore_errors=True)
                else:
                    part.unlink(missing_ok=True)
                lock.unlink(missing_ok=True)


class _DamagedError(Exception):
    """What was kept is not whole."""


def _kept(path: Path, read: Callable[[Path], Made]) -> Made | None:
    """Return what `read` makes of a folder that was kept; None: there is none.

    Raises:
        _DamagedError: A file in it is missing, has another size, or is not as it was written.
        RunError: It cannot be read for a reason that says nothing about it.
    """
    with _reading(path):
        if not path.is_dir():
            return None
        try:
            sizes = json.loads((path / SIZES).read_text(encoding="utf-8"))
            for name, size in sizes.items():
                with open(path / name, "rb") as stream:  # so that a file that may not be read is not taken for a damaged one
                    found = os.fstat(stream.fileno()).st_size
                if found != size:
                    raise ValueError(f"{name} has {found:,} bytes instead of {size:,}")
            return read(path)
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, NmtError) as error:
            raise _DamagedError(error) from None


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = f"cannot read what was kept here: {error.strerror or error}"
        raise RunError(f"{path}: {why}; put that right and run again, or remove this folder: it is made anew then") from None


def _finish(part: Path, path: Path) -> None:
    """Give a folder that is whole its name."""
    sizes = {file.name: file.stat().st_size for file in part.iterdir()}
    (part / SIZES).write_text(json.dumps(sizes), encoding="utf-8")
    for file in (*part.iterdir(), part):
        _fsync(file)
    shutil.rmtree(path, ignore_errors=True)
    os.replace(part, path)


def _known_files(root: Path) -> dict[str, Any]:
    try:
        known = json.loads((root / "files.json").read_text(encoding="utf-8"))
        return {name: entry for name, entry in known.items() if set(entry) == {"stamp", "sha256", "lines"}}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


# -- learning ----------------------------------------------------------------------------------------------------------


def learn_tokenizers(text: TrainingText, learn: Learn, *, shared: bool) -> tuple[Tokenizer, ...]:
    """Return the shared tokenizer, or that of the source and that of the target side. See `Store.tokenizers`."""
    pairs, sources, targets = len(text), list[str](), list[str]()
    step = max(1, -(-(2 * pairs if shared else pairs) // TRAINING_LINES))
    done = 0
    for chunk in text.chunks():
        sources += chunk.sources[-done % step :: step]
        targets += chunk.targets[-(done + pairs if shared else done) % step :: step]  # all targets follow all sources
        done += len(chunk)
    if shared:
        return (learn(sources + targets, spacing_lines=targets),)
    return learn(sources, spacing_lines=sources), learn(targets, spacing_lines=targets)


def _key(identity: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]


def _tokenizer_identity(tokenizer: Tokenizer) -> str:
    content = [text.encode() if isinstance(text, str) else text for text in tokenizer_files(tokenizer, "").values()]
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in content)).hexdigest()


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
