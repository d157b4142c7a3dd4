"""Reports of a test set: one dictionary, as JSON for scripts and as Markdown for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nmt_cli.evaluation.scores import Score


@dataclass(frozen=True)
class Report:
    """Everything that makes a score quotable.

    Args:
        run: Name of the run.
        split: Name of the set.
        scores: The scores.
        lines: Number of sentences.
        details: Named facts: checkpoint, decoding settings, hashes, versions, speed.
        examples: A few lines as (source, translation, reference).
    """

    run: str
    split: str
    scores: tuple[Score, ...]
    lines: int
    details: Mapping[str, Any]
    examples: tuple[tuple[str, str, str], ...] = ()

    def to_json(self) -> str:
        """Return the report as JSON text."""
        content = {
            "run": self.run,
            "split": self.split,
            "lines": self.lines,
            "scores": scores_by_name(self.scores),
            **self.details,
            "examples": [
                {"source": source, "translation": translation, "reference": reference}
                for source, translation, reference in self.examples
            ],
        }
        return json.dumps(content, ensure_ascii=False, indent=2) + "\n"

    def to_markdown(self) -> str:
        """Return the report as Markdown text."""
        rows = [
            f"# {self.run}: {self.split}",
            "",
            f"{self.lines} sentences.",
            "",
            "| metric | score | signature |",
            "| --- | ---: | --- |",
        ]
        rows += [f"| {s.metric} | {format_score(s)} | `{_cell(s.signature)}` |" for s in self.scores]
        rows += ["", "| | |", "| --- | --- |"]
        rows += [f"| {name.replace('_', ' ')} | {_flat(value)} |" for name, value in self.details.items()]
        if self.examples:
            rows += ["", "| source | translation | reference |", "| --- | --- | --- |"]
            rows += ["| " + " | ".join(_cell(text) for text in example) + " |" for example in self.examples]
        return "\n".join(rows) + "\n"


def scores_by_name(scores: Sequence[Score]) -> dict[str, dict[str, float | str]]:
    """Return metric -> score and signature, for JSON."""
    return {score.metric: {"score": score.score, "signature": score.signature} for score in scores}


def format_score(score: Score) -> str:
    """Return the score as people quote it: two decimals, three for `book-bleu`."""
    return f"{score.score:.3f}" if score.metric == "book-bleu" else f"{score.score:.2f}"


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_flat(item)}" for key, item in value.items())
    return _cell(f"{value:.4g}" if isinstance(value, float) else str(value))


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
