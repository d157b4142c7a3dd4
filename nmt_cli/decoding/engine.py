"""What every decoding engine does: token ids in, hypotheses out. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a sentence.

    Args:
        tokens: Target ids without the end mark.
        log_probability: Sum over its tokens, the end mark included when there is one; natural logarithm.
        score: log-probability / max(1, tokens)^length penalty.
        ended: `eos` by its end mark, `limit` because it was cut at the length limit.
    """

    tokens: tuple[int, ...]
    log_probability: float
    score: float
    ended: Literal["eos", "limit"]


@dataclass(frozen=True)
class SearchSettings:
    """How to search.

    Args:
        beam_size: Hypotheses kept at each step; 1 is greedy search.
        length_penalty: alpha of the score.
        max_length: Most tokens of a translation, end mark included; None: 2 x source + 10.
        unknown: Whether the unknown token may be part of a translation (for those who replace it).
    """

    beam_size: int = 5
    length_penalty: float = 1.0
    max_length: int | None = None
    unknown: bool = False

    def limit(self, source_tokens: int) -> int:
        """Return the most target tokens, end mark included, for a source of so many tokens with its end mark."""
        return self.max_length if self.max_length is not None else 2 * source_tokens + 10


def hypothesis_score(log_probability: float, length: int, length_penalty: float) -> float:
    """Return log-probability / max(1, length)^alpha, `length` without the end mark."""
    return float(log_probability / max(1, length) ** length_penalty)


class Engine(Protocol):
    """Translates batches of sentences."""

    max_source_tokens: int | None
    """Longest source, end mark included, that the model can take; None: no limit."""

    def translate(self, sources: Sequence[Sequence[int]], settings: SearchSettings) -> list[list[Hypothesis]]:
        """Translate one batch.

        Args:
            sources: Ids of each sentence, without end mark; none is empty.
            settings: How to search.

        Returns:
            For each sentence its hypotheses, best first; at least one.
        """
