"""`nmt translate`: lines in, lines out."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TextIO

from nmt_cli.cli.console import Messages, advance, progress_bar, write_data
from nmt_cli.cli.loading import make_translator
from nmt_cli.cli.options import SearchOptions
from nmt_cli.decoding.translator import CHUNK_LINES, Translator
from nmt_cli.errors import ConfigError, disk_errors
from nmt_cli.runs.folder import RunFolder, current_umask
from nmt_cli.text.parallel import decode_lines, open_corpus_file


def run_translate(run: Path, file: str, options: SearchOptions, *, out: Path | None, invalid_utf8: str) -> None:
    """Translate a file or standard input.

    Args:
        run: Run folder.
        file: Path, or `-` for standard input.
        options: Search and device.
        out: Where translations go; None: standard output. The file appears when all is done.
        invalid_utf8: `error` or `replace`.
    """
    messages = Messages()
    folder = RunFolder.open(run)
    on_invalid = messages.warn if invalid_utf8 == "replace" else None
    if file == "-":
        translator = make_translator(folder, options, warn=messages.warn)
        first = 1
        with _output(out) as write:
            for chunk in _pipe_chunks(sys.stdin.buffer):
                lines = list(decode_lines(chunk, "standard input", first=first, on_invalid=on_invalid))
                _translate(translator, lines, first, write)
                first += len(lines)
        return
    with open_corpus_file(file) as stream:
        lines = list(decode_lines(stream, file, on_invalid=on_invalid))
    with progress_bar(len(lines), unit=" lines", description="translating") as bar, _output(out) as write:
        translator = make_translator(folder, options, warn=messages.warn, on_progress=advance(bar))
        for start in range(0, len(lines), CHUNK_LINES):
            _translate(translator, lines[start : start + CHUNK_LINES], start + 1, write)


def _translate(translator: Translator, lines: list[str], first: int, write: Callable[[str], None]) -> None:
    translations = translator.translate_chunk(lines, first_line=first)
    write("".join(f"{translation.text}\n" for translation in translations))


@contextlib.contextmanager
def _output(out: Path | None) -> Iterator[Callable[[str], None]]:
    """Give a function that writes text and flushes it: to stdout, or to a file that appears whole at the end."""
    if out is None:
        yield write_data
        return
    if out.exists() and not out.is_file():
        if out.is_dir():
            raise ConfigError(f"--out {out}: expected a file, but it is a folder")
        with disk_errors(out), open(out, "w", encoding="utf-8", newline="\n") as stream:  # a device or a named pipe
            yield _writer(stream, out)
        return
    target = out.resolve()  # a link stays, what it points to is replaced
    with disk_errors(out):
        handle, part = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            yield _writer(stream, out)
            with disk_errors(out):
                stream.flush()
                os.fsync(stream.fileno())
        with disk_errors(out):
            os.chmod(part, 0o666 & ~current_umask())
            os.replace(part, target)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def _writer(stream: TextIO, out: Path) -> Callable[[str], None]:
    def write(text: str) -> None:
        with disk_errors(out):
            stream.write(text)
            stream.flush()

    return write


def _pipe_chunks(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the byte lines that are at hand, waiting only when there is none: a line is answered before the next one comes."""
    handle, lines, pending = stream.fileno(), [], b""
    while block := os.read(handle, 1 << 16):
        *complete, pending = (pending + block).split(b"\n")
        lines += complete
        if lines and (len(lines) >= CHUNK_LINES or not select.select([handle], [], [], 0)[0]):
            yield lines
            lines = []
    if pending:
        lines.append(pending)
    if lines:
        yield lines
