"""`nmt translate`: lines in, lines out, from files and from a pipe."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nmt_cli import __version__
from nmt_cli.cli.console import Messages, advance, duration, progress_bar
from nmt_cli.cli.formats import FORMATS, Translated
from nmt_cli.cli.inputs import STANDARD_INPUT, line_chunks
from nmt_cli.cli.loading import make_translator, open_run
from nmt_cli.cli.options import SearchOptions
from nmt_cli.cli.outputs import Parts, output
from nmt_cli.decoding.translator import Translation, Translator
from nmt_cli.errors import ConfigError, DataError
from nmt_cli.runs.exported import is_export, read_record
from nmt_cli.runs.folder import RunFolder
from nmt_cli.text.parallel import decode_lines, describe_file, open_corpus_file

if TYPE_CHECKING:
    from nmt_cli.cli.attention import AttentionReader


@dataclass(frozen=True)
class TranslateOptions:
    """Options of `nmt translate` beside those of search.

    Args:
        files: Paths, or `-` for standard input.
        out: Where translations go; None: standard output. For several files a template with {folder}, {stem} or {name}.
        format: `text`, `jsonl` or `tsv`.
        prefixes: What translations begin with, a line for each line; None: nothing is forced.
        invalid_utf8: `error` or `replace`.
        alignments: Where hard alignments go, a line for each line; None: nowhere.
        words: Align words rather than pieces.
    """

    files: tuple[str, ...] = ("-",)
    out: str | None = None
    format: str = "text"
    prefixes: Path | None = None
    invalid_utf8: str = "error"
    alignments: Path | None = None
    words: bool = False


def run_translate(run: Path, search: SearchOptions, options: TranslateOptions) -> None:
    """Translate files or standard input; see `nmt translate --help`.

    Raises:
        ConfigError: The options do not fit the run or one another.
        DataError: A text cannot be read, or there are not as many prefixes as lines.
    """
    messages, folder = Messages(), open_run(run)
    outs = _outputs(options)
    _check_outputs(options, outs)
    check_options(folder, search, options)
    with progress_bar(_total_lines(options.files), unit=" lines", description="translating") as bar:
        translator = make_translator(folder, search, warn=messages.warn, on_progress=advance(bar))
        job = _Job(translator, search, options, messages)
        for file, out in zip(options.files, outs, strict=True):
            source = _Source(file, options, messages)
            if out is not None and _can_be_taken_up(file, out, options):
                job.take_up(source, out, _identity(folder, search, options))
            else:
                job.stream(source, out)


def check_options(folder: RunFolder, search: SearchOptions, options: TranslateOptions) -> None:
    """Refuse what does not go together.

    Raises:
        ConfigError: With what does not fit.
    """
    kind = folder.config().tokenizer.type
    if search.unknown and kind != "word":
        raise ConfigError(f"--replace-unknown is for runs with word tokens, but {folder.path} has {kind} tokens")
    if options.alignments is not None or search.unknown:
        name = "--alignments" if options.alignments is not None else "--replace-unknown"
        if search.long_lines == "split":
            raise ConfigError(f"{name} does not go with --long-lines split; use cut or error")
        if search.ensemble or search.engine != "torch" or is_export(folder.path):
            raise ConfigError(f"{name} reads the attention of one model in torch: leave --ensemble and --engine out")
    if search.n_best > 1 and options.format == "text":
        raise ConfigError("--n-best does not go with --format text, which has a line for each line; use jsonl or tsv")
    if search.unknown and (search.n_best > 1 or options.prefixes is not None):
        raise ConfigError("--replace-unknown goes neither with --n-best, whose others keep unknown words, nor with --prefixes")
    if len(options.files) > 1 and (options.prefixes is not None or options.alignments is not None):
        raise ConfigError("--prefixes and --alignments belong to one input file; translate the files one by one")


def _outputs(options: TranslateOptions) -> list[Path | None]:
    """Return where the translations of each input file go.

    Raises:
        ConfigError: Several files have no output each.
    """
    if options.out is None:
        if len(options.files) > 1:
            raise ConfigError(
                "several input files need an output each: give --out a template with {stem}, {name} or {folder}, "
                "for example --out '{folder}/{stem}.fr'"
            )
        return [None]
    return [_filled(options.out, file) for file in options.files]


def _check_outputs(options: TranslateOptions, outs: Sequence[Path | None]) -> None:
    """Refuse outputs that are a folder, one of the inputs, or one another.

    Raises:
        ConfigError: With the output.
    """
    written = [("--out", out) for out in outs if out is not None]
    if options.alignments is not None:
        written.append(("--alignments", options.alignments))
    read = [*options.files, *([] if options.prefixes is None else [str(options.prefixes)])]
    taken = set()
    for option, path in written:
        real = os.path.realpath(path)
        if os.path.isdir(path):
            raise ConfigError(f"{option} {path}: expected a file, but it is a folder")
        if _is_plain(path) and any(name != STANDARD_INPUT and real == os.path.realpath(name) for name in read):
            raise ConfigError(f"{option} {path}: this is an input file; choose another name")
        if real in taken:
            raise ConfigError(
                f"{option} {path}: two outputs would be written to this file; use {{stem}} or {{name}}, or another name"
            )
        if _is_plain(path):
            taken.add(real)


def _is_plain(path: Path) -> bool:
    """Return whether a path is a file, or nothing yet: no folder, device or named pipe."""
    return os.path.isfile(path) or not os.path.exists(path)


def _can_be_taken_up(file: str, out: Path, options: TranslateOptions) -> bool:
    """Return whether a job reads and writes ordinary files only, so that it can go on where it was stopped."""
    read = (file,) if options.prefixes is None else (file, options.prefixes)
    written = (out,) if options.alignments is None else (out, options.alignments)
    return file != STANDARD_INPUT and all(os.path.isfile(path) for path in read) and all(map(_is_plain, written))


def _filled(template: str, file: str) -> Path:
    path = Path(file)
    stem = Path(path.name.removesuffix(".gz")).stem
    for name, value in (("{folder}", str(path.parent)), ("{stem}", stem), ("{name}", path.name)):
        template = template.replace(name, value)
    return Path(template)


def _total_lines(files: Sequence[str]) -> int | None:
    """Return how many lines there are, for the progress bar; None where it is not worth knowing or cannot be known."""
    if not sys.stderr.isatty() or STANDARD_INPUT in files or not all(os.path.isfile(file) for file in files):
        return None
    total = 0
    for file in files:
        with open_corpus_file(file) as stream:
            total += sum(1 for _ in stream)
    return total


def _identity(folder: RunFolder, search: SearchOptions, options: TranslateOptions) -> dict[str, object]:
    """Return what, beside the input, translations depend on."""
    checkpoints = (
        [read_record(folder.path).sha256]
        if is_export(folder.path)
        else [RunFolder.open(run).checkpoint_identity(search.checkpoint) for run in (folder.path, *search.ensemble)]
    )
    asked = {name: repr(value) for name, value in dataclasses.asdict(search).items() if name != "device"}
    prefixes = None if options.prefixes is None else describe_file(options.prefixes).sha256
    return {
        "version": __version__,
        "checkpoints": checkpoints,
        "decoding": repr(folder.config().decoding),
        "search": asked,
        "format": options.format,
        "prefixes": prefixes,
        "words": options.words,
        "alignments": options.alignments is not None,
        "invalid_utf8": options.invalid_utf8,
    }


@dataclass
class _Counts:
    """What is said at the end."""

    lines: int = 0
    cut: int = 0
    at_limit: int = 0
    loops: int = 0

    def add(self, translations: Iterable[Translation]) -> None:
        for translation in translations:
            self.lines += 1
            self.cut += translation.cut
            self.at_limit += translation.at_limit
            self.loops += translation.repeats

    def told(self, seconds: float, before: int) -> str:
        """Return one line for a person; `before` lines were done in an earlier sitting."""
        rate = (self.lines - before) / seconds if seconds > 0 else 0.0
        return (
            f"{self.lines:,} line{'s' if self.lines != 1 else ''} in {duration(seconds)} ({rate:,.1f} a second): "
            f"{self.cut:,} cut or split, {self.at_limit:,} hit the length limit, {self.loops:,} went into a loop"
        )


@dataclass
class _Source:
    """The lines of a file or of standard input, in chunks, with their prefixes."""

    file: str
    options: TranslateOptions
    messages: Messages
    on_invalid: Callable[[str], None] | None = field(init=False)

    def __post_init__(self) -> None:
        self.on_invalid = self.messages.warn if self.options.invalid_utf8 == "replace" else None

    def chunks(self, search: SearchOptions, done: int = 0) -> Iterator[tuple[list[str], list[str] | None]]:
        """Yield lines after the first `done`, and what their translations begin with."""
        with contextlib.ExitStack() as stack:
            prefixes: Iterator[str] | None = None
            if self.options.prefixes is not None:
                name = str(self.options.prefixes)
                prefixes = itertools.islice(decode_lines(stack.enter_context(open_corpus_file(name)), name), done, None)
            at_least = search.batch_sentences or 1
            for lines in line_chunks(self.file, at_least=at_least, done=done, on_invalid=self.on_invalid):
                forced = None if prefixes is None else list(itertools.islice(prefixes, len(lines)))
                if forced is not None and len(forced) < len(lines):
                    raise DataError(f"{self.options.prefixes}: expected a prefix for each line of input, but it ends too early")
                yield lines, forced
            if prefixes is not None and next(prefixes, None) is not None:
                raise DataError(f"{self.options.prefixes}: expected a prefix for each line of input, but it has more lines")


class _Job:
    """Translates sources one after the other and writes what comes out.

    Args:
        translator: Of the run.
        search: Options of search.
        options: Formats, and what attention is read for.
        messages: Told what was done.
    """

    def __init__(self, translator: Translator, search: SearchOptions, options: TranslateOptions, messages: Messages) -> None:
        self.translator, self.search, self.options, self.messages = translator, search, options, messages
        self.format = FORMATS[options.format]
        self.reader = _reader(translator, options.words) if options.alignments is not None or search.unknown else None

    def stream(self, source: _Source, out: Path | None) -> None:
        """Write translations as they come, to a file that appears when all is done."""
        counts, started = _Counts(), time.monotonic()
        with contextlib.ExitStack() as stack:
            write = stack.enter_context(output(out))
            write_links = None if self.options.alignments is None else stack.enter_context(output(self.options.alignments))
            for lines, prefixes in source.chunks(self.search):
                text, links = self._translate(lines, prefixes, counts)
                write(text)
                if write_links is not None:
                    write_links(links)
        self.messages.info(counts.told(time.monotonic() - started, 0))

    def take_up(self, source: _Source, out: Path, identity: dict[str, object]) -> None:
        """Write translations to a file that grows as `OUT.part`, and go on with one that the same job left."""
        finals = [out] if self.options.alignments is None else [out, self.options.alignments]
        counts, started = _Counts(), time.monotonic()
        with Parts(finals, {**identity, "input": describe_file(source.file).sha256}) as parts:
            before = parts.lines
            if parts.lost:
                self.messages.info(
                    f"{out}.part held {parts.lost:,} lines of a job with another input, model or options; it was begun anew"
                )
            if before:
                counts = _Counts(**parts.counts)
                self.messages.info(f"{out}.part holds {before:,} lines of this job; going on from there")
                self.translator.report(before)
            try:
                for lines, prefixes in source.chunks(self.search, before):
                    texts = self._translate(lines, prefixes, counts)
                    parts.write(texts[: len(finals)], counts.lines, dataclasses.asdict(counts))
            except DataError:  # the same input would fail again
                parts.remove()
                raise
            except KeyboardInterrupt:
                self.messages.info(f"{out}.part holds {parts.lines:,} lines; the same command goes on from there")
                raise
            parts.finish()
        self.messages.info(f"{out}: {counts.told(time.monotonic() - started, before)}")

    def _translate(self, lines: list[str], prefixes: list[str] | None, counts: _Counts) -> tuple[str, str]:
        """Return what to write for lines: translations, and alignments."""
        first = counts.lines + 1
        translations = self.translator.translate_chunk(lines, first_line=first, prefixes=prefixes)
        counts.add(translations)
        texts, links = [translation.text for translation in translations], ""
        if self.reader is not None:
            texts, links = self._read_attention(self.reader, lines, translations)
        written = (
            self.format(Translated(number, *parts), self.translator.target, self.search.n_best)
            for number, parts in enumerate(zip(lines, translations, texts, strict=True), start=first)
        )
        return "".join(written), links

    def _read_attention(
        self, reader: AttentionReader, lines: list[str], translations: list[Translation]
    ) -> tuple[list[str], str]:
        from nmt_cli.inspection.alignment import pharaoh

        texts, links = [], []
        for record in reader.records_of(lines, translations):  # the maps of all lines at once would fill the memory
            texts.append(reader.without_unknown(record) if self.search.unknown else record.translation)
            if self.options.alignments is not None:
                links.append(f"{pharaoh(reader.links(record))}\n")
        return texts, "".join(links)


def _reader(translator: Translator, words: bool) -> AttentionReader:
    from nmt_cli.cli.attention import AttentionReader

    return AttentionReader(translator, words=words)
