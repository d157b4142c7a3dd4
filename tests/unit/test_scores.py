"""Scores: each equals the tool or the formula it is named after, and says how it was computed."""

from __future__ import annotations

import math

import pytest
import sacrebleu

from nmt_cli.errors import ConfigError, DataError
from nmt_cli.evaluation.report import format_score, scores_by_name
from nmt_cli.evaluation.scores import (
    METRICS,
    Score,
    book_tokens,
    check_metric,
    moses_text,
    score_corpus,
    sentence_book_bleu,
    tokenised_share,
)

HYPOTHESES = [
    "Il est bon, dit-elle.",
    "Je suis chez moi !",
    "The cat sat on a mat.",
    "",
    "Va",
    "Une Phrase un peu plus longue ici.",
]
REFERENCES = [
    "Il est calme, dit-elle.",
    "Je suis chez moi.",
    "The cat sat on the mat.",
    "Rien.",
    "Va !",
    "une phrase un peu plus longue.",
]


# -- equal to sacrebleu's own functions --------------------------------------------------------------------------------


def test_bleu_is_that_of_sacrebleu() -> None:
    found = score_corpus("bleu", HYPOTHESES, REFERENCES)
    assert found.score == pytest.approx(sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score, abs=1e-9)
    for part in ("case:mixed", "tok:13a", "smooth:exp", f"version:{sacrebleu.__version__}"):
        assert part in found.signature


def test_lower_cased_bleu_is_that_of_sacrebleu_and_says_so() -> None:
    found = score_corpus("bleu-lower", HYPOTHESES, REFERENCES)
    assert found.score == pytest.approx(sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], lowercase=True).score, abs=1e-9)
    assert found.score > score_corpus("bleu", HYPOTHESES, REFERENCES).score
    assert "case:lc" in found.signature


@pytest.mark.parametrize(("metric", "word_order"), [("chrf", 0), ("chrf++", 2)])
def test_chrf_is_that_of_sacrebleu(metric: str, word_order: int) -> None:
    found = score_corpus(metric, HYPOTHESES, REFERENCES)
    assert found.score == pytest.approx(sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES], word_order=word_order).score, abs=1e-9)
    assert f"nw:{word_order}" in found.signature


def test_ter_is_that_of_sacrebleu() -> None:
    found = score_corpus("ter", HYPOTHESES, REFERENCES)
    assert found.score == pytest.approx(sacrebleu.corpus_ter(HYPOTHESES, [REFERENCES]).score, abs=1e-9)
    assert "tok:tercom" in found.signature


# what Moses' normalize-punctuation.perl, lowercase.perl and tokenizer.perl -no-escape give
@pytest.mark.parametrize(
    ("line", "language", "tokens"),
    [
        ("L’homme dit : « Non ! »", "fr", 'l\' homme dit : " non ! "'),
        ("J'ai 3,5 euros...", "fr", "j' ai 3,5 euros ..."),
        ("A man's dog - well-known - isn't here.", "en", "a man 's dog - well-known - isn 't here ."),
        ("Ein Mann, 3.5 m & „alt“.", "de", 'ein mann , 3.5 m & " alt " .'),
    ],
)
def test_moses_text(line: str, language: str, tokens: str) -> None:
    assert moses_text(line, language) == tokens


def test_multi30k_bleu_is_bleu_of_moses_text() -> None:
    hypotheses, references = ["L’Homme court.", "Un chien, un Chat !"], ["l'homme court.", "un chien et un chat !"]
    found = score_corpus("bleu-multi30k", hypotheses, references, target="fr")
    by_hand = (["l' homme court .", "un chien , un chat !"], ["l' homme court .", "un chien et un chat !"])
    expected = sacrebleu.corpus_bleu(by_hand[0], [by_hand[1]], tokenize="none", force=True)
    assert found.score == pytest.approx(expected.score, abs=1e-9)
    for part in ("case:lc", "tok:moses-fr", "norm:punct"):
        assert part in found.signature


@pytest.mark.parametrize("metric", [*METRICS])
def test_a_perfect_translation(metric: str) -> None:
    lines = ["Il est calme, dit-elle.", "Je suis chez moi !"]
    found = score_corpus(metric, lines, lines, target="fr")
    assert found.metric == metric
    assert found.score == pytest.approx({"ter": 0.0, "book-bleu": 1.0}.get(metric, 100.0), abs=1e-9)


# -- the d2l book's sentence BLEU (docs/attention.md row 17) ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("hypothesis", "reference", "score"),
    [
        ("il est bon .", "il est calme .", 0.658037),  # (3/4)^(1/2) (1/3)^(1/4)
        ("il est paresseux .", "il est calme .", 0.658037),
        ("j’ai perdu .", "j'ai perdu .", 0.687),
        ("va", "va !", 0.368),  # exp(1 - 2/1), and no pair of words to count
        ("va !", "va !", 1.0),
        ("", "va !", 0.0),
        (" ", "va !", 0.0),
        ("va", "", 0.0),
        ("a b", "c d", 0.0),
    ],
)
def test_book_bleu_of_a_sentence(hypothesis: str, reference: str, score: float) -> None:
    assert sentence_book_bleu(hypothesis, reference) == pytest.approx(score, abs=5e-4 if score in {0.687, 0.368} else 1e-6)


def test_book_bleu_by_hand() -> None:
    # 6 words against 7: exp(1 - 7/6). Words that match: a, b, c, a, so 4 of 6 (the reference has one b and two a).
    # Pairs that match: `a b` and `b c`, so 2 of 5
    expected = math.exp(1 - 7 / 6) * (4 / 6) ** (1 / 2) * (2 / 5) ** (1 / 4)
    assert sentence_book_bleu("a b b c a a", "a b c d a e f") == pytest.approx(expected)
    assert sentence_book_bleu("a b c", "a b c d", k=3) == pytest.approx(math.exp(1 - 4 / 3))


def test_book_bleu_of_a_corpus_is_the_mean_of_sentences() -> None:
    hypotheses = ["va !", "il est bon .", ""]
    references = ["va !", "il est calme .", "va !"]
    assert score_corpus("book-bleu", hypotheses, references).score == pytest.approx((1 + 0.658037 + 0) / 3, abs=1e-6)


@pytest.mark.parametrize(
    ("line", "tokens"),
    [
        ("il est calme.", ["il", "est", "calme", "."]),
        ("il est calme .", ["il", "est", "calme", "."]),
        ("va\u202f!", ["va", "!"]),
        ("ah...", ["ah", ".", ".", "."]),
        ("l'eau, non ?", ["l'eau", ",", "non", "?"]),
        ("", []),
    ],
)
def test_book_tokens(line: str, tokens: list[str]) -> None:
    assert book_tokens(line) == tokens


def test_book_bleu_does_not_mind_the_space_before_marks() -> None:
    assert sentence_book_bleu("il est bon.", "il est calme .") == sentence_book_bleu("il est bon .", "il est calme.")


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "near"), [("blue", "bleu"), ("BLEU-lower", "bleu-lower"), ("chrf+", "chrf"), ("bookbleu", "book-bleu")]
)
def test_an_unknown_metric_names_the_nearest(written: str, near: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_metric(written)
    assert f"unknown metric {written!r}; did you mean '{near}" in str(caught.value)
    assert "Known: bleu, bleu-lower, bleu-multi30k, chrf, chrf++, ter, book-bleu" in str(caught.value)
    with pytest.raises(ConfigError, match="unknown metric"):
        score_corpus(written, ["a"], ["a"])


@pytest.mark.parametrize("metric", [*METRICS])
@pytest.mark.parametrize(("hypotheses", "references"), [(3, 2), (2, 3), (0, 1)])
@pytest.mark.fault("PB-02")
def test_different_counts_are_refused(metric: str, hypotheses: int, references: int) -> None:
    # docs/faults.md PB-02: sacrebleu's own functions drop what is too much and score the rest
    with pytest.raises(DataError, match=f"but there are {hypotheses} and {references}$"):
        score_corpus(metric, ["a b c d"] * hypotheses, ["a b c d"] * references)


def test_nothing_to_score_is_refused() -> None:
    with pytest.raises(DataError, match="at least one line"):
        score_corpus("bleu", [], [])


# -- what looks tokenised (PB-22) --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "share"),
    [
        ([], 0.0),
        (["Il est bon, oui.", "Va !"], 0.0),
        (["Il est bon , oui .", "Va !", "Non .", "Oui."], 0.5),
        (["Il est p@@ ares@@ seux.", "▁Il ▁est ▁bon", "Il , elle", "Oui"], 0.75),
    ],
)
def test_share_of_lines_that_look_tokenised(lines: list[str], share: float) -> None:
    assert tokenised_share(lines) == share


# -- how scores are written --------------------------------------------------------------------------------------------


def test_scores_are_written_with_the_digits_people_quote() -> None:
    bleu, book = Score("bleu", 12.3456, "s|t"), Score("book-bleu", 0.65804, "u")
    assert [format_score(bleu), format_score(book)] == ["12.35", "0.658"]
    assert scores_by_name([bleu, book]) == {
        "bleu": {"score": 12.3456, "signature": "s|t"},
        "book-bleu": {"score": 0.65804, "signature": "u"},
    }
