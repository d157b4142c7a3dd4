"""Dividing one's own pairs into a training set and sets that are held out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from nmt_cli.errors import DataError
from nmt_cli.text.parallel import Pair


def split_pairs(pairs: Sequence[Pair], sizes: Mapping[str, int], *, seed: int) -> dict[str, list[Pair]]:
    """Divide pairs at random; each set keeps the order of the corpus.

    Pairs whose sources are the same text, letter case and white space aside, stay together, so that no test sentence is
    trained on; the last group may make a set a little larger than asked. A group with a blank side is not held out.

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
        groups.setdefault(" ".join(pair.source.lower().split()), []).append(index)
    whole = [all(pairs[index].source.strip() and pairs[index].target.strip() for index in group) for group in groups.values()]
    by_source = [group for group, has_text in zip(groups.values(), whole, strict=True) if has_text]
    file = pairs[0].file if pairs else "the files"
    order = iter(np.random.default_rng(seed).permutation(len(by_source)))
    home = ["train"] * len(pairs)
    for name, size in sizes.items():
        missing = size
        while missing > 0:
            chosen = next(order, None)
            if chosen is None:
                wanted = " + ".join(f"{size:,} for {name}" for name, size in sizes.items())
                raise DataError(
                    f"{file}: expected enough pairs to hold out {wanted}, but there are {len(pairs):,}, with "
                    f"{len(by_source):,} different sources that have a translation; ask for fewer"
                )
            missing -= len(by_source[chosen])
            for index in by_source[chosen]:
                home[index] = name
    sets: dict[str, list[Pair]] = {name: [] for name in ("train", *sizes)}
    for pair, name in zip(pairs, home, strict=True):
        sets[name].append(pair)
    if not any(pair.source.strip() and pair.target.strip() for pair in sets["train"]):
        raise DataError(f"{file}: expected pairs to be left for training, but of {len(pairs):,} none is; hold out fewer")
    return sets
