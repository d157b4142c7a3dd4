"""What `nmt train` shows and writes while it trains: log lines, metrics.jsonl, validations, the progress bar."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType

from nmt_cli.cli.console import Messages, duration, progress_bar, table_text
from nmt_cli.cli.prepare import Prepared
from nmt_cli.decoding.engine import SearchSettings
from nmt_cli.decoding.torch_engine import TorchEngine
from nmt_cli.decoding.translator import Translator, TranslatorSettings
from nmt_cli.errors import disk_errors
from nmt_cli.evaluation.scores import score_corpus
from nmt_cli.models.interface import Seq2Seq
from nmt_cli.text.batching import in_order
from nmt_cli.text.examples import Examples
from nmt_cli.training.loop import TrainingHooks, UpdateReport, ValidationReport, validation_scores

SAMPLES = 3
VALIDATION_TOKENS = 4096
BAR = "{desc} {percentage:3.0f}%|{bar}|"


class Validation:
    """Scores a model on the validation set and keeps a few translations to look at.

    Args:
        prepared: Config, tokenizers, device and precision of the run.
        examples: The validation pairs as ids.
        lines: Source and target lines.
        messages: Told once of each line that is cut.
    """

    def __init__(
        self, prepared: Prepared, examples: Examples, lines: tuple[Sequence[str], Sequence[str]], messages: Messages
    ) -> None:
        self.config, self.examples = prepared.config, examples
        self.sources, self.references = lines
        self.tokenizers, self.device, self.precision = prepared.tokenizers, prepared.device, prepared.precision
        self.samples: list[tuple[str, str, str]] = []
        self._messages, self._warned = messages, set[str]()

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._messages.warn(f"validation set: {text}")

    def __call__(self, model: Seq2Seq) -> dict[str, float]:
        """Return loss, perplexity and accuracy under teacher forcing, and the scores of greedy translations."""
        batches = in_order(self.examples, tokens=VALIDATION_TOKENS)
        scores = validation_scores(model, batches, self.device, self.precision)
        metrics = self.config.training.validation_metrics
        if not metrics or not math.isfinite(scores["loss"]):
            return scores
        settings = TranslatorSettings(
            search=SearchSettings(1, self.config.decoding.length_penalty, self.config.decoding.max_length),
            batch_tokens=self.config.decoding.batch_tokens,
            max_source_length=self.config.decoding.max_source_length,
        )
        translator = Translator(TorchEngine(model, self.device), *self.tokenizers, settings, warn=self._warn)
        translations = translator.translate(self.sources)
        step = max(1, len(self.sources) // SAMPLES)
        self.samples = [(self.sources[i], translations[i], self.references[i]) for i in range(0, len(self.sources), step)][
            :SAMPLES
        ]
        for metric in metrics:
            scores[metric] = score_corpus(metric, translations, self.references, target=self.config.data.target).score
        return scores


class Display:
    """Turns the loop's reports into log lines, `metrics.jsonl` and a progress bar.

    Args:
        messages: Where lines go.
        metrics: Path of `metrics.jsonl`.
        validation: Asked for sample translations.
    """

    def __init__(self, messages: Messages, metrics: Path, validation: Validation | None) -> None:
        self.messages, self.metrics, self.validation = messages, metrics, validation
        self.bar = progress_bar(1.0, unit="", description="training", form=BAR)

    def hooks(self, stop_signal: Callable[[], int | None]) -> TrainingHooks:
        """Return the functions that the training loop is handed."""
        return TrainingHooks(self.validation, self.on_step, self.on_update, self.on_validation, stop_signal)

    def on_step(self, fraction: float, remaining: float) -> None:
        """Move the progress bar."""
        if not self.bar.disable:
            self.bar.set_description_str(f"training, {duration(remaining)} left", refresh=False)
            self.bar.update(fraction - self.bar.n)

    def on_update(self, report: UpdateReport) -> None:
        """Log one line."""
        self._write({"event": "update", **asdict(report)})
        bad = f"  skipped {report.bad_updates}" if report.bad_updates else ""
        self.messages.info(
            f"update {report.update:>6,}  epoch {report.epoch:>3}  loss {report.loss:6.3f}  rate {report.learning_rate:.2e}  "
            f"{report.tokens_per_second:>6,.0f} tok/s  {duration(report.remaining_seconds)} left{bad}"
        )

    def on_validation(self, report: ValidationReport) -> None:
        """Log the scores and a few translations."""
        self._write(
            {
                "event": "validation",
                "update": report.update,
                "epoch": report.epoch,
                **report.scores,
                "seconds": report.seconds,
            }
        )
        best = f"  <- best {report.metric}" if report.is_best else ""
        greedy = "; scores are of greedy translations" if self.validation and self.validation.samples else ""
        self.messages.info(
            f"update {report.update:>6,}  validation: {format_scores(report.scores)}{best}\n"
            f"               accuracy {report.scores['accuracy']:.1f} (teacher-forced){greedy}"
        )
        for source, translation, reference in self.validation.samples if self.validation else []:
            self.messages.info(f"    {source}\n      -> {translation}\n      == {reference}")

    def close(self) -> None:
        """Take the progress bar away."""
        self.bar.close()

    def _write(self, event: Mapping[str, object]) -> None:
        finite = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in event.items()}
        with disk_errors(self.metrics), open(self.metrics, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(finite) + "\n")


def format_scores(scores: Mapping[str, float]) -> str:
    """Return scores in one line, accuracy left out."""
    forms = {"loss": "loss {:.3f}", "perplexity": "perplexity {:.2f}", "bleu": "BLEU {:.1f}", "chrf": "chrF {:.1f}"}
    return "  ".join(form.format(scores[name]) for name, form in forms.items() if name in scores)


def validations_table(history: Sequence[Mapping[str, float]], best_update: int) -> str:
    """Return all validations as a table, the best one marked."""
    names = [name for name in ("loss", "perplexity", "accuracy", "bleu", "chrf") if any(name in row for row in history)]
    rows = [
        (
            f"{row['update']:,.0f}{' *' if row['update'] == best_update else ''}",
            f"{row['epoch']:.0f}",
            *(f"{row[name]:.3f}" if name == "loss" else f"{row[name]:.2f}" for name in names),
        )
        for row in history
        if all(name in row for name in names)
    ]
    return table_text(("update", "epoch", *names), rows, title="validations (* best)")


@contextlib.contextmanager
def stop_signals() -> Iterator[Callable[[], int | None]]:
    """Give a function that returns the number of a SIGINT or SIGTERM that has come, or None. A second one ends at once."""
    received: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for each, handler in before.items():
            signal.signal(each, handler)
        with contextlib.suppress(OSError):  # nobody may read it any more; a handler cannot use sys.stderr
            os.write(2, b"\nstopping after this update; everything will be saved (the same again ends at once)\n")

    for number in before:
        signal.signal(number, note)
    try:
        yield lambda: received[0] if received else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
