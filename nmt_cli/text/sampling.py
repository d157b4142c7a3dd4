"""Subword sampling: each time a pair is trained on, its words are split into other pieces.

sentencepiece has samplers of its own, but what they draw cannot be repeated by another process; a run that is taken up again
must be the one that was not stopped. So only its model is asked here, and the drawing is ours.

Reference: Provilkov, Emelianenko, Voita 2020 (BPE-dropout); Kudo 2018 (unigram, n-best sampling).
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nmt_cli.text.examples import Examples, Ids
from nmt_cli.text.pieces import PieceTokenizer

NBEST = 64
"""Splits of a word that unigram sampling chooses from."""


class WordSampler(ABC):
    """Splits words at random, remembering what does not change.

    Args:
        tokenizer: Its model says what the pieces are.
        strength: BPE: share of merges left out. Unigram: exponent of the probability of a split.
    """

    def __init__(self, tokenizer: PieceTokenizer, strength: float) -> None:
        self.tokenizer, self.strength = tokenizer, strength

    @abstractmethod
    def usual(self, word: str) -> list[int]:
        """Return the ids of a word as the tokenizer splits it."""

    @abstractmethod
    def sample(self, word: str, source: random.Random) -> list[int]:
        """Return ids of the same word."""


class MergeDropout(WordSampler):
    """BPE-dropout: at each step each possible merge is left out with probability `strength`; the best of the rest is made."""

    def __init__(self, tokenizer: PieceTokenizer, strength: float) -> None:
        super().__init__(tokenizer, strength)
        self._scores = tokenizer.scores()
        self._words: dict[str, tuple[list[int], str, int]] = {}  # word -> usual ids, text of the pieces, merges made

    def usual(self, word: str) -> list[int]:
        """Return the ids of a word as the tokenizer splits it."""
        return self._known(word)[0]

    def sample(self, word: str, source: random.Random) -> list[int]:
        """Return ids of the same word."""
        ids, text, merges = self._known(word)
        # the step whose best merge is the first to be left out: geometric, so that most words need no work
        first = math.floor(math.log(1 - source.random()) / math.log(1 - self.strength))
        return ids if first >= merges else self.tokenizer.vocabulary.ids(self._merge(text, first, source))

    def _known(self, word: str) -> tuple[list[int], str, int]:
        found = self._words.get(word)
        if found is None:
            pieces = self.tokenizer.split(word)
            text = "".join(pieces)
            merged = self._merge(text, len(text), random.Random(0))
            merges = len(text) - len(pieces) if merged == pieces else 0  # a word with something else in it stays whole
            found = self._words[word] = (self.tokenizer.encode(word), text, merges)
        return found

    def _merge(self, text: str, first: int, source: random.Random) -> list[str]:
        """Return the pieces of a text: `first` merges as usual, then one left out, then each left out with the probability."""
        symbols = list(text)
        for step in itertools.count():
            pairs = [
                (-self._scores[joined], place)
                for place, joined in enumerate(map(str.__add__, symbols, symbols[1:]))
                if joined in self._scores
            ]
            if step == first and pairs:
                pairs.remove(min(pairs))
            if step >= first:
                pairs = [pair for pair in pairs if source.random() >= self.strength]
            if not pairs:
                return symbols
            place = min(pairs)[1]
            symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
        raise AssertionError


class NBestSampling(WordSampler):
    """Unigram: one of the best splits of a word, chosen in proportion to its probability to the power `strength`."""

    def __init__(self, tokenizer: PieceTokenizer, strength: float) -> None:
        super().__init__(tokenizer, strength)
        self._scores = tokenizer.scores()
        self._words: dict[str, tuple[list[list[int]], list[float]]] = {}  # word -> ids of each split, summed probabilities

    def usual(self, word: str) -> list[int]:
        """Return the ids of a word as the tokenizer splits it."""
        return self._known(word)[0][0]

    def sample(self, word: str, source: random.Random) -> list[int]:
        """Return ids of the same word."""
        splits, sums = self._known(word)
        return splits[bisect.bisect(sums, source.random() * sums[-1], hi=len(sums) - 1)]

    def _known(self, word: str) -> tuple[list[list[int]], list[float]]:
        found = self._words.get(word)
        if found is None:
            splits = [self.tokenizer.encode(word)]
            totals = [0.0]
            for pieces in self.tokenizer.best_splits(word, NBEST):
                ids = self.tokenizer.vocabulary.ids(pieces)
                total = sum(self._scores.get(piece, -math.inf) for piece in pieces)
                if ids == splits[0]:
                    totals[0] = total
                elif math.isfinite(total):
                    splits.append(ids)
                    totals.append(total)
            weights = [math.exp(self.strength * (total - max(totals))) for total in totals]
            found = self._words[word] = (splits, list(itertools.accumulate(weights)))
        return found


class Texts(Protocol):
    """Pairs of lines, found by number."""

    def __getitem__(self, index: int, /) -> tuple[str, str]:
        """Return a source and its target line."""


class PieceSampling:
    """Splits the pairs of a batch at random; the outcome follows from (seed, epoch, batch) alone.

    Args:
        pairs: Source and target line of each of the examples.
        examples: Their usual ids; a side whose sampled ids would be too long keeps these.
        source: Tokenizer of the source side.
        target: Tokenizer of the target side.
        strength: BPE: share of merges that are left out. Unigram: exponent of the probability of a split, the smaller
            the more even.
        longest: Most tokens of a side, end mark included.
        seed: Seed; several numbers, such as (seed, rank), may be given.
    """

    def __init__(
        self,
        pairs: Texts,
        examples: Examples,
        source: PieceTokenizer,
        target: PieceTokenizer,
        *,
        strength: float,
        longest: int,
        seed: Sequence[int],
    ) -> None:
        self._pairs, self._examples, self._longest, self._seed = pairs, examples, longest, tuple(seed)
        self._source = word_sampler(source, strength)
        self._target = self._source if target is source else word_sampler(target, strength)

    def __call__(self, epoch: int, batch: int, indices: Sequence[int] | NDArray[np.int64]) -> tuple[list[Ids], list[Ids]]:
        """Return the sources and the targets of the examples at `indices`, each split anew."""
        words = np.random.SeedSequence([*self._seed, epoch, batch]).generate_state(4)
        generator = random.Random(int.from_bytes(words.tobytes(), "little"))
        sources, targets = [], []
        for index in map(int, indices):
            source, target = self._pairs[index]
            sources.append(self._side(source, self._source, self._examples.source(index), generator))
            targets.append(self._side(target, self._target, self._examples.target(index), generator))
        self._examples.release()
        return sources, targets

    def _side(self, line: str, sampler: WordSampler, usual: Ids, generator: random.Random) -> Ids:
        """Return sampled ids of a line, or the usual ones where these are not those of its words one by one."""
        words = sampler.tokenizer.words(line)
        if [token for word in words for token in sampler.usual(word)] != usual.tolist():
            return usual
        sampled = [token for word in words for token in sampler.sample(word, generator)]
        return np.array(sampled, dtype=np.int32) if len(sampled) < self._longest else usual


def word_sampler(tokenizer: PieceTokenizer, strength: float) -> WordSampler:
    """Return the sampler that fits the tokenizer's model."""
    return (NBestSampling if tokenizer.is_unigram else MergeDropout)(tokenizer, strength)
