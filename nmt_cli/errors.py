"""Every error a user can cause, each with the exit code that scripts rely on.

A message says what was expected, what came, where (`file:line` or a dotted key) and what to do. Anything that is not an
`NmtError` is a fault of ours and keeps its traceback (exit code 1).
"""

from __future__ import annotations

import contextlib
import difflib
import errno
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar


class NmtError(Exception):
    """Base of all errors that are reported to the user as a message without a traceback."""

    exit_code: ClassVar[int] = 1


class ConfigError(NmtError):
    """A setting, an option or a device is wrong; nothing was done."""

    exit_code = 2


class DataError(NmtError):
    """A corpus or an input text cannot be read as it should be."""

    exit_code = 3


class RunError(NmtError):
    """A run folder, a checkpoint or a lock is missing, damaged or in the way."""

    exit_code = 4


class ScoreError(NmtError):
    """A score that was asked for with `--fail-under` was not reached."""

    exit_code = 5


class DivergedError(NmtError):
    """Training produced losses or gradients that are not finite, again and again."""

    exit_code = 6


class ResourceError(NmtError):
    """Memory or disk space ran out."""

    exit_code = 7


class ReaderClosed(NmtError):  # noqa: N818 - not a fault: `| head` has seen enough
    """Whoever reads standard output has closed it; a quiet end."""

    exit_code = 0


class Interrupted(NmtError):  # noqa: N818 - not a fault: the user asked for it
    """A signal stopped the work after everything was saved.

    Args:
        message: What was saved and how to go on.
        signal_number: The signal; the exit code is 128 plus it.
    """

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?` with the known name nearest to `word`, or an empty string."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]!r}?" if found else ""


def is_full_disk(error: OSError) -> bool:
    """Return whether an error means that there is no room to write."""
    return error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a full disk into a `ResourceError` and any other failure to write into a `RunError`, both naming `path`."""
    try:
        yield
    except OSError as error:
        if is_full_disk(error):
            raise ResourceError(f"{path}: cannot write: no space left ({error.strerror}); free some and run again") from None
        raise RunError(f"{path}: cannot write: {error.strerror or error}") from None
