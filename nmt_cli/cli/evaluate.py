"""`nmt evaluate`: scores of a run's test sets, or of given translations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nmt_cli.cli.console import Messages, advance, print_data, progress_bar, table_text
from nmt_cli.cli.options import SearchOptions
from nmt_cli.errors import ConfigError, DataError, ScoreError
from nmt_cli.evaluation.report import format_score, scores_by_name
from nmt_cli.evaluation.scores import Score, check_metric, score_corpus, tokenised_share
from nmt_cli.runs.folder import RunFolder
from nmt_cli.text.parallel import read_lines

if TYPE_CHECKING:
    from nmt_cli.decoding.translator import Translator

SUSPICIOUS_SHARE = 0.3


@dataclass(frozen=True)
class EvaluateOptions:
    """What to score and how to print it."""

    splits: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    json: bool = False
    score_only: bool = False
    fail_under: str = ""
    target: str | None = None


def run_evaluate(
    run: Path | None,
    options: EvaluateOptions,
    search: SearchOptions,
    *,
    hypotheses: Path | None,
    references: Path | None,
) -> None:
    """Score and print; see `nmt evaluate --help`.

    Raises:
        ConfigError: The options do not fit together.
        DataError: Hypotheses and references differ in length.
        ScoreError: A score of `fail_under` was not reached; everything was printed first.
    """
    limits = _limits(options.fail_under)
    for option, names in (("--metrics", options.metrics), ("--fail-under", tuple(limits))):
        for metric in names:
            check_metric(metric, option)
    if (run is None) == (hypotheses is None) or (hypotheses is None) != (references is None):
        raise ConfigError("expected a run folder, or --hypotheses FILE with --references FILE; see nmt evaluate --help")
    _check_fits(options, search, run)
    messages = Messages()
    if run is not None:
        results = _score_run(RunFolder.open(run), options, search, limits, messages)
    else:
        assert hypotheses is not None
        assert references is not None
        metrics = options.metrics or ("bleu", "chrf")
        _check_single(options, 1, len(metrics))
        lines, truth = _aligned(hypotheses, references)
        warn_if_tokenised(lines, str(hypotheses), messages)
        warn_if_tokenised(truth, str(references), messages)
        metrics = tuple(dict.fromkeys((*metrics, *limits)))
        results = {hypotheses.name: [score_corpus(metric, lines, truth, target=options.target or "en") for metric in metrics]}
    _print(results, options)
    _check_limits(results, limits)


def _check_fits(options: EvaluateOptions, search: SearchOptions, run: Path | None) -> None:
    if run is None and (options.splits or search != SearchOptions()):
        raise ConfigError("--hypotheses are scored as they are: --split and the options of translation belong to a run folder")
    if run is not None and options.target is not None:
        raise ConfigError("--target belongs to --hypotheses; a run folder knows its languages")
    if options.json and options.score_only:
        raise ConfigError("--json and --score-only are two forms of the output: give one of them")


def translate_split(translator: Translator, folder: RunFolder, split: str) -> tuple[list[str], list[str], list[str]]:
    """Return the source lines of a split, their translations, and the references."""
    sources, references = folder.split(split)
    return sources, translator.translate(sources), references


def _score_run(
    folder: RunFolder, options: EvaluateOptions, search: SearchOptions, limits: dict[str, float], messages: Messages
) -> dict[str, list[Score]]:
    from nmt_cli.cli.loading import make_translator

    config = folder.config()
    splits = options.splits or tuple(config.data.tests)
    metrics = options.metrics or config.evaluation.metrics
    if not splits:
        raise ConfigError(f"--split: this run has no test set; it has {', '.join(folder.splits()) or 'no sets at all'}")
    _check_single(options, len(splits), len(metrics))
    total = sum(len(folder.split(split)[0]) for split in splits)
    metrics = tuple(dict.fromkeys((*metrics, *limits)))
    results = {}
    with progress_bar(total, unit=" lines", description="translating") as bar:
        translator = make_translator(folder, search, warn=messages.warn, on_progress=advance(bar))
        for split in splits:
            _, lines, references = translate_split(translator, folder, split)
            results[split] = [score_corpus(metric, lines, references, target=config.data.target) for metric in metrics]
    return results


def _aligned(hypotheses: Path, references: Path) -> tuple[list[str], list[str]]:
    lines, truth = read_lines(hypotheses), read_lines(references)
    if not lines and not truth:
        raise DataError(f"{hypotheses}: expected at least one line to score, but it is empty")
    if len(lines) != len(truth):
        raise DataError(
            f"expected as many hypotheses as references, but {hypotheses} has {len(lines)} lines and {references} has "
            f"{len(truth)}"
        )
    return lines, truth


def warn_if_tokenised(lines: Sequence[str], name: str, messages: Messages) -> None:
    """Warn when a good part of the lines look tokenised: sacrebleu wants plain text."""
    share = tokenised_share(lines)
    if share > SUSPICIOUS_SHARE:
        messages.warn(
            f"{name}: {share:.0%} of the lines look tokenised or carry subword marks; scores of such text mean little beside "
            "those of plain text. Detokenise it first"
        )


def _check_single(options: EvaluateOptions, splits: int, metrics: int) -> None:
    if options.score_only and (splits != 1 or metrics != 1):
        raise ConfigError(
            f"--score-only prints one number and needs one split and one metric, but there are {splits} and {metrics}; "
            "add --split NAME or --metrics NAME"
        )


def _print(results: dict[str, list[Score]], options: EvaluateOptions) -> None:
    if options.json:
        print_data(
            json.dumps({split: scores_by_name(scores) for split, scores in results.items()}, ensure_ascii=False, indent=2)
        )
    elif options.score_only:
        ((score, *_),) = results.values()
        print_data(format_score(score))
    else:
        print_data(scores_table(results))


def scores_table(results: dict[str, list[Score]]) -> str:
    """Return splits, metrics and scores as a table, with each metric's signature below."""
    rows = [(split, score.metric, format_score(score)) for split, scores in results.items() for score in scores]
    signatures = {score.metric: score.signature for scores in results.values() for score in scores}
    return "\n".join(
        [
            table_text(("split", "metric", "score"), rows, left=2),
            "",
            *(f"{name}: {text}" for name, text in signatures.items()),
        ]
    )


def _limits(text: str) -> dict[str, float]:
    limits = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        metric, _, value = part.partition("=")
        try:
            limits[metric.strip()] = float(value)
        except ValueError:
            raise ConfigError(f"--fail-under: expected metric=score, for example bleu=30, but is {part!r}") from None
    return limits


def _check_limits(results: dict[str, list[Score]], limits: dict[str, float]) -> None:
    missed = []
    for split, scores in results.items():
        for score in scores:
            limit = limits.get(score.metric)
            if limit is None:
                continue
            too_bad = score.score > limit if score.metric == "ter" else not score.score >= limit
            if too_bad:
                missed.append(f"{split}: {score.metric} is {format_score(score)}, but --fail-under asks for {limit:g}")
    if missed:
        raise ScoreError("\n".join(missed))
