"""Vocabulary: order of ids, limits, special tokens, and its text file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from nmt_cli.errors import RunError
from nmt_cli.text.vocab import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary

COUNTS = Counter({"b": 3, "a": 3, "é": 5, "c": 1, "d": 2})
HERE = Path("source.vocab")


def test_special_ids_are_those_of_the_design() -> None:
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)
    assert Vocabulary.build(COUNTS).tokens([PAD, UNK, BOS, EOS]) == ["<pad>", "<unk>", "<bos>", "<eos>"]


def test_frequent_tokens_come_first_and_ties_in_code_point_order() -> None:
    vocabulary = Vocabulary.build(COUNTS)
    assert vocabulary.tokens(range(4, len(vocabulary))) == ["é", "a", "b", "d", "c"]
    assert vocabulary.ids(["c", "é", "b"]) == [8, 4, 6]


def test_the_order_does_not_depend_on_the_order_of_counting() -> None:
    turned = Counter(dict(reversed(COUNTS.items())))
    assert Vocabulary.build(turned).to_text() == Vocabulary.build(COUNTS).to_text()


@pytest.mark.parametrize(("least", "kept"), [(1, 5), (2, 4), (3, 3), (5, 1), (6, 0)])
def test_tokens_below_the_minimum_are_unknown(least: int, kept: int) -> None:
    vocabulary = Vocabulary.build(COUNTS, min_frequency=least)
    assert len(vocabulary) == 4 + kept
    assert [vocabulary.ids([token]) == [UNK] for token, count in COUNTS.items()] == [c < least for c in COUNTS.values()]


@pytest.mark.parametrize(("limit", "size"), [(5, 5), (6, 6), (9, 9), (10, 9), (8000, 9)])
def test_the_limit_counts_special_tokens_and_is_only_an_upper_one(limit: int, size: int) -> None:
    vocabulary = Vocabulary.build(COUNTS, max_size=limit)
    assert len(vocabulary) == size
    assert "é" in vocabulary  # the most frequent stays
    assert ("c" in vocabulary) == (limit >= 9)


def test_strings_of_special_tokens_are_unknown_words() -> None:
    vocabulary = Vocabulary.build(Counter({"<eos>": 9, "<pad>": 9, "<bos>": 9, "<unk>": 9, "</s>": 1}))
    assert vocabulary.ids(["<pad>", "<unk>", "<bos>", "<eos>"]) == [UNK] * 4
    assert vocabulary.tokens(range(len(vocabulary))) == [*SPECIALS, "</s>"]
    assert "<eos>" not in vocabulary


def test_text_form_is_read_back() -> None:
    vocabulary = Vocabulary.build(COUNTS)
    text = vocabulary.to_text()
    assert text.split("\n") == [*SPECIALS, "é", "a", "b", "d", "c", ""]
    again = Vocabulary.from_lines(text.split("\n")[:-1], HERE)
    assert again.ids(["a", "x", "c", "<eos>"]) == vocabulary.ids(["a", "x", "c", "<eos>"]) == [5, UNK, 8, UNK]


@pytest.mark.parametrize(
    "lines", [[], ["<pad>", "<unk>", "<bos>"], ["<unk>", "<pad>", "<bos>", "<eos>", "a"], ["<s>", "</s>", "<unk>", "a"]]
)
def test_a_file_that_is_not_ours_is_refused(lines: list[str]) -> None:
    with pytest.raises(RunError, match=r"source\.vocab:1: expected the lines <pad>, <unk>, <bos>, <eos> first"):
        Vocabulary.from_lines(lines, HERE)


@pytest.mark.parametrize("token", ["b", "<bos>"])
def test_a_doubled_token_is_named(token: str) -> None:
    with pytest.raises(RunError, match=rf"source\.vocab: .*'{token}' comes twice"):
        Vocabulary.from_lines([*SPECIALS, "a", "b", token], HERE)


@pytest.mark.parametrize("token", ["", " ", "\u202f"])
def test_a_blank_entry_is_refused(token: str) -> None:
    # no tokenizer of ours writes one, and decoding it would break
    with pytest.raises(RunError, match=r"source\.vocab"):
        Vocabulary.from_lines([*SPECIALS, "a", token, "b"], HERE)
