"""The forms in which `nmt translate` writes a translation: plain text, JSON lines, tab-separated columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nmt_cli.decoding.engine import Hypothesis
from nmt_cli.decoding.translator import Translation
from nmt_cli.text.tokenizers import Tokenizer
from nmt_cli.text.vocab import EOS


@dataclass(frozen=True)
class Translated:
    """A line and what became of it.

    Args:
        number: Of the line, from 1.
        source: The raw line.
        translation: Its translation, as found.
        text: Its text, unknown words replaced where that was asked for.
    """

    number: int
    source: str
    translation: Translation
    text: str


def as_text(line: Translated, target: Tokenizer, n_best: int) -> str:
    """Return the translation alone."""
    return f"{line.text}\n"


def as_json(line: Translated, target: Tokenizer, n_best: int) -> str:
    """Return an object with everything that is known; `n_best` lists the best so many where that is more than one."""
    translation = line.translation
    record: dict[str, Any] = {"line": line.number, "source": line.source, "translation": line.text}
    record |= _of(translation.best, target)
    record |= {"cut": translation.cut, "repeats": translation.repeats}
    if n_best > 1:
        record["n_best"] = [
            {"translation": target.decode(hypothesis.tokens, prefix=translation.prefix), **_of([hypothesis], target)}
            for hypothesis in translation.hypotheses[:n_best]
        ]
    return f"{json.dumps(record, ensure_ascii=False)}\n"


def _of(parts: Sequence[Hypothesis], target: Tokenizer) -> dict[str, Any]:
    """Return what is known of a translation: one hypothesis, none for a blank line, or those of the parts of a split one."""
    tokens = [target.vocabulary.tokens([*part.tokens, EOS] if part.ended == "eos" else part.tokens) for part in parts]
    score, ended = _outcome(parts)
    return {
        "tokens": [token for of_part in tokens for token in of_part],
        "log_probabilities": [number for part in parts for number in part.token_log_probabilities],
        "score": score,
        "ended": ended,
    }


def _outcome(parts: Sequence[Hypothesis]) -> tuple[float | None, str | None]:
    """Return score and how it ended; parts have no score together, and ended as the worst of them."""
    if not parts:
        return None, None
    return parts[0].score if len(parts) == 1 else None, max(part.ended for part in parts)  # `limit` comes after `eos`


def as_columns(line: Translated, target: Tokenizer, n_best: int) -> str:
    """Return line number, rank, score, how it ended, source and translation, a row for each of the `n_best` hypotheses."""
    translation = line.translation
    others = translation.hypotheses[1:n_best]
    texts = [line.text, *(target.decode(hypothesis.tokens, prefix=translation.prefix) for hypothesis in others)]
    rows = []
    for rank, (parts, text) in enumerate(zip((translation.best, *zip(others)), texts, strict=True), start=1):
        score, ended = _outcome(parts)
        told = "" if score is None else f"{score:.6f}"
        rows.append("\t".join((str(line.number), str(rank), told, ended or "", _one_cell(line.source), _one_cell(text))))
    return "".join(f"{row}\n" for row in rows)


def _one_cell(text: str) -> str:
    return text.replace("\t", " ").replace("\r", " ")


FORMATS: dict[str, Callable[[Translated, Tokenizer, int], str]] = {"text": as_text, "jsonl": as_json, "tsv": as_columns}
"""Name -> function from a translated line, the target tokenizer and the number of hypotheses wanted to lines of text."""
