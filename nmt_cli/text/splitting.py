"""Dividing one's own pairs into a training set and sets that are held out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from nmt_cli.errors import DataError
from nmt_cli.text.parallel import Pair


def split_pairs(pairs: Sequence[Pair], sizes: Mapping[str, int], *, seed: int) -> dict[str, list[Pair]]:
    """Divide pairs at random; each set keeps the order of the corpus.

    Pairs whose sources are the same text, letter case and white space aside, stay together, so that no test sentence is
    trained on; the last group may make a set a little larger than asked. Pairs with a blank side are not held out.

    Args:
        pairs: All pairs.
        sizes: Name of each set to hold out -> its number of pairs.
        seed: Seed of the choice.

    Returns:
        Name -> pairs of each set of `sizes`, and `train`: all others.

    Raises:
        DataError: There are too few pairs.
    """
    groups: dict[str, list[int]] = {}
    for index, pair in enumerate(pairs):
        if pair.source.strip() and pair.target.strip():
            groups.setdefault(" ".join(pair.source.lower().split()), []).append(index)
    by_source = list(groups.values())
    order = iter(np.random.default_rng(seed).permutation(len(by_source)))
    home = ["train"] * len(pairs)
    for name, size in sizes.items():
        missing = size
        while missing > 0:
            chosen = next(order, None)
            if chosen is None:
                wanted = " + ".join(f"{size:,} for {name}" for name, size in sizes.items())
                raise DataError(
                    f"expected enough pairs to hold out {wanted}, but the corpus has {len(pairs):,}, with {len(by_source):,} "
                    "different sources; ask for fewer"
                )
            missing -= len(by_source[chosen])
            for index in by_source[chosen]:
                home[index] = name
    sets: dict[str, list[Pair]] = {name: [] for name in ("train", *sizes)}
    for pair, name in zip(pairs, home, strict=True):
        sets[name].append(pair)
    if not sets["train"]:
        raise DataError(f"expected pairs to be left for training, but all {len(pairs):,} were held out; ask for fewer")
    return sets
