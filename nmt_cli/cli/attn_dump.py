"""`nmt attn-dump`: the attention of translated lines as data, as pictures, as a page, and in the terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nmt_cli.cli.attention import AttentionReader
from nmt_cli.cli.console import Messages, progress_bar, write_data
from nmt_cli.cli.loading import make_translator
from nmt_cli.cli.options import SearchOptions
from nmt_cli.errors import ConfigError, DataError, nearest
from nmt_cli.inspection.alignment import pharaoh
from nmt_cli.inspection.dumps import AttentionRecord
from nmt_cli.inspection.maps import KINDS, Kind, Selection
from nmt_cli.inspection.page import page_end, page_record, page_start
from nmt_cli.inspection.plots import to_png, to_svg
from nmt_cli.runs.folder import RunFolder, whole_file, write_atomically
from nmt_cli.text.parallel import read_lines

FORMATS = ("json", "npz", "png", "svg", "html", "terminal", "pharaoh")


@dataclass(frozen=True)
class DumpOptions:
    """Options of `nmt attn-dump` beside those of search; exactly one of `text` and `file` is given."""

    text: str | None = None
    file: Path | None = None
    target: str | None = None
    targets: Path | None = None
    out: Path | None = None
    formats: tuple[str, ...] = ("json",)
    kinds: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    average: tuple[str, ...] = ()
    words: bool = False


def run_attn_dump(run: Path, search: SearchOptions, options: DumpOptions) -> None:
    """Translate lines, or take given translations, and write the attention of each; see `nmt attn-dump --help`.

    Raises:
        ConfigError: The options do not fit together.
        DataError: There are not as many given translations as lines.
    """
    selection = check_options(options)
    lines = read_lines(options.file) if options.file is not None else [_one_line(options.text)]
    targets = _given(options, len(lines))
    messages, folder = Messages(), RunFolder.open(run)
    translator = make_translator(folder, search, warn=messages.warn)
    reader = AttentionReader(translator, selection, folder.checkpoint_path(search.checkpoint).name, words=options.words)
    if lines and lines[0].strip():
        next(reader.records(lines[:1], targets and targets[:1]))  # a layer that is not there is told before anything is written
    files = [name for name in options.formats if name != "terminal"]
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(progress_bar(len(lines), unit=" lines", description="attention"))
        writers = [stack.enter_context(_writer(name, options.out or Path(), reader)) for name in options.formats]
        for record in reader.records(lines, targets):
            for write in writers:
                write(record)
            bar.update(1)
    if files:
        messages.info(f"{options.out}: attention of {len(lines):,} line{'s' if len(lines) != 1 else ''} as {', '.join(files)}")


def check_options(options: DumpOptions) -> Selection:
    """Return which maps are wanted.

    Raises:
        ConfigError: The options do not fit together.
    """
    if (options.text is None) == (options.file is None):
        raise ConfigError("expected --text TEXT or --input FILE, one of them; see nmt attn-dump --help")
    if options.target is not None and options.text is None:
        raise ConfigError("--target gives the translation of --text; for --input use --targets FILE")
    if options.targets is not None and options.file is None:
        raise ConfigError("--targets gives the translations of --input; for --text use --target TEXT")
    _known("--format", options.formats, FORMATS)
    _known("--kind", options.kinds, KINDS)
    _known("--average", options.average, ("heads", "layers"))
    if not options.formats:
        raise ConfigError(f"--format: expected at least one of {', '.join(FORMATS)}, but there is none")
    if options.out is None and set(options.formats) != {"terminal"}:
        raise ConfigError("--out DIR is needed for every format but terminal")
    kinds: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind in options.kinds) or KINDS
    return Selection(
        kinds,
        _numbers("--layer", options.layers),
        _numbers("--head", options.heads),
        average_heads="heads" in options.average,
        average_layers="layers" in options.average,
    )


def _known(option: str, given: Sequence[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise ConfigError(f"{option}: unknown value {name!r}{nearest(name, known) or '.'} Known: {', '.join(known)}")


def _numbers(option: str, given: Sequence[str]) -> tuple[int, ...] | None:
    for text in given:
        if not text.isdecimal():
            raise ConfigError(f"{option}: expected numbers from 0, separated by commas, but one is {text!r}")
    return tuple(map(int, given)) or None


def _one_line(text: str | None) -> str:
    return " ".join((text or "").splitlines())


def _given(options: DumpOptions, count: int) -> list[str] | None:
    """Return the translations that were given, if any."""
    if options.target is not None:
        return [_one_line(options.target)]
    if options.targets is None:
        return None
    targets = read_lines(options.targets)
    if len(targets) != count:
        raise DataError(
            f"expected a translation for each line, but {options.file} has {count} lines and "
            f"{options.targets} has {len(targets)}"
        )
    return targets


@contextmanager
def _writer(name: str, out: Path, reader: AttentionReader) -> Iterator[Callable[[AttentionRecord], None]]:
    """Give a function that writes records in one format. A file of all lines appears when all are there."""
    if name == "terminal":
        yield lambda record: write_data(f"{record.to_text()}\n\n")
    elif name == "json":
        with whole_file(out / "attention.jsonl") as write:
            yield lambda record: write(record.to_json())
    elif name == "pharaoh":
        with whole_file(out / "alignment.txt") as write:
            yield lambda record: write(f"{pharaoh(reader.links(record))}\n")
    elif name == "html":
        with whole_file(out / "attention.html") as write:
            write(page_start())
            yield lambda record: write(page_record(record))
            write(page_end())
    else:
        yield lambda record: _write_files(record, out, name)


def _write_files(record: AttentionRecord, out: Path, name: str) -> None:
    """Write a record to files of its own."""
    stem = f"line-{record.line:05d}"
    if name == "npz":
        write_atomically(out / f"{stem}.npz", record.to_npz())
        return
    for kind, figure in record.pictures().items():
        write_atomically(out / f"{stem}-{kind}.{name}", to_png(figure) if name == "png" else to_svg(figure))
