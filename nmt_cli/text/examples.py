"""Pairs as token ids, and the filters that decide which pairs are trained on. Each drop is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nmt_cli.errors import DataError
from nmt_cli.text.parallel import Pair
from nmt_cli.text.tokenizers import Tokenizer
from nmt_cli.text.vocab import UNK

Ids = NDArray[np.int32]


@dataclass(frozen=True)
class Examples:
    """Token ids of sentence pairs, one after the other in flat arrays. Ids hold no begin or end mark.

    Args:
        source_ids: All source ids, int32.
        source_ends: Where each source ends in `source_ids`, int64 `(N,)`.
        target_ids: All target ids, int32.
        target_ends: Where each target ends in `target_ids`, int64 `(N,)`.
        lines: Corpus line number of each pair, int64 `(N,)`.
        indices: Which of the pairs that were read each one is, int64 `(N,)`.
    """

    source_ids: Ids
    source_ends: NDArray[np.int64]
    target_ids: Ids
    target_ends: NDArray[np.int64]
    lines: NDArray[np.int64]
    indices: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.lines)

    def source(self, index: int) -> Ids:
        """Return the source ids of pair `index`."""
        return self.source_ids[self.source_ends[index - 1] if index else 0 : self.source_ends[index]]

    def target(self, index: int) -> Ids:
        """Return the target ids of pair `index`."""
        return self.target_ids[self.target_ends[index - 1] if index else 0 : self.target_ends[index]]

    @property
    def source_lengths(self) -> NDArray[np.int64]:
        """Tokens of each source with its end mark, `(N,)`."""
        return np.diff(self.source_ends, prepend=0) + 1

    @property
    def target_lengths(self) -> NDArray[np.int64]:
        """Tokens of each target with its end mark, `(N,)`."""
        return np.diff(self.target_ends, prepend=0) + 1


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
    """Turn pairs into ids, dropping what should not be trained on. The first rule that a pair breaks is the one counted.

    Args:
        pairs: Aligned raw lines.
        source: Tokenizer of the source side.
        target: Tokenizer of the target side.
        max_length: Drop pairs with more tokens on a side, end mark included; None: keep all.
        max_ratio: Drop pairs whose longer side has more than so many times the tokens of the shorter, end marks included.
        drop_empty: Drop pairs with a side that has no token.
        drop_identical: Drop pairs whose sides are the same text, white space aside.
        drop_duplicates: Drop pairs that came before, white space aside.

    Raises:
        DataError: No pair is left.
    """
    sources: list[list[int]] = []
    targets: list[list[int]] = []
    kept: list[int] = []
    dropped: Counter[str] = Counter()
    seen: set[tuple[str, str]] = set()
    for index, pair in enumerate(pairs):
        source_ids, target_ids = source.encode(pair.source), target.encode(pair.target)
        shorter, longer = sorted((len(source_ids) + 1, len(target_ids) + 1))
        texts = (" ".join(pair.source.split()), " ".join(pair.target.split()))
        if drop_empty and shorter == 1:
            dropped["a side without a token"] += 1
        elif max_length is not None and longer > max_length:
            dropped[f"longer than {max_length} tokens"] += 1
        elif max_ratio is not None and longer > max_ratio * shorter:
            dropped[f"one side more than {max_ratio:g} times as long as the other"] += 1
        elif drop_identical and texts[0] == texts[1]:
            dropped["both sides the same text"] += 1
        elif drop_duplicates and texts in seen:
            dropped["the same pair again"] += 1
        else:
            sources.append(source_ids)
            targets.append(target_ids)
            kept.append(index)
            if drop_duplicates:
                seen.add(texts)
    if not kept:
        why = ", ".join(f"{count} dropped: {rule}" for rule, count in dropped.items()) or "the files are empty"
        raise DataError(f"{pairs[0].file if pairs else 'the corpus'}: expected sentence pairs, but none is left ({why})")
    lines, indices = np.array([pairs[i].line for i in kept], dtype=np.int64), np.array(kept, dtype=np.int64)
    examples = Examples(*_flat(sources), *_flat(targets), lines, indices)
    return examples, _figures(examples, dict(dropped))


def _flat(sentences: list[list[int]]) -> tuple[Ids, NDArray[np.int64]]:
    ends = np.cumsum([len(sentence) for sentence in sentences], dtype=np.int64)
    return np.array([token for sentence in sentences for token in sentence], dtype=np.int32), ends


def _figures(examples: Examples, dropped: dict[str, int]) -> CorpusFigures:
    def unknown(ids: Ids) -> float:
        return float(np.mean(ids == UNK)) if len(ids) else 0.0

    return CorpusFigures(
        pairs=len(examples),
        source_tokens=int(examples.source_lengths.sum()),
        target_tokens=int(examples.target_lengths.sum()),
        longest_source=int(examples.source_lengths.max()),
        longest_target=int(examples.target_lengths.max()),
        unknown_source=unknown(examples.source_ids),
        unknown_target=unknown(examples.target_ids),
        dropped=dropped,
    )
