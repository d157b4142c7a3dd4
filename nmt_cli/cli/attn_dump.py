"""`nmt attn-dump`: the attention of translated lines as data and as pictures."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from nmt_cli.cli.console import Messages, progress_bar
from nmt_cli.cli.loading import make_translator
from nmt_cli.cli.options import SearchOptions
from nmt_cli.decoding.torch_engine import TorchEngine
from nmt_cli.decoding.translator import Translation, Translator
from nmt_cli.errors import ConfigError, disk_errors, nearest
from nmt_cli.inspection.dumps import AttentionRecord
from nmt_cli.inspection.maps import forced_maps
from nmt_cli.runs.folder import RunFolder, current_umask, write_atomically
from nmt_cli.text.parallel import read_lines
from nmt_cli.text.vocab import EOS

FORMATS = ("json", "npz", "png")
CHUNK = 256


def run_attn_dump(
    run: Path, options: SearchOptions, *, text: str | None, file: Path | None, out: Path, formats: Sequence[str]
) -> None:
    """Translate lines and write the attention of each; see `nmt attn-dump --help`.

    Raises:
        ConfigError: The options do not fit together.
    """
    if (text is None) == (file is None):
        raise ConfigError("expected --text TEXT or --input FILE, one of them; see nmt attn-dump --help")
    for name in formats:
        if name not in FORMATS:
            raise ConfigError(f"--format: unknown format {name!r}{nearest(name, FORMATS) or '.'} Known: {', '.join(FORMATS)}")
    if not formats:
        raise ConfigError(f"--format: expected at least one of {', '.join(FORMATS)}, but there is none")
    lines = read_lines(file) if file is not None else [" ".join((text or "").splitlines())]
    messages, folder = Messages(), RunFolder.open(run)
    translator = make_translator(folder, options, warn=messages.warn)
    checkpoint = folder.checkpoint_path(options.checkpoint).name
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    records = attention_records(translator, lines, checkpoint)
    with progress_bar(len(lines), unit=" lines", description="attention") as bar, _json_lines(out, formats) as write_json:
        for record in records:
            write_json(record)
            _write_files(record, out, formats)
            bar.update(1)
    messages.info(f"{out}: attention of {len(lines):,} line{'s' if len(lines) != 1 else ''} as {', '.join(formats)}")


@contextmanager
def _json_lines(out: Path, formats: Sequence[str]) -> Iterator[Callable[[AttentionRecord], None]]:
    """Give a function that adds a record to `attention.jsonl`, which appears when all are there; without json, an idle one."""
    if "json" not in formats:
        yield lambda record: None
        return
    with disk_errors(out):
        handle, part = tempfile.mkstemp(prefix=".attention.jsonl.", dir=out)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:

            def write(record: AttentionRecord) -> None:
                with disk_errors(out):
                    stream.write(record.to_json())

            yield write
        with disk_errors(out):
            os.chmod(part, 0o666 & ~current_umask())
            os.replace(part, out / "attention.jsonl")
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


def attention_records(translator: Translator, lines: Sequence[str], checkpoint: str) -> Iterator[AttentionRecord]:
    """Yield the record of each line, in order: its best translation, and the maps of one forced pass over it."""
    for start in range(0, len(lines), CHUNK):
        chunk = lines[start : start + CHUNK]
        translations = translator.translate_chunk(chunk, first_line=start + 1)
        for number, (line, translation) in enumerate(zip(chunk, translations, strict=True), start=start + 1):
            yield _record(translator, number, line, translation, checkpoint)


def _record(translator: Translator, number: int, line: str, translation: Translation, checkpoint: str) -> AttentionRecord:
    if not translation.hypotheses:
        return AttentionRecord(number, line, translation.text, checkpoint)
    engine = translator.engine
    assert isinstance(engine, TorchEngine)
    best = translation.hypotheses[0]
    source = translator.fitted(translator.source.encode(line))
    target = [*best.tokens, EOS] if best.ended == "eos" else list(best.tokens)
    source_tokens = translator.source.vocabulary.tokens([*source, EOS])
    target_tokens = translator.target.vocabulary.tokens(target)
    maps = forced_maps(
        engine.model, source, target, source_tokens=source_tokens, target_tokens=target_tokens, device=engine.device
    )
    return AttentionRecord(
        number,
        line,
        translation.text,
        checkpoint,
        source_tokens=tuple(source_tokens),
        target_tokens=tuple(target_tokens),
        ended=best.ended,
        score=best.score,
        maps=maps,
    )


def _write_files(record: AttentionRecord, out: Path, formats: Sequence[str]) -> None:
    if "npz" in formats:
        write_atomically(out / f"line-{record.line:05d}.npz", record.to_npz())
    if "png" in formats:
        for kind, picture in record.to_png().items():
            write_atomically(out / f"line-{record.line:05d}-{kind}.png", picture)
