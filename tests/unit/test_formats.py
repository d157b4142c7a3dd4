"""The forms of a translation: text, JSON lines, columns."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest

from nmt_cli.cli.formats import FORMATS, Translated, as_columns, as_json, as_text
from nmt_cli.decoding.engine import Hypothesis
from nmt_cli.decoding.translator import Translation
from nmt_cli.text.tokenizers import train_tokenizer

WORDS = train_tokenizer("word", ["le chat dort bien"])


def hypothesis(text: str, score: float, ended: Literal["eos", "limit"] = "eos") -> Hypothesis:
    """Return a hypothesis whose tokens have the log-probabilities -1, -2, …, its end mark included."""
    ids = WORDS.encode(text)
    singles = tuple(-float(place) for place in range(1, len(ids) + 1 + (ended == "eos")))
    return Hypothesis(tuple(ids), sum(singles), score, ended, singles)


BEST, SECOND, THIRD = hypothesis("le chat dort", -0.5), hypothesis("le chat", -0.75, "limit"), hypothesis("", -1.25)
BLANK = Translation("")


def line(translation: Translation, *, number: int = 7, source: str = "the cat", text: str | None = None) -> Translated:
    return Translated(number, source, translation, translation.text if text is None else text)


def found(*hypotheses: Hypothesis, cut: bool = False) -> Translation:
    return Translation(WORDS.decode(hypotheses[0].tokens), hypotheses, cut)


def record(translated: Translated, n_best: int = 1) -> dict[str, Any]:
    written = as_json(translated, WORDS, n_best)
    assert written.endswith("\n")
    assert written.count("\n") == 1
    loaded: dict[str, Any] = json.loads(written)
    return loaded


def rows(translated: Translated, n_best: int = 1) -> list[list[str]]:
    written = as_columns(translated, WORDS, n_best)
    assert written.endswith("\n")
    return [row.split("\t") for row in written[:-1].split("\n")]


def test_the_names_of_the_forms() -> None:
    assert list(FORMATS.items()) == [("text", as_text), ("jsonl", as_json), ("tsv", as_columns)]


@pytest.mark.parametrize("n_best", [1, 3])
def test_text_is_the_translation_alone(n_best: int) -> None:
    assert as_text(line(found(BEST, SECOND)), WORDS, n_best) == "le chat dort\n"
    assert as_text(line(found(BEST), text="le CHAT dort"), WORDS, n_best) == "le CHAT dort\n"
    assert as_text(line(BLANK), WORDS, n_best) == "\n"


# -- JSON lines --------------------------------------------------------------------------------------------------------


def test_an_object_of_the_best_hypothesis() -> None:
    assert record(line(found(BEST, SECOND, cut=True))) == {
        "line": 7,
        "source": "the cat",
        "translation": "le chat dort",
        "tokens": ["le", "chat", "dort", "<eos>"],
        "log_probabilities": [-1.0, -2.0, -3.0, -4.0],
        "score": -0.5,
        "ended": "eos",
        "cut": True,
        "repeats": False,
    }


def test_only_what_ended_by_its_end_mark_has_one() -> None:
    loaded = record(line(found(SECOND, BEST)))
    assert loaded["tokens"] == ["le", "chat"]
    assert loaded["log_probabilities"] == [-1.0, -2.0]
    assert loaded["ended"] == "limit"


def test_an_object_of_a_translation_without_words() -> None:
    loaded = record(line(found(THIRD)))
    assert (loaded["translation"], loaded["tokens"], loaded["log_probabilities"]) == ("", ["<eos>"], [-1.0])


def test_an_object_of_a_line_that_was_split() -> None:
    loaded = record(line(Translation("le chat dort le chat", (BEST, SECOND), cut=True, is_split=True)))
    assert loaded["tokens"] == ["le", "chat", "dort", "<eos>", "le", "chat"]
    assert loaded["log_probabilities"] == [-1.0, -2.0, -3.0, -4.0, -1.0, -2.0]
    assert (loaded["score"], loaded["ended"]) == (None, "limit")
    assert rows(line(Translation("a b", (BEST, SECOND), is_split=True))) == [["7", "1", "", "limit", "the cat", "a b"]]
    assert rows(line(Translation("a b", (BEST, BEST), is_split=True))) == [["7", "1", "", "eos", "the cat", "a b"]]


def test_unknown_words_of_a_prefix_are_kept_in_all_of_the_best_few() -> None:
    hypotheses = (hypothesis("un chat", -1.0), hypothesis("un chien", -2.0))
    translated = line(Translation("un chat", hypotheses, prefix=("un",)))
    assert [few["translation"] for few in record(translated, n_best=2)["n_best"]] == ["un chat", "un <unk>"]
    assert [row[5] for row in rows(translated, n_best=2)] == ["un chat", "un <unk>"]


@pytest.mark.fault("PB-18")
def test_an_object_of_a_blank_line() -> None:
    nothing: dict[str, Any] = {
        "tokens": [],
        "log_probabilities": [],
        "score": None,
        "ended": None,
        "cut": False,
        "repeats": False,
    }
    assert record(line(BLANK, source=" ")) == {"line": 7, "source": " ", "translation": "", **nothing}
    assert record(line(BLANK), n_best=3)["n_best"] == []


def test_the_best_few_in_an_object() -> None:
    loaded = record(line(found(BEST, SECOND, THIRD)), n_best=2)
    assert loaded["tokens"] == ["le", "chat", "dort", "<eos>"]
    assert [few["translation"] for few in loaded["n_best"]] == ["le chat dort", "le chat"]
    assert [few["tokens"] for few in loaded["n_best"]] == [["le", "chat", "dort", "<eos>"], ["le", "chat"]]
    assert [few["score"] for few in loaded["n_best"]] == [-0.5, -0.75]
    assert [few["ended"] for few in loaded["n_best"]] == ["eos", "limit"]
    assert all(len(few["tokens"]) == len(few["log_probabilities"]) for few in loaded["n_best"])
    assert len(record(line(found(BEST, SECOND, THIRD)), n_best=5)["n_best"]) == 3
    assert "n_best" not in record(line(found(BEST, SECOND, THIRD)))


def test_an_object_says_that_a_translation_goes_round() -> None:
    assert record(line(found(hypothesis("chat " * 6, -1.0))))["repeats"] is True


ODD = [
    "a\tb",
    'say "no"',
    "back\\slash",
    "\u2028\u2029\u0085",
    "\x00\x01\x1f\x7f",
    "a\rb\r",
    "👩\u200d🔬 \u202etxet",
    "\x0b\x0c\x1c",
]


@pytest.mark.fault("PB-01")
@pytest.mark.parametrize("source", ODD)
def test_any_source_comes_back_from_an_object_of_one_line(source: str) -> None:
    loaded = record(line(found(BEST), source=source, text=source))
    assert (loaded["source"], loaded["translation"]) == (source, source)


def test_unknown_words_that_were_replaced_are_in_the_text_only() -> None:
    loaded = record(line(found(hypothesis("le lion dort", -1.0)), text="le LION dort"))
    assert loaded["translation"] == "le LION dort"
    assert loaded["tokens"] == ["le", "<unk>", "dort", "<eos>"]


# -- columns -----------------------------------------------------------------------------------------------------------


def test_a_row_of_the_best_hypothesis() -> None:
    assert rows(line(found(BEST, SECOND))) == [["7", "1", "-0.500000", "eos", "the cat", "le chat dort"]]
    assert rows(line(found(SECOND))) == [["7", "1", "-0.750000", "limit", "the cat", "le chat"]]


def test_rows_of_the_best_few() -> None:
    assert rows(line(found(BEST, SECOND, THIRD), text="le CHAT dort"), n_best=3) == [
        ["7", "1", "-0.500000", "eos", "the cat", "le CHAT dort"],
        ["7", "2", "-0.750000", "limit", "the cat", "le chat"],
        ["7", "3", "-1.250000", "eos", "the cat", ""],
    ]
    assert len(rows(line(found(BEST, SECOND, THIRD)), n_best=2)) == 2
    assert len(rows(line(found(BEST)), n_best=3)) == 1


@pytest.mark.fault("PB-18")
@pytest.mark.parametrize("n_best", [1, 3])
def test_one_row_for_a_blank_line(n_best: int) -> None:
    assert rows(line(BLANK, source="  "), n_best) == [["7", "1", "", "", "  ", ""]]


@pytest.mark.fault("PB-01")
@pytest.mark.parametrize("source", ODD)
def test_nothing_in_a_source_adds_columns_or_rows(source: str) -> None:
    (row,) = rows(line(found(BEST), source=source))
    assert len(row) == 6
    assert "\r" not in row[4]
    assert row[4] == source.replace("\t", " ").replace("\r", " ")
