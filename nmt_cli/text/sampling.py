"""Subword sampling: each time a pair is trained on, its sides are split into other pieces.

Reference: Kudo 2018 (unigram); Provilkov, Emelianenko, Voita 2020 (BPE-dropout).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from nmt_cli.text.examples import Examples, Ids
from nmt_cli.text.parallel import Pair
from nmt_cli.text.pieces import PieceTokenizer


class PieceSampling:
    """Splits the pairs of a batch at random; the outcome follows from (seed, epoch, batch) alone.

    Args:
        pairs: The raw pairs that `examples` were made from.
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
        pairs: Sequence[Pair],
        examples: Examples,
        source: PieceTokenizer,
        target: PieceTokenizer,
        *,
        strength: float,
        longest: int,
        seed: Sequence[int],
    ) -> None:
        self._pairs, self._examples, self._source, self._target = pairs, examples, source, target
        self._strength, self._longest, self._seed = strength, longest, tuple(seed)

    def __call__(self, epoch: int, batch: int, indices: Sequence[int] | NDArray[np.int64]) -> tuple[list[Ids], list[Ids]]:
        """Return the sources and the targets of the examples at `indices`, each split anew."""
        sequence = np.random.SeedSequence([*self._seed, epoch, batch])
        # The generator of sentencepiece belongs to a thread and takes its seed when it is first used there.
        sentencepiece.set_random_generator_seed(int(sequence.generate_state(1)[0]))
        with ThreadPoolExecutor(max_workers=1) as thread:
            return thread.submit(self._split, [int(i) for i in indices]).result()

    def _split(self, indices: Sequence[int]) -> tuple[list[Ids], list[Ids]]:
        sources, targets = [], []
        for index in indices:
            pair = self._pairs[self._examples.indices[index]]
            source = self._source.encode_sampled(pair.source, self._strength)
            target = self._target.encode_sampled(pair.target, self._strength)
            sources.append(self._checked(source, self._examples.source(index)))
            targets.append(self._checked(target, self._examples.target(index)))
        return sources, targets

    def _checked(self, sampled: list[int], usual: Ids) -> Ids:
        return np.array(sampled, dtype=np.int32) if len(sampled) < self._longest else usual
