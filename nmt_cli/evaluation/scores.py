"""Scores of translations, each with a signature that says how it was computed. Strings in, numbers out."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from nmt_cli.errors import ConfigError, DataError, nearest


@dataclass(frozen=True)
class Score:
    """A corpus score with its signature. 0 to 100, `book-bleu` 0 to 1; TER may pass 100 and is better when lower."""

    metric: str
    score: float
    signature: str


def score_corpus(metric: str, hypotheses: Sequence[str], references: Sequence[str], *, target: str = "en") -> Score:
    """Return the score of a whole corpus.

    Args:
        metric: A name in `METRICS`.
        hypotheses: One translation a line.
        references: One reference a line.
        target: Language code, for the tokenisation of `bleu-multi30k`.

    Raises:
        ConfigError: The metric is unknown.
        DataError: The counts differ, or there is nothing to score.
    """
    check_metric(metric)
    if len(hypotheses) != len(references):
        raise DataError(f"expected as many hypotheses as references, but there are {len(hypotheses)} and {len(references)}")
    if not hypotheses:
        raise DataError("expected at least one line to score, but there is none")
    return METRICS[metric](metric, hypotheses, references, target)


def check_metric(metric: str, option: str = "--metrics") -> None:
    """Raise a `ConfigError` that names the nearest metric when `metric`, given by `option`, is unknown."""
    if metric not in METRICS:
        raise ConfigError(f"{option}: unknown metric {metric!r}{nearest(metric, METRICS) or '.'} Known: {', '.join(METRICS)}")


def _sacrebleu(name: str, **options: Any) -> Callable[[str, Sequence[str], Sequence[str], str], Score]:
    def score(metric: str, hypotheses: Sequence[str], references: Sequence[str], target: str) -> Score:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
        from sacrebleu.metrics.ter import TER

        scorer = {"BLEU": BLEU, "CHRF": CHRF, "TER": TER}[name](**options)
        result = scorer.corpus_score(list(hypotheses), [list(references)])
        return Score(metric, float(result.score), str(scorer.get_signature()))

    return score


def _multi30k_bleu(metric: str, hypotheses: Sequence[str], references: Sequence[str], target: str) -> Score:
    """BLEU as in the Multi30k papers: both sides lower-cased, punctuation normalised and Moses-tokenised."""
    from sacrebleu.metrics.bleu import BLEU

    scorer = BLEU(tokenize="none", force=True)
    result = scorer.corpus_score(
        [moses_text(line, target) for line in hypotheses], [[moses_text(line, target) for line in references]]
    )
    signature = (
        str(scorer.get_signature()).replace("case:mixed", "case:lc").replace("tok:none", f"tok:moses-{target}|norm:punct")
    )
    return Score(metric, float(result.score), signature)


@lru_cache(maxsize=4)
def _moses(language: str) -> tuple[Any, Any]:
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    return MosesPunctNormalizer(lang=language), MosesTokenizer(lang=language)


def moses_text(line: str, language: str) -> str:
    """Return a line lower-cased, punctuation normalised, Moses-tokenised without escapes or dash splitting."""
    normalizer, tokenizer = _moses(language)
    text: str = tokenizer.tokenize(
        normalizer.normalize(line.lower()), return_str=True, escape=False, aggressive_dash_splits=False
    )
    return text


def _book_bleu(metric: str, hypotheses: Sequence[str], references: Sequence[str], target: str) -> Score:
    scores = [sentence_book_bleu(h, r) for h, r in zip(hypotheses, references, strict=True)]
    return Score(metric, sum(scores) / len(scores), "mean of sentences|k:2|tok:space before , . ! ?|case:mixed")


def book_tokens(line: str) -> list[str]:
    """Return the d2l book's tokens: a space before , . ! and ?, then words between spaces."""
    return re.sub(r"(?<!\s)(?=[,.!?])", " ", line).split()


def sentence_book_bleu(hypothesis: str, reference: str, k: int = 2) -> float:
    """Return exp(min(0, 1 - len_ref / len_hyp)) · Π_{n=1..min(k, len_hyp)} p_n^(1/2^n), 0 to 1; 0 for an empty hypothesis.

    Reference: Dive into Deep Learning, section 10.7 (after Papineni et al. 2002); our deviation: n stops at the hypothesis's
    length, where the book divides by zero.
    """
    predicted, truth = book_tokens(hypothesis), book_tokens(reference)
    if not predicted:
        return 0.0
    score = math.exp(min(0.0, 1 - len(truth) / len(predicted)))
    for n in range(1, min(k, len(predicted)) + 1):
        available = Counter(tuple(truth[i : i + n]) for i in range(len(truth) - n + 1))
        matches = (Counter(tuple(predicted[i : i + n]) for i in range(len(predicted) - n + 1)) & available).total()
        score *= (matches / (len(predicted) - n + 1)) ** (0.5**n)
    return score


METRICS: Mapping[str, Callable[[str, Sequence[str], Sequence[str], str], Score]] = {
    "bleu": _sacrebleu("BLEU"),
    "bleu-lower": _sacrebleu("BLEU", lowercase=True),
    "bleu-multi30k": _multi30k_bleu,
    "chrf": _sacrebleu("CHRF"),
    "chrf++": _sacrebleu("CHRF", word_order=2),
    "ter": _sacrebleu("TER"),
    "book-bleu": _book_bleu,
}
"""Name -> scorer of (name, hypotheses, references, target language)."""


def tokenised_share(lines: Sequence[str]) -> float:
    """Return the share of lines that look tokenised or carry subword marks (`@@ ` or `▁`), 0 to 1."""
    if not lines:
        return 0.0
    looks = sum(line.endswith(" .") or " , " in line or "@@ " in line or "▁" in line for line in lines)
    return looks / len(lines)
