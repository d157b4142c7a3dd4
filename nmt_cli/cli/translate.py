"""`nmt translate`: lines in, lines out."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TextIO

from nmt_cli.cli.attention import AttentionReader
from nmt_cli.cli.console import Messages, advance, progress_bar, write_data
from nmt_cli.cli.loading import make_translator
from nmt_cli.cli.options import SearchOptions
from nmt_cli.decoding.translator import CHUNK_LINES, Translator
from nmt_cli.errors import ConfigError, disk_errors
from nmt_cli.inspection.alignment import pharaoh
from nmt_cli.runs.folder import RunFolder, current_umask
from nmt_cli.text.parallel import decode_lines, open_corpus_file


def run_translate(
    run: Path,
    file: str,
    options: SearchOptions,
    *,
    out: Path | None,
    invalid_utf8: str,
    alignments: Path | None = None,
    words: bool = False,
) -> None:
    """Translate a file or standard input.

    Args:
        run: Run folder.
        file: Path, or `-` for standard input.
        options: Search and device; with `unknown`, unknown words are replaced by what they attend to.
        out: Where translations go; None: standard output. The file appears when all is done.
        invalid_utf8: `error` or `replace`.
        alignments: Where hard alignments go, a line for each line; None: nowhere.
        words: Align words rather than pieces.

    Raises:
        ConfigError: The options do not fit the run or one another.
    """
    messages = Messages()
    folder = RunFolder.open(run)
    check_attention(folder, options, alignments)
    on_invalid = messages.warn if invalid_utf8 == "replace" else None
    with contextlib.ExitStack() as stack:
        if file == "-":
            translator = make_translator(folder, options, warn=messages.warn)
            job = _Job(translator, stack.enter_context(_output(out)), *_attention(stack, translator, alignments, words=words))
            first = 1
            for chunk in _pipe_chunks(sys.stdin.buffer):
                lines = list(decode_lines(chunk, "standard input", first=first, on_invalid=on_invalid))
                job.translate(lines, first)
                first += len(lines)
            return
        with open_corpus_file(file) as stream:
            lines = list(decode_lines(stream, file, on_invalid=on_invalid))
        bar = stack.enter_context(progress_bar(len(lines), unit=" lines", description="translating"))
        translator = make_translator(folder, options, warn=messages.warn, on_progress=advance(bar))
        job = _Job(translator, stack.enter_context(_output(out)), *_attention(stack, translator, alignments, words=words))
        for start in range(0, len(lines), CHUNK_LINES):
            job.translate(lines[start : start + CHUNK_LINES], start + 1)


def check_attention(folder: RunFolder, options: SearchOptions, alignments: Path | None) -> None:
    """Refuse what alignments and the replacing of unknown words cannot do.

    Raises:
        ConfigError: With what does not fit.
    """
    kind = folder.config().tokenizer.type
    if options.unknown and kind != "word":
        raise ConfigError(f"--replace-unknown is for runs with word tokens, but {folder.path} has {kind} tokens")
    if (alignments is not None or options.unknown) and options.long_lines == "split":
        raise ConfigError("--alignments and --replace-unknown do not go with --long-lines split; use cut or error")


@dataclass(frozen=True)
class _Job:
    """Where translations go, and what attention is read for: alignments, unknown words, or nothing (no reader)."""

    translator: Translator
    write: Callable[[str], None]
    reader: AttentionReader | None
    write_links: Callable[[str], None] | None

    def translate(self, lines: list[str], first: int) -> None:
        """Translate lines, of which the first has number `first`, and write them."""
        translations = self.translator.translate_chunk(lines, first_line=first)
        texts = [translation.text for translation in translations]
        if self.reader is not None:
            records = list(self.reader.records_of(lines, translations))
            if self.translator.settings.search.unknown:
                texts = [self.reader.without_unknown(record) for record in records]
            if self.write_links is not None:
                self.write_links("".join(f"{pharaoh(self.reader.links(record))}\n" for record in records))
        self.write("".join(f"{text}\n" for text in texts))


def _attention(
    stack: contextlib.ExitStack, translator: Translator, alignments: Path | None, *, words: bool
) -> tuple[AttentionReader | None, Callable[[str], None] | None]:
    """Return what reads attention, and what writes alignments, as far as they are wanted."""
    wanted = alignments is not None or translator.settings.search.unknown
    write_links = stack.enter_context(_output(alignments)) if alignments is not None else None
    return (AttentionReader(translator, words=words) if wanted else None), write_links


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
