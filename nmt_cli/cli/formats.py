"""The forms in which `nmt translate` writes a translation: plain text, JSON lines, tab-separated columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nmt_cli.decoding.engine import Hypothesis
from nmt_cli.decoding.translator import Translation
from nmt_cli.text.tokenizers import Tokenizer
from nmt_cli.text.vocab import EOS, SPECIALS


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
    parts = [_of(hypothesis, target) for hypothesis in translation.best]
    record: dict[str, Any] = {"line": line.number, "source": line.source, "translation": line.text}
    if len(parts) == 1:
        record |= parts[0]
    else:  # a blank line, or one that was split
        record["tokens"] = [token for part in parts for token in part["tokens"]]
        record["log_probabilities"] = [value for part in parts for value in part["log_probabilities"]]
        record |= {"score": None, "ended": ("limit" if translation.at_limit else "eos") if parts else None}
    record |= {"cut": translation.cut, "repeats": translation.repeats}
    if n_best > 1:
        record["n_best"] = [
            {"translation": target.decode(hypothesis.tokens), **_of(hypothesis, target)}
            for hypothesis in translation.hypotheses[:n_best]
        ]
    return f"{json.dumps(record, ensure_ascii=False)}\n"


def _of(hypothesis: Hypothesis, target: Tokenizer) -> dict[str, Any]:
    tokens = target.vocabulary.tokens(hypothesis.tokens)
    return {
        "tokens": [*tokens, SPECIALS[EOS]] if hypothesis.ended == "eos" else tokens,
        "log_probabilities": list(hypothesis.token_log_probabilities),
        "score": hypothesis.score,
        "ended": hypothesis.ended,
    }


def as_columns(line: Translated, target: Tokenizer, n_best: int) -> str:
    """Return line number, rank, score, how it ended, source and translation, a row for each of the `n_best` hypotheses."""
    hypotheses: Sequence[Hypothesis | None] = line.translation.hypotheses[:n_best] or (None,)
    rows = []
    for rank, hypothesis in enumerate(hypotheses, start=1):
        text = line.text if rank == 1 or hypothesis is None else target.decode(hypothesis.tokens)
        score, ended = ("", "") if hypothesis is None else (f"{hypothesis.score:.6f}", hypothesis.ended)
        rows.append("\t".join((str(line.number), str(rank), score, ended, _one_cell(line.source), _one_cell(text))))
    return "".join(f"{row}\n" for row in rows)


def _one_cell(text: str) -> str:
    return text.replace("\t", " ").replace("\r", " ")


FORMATS: dict[str, Callable[[Translated, Tokenizer, int], str]] = {"text": as_text, "jsonl": as_json, "tsv": as_columns}
"""Name -> function from a translated line, the target tokenizer and the number of hypotheses wanted to lines of text."""
