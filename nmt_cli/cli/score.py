"""`nmt score`: how probable a model finds given translations."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nmt_cli.cli.console import Messages, advance, progress_bar
from nmt_cli.cli.inputs import STANDARD_INPUT, line_chunks
from nmt_cli.cli.options import SearchOptions
from nmt_cli.cli.outputs import output
from nmt_cli.cli.torch_loading import load_model
from nmt_cli.decoding.engine import SearchSettings
from nmt_cli.decoding.forced import ForcedScorer, ScoredLine, perplexity
from nmt_cli.devices import choose_device, prepare_device
from nmt_cli.errors import ConfigError, DataError
from nmt_cli.runs.folder import RunFolder
from nmt_cli.text.parallel import decode_lines, open_corpus_file

DECIMALS = 6


def run_score(
    run: Path, options: SearchOptions, *, source: str, target: str, form: Literal["text", "json"], out: Path | None
) -> None:
    """Write the score of each line of `target` as a translation of the same line of `source`; a summary goes to stderr.

    Args:
        run: Run folder.
        options: Checkpoint, device, batch size and longest source.
        source: File of source lines, or `-` for standard input.
        target: File of translations, or `-` for standard input.
        form: `text`: the log-probability of each line; `json`: an object for each line.
        out: Where scores go; None: standard output. The file appears when all is done.

    Raises:
        ConfigError: Both files are standard input, or the device is not there.
        DataError: The files have different numbers of lines, or a translation is longer than the model can take.
        RunError: The run or its checkpoint cannot be used.
    """
    if source == target == STANDARD_INPUT:
        raise ConfigError("--source and --target: only one of them can be standard input (-)")
    messages, folder = Messages(), RunFolder.open(run)
    lines = _count_pairs(source, target)
    settings = options.settings(folder.config().decoding)
    device = choose_device(options.device)
    prepare_device(device)
    model = load_model(folder, options.checkpoint).to(device)
    totals = Totals()
    with ExitStack() as stack:
        bar = stack.enter_context(progress_bar(lines, unit=" lines", description="scoring"))
        write = stack.enter_context(output(out))
        scorer = ForcedScorer(
            model,
            *folder.tokenizers(),
            device=device,
            batch_tokens=settings.batch_tokens,
            max_source_length=settings.max_source_length,
            warn=messages.warn,
            on_progress=advance(bar),
        )
        for pairs in paired_chunks(source, target):
            scored = scorer.score_chunk(pairs, first_line=totals.lines + 1)
            write("".join(to_text(line) if form == "text" else to_json(line, settings.search) for line in scored))
            totals.add(scored)
    messages.info(f"{folder.checkpoint_path(options.checkpoint).name}: {totals.text()}")


@dataclass
class Totals:
    """Sums over scored lines.

    Args:
        lines: All lines.
        unscored: Lines without a score: a blank source with a translation.
        tokens: Target tokens, end marks included.
        unknown: Those of them that were scored as the unknown token.
        log_probability: Of all tokens.
    """

    lines: int = 0
    unscored: int = 0
    tokens: int = 0
    unknown: int = 0
    log_probability: float = 0.0

    def add(self, scored: Sequence[ScoredLine]) -> None:
        """Count more lines in."""
        self.lines += len(scored)
        self.unscored += sum(line.log_probability is None for line in scored)
        self.tokens += sum(len(line.tokens) for line in scored)
        self.unknown += sum(line.unknown for line in scored)
        self.log_probability += sum(line.log_probability or 0.0 for line in scored)

    def text(self) -> str:
        """Return the sums in one line."""
        parts = [f"lines {self.lines:,}", f"tokens with end marks {self.tokens:,}"]
        if self.unknown:
            parts.append(f"scored as <unk> {self.unknown:,} ({self.unknown / self.tokens:.1%})")
        if self.unscored:
            parts.append(f"lines without a score {self.unscored:,}")
        parts.append(f"log-probability {self.log_probability:.4f}")
        if self.tokens:
            parts.append(f"perplexity per token {perplexity(self.log_probability, self.tokens):.4f}")
        return ", ".join(parts)


def to_text(line: ScoredLine) -> str:
    """Return the log-probability of a line and a line end; `nan` where there is no score."""
    return f"{math.nan if line.log_probability is None else line.log_probability:.{DECIMALS}f}\n"


def to_json(line: ScoredLine, search: SearchSettings) -> str:
    """Return a line's tokens and scores as a line of JSON; `score` is the one that `search` gives to a translation."""
    total = line.log_probability
    record = {
        "line": line.line,
        "source": line.source,
        "target": line.target,
        "tokens": line.tokens,
        "log_probabilities": [_number(one) for one in line.log_probabilities],
        "log_probability": _number(total),
        "score": _number(None if total is None else search.score(total, len(line.tokens) - 1)),
        "perplexity": _number(line.perplexity),
    }
    return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"


def _number(value: float | None) -> float | None:
    """Return a number as JSON can hold it: rounded, no -0, and None for what is not finite."""
    return None if value is None or not math.isfinite(value) else round(value, DECIMALS) + 0.0


def paired_chunks(source: str, target: str) -> Iterator[list[tuple[str, str]]]:
    """Yield pairs of lines, in chunks of a few thousand, or as they come where one side is standard input.

    Raises:
        DataError: One side has more lines than the other, or cannot be read.
    """
    if target == STANDARD_INPUT:
        yield from ([(line, other) for other, line in chunk] for chunk in paired_chunks(target, source))
        return
    done = 0
    with open_corpus_file(target) as stream:
        others = decode_lines(stream, target)
        chunks = line_chunks(source)
        for chunk in chunks:
            partners = list(itertools.islice(others, len(chunk)))
            if len(partners) < len(chunk):
                count = done + len(chunk) + sum(map(len, chunks))
                raise _different(source, count, target, done + len(partners))
            yield list(zip(chunk, partners, strict=True))
            done += len(chunk)
        if rest := sum(1 for _ in others):
            raise _different(source, done, target, done + rest)


def _different(source: str, source_lines: int, target: str, target_lines: int) -> DataError:
    names = ["standard input" if path == STANDARD_INPUT else path for path in (source, target)]
    return DataError(
        f"expected a translation for each line, but {names[0]} has {source_lines:,} lines and {names[1]} has "
        f"{target_lines:,}; line N of one must be the translation of line N of the other"
    )


def _count_pairs(source: str, target: str) -> int | None:
    """Return how many pairs two files have, so that what is wrong with them is told before any work; None for pipes."""
    paths = [Path(path) for path in (source, target)]
    if STANDARD_INPUT in (source, target) or any(path.exists() and not path.is_file() for path in paths):
        return None
    return sum(map(len, paired_chunks(source, target)))
