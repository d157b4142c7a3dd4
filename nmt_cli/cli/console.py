"""What a person sees: messages on stderr, data on stdout."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from nmt_cli.errors import ReaderClosed, disk_errors


class Messages:
    """Progress, logs and warnings: to stderr, and to a log file once there is one.

    Args:
        log: File to append to, with the time before each line.
    """

    def __init__(self, log: Path | None = None) -> None:
        self.log = log

    def info(self, text: str) -> None:
        """Show a line."""
        try:
            tqdm.write(text, file=sys.stderr)
        except BrokenPipeError:  # nobody reads the log any more: the work goes on, and the file keeps it
            _to_nowhere(2)
        if self.log is not None:
            with disk_errors(self.log), open(self.log, "a", encoding="utf-8", newline="\n") as stream:
                for line in text.splitlines():
                    stream.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")

    def warn(self, text: str) -> None:
        """Show a warning."""
        self.info(f"warning: {text}")


def progress_bar(total: float | None, *, unit: str, description: str, form: str | None = None) -> tqdm[Any]:
    """Return a progress bar on stderr that shows itself only where stderr is a terminal."""
    return tqdm(
        total=total,
        unit=unit,
        desc=description,
        file=sys.stderr,
        disable=not sys.stderr.isatty(),
        dynamic_ncols=True,
        bar_format=form,
        leave=False,
    )


def advance(bar: tqdm[Any]) -> Callable[[int], None]:
    """Return a function that moves `bar` by so many."""

    def move(count: int) -> None:
        bar.update(count)

    return move


def render(draw: Callable[[Console], None]) -> str:
    """Return what `draw` prints, as plain text at the terminal's width (80 columns where there is none)."""
    width = os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 80
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False, markup=False)
    draw(console)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def table_text(columns: Iterable[str], rows: Iterable[Iterable[str]], *, title: str | None = None, left: int = 1) -> str:
    """Return a table as plain text; the first `left` columns are aligned left, the others right."""
    table = Table(title=title, title_justify="left", title_style="", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return render(lambda console: console.print(table))


def print_data(text: str) -> None:
    """Write a text and a line end to stdout."""
    write_data(f"{text}\n")


def write_data(text: str) -> None:
    """Write a text to stdout, flushed.

    Raises:
        ReaderClosed: Nobody reads it any more.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _to_nowhere(1)  # so that the flush at exit has somewhere to go
        raise ReaderClosed from None


def _to_nowhere(handle: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, handle)
    os.close(nowhere)


def duration(seconds: float) -> str:
    """Return a short text such as `45s`, `3m05s` or `2h10m`."""
    if seconds == float("inf"):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
