"""Pairs as ids: what is dropped, what is counted, and the figures of a corpus."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import pytest

from nmt_cli.errors import DataError
from nmt_cli.text.examples import encode_examples
from nmt_cli.text.parallel import Pair
from nmt_cli.text.tokenizers import Tokenizer, WordSettings, WordTokenizer, train_tokenizer
from nmt_cli.text.vocab import UNK


def pairs_of(*texts: tuple[str, str]) -> list[Pair]:
    return [Pair(source, target, "a.tsv", number) for number, (source, target) in enumerate(texts, start=1)]


@pytest.fixture(name="tokenizer")
def _tokenizer() -> Tokenizer:
    return train_tokenizer("word", ["a b c d"])  # ids 4 to 7


# docs/faults.md PB-08: empty source, empty target, both, spaces only; the second line holds a lone carriage return
WITH_EMPTY = pairs_of(("a", "b c"), ("", "b"), ("a", ""), ("", ""), (" \u202f\t", "b"), ("a", "\r"), ("d c b", "a"))


@pytest.mark.fault("PB-08")
def test_pairs_with_an_empty_side_are_dropped_whole_and_counted(tokenizer: Tokenizer) -> None:
    examples, figures = encode_examples(WITH_EMPTY, tokenizer, tokenizer)
    assert examples.lines.tolist() == [1, 7]
    assert [examples.source(i).tolist() for i in range(2)] == [[4], [7, 6, 5]]
    assert [examples.target(i).tolist() for i in range(2)] == [[5, 6], [4]]
    assert figures.dropped == {"a side without a token": 5}
    assert figures.pairs == len(examples) == 2


@pytest.mark.fault("PB-08")
def test_validation_keeps_every_line(tokenizer: Tokenizer) -> None:
    examples, figures = encode_examples(WITH_EMPTY, tokenizer, tokenizer, drop_empty=False)
    assert examples.lines.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert examples.source_lengths.tolist() == [2, 1, 2, 1, 1, 2, 4]  # end marks included: no length is zero
    assert examples.target_lengths.tolist() == [3, 2, 1, 1, 2, 1, 2]
    assert examples.source(3).tolist() == []
    assert figures.dropped == {}


def test_tokenizing_keeps_to_the_cores_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Counted(WordTokenizer):
        def encode_lines(self, lines: Sequence[str], *, threads: int = 1) -> list[list[int]]:
            asked.append(threads)
            return super().encode_lines(lines, threads=threads)

    words = Counted.train(["a"], settings=WordSettings())
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7}, raising=False)
    encode_examples(pairs_of(("a", "a")), words, words)
    assert asked == [3, 3]


@pytest.mark.parametrize(
    ("limit", "kept"),
    [(2, [1]), (3, [1, 2]), (4, [1, 2, 3, 4]), (5, [1, 2, 3, 4, 5]), (None, [1, 2, 3, 4, 5])],
)
def test_long_pairs_are_dropped_by_either_side_with_its_end_mark(
    limit: int | None, kept: list[int], tokenizer: Tokenizer
) -> None:
    pairs = pairs_of(("a", "a"), ("a b", "a"), ("a", "a b c"), ("a b c", "a b"), ("a b c d", "a"))
    examples, figures = encode_examples(pairs, tokenizer, tokenizer, max_length=limit)
    assert examples.lines.tolist() == kept
    dropped = 5 - len(kept)
    assert figures.dropped == ({f"longer than {limit} tokens": dropped} if dropped else {})


def test_both_rules_are_counted_apart(tokenizer: Tokenizer) -> None:
    pairs = pairs_of(("a b c", ""), ("a b c", "a"), ("a", "a"), ("", "a b c d"))
    _, figures = encode_examples(pairs, tokenizer, tokenizer, max_length=3)
    assert figures.dropped == {"a side without a token": 2, "longer than 3 tokens": 1}


def test_figures_count_tokens_with_end_marks_and_unknown_words_without(tokenizer: Tokenizer) -> None:
    examples, figures = encode_examples(pairs_of(("a x", "b"), ("a b c", "x y d")), tokenizer, tokenizer)
    assert examples.source_ids.tolist() == [4, UNK, 4, 5, 6]
    assert (figures.source_tokens, figures.target_tokens) == (3 + 4, 2 + 4)
    assert (figures.longest_source, figures.longest_target) == (4, 4)
    assert figures.unknown_source == pytest.approx(1 / 5)
    assert figures.unknown_target == pytest.approx(2 / 4)


def test_each_side_has_its_own_tokenizer() -> None:
    source, target = train_tokenizer("word", ["a b"]), train_tokenizer("char", ["xy"])
    examples, _ = encode_examples(pairs_of(("b", "xyx")), source, target)
    assert examples.source(0).tolist() == source.encode("b")
    assert examples.target(0).tolist() == target.encode("xyx")
    assert examples.source_ids.dtype == examples.target_ids.dtype == np.int32


def test_line_numbers_are_those_of_the_corpus(tokenizer: Tokenizer) -> None:
    pairs = [Pair("a", "b", "x.tsv", 40), Pair("", "b", "x.tsv", 41), Pair("c", "d", "y.tsv", 1)]
    examples, _ = encode_examples(pairs, tokenizer, tokenizer)
    assert examples.lines.tolist() == [40, 1]


def test_nothing_left_is_an_error_that_says_why(tokenizer: Tokenizer) -> None:
    pairs = pairs_of(("", "a"), ("a b c", "a"), ("a", " "))
    with pytest.raises(DataError) as caught:
        encode_examples(pairs, tokenizer, tokenizer, max_length=2)
    message = str(caught.value)
    assert message.startswith("a.tsv: ")
    assert "2 dropped: a side without a token" in message
    assert "1 dropped: longer than 2 tokens" in message
    with pytest.raises(DataError, match=r"the corpus: .*the files are empty"):
        encode_examples([], tokenizer, tokenizer)


def test_ratio_identical_and_duplicate_pairs_are_dropped_by_name() -> None:
    rows = [
        ("a b", "c d"),
        ("a", "b c d"),  # 2 and 4 tokens with end marks
        ("a", "b c d a"),  # 2 and 5: more than twice
        ("a b c d a", "b"),
        ("a  b", "a b"),  # the same text
        ("a\u00a0b", " c d"),  # the first pair again, white space aside
        ("c d", "a b"),
    ]
    pairs = [Pair(source, target, "f", line) for line, (source, target) in enumerate(rows, start=1)]
    words = train_tokenizer("word", ["a b c d"])
    everything, figures = encode_examples(pairs, words, words)
    assert (len(everything), figures.dropped) == (7, {})
    kept, figures = encode_examples(pairs, words, words, max_ratio=2, drop_identical=True, drop_duplicates=True)
    assert kept.lines.tolist() == [1, 2, 7]
    assert figures.dropped == {
        "one side more than 2 times as long as the other": 2,
        "both sides the same text": 1,
        "the same pair again": 1,
    }
