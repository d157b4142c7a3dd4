"""Where the lines of `nmt translate` go: standard output, a device, a file that appears whole, or one that a job resumes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from nmt_cli.cli.console import write_data
from nmt_cli.errors import ConfigError, RunError, disk_errors
from nmt_cli.runs.folder import current_umask, whole_file, write_atomically


@contextlib.contextmanager
def output(out: Path | None) -> Iterator[Callable[[str], None]]:
    """Give a function that writes text: to stdout (None), to a device or named pipe, or to a file that appears at the end."""
    if out is None:
        yield write_data
    elif out.is_dir():
        raise ConfigError(f"--out {out}: expected a file, but it is a folder")
    elif out.exists() and not out.is_file():  # a device or a named pipe
        with disk_errors(out), open(out, "w", encoding="utf-8", newline="\n") as stream:

            def write(text: str) -> None:
                with disk_errors(out):
                    stream.write(text)
                    stream.flush()

            yield write
    else:
        with whole_file(out) as append:
            yield append


class Parts:
    """Files that grow beside their final names, as `NAME.part`, and that the same job goes on with when it was stopped.

    `NAME.part.json`, beside the first, says which job it is and how far it came; what was written after it is cut off again.

    Args:
        finals: The files.
        job: What the content depends on; another job starts anew.

    Attributes:
        lines: How many are done.
        lost: How many another job had left there, which are gone.
        counts: What was counted in those that are done.
    """

    def __init__(self, finals: Sequence[Path], job: Mapping[str, Any]) -> None:
        self._finals = [path.resolve() for path in finals]
        self._parts = [path.with_name(f"{path.name}.part") for path in self._finals]
        self._note = self._finals[0].with_name(f"{self._finals[0].name}.part.json")
        self._job = json.loads(json.dumps(dict(job)))
        self._streams: list[BinaryIO] = []
        self.lines = 0
        self.lost = 0
        self.counts: dict[str, int] = {}

    def __enter__(self) -> Parts:
        try:
            for part in self._parts:
                self._streams.append(_locked(part))
            for part, stream, size in zip(self._parts, self._streams, self._taken_up(), strict=True):
                with disk_errors(part):
                    stream.truncate(size)
                    stream.seek(size)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _taken_up(self) -> list[int]:
        """Return how many bytes of each file to go on from."""
        nothing = [0] * len(self._parts)
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
            whole = all(part.stat().st_size >= size for part, size in zip(self._parts, note["bytes"], strict=True))
            if note["job"] != self._job:
                self.lost = note["lines"]
            if self.lost or not whole:
                return nothing
            self.lines, self.counts = note["lines"], note["counts"]
            return list(note["bytes"])
        except (OSError, ValueError, KeyError, TypeError):  # there is none, or it is damaged
            return nothing

    def write(self, texts: Sequence[str], lines: int, counts: Mapping[str, int]) -> None:
        """Append a text to each file, and note how many lines are done and what was counted in them, from the start."""
        for text, stream, part in zip(texts, self._streams, self._parts, strict=True):
            with disk_errors(part):
                stream.write(text.encode("utf-8"))
                stream.flush()
                os.fsync(stream.fileno())
        self.lines, self.counts = lines, dict(counts)
        sizes = [stream.tell() for stream in self._streams]
        note = {"job": self._job, "lines": lines, "bytes": sizes, "counts": self.counts}
        write_atomically(self._note, json.dumps(note, ensure_ascii=False, indent=2) + "\n")

    def finish(self) -> None:
        """Give the files their final names."""
        for part, final in zip(self._parts, self._finals, strict=True):
            with disk_errors(final):
                os.chmod(part, 0o666 & ~current_umask())
                os.replace(part, final)
        self._note.unlink(missing_ok=True)

    def remove(self) -> None:
        """Leave nothing behind."""
        for path in (*self._parts, self._note):
            path.unlink(missing_ok=True)

    def __exit__(self, *_: object) -> None:
        for stream in self._streams:
            stream.close()


def _locked(path: Path) -> BinaryIO:
    """Open a file for reading and writing, new or as it is, and hold it.

    Raises:
        RunError: Another process holds it, or it cannot be written.
    """
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
    with contextlib.suppress(OSError):
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(stream.fileno()), os.stat(path)):  # else it has its final name by now
            return stream
    stream.close()
    raise RunError(f"{path}: another `nmt translate` is writing this file; wait for it, or choose another --out")
