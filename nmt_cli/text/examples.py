"""Pairs as token ids, and the filters that decide which pairs are trained on. Each drop is counted."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt_cli.errors import DataError
from nmt_cli.text.parallel import Pair
from nmt_cli.text.tokenizers import Tokenizer
from nmt_cli.text.vocab import UNK

Ids = NDArray[np.int32]


TAKEN_AT_ONCE = 1 << 16


def _nothing_to_release() -> None:
    """Do nothing: what is held in memory stays there."""


@dataclass(frozen=True)
class Examples:
    """Token ids of sentence pairs, one after the other in flat arrays. Ids hold no begin or end mark.

    Args:
        source_ids: All source ids, int32, or uint16 where they are read from a file.
        source_ends: Where each source ends in `source_ids`, int64 `(N,)`.
        target_ids: All target ids, as `source_ids`.
        target_ends: Where each target ends in `target_ids`, int64 `(N,)`.
        lines: Corpus line number of each pair, int64 `(N,)`.
        release: Lets go of the memory that reading has taken, where the arrays are files.
    """

    source_ids: Ids
    source_ends: NDArray[np.int64]
    target_ids: Ids
    target_ends: NDArray[np.int64]
    lines: NDArray[np.int64]
    release: Callable[[], None] = _nothing_to_release

    def __len__(self) -> int:
        return len(self.lines)

    def source(self, index: int) -> Ids:
        """Return the source ids of pair `index`."""
        return _sentence(self.source_ids, self.source_ends, index)

    def target(self, index: int) -> Ids:
        """Return the target ids of pair `index`."""
        return _sentence(self.target_ids, self.target_ends, index)

    def sources(self, indices: NDArray[np.int64]) -> tuple[Ids, NDArray[np.int64]]:
        """Return the source ids of several pairs, one after the other, and how many each has."""
        return _sentences(self.source_ids, self.source_ends, indices)

    def targets(self, indices: NDArray[np.int64]) -> tuple[Ids, NDArray[np.int64]]:
        """Return the target ids of several pairs, one after the other, and how many each has."""
        return _sentences(self.target_ids, self.target_ends, indices)

    @property
    def source_lengths(self) -> NDArray[np.int64]:
        """Tokens of each source with its end mark, `(N,)`."""
        return np.diff(self.source_ends, prepend=0) + 1

    @property
    def target_lengths(self) -> NDArray[np.int64]:
        """Tokens of each target with its end mark, `(N,)`."""
        return np.diff(self.target_ends, prepend=0) + 1

    def lengths_of(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the tokens, end marks included, of the sources and of the targets at ascending `indices`."""
        lengths = np.empty((2, len(indices)), dtype=np.int64)
        for start in range(0, len(indices), TAKEN_AT_ONCE):
            chosen = indices[start : start + TAKEN_AT_ONCE]
            for side, ends in enumerate((self.source_ends, self.target_ends)):
                lengths[side, start : start + TAKEN_AT_ONCE] = ends[chosen] - _starts(ends, chosen) + 1
            self.release()
        return lengths[0], lengths[1]

    def take(self, indices: NDArray[np.int64]) -> Examples:
        """Return a copy, in memory, of the examples at ascending `indices`, holding little more at any time."""
        parts = []
        for start in range(0, len(indices), TAKEN_AT_ONCE):
            chosen = indices[start : start + TAKEN_AT_ONCE]
            parts.append((*self.sources(chosen), *self.targets(chosen), self.lines[chosen]))
            self.release()
        source_ids, source_lengths, target_ids, target_lengths, lines = map(np.concatenate, zip(*parts, strict=True))
        return Examples(source_ids, source_lengths.cumsum(), target_ids, target_lengths.cumsum(), lines)


def _sentence(ids: NDArray[Any], ends: NDArray[np.int64], index: int) -> Ids:
    return ids[ends[index - 1] if index else 0 : ends[index]].astype(np.int32, copy=False)


def _starts(ends: NDArray[np.int64], indices: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.where(indices > 0, ends[indices - 1], 0)


def _sentences(
    ids: NDArray[Any], ends: NDArray[np.int64], indices: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the ids of some sentences, one after the other, and how many each has."""
    starts = _starts(ends, indices)
    lengths = ends[indices] - starts
    moved = starts - (lengths.cumsum() - lengths)  # how far each sentence is from where it goes
    return ids[np.repeat(moved, lengths) + np.arange(lengths.sum())], lengths


@dataclass(frozen=True)
class CorpusFigures:
    """What a corpus holds after filtering, and what was dropped by which rule. Tokens count end marks."""

    pairs: int
    source_tokens: int
    target_tokens: int
    longest_source: int
    longest_target: int
    unknown_source: float
    unknown_target: float
    dropped: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Filters:
    """Which pairs are not trained on. The first rule that a pair breaks is the one counted.

    Args:
        max_length: Drop pairs with more tokens on a side, end mark included; None: keep all.
        max_ratio: Drop pairs whose longer side has more than so many times the tokens of the shorter, end marks included.
        drop_empty: Drop pairs with a side that has no token.
        drop_identical: Drop pairs whose sides are the same text, white space aside.
        drop_duplicates: Drop pairs that came before, white space aside.
    """

    max_length: int | None = None
    max_ratio: float | None = None
    drop_empty: bool = True
    drop_identical: bool = False
    drop_duplicates: bool = False

    @property
    def rules(self) -> tuple[str, ...]:
        """What each reason for dropping a pair is called; reason 0 is to keep it."""
        return (
            "",
            "a side without a token",
            f"longer than {self.max_length} tokens",
            f"one side more than {self.max_ratio or 0:g} times as long as the other",
            "both sides the same text",
            "the same pair again",
        )


@dataclass(frozen=True)
class Encoded:
    """Pairs of a chunk as ids: those that are kept, and why the others are not.

    Args:
        source_ids: All source ids of kept pairs, int32.
        source_lengths: Tokens of each kept source, no mark counted, int64 `(K,)`.
        target_ids: As `source_ids`.
        target_lengths: As `source_lengths`.
        reasons: For each pair of the chunk 0 where it is kept, otherwise the place of the rule in `Filters.rules`, int8 `(N,)`.
    """

    source_ids: Ids
    source_lengths: NDArray[np.int64]
    target_ids: Ids
    target_lengths: NDArray[np.int64]
    reasons: NDArray[np.int8]

    @property
    def sides(self) -> tuple[tuple[Ids, NDArray[np.int64]], tuple[Ids, NDArray[np.int64]]]:
        """Ids and lengths of the sources, and of the targets."""
        return (self.source_ids, self.source_lengths), (self.target_ids, self.target_lengths)


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def encode_examples(
    pairs: Sequence[Pair],
    source: Tokenizer,
    target: Tokenizer,
    *,
    max_length: int | None = None,
    max_ratio: float | None = None,
    drop_empty: bool = True,
    drop_identical: bool = False,
    drop_duplicates: bool = False,
) -> tuple[Examples, CorpusFigures]:
    """Turn pairs into ids, in memory, dropping what should not be trained on; `Filters` says what the rules are.

    Raises:
        DataError: No pair is left.
    """
    filters = Filters(max_length, max_ratio, drop_empty, drop_identical, drop_duplicates)
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    repeated = repeats(pair_digests(sources, targets)) if drop_duplicates else None
    encoded = encode_pairs(sources, targets, (source, target), filters, repeated=repeated, threads=cores())
    kept = np.flatnonzero(encoded.reasons == 0)
    count = FigureCount(filters)
    count.add(encoded)
    figures = count.figures(pairs[0].file if pairs else "the corpus")
    lines = np.array([pairs[i].line for i in kept.tolist()], dtype=np.int64)
    ends = encoded.source_lengths.cumsum(), encoded.target_lengths.cumsum()
    return Examples(encoded.source_ids, ends[0], encoded.target_ids, ends[1], lines), figures


def encode_pairs(
    sources: Sequence[str],
    targets: Sequence[str],
    tokenizers: tuple[Tokenizer, Tokenizer],
    filters: Filters,
    *,
    repeated: NDArray[np.bool_] | None = None,
    threads: int = 1,
) -> Encoded:
    """Turn pairs into ids.

    Args:
        sources: Source lines.
        targets: Target lines, as many.
        tokenizers: Of the source and the target side.
        filters: Which pairs to drop.
        repeated: Which pairs came before in the corpus, `(N,)`, for `drop_duplicates`.
        threads: Cores to use where a tokenizer can.
    """
    source_ids, source_lengths = _flat(tokenizers[0].encode_lines(sources, threads=threads))
    target_ids, target_lengths = _flat(tokenizers[1].encode_lines(targets, threads=threads))
    shorter, longer = np.minimum(source_lengths, target_lengths) + 1, np.maximum(source_lengths, target_lengths) + 1
    broken = np.zeros((len(sources), len(filters.rules)), dtype=np.bool_)
    if filters.drop_empty:
        broken[:, 1] = shorter == 1
    if filters.max_length is not None:
        broken[:, 2] = longer > filters.max_length
    if filters.max_ratio is not None:
        broken[:, 3] = longer > filters.max_ratio * shorter
    if filters.drop_identical:
        broken[:, 4] = [source.split() == target.split() for source, target in zip(sources, targets, strict=True)]
    if filters.drop_duplicates and repeated is not None:
        broken[:, 5] = repeated
    reasons = broken.argmax(axis=1).astype(np.int8)  # the first that is True; the rule 0 never is
    kept = reasons == 0
    if not kept.all():
        source_ids, target_ids = source_ids[np.repeat(kept, source_lengths)], target_ids[np.repeat(kept, target_lengths)]
        source_lengths, target_lengths = source_lengths[kept], target_lengths[kept]
    return Encoded(source_ids, source_lengths, target_ids, target_lengths, reasons)


def _flat(sentences: list[list[int]]) -> tuple[Ids, NDArray[np.int64]]:
    lengths = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
    return np.fromiter(itertools.chain.from_iterable(sentences), dtype=np.int32, count=int(lengths.sum())), lengths


def pair_digests(sources: Sequence[str], targets: Sequence[str]) -> NDArray[np.uint64]:
    """Return a digest of 128 bits for the text of each pair, white space aside, `(N, 2)`."""
    texts = (
        f"{' '.join(source.split())}\n{' '.join(target.split())}".encode()
        for source, target in zip(sources, targets, strict=True)
    )
    digests = b"".join(hashlib.blake2b(text, digest_size=16).digest() for text in texts)
    return np.frombuffer(digests, dtype=np.uint64).reshape(-1, 2)


def repeats(digests: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return which digests of `(N, 2)` came before, `(N,)`."""
    order = np.lexsort((digests[:, 1], digests[:, 0]))  # stable: of equals the first stays first
    found = np.zeros(len(digests), dtype=np.bool_)
    found[order[1:]] = (digests[order[1:]] == digests[order[:-1]]).all(axis=1)
    return found


class FigureCount:
    """Counts what chunk after chunk of a corpus holds.

    Args:
        filters: The rules that pairs are dropped by.
    """

    def __init__(self, filters: Filters) -> None:
        self._rules = filters.rules
        self._dropped: Counter[str] = Counter()
        self._pairs, self._tokens, self._longest, self._unknown = 0, [0, 0], [0, 0], [0, 0]

    def add(self, encoded: Encoded) -> None:
        """Count a chunk."""
        reasons, firsts, counts = np.unique(encoded.reasons, return_index=True, return_counts=True)
        for place in np.argsort(firsts):  # the rules in the order in which they were first broken
            if reasons[place]:
                self._dropped[self._rules[reasons[place]]] += int(counts[place])
        self._pairs += len(encoded.source_lengths)
        for side, (ids, lengths) in enumerate(encoded.sides):
            self._tokens[side] += len(ids)
            self._longest[side] = max(self._longest[side], int(lengths.max(initial=-1)) + 1)
            self._unknown[side] += int(np.count_nonzero(ids == UNK))

    def figures(self, file: str) -> CorpusFigures:
        """Return the figures of all that was counted.

        Args:
            file: Named in the message where nothing is left.

        Raises:
            DataError: No pair is left.
        """
        if not self._pairs:
            why = ", ".join(f"{count} dropped: {rule}" for rule, count in self._dropped.items()) or "the files are empty"
            raise DataError(f"{file}: expected sentence pairs, but none is left ({why})")
        unknown = [count / tokens if tokens else 0.0 for count, tokens in zip(self._unknown, self._tokens, strict=True)]
        return CorpusFigures(
            pairs=self._pairs,
            source_tokens=self._tokens[0] + self._pairs,
            target_tokens=self._tokens[1] + self._pairs,
            longest_source=self._longest[0],
            longest_target=self._longest[1],
            unknown_source=unknown[0],
            unknown_target=unknown[1],
            dropped=dict(self._dropped),
        )
