"""`split_pairs`: what is held out, and that no source is in two sets."""

from __future__ import annotations

import pytest

from nmt_cli.errors import DataError
from nmt_cli.text.parallel import Pair
from nmt_cli.text.splitting import split_pairs


def pairs_of(*sources: str) -> list[Pair]:
    return [Pair(source, f"t{number}", "corpus.tsv", number) for number, source in enumerate(sources, start=1)]


PAIRS = pairs_of(*(f"sentence {number // 3}" for number in range(60)), *(f"alone {number}" for number in range(40)))
"""Twenty sources with three translations each, forty with one."""


def test_sets_have_their_sizes_and_hold_every_pair_once_in_order() -> None:
    sets = split_pairs(PAIRS, {"test": 10, "valid": 7}, seed=1)
    assert list(sets) == ["train", "test", "valid"]
    assert len(sets["test"]) in {10, 11, 12}
    assert len(sets["valid"]) in {7, 8, 9}
    lines = [pair.line for pairs in sets.values() for pair in pairs]
    assert sorted(lines) == list(range(1, 101))
    for pairs in sets.values():
        assert [pair.line for pair in pairs] == sorted(pair.line for pair in pairs)


def test_no_source_is_in_two_sets_whatever_its_case_and_spaces() -> None:
    pairs = pairs_of(*(text for number in range(30) for text in (f"Go {number}!", f" go\u00a0{number}! ", f"GO  {number}!")))
    for seed in range(5):
        sets = split_pairs(pairs, {"test": 20, "valid": 9}, seed=seed)
        assert (len(sets["test"]), len(sets["valid"])) == (21, 9)
        sources = [{" ".join(pair.source.lower().split()) for pair in found} for found in sets.values()]
        assert not sources[0] & sources[1] | sources[0] & sources[2] | sources[1] & sources[2]


def test_the_choice_follows_from_the_seed() -> None:
    assert split_pairs(PAIRS, {"test": 10}, seed=1) == split_pairs(PAIRS, {"test": 10}, seed=1)
    assert split_pairs(PAIRS, {"test": 10}, seed=1) != split_pairs(PAIRS, {"test": 10}, seed=2)


def test_blank_sides_are_not_held_out_nor_other_translations_of_their_source() -> None:
    texts = [("", "x"), ("x", " "), ("X", "y"), ("a", "b"), ("c", "d"), ("e", "f")]
    pairs = [Pair(*text, "a", number) for number, text in enumerate(texts, start=1)]
    for seed in range(5):
        sets = split_pairs(pairs, {"test": 2}, seed=seed)
        assert [pair.line for pair in sets["train"]][:3] == [1, 2, 3]
        assert len(sets["test"]) == 2
    with pytest.raises(DataError, match="of 6 none is"):
        split_pairs([*pairs[:2], *pairs[3:], pairs[3]], {"test": 4}, seed=1)


@pytest.mark.parametrize(("size", "words"), [(101, "hold out 101 for test"), (100, "of 100 none is")])
def test_too_few_pairs_are_an_error(size: int, words: str) -> None:
    with pytest.raises(DataError, match=words):
        split_pairs(PAIRS, {"test": size}, seed=1)
