"""What every decoding engine does: token ids in, hypotheses out. No torch here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

PenaltyKind = Literal["length", "gnmt"]


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a sentence.

    Args:
        tokens: Target ids without the end mark.
        log_probability: Sum over its tokens, the end mark included when there is one; natural logarithm.
        score: log-probability / penalty of its length.
        ended: `eos` by its end mark, `limit` because it was cut at the length limit.
        token_log_probabilities: Of each token, the end mark included when there is one; none where an engine cannot tell.
    """

    tokens: tuple[int, ...]
    log_probability: float
    score: float
    ended: Literal["eos", "limit"]
    token_log_probabilities: tuple[float, ...] = ()


@dataclass(frozen=True)
class Sampling:
    """How to draw translations at random instead of searching for the best.

    Args:
        temperature: The logits are divided by it: below 1 nearer to the most probable tokens, above 1 further away.
        top_k: Draw among the k most probable tokens only; 0: among all.
        top_p: Draw among the fewest tokens that have this probability together (Holtzman et al. 2020); 1: among all.
        seed: Draws depend on (seed, line, number of the hypothesis, step) and on nothing else.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1


@dataclass(frozen=True)
class SearchSettings:
    """How to search.

    Args:
        beam_size: Hypotheses kept at each step; 1 is greedy search. With `sampling`, the hypotheses drawn for each sentence.
        length_penalty: alpha of the score.
        max_length: Most tokens of a translation, end mark included; None: 2 x source + 10 (and room for `min_length`).
        unknown: Whether the unknown token may be part of a translation (for those who replace it).
        length_penalty_kind: `length`: max(1, length)^alpha; `gnmt`: ((5 + length) / 6)^alpha (Wu et al. 2016, equation 14).
        stopping: `beam-full`: a sentence is done when `beam_size` hypotheses have ended; `exact`: when no live one can still
            win a place among them.
        min_length: Fewest tokens before the end mark.
        no_repeat_ngram: No n-gram of this size comes twice in a translation; 0: no such rule.
        repetition_penalty: Logits of tokens that the translation holds already are divided by it (multiplied where negative);
            1: no such rule (Keskar et al. 2019).
        sampling: Draw at random; None: search.
    """

    beam_size: int = 5
    length_penalty: float = 1.0
    max_length: int | None = None
    unknown: bool = False
    length_penalty_kind: PenaltyKind = "length"
    stopping: Literal["beam-full", "exact"] = "beam-full"
    min_length: int = 0
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0
    sampling: Sampling | None = None

    def limit(self, source_tokens: int) -> int:
        """Return the most target tokens, end mark included, for a source of so many tokens with its end mark."""
        return self.max_length if self.max_length is not None else max(2 * source_tokens + 10, self.min_length + 1)

    def score(self, log_probability: float, length: int) -> float:
        """Return the score of a hypothesis of `length` tokens, the end mark not counted."""
        return hypothesis_score(log_probability, length, self.length_penalty, self.length_penalty_kind)


PENALTIES: dict[PenaltyKind, Callable[[int], float]] = {
    "length": lambda length: max(1, length),
    "gnmt": lambda length: (5 + length) / 6,
}


def hypothesis_score(log_probability: float, length: int, length_penalty: float, kind: PenaltyKind = "length") -> float:
    """Return log-probability / penalty^alpha, `length` without the end mark."""
    return float(log_probability / PENALTIES[kind](length) ** length_penalty)


class Engine(Protocol):
    """Translates batches of sentences."""

    max_source_tokens: int | None
    """Longest source, end mark included, that the model can take; None: no limit."""
    workers: int
    """How many batches may be given to `translate` at once, from threads of their own."""

    def translate(
        self,
        sources: Sequence[Sequence[int]],
        settings: SearchSettings,
        *,
        prefixes: Sequence[Sequence[int]] | None = None,
        lines: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]:
        """Translate one batch.

        Args:
            sources: Ids of each sentence, without end mark; none is empty.
            settings: How to search.
            prefixes: Ids that each translation must begin with; None: nothing is forced.
            lines: Number of each sentence, which sampling draws by; None: counted from 0.

        Returns:
            For each sentence its hypotheses, best first; at least one.
        """
