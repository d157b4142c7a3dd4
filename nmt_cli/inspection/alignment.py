"""Hard alignments from attention, in the Pharaoh form `0-0 1-2 …`: source position, target position, from 0."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nmt_cli.text.tokenizers import SPACE_SIGN

Groups = list[list[int]]
"""Positions of the tokens of each word."""


def hard_alignment(weights: NDArray[np.float32], source: Groups, target: Groups) -> list[tuple[int, int]]:
    """Return, for each target word, the source word that gets most of its attention, as (source, target).

    Args:
        weights: `(outputs, source)`, end marks included.
        source: Tokens of each source word, end mark left out.
        target: Tokens of each target word, end mark left out.
    """
    if not source or not target:
        return []
    by_word = np.stack([weights[:, word].sum(axis=1) for word in source], axis=1)  # (T, S) -> (T, source words)
    return [(int(by_word[word].mean(axis=0).argmax()), index) for index, word in enumerate(target)]


def pharaoh(links: Sequence[tuple[int, int]]) -> str:
    """Return links as text."""
    return " ".join(f"{source}-{target}" for source, target in links)


def tokens_alone(tokens: Sequence[str]) -> Groups:
    """Return each token, but for an end mark, as a word of its own."""
    return [[index] for index, _ in enumerate(_without_end(tokens))]


def tokens_by_word(tokens: Sequence[str]) -> Groups:
    """Return which pieces or characters make up each word: a word begins at a `▁`. An end mark belongs to none."""
    words: Groups = []
    for index, token in enumerate(_without_end(tokens)):
        if token.startswith(SPACE_SIGN) or not words:
            words.append([])
        words[-1].append(index)
    return words


def _without_end(tokens: Sequence[str]) -> Sequence[str]:
    return tokens[:-1] if tokens and tokens[-1] == "<eos>" else tokens
