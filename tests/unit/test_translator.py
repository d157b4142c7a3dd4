"""Lines in, lines out: order, blank lines, long lines, batch budgets and line numbers, over a made-up engine."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from typing import Literal

import pytest

import nmt_cli.decoding.translator as translator_module
from nmt_cli.decoding.engine import Hypothesis, SearchSettings
from nmt_cli.decoding.translator import Translation, Translator, TranslatorSettings, repeats_itself
from nmt_cli.errors import DataError
from nmt_cli.text.tokenizers import train_tokenizer

WORDS = train_tokenizer("word", [" ".join(string.ascii_lowercase)])
UPPER = train_tokenizer("word", [" ".join(string.ascii_uppercase)])  # the same ids for the same letters


class TurningEngine:
    """Turns every sentence round and remembers its batches."""

    def __init__(self, max_source_tokens: int | None = None, workers: int = 1) -> None:
        self.max_source_tokens, self.workers = max_source_tokens, workers
        self.batches: list[list[tuple[int, ...]]] = []
        self.prefixes: list[tuple[int, ...]] = []
        self.lines: list[int] = []

    def translate(
        self,
        sources: Sequence[Sequence[int]],
        settings: SearchSettings,
        *,
        prefixes: Sequence[Sequence[int]] | None = None,
        lines: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]:
        assert sources
        self.prefixes += [tuple(prefix) for prefix in prefixes or ()]
        self.lines += lines or ()
        assert all(len(source) > 0 for source in sources)
        self.batches.append([tuple(source) for source in sources])
        return [
            [
                Hypothesis(tuple(reversed(source)), -1.0, -0.5, "eos"),
                Hypothesis(tuple(source), -2.0, -1.0, "limit"),
            ][: settings.beam_size]
            for source in sources
        ]


class Bench:
    """A translator with all that it says and does."""

    def __init__(
        self,
        *,
        batch_tokens: int = 4096,
        batch_sentences: int | None = None,
        max_source_length: int = 1024,
        long_lines: Literal["cut", "split", "error"] = "cut",
        model_limit: int | None = None,
        workers: int = 1,
    ) -> None:
        self.engine = TurningEngine(model_limit, workers)
        self.warnings: list[str] = []
        self.progress: list[int] = []
        settings = TranslatorSettings(SearchSettings(2), batch_tokens, batch_sentences, max_source_length, long_lines)
        self.translator = Translator(
            self.engine, WORDS, UPPER, settings, warn=self.warnings.append, on_progress=self.progress.append
        )

    def __call__(self, lines: Sequence[str]) -> list[str]:
        return self.translator.translate(lines)


def turned(line: str) -> str:
    return " ".join(reversed(line.upper().split()))


LINES = ["a b c", "d", "e f g h i j k", "l m", "n o p q", "r s t u v w", "x y", "z", "c b a", "k j i h g"]


@pytest.mark.parametrize(("tokens", "sentences"), [(4096, None), (1, None), (9, None), (16, 3), (4096, 1), (4096, 4)])
@pytest.mark.fault("PB-18")
def test_line_n_belongs_to_line_n(tokens: int, sentences: int | None) -> None:
    bench = Bench(batch_tokens=tokens, batch_sentences=sentences)
    assert bench(LINES) == [turned(line) for line in LINES]
    assert sorted(source for batch in bench.engine.batches for source in batch) == sorted(
        tuple(WORDS.encode(line)) for line in LINES
    )


@pytest.mark.fault("PB-18")
def test_blank_lines_stay_and_never_reach_the_engine() -> None:
    # the trigger of docs/faults.md PB-18, the last line empty, and other Unicode spaces
    lines = ["a b", "", "  ", "\t", "b c", "\u00a0\u202f", "\u2028", "\r", ""]
    bench = Bench()
    assert bench(lines) == ["B A", "", "", "", "C B", "", "", "", ""]
    assert [len(batch) for batch in bench.engine.batches] == [2]
    assert bench.warnings == []


@pytest.mark.parametrize("lines", [[], [""], ["", " "]])
def test_nothing_to_translate(lines: list[str]) -> None:
    bench = Bench()
    assert bench(lines) == [""] * len(lines)
    assert bench.engine.batches == []


def test_equal_lines_are_lines_of_their_own() -> None:
    assert Bench(batch_sentences=2)(["a b", "a b", "", "a b"]) == ["B A", "B A", "", "B A"]


def test_a_translation_holds_its_hypotheses_best_first() -> None:
    found = list(Bench().translator.stream(["a b", ""]))
    ids = tuple(WORDS.encode("a b"))
    best, second = Hypothesis(ids[::-1], -1.0, -0.5, "eos"), Hypothesis(ids, -2.0, -1.0, "limit")
    assert found == [Translation("B A", (best, second)), Translation("", ())]


# -- long lines (PB-19) ------------------------------------------------------------------------------------------------


def with_long_fifth(words: int) -> list[str]:
    lines = ["a b"] * 10
    lines[4] = " ".join(string.ascii_lowercase[i % 26] for i in range(words))
    return lines


@pytest.mark.fault("PB-19")
def test_a_long_line_is_cut_with_a_warning_that_names_it() -> None:
    bench = Bench()
    lines = with_long_fifth(5000)
    found = bench(lines)
    assert len(found) == 10
    assert found[:4] + found[5:] == ["B A"] * 9
    assert found[4] == turned(" ".join(lines[4].split()[:1023]))  # with the end mark 1024
    [warning] = bench.warnings
    for part in ("line 5 ", "5001 tokens", "limit of 1024", "cut"):
        assert part in warning


@pytest.mark.parametrize(("words", "warned"), [(9, False), (10, True)])
def test_the_limit_counts_the_end_mark(words: int, warned: bool) -> None:
    bench = Bench(max_source_length=10)
    bench(with_long_fifth(words))
    assert bool(bench.warnings) is warned
    assert max(len(source) for batch in bench.engine.batches for source in batch) == 9


def test_a_long_line_is_split_and_joined_in_order() -> None:
    bench = Bench(max_source_length=5, long_lines="split")
    assert bench(with_long_fifth(10))[4] == "D C B A H G F E J I"
    [warning] = bench.warnings
    assert "line 5 has 11 tokens" in warning
    assert "split into 3 parts" in warning
    assert max(len(source) for batch in bench.engine.batches for source in batch) == 4


def test_a_split_line_holds_the_best_hypothesis_of_each_part_in_order() -> None:
    bench = Bench(max_source_length=4, long_lines="split")
    [found] = bench.translator.translate_chunk(["a b c d e"])
    parts = [tuple(reversed(WORDS.encode(part))) for part in ("a b c", "d e")]
    assert [hypothesis.tokens for hypothesis in found.hypotheses] == parts


@pytest.mark.fault("PB-19")
def test_a_long_line_can_be_an_error_before_any_work() -> None:
    bench = Bench(max_source_length=5, long_lines="error")
    with pytest.raises(DataError, match=r"line 5 has 11 tokens .* limit of 5"):
        bench(with_long_fifth(10))
    assert bench.engine.batches == []


@pytest.mark.parametrize(("asked", "model", "limit"), [(8, 5, 5), (5, 8, 5), (6, None, 6)])
def test_the_nearer_limit_holds(asked: int, model: int | None, limit: int) -> None:
    bench = Bench(max_source_length=asked, model_limit=model)
    bench(with_long_fifth(20))
    assert f"limit of {limit};" in bench.warnings[0]
    assert max(len(source) for batch in bench.engine.batches for source in batch) == limit - 1


# -- batches -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [3, 8, 10, 16, 24, 100])
def test_batches_keep_to_the_budget_but_for_one_long_line(budget: int) -> None:
    bench = Bench(batch_tokens=budget)
    bench(LINES)
    for batch in bench.engine.batches:
        padded = len(batch) * (max(len(source) for source in batch) + 1)
        assert padded <= budget or len(batch) == 1
    if budget == 100:
        assert len(bench.engine.batches) == 1  # 10 lines x 8 tokens fit


@pytest.mark.parametrize("most", [1, 3, 10])
def test_batches_keep_to_a_number_of_sentences(most: int) -> None:
    bench = Bench(batch_sentences=most)
    bench(LINES)
    assert [len(batch) for batch in bench.engine.batches] == [most] * (10 // most) + ([10 % most] if 10 % most else [])


def test_lines_of_similar_length_are_translated_together() -> None:
    bench = Bench(batch_sentences=3)
    bench(LINES)
    lengths = [len(source) for batch in bench.engine.batches for source in batch]
    assert lengths == sorted(lengths, reverse=True)


@pytest.mark.parametrize("workers", [2, 3, 20])
def test_several_workers_change_nothing(workers: int) -> None:
    one, several = Bench(batch_sentences=3), Bench(batch_sentences=3, workers=workers)
    assert several(["", *LINES, ""]) == one(["", *LINES, ""])
    sentences = [sorted(source for batch in bench.engine.batches for source in batch) for bench in (one, several)]
    assert sentences[0] == sentences[1]
    assert len(several.engine.batches) >= len(one.engine.batches)
    assert sum(several.progress) == 12


def test_a_worker_that_fails_is_heard() -> None:
    class Failing(TurningEngine):
        def translate(self, *arguments: object, **named: object) -> list[list[Hypothesis]]:
            raise DataError("broken")

    translator = Translator(Failing(workers=2), WORDS, UPPER, TranslatorSettings(batch_sentences=1))
    with pytest.raises(DataError, match="broken"):
        translator.translate(LINES)


def test_each_line_has_its_prefix_and_its_number() -> None:
    bench = Bench(max_source_length=4, long_lines="split")
    bench.translator.translate_chunk(["a b c d e", "", "x y"], first_line=7, prefixes=["A B", "C", ""])
    assert bench.engine.batches == [[tuple(WORDS.encode(part)) for part in ("a b c", "d e", "x y")]]
    assert bench.engine.lines == [7, 7, 9]
    assert bench.engine.prefixes == [tuple(UPPER.encode("A B")), (), ()]  # of the parts of one line, the first one only


def test_unknown_words_of_a_prefix_are_kept() -> None:
    class Echo(TurningEngine):
        def translate(
            self,
            sources: Sequence[Sequence[int]],
            settings: SearchSettings,
            *,
            prefixes: Sequence[Sequence[int]] | None = None,
            lines: Sequence[int] | None = None,
        ) -> list[list[Hypothesis]]:
            assert prefixes is not None
            return [[Hypothesis((*prefix, *UPPER.encode("Z")), -1.0, -1.0, "eos")] for prefix in prefixes]

    translator = Translator(Echo(), WORDS, UPPER, TranslatorSettings())
    found = translator.translate_chunk(["a", "b", "c"], prefixes=["odd A <unk>", "B", ""])
    assert [translation.text for translation in found] == ["odd A <unk> Z", "B Z", "Z"]


@pytest.mark.fault("PB-10")
def test_a_prefix_above_the_limit_of_the_model_is_an_error() -> None:
    bench = Bench(model_limit=4)
    with pytest.raises(DataError, match="line 8: the prefix has 5 tokens with an end mark, more than the limit of 4"):
        bench.translator.translate_chunk(["a", "b"], first_line=7, prefixes=["A B C", "A B C D"])
    assert bench.engine.batches == []


# -- loops, limits, cuts ---


@pytest.mark.parametrize(
    ("tokens", "loops"),
    [
        ((), False),
        ((7,) * 5, False),
        ((7,) * 6, True),
        ((4, 7, 7, 7, 7, 7, 7, 5), True),
        ((7, 8) * 2, False),
        ((9, 7, 8, 7, 8, 7, 8), True),
        ((7, 8, 9) * 2 + (7, 8), False),
        ((7, 8, 9) * 3, True),
        ((7, 8, 7, 9, 7, 8, 7, 9), False),
        (tuple(range(4, 30)), False),
    ],
)
def test_what_a_loop_is(tokens: tuple[int, ...], loops: bool) -> None:
    assert repeats_itself(tokens) is loops


def test_a_translation_says_how_it_came_about() -> None:
    def hypothesis(*tokens: int, ended: Literal["eos", "limit"] = "eos") -> Hypothesis:
        return Hypothesis(tokens, -1.0, -1.0, ended)

    fine = Translation("", (hypothesis(5, 6), hypothesis(*[5] * 9, ended="limit")))
    assert (fine.at_limit, fine.repeats) == (False, False)  # the best one counts
    assert Translation("", (hypothesis(5, ended="limit"),)).at_limit
    assert Translation("", (hypothesis(*[5] * 9),)).repeats
    assert not Translation("").at_limit
    found = Bench(max_source_length=3).translator.translate_chunk(["a b", "a b c", ""])
    assert [translation.cut for translation in found] == [False, True, False]
    found = Bench(max_source_length=3, long_lines="split").translator.translate_chunk(["a b", "a b c", "a b c d"])
    assert [translation.cut for translation in found] == [False, True, True]


# -- chunks and progress -----------------------------------------------------------------------------------------------


def test_line_numbers_go_on_over_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translator_module, "CHUNK_LINES", 3)
    bench = Bench(max_source_length=5)
    lines = ["a"] * 8
    lines[4] = lines[7] = "a b c d e"
    assert bench(lines) == [turned(" ".join(line.split()[:4])) for line in lines]
    assert [warning.split(" has ")[0] for warning in bench.warnings] == ["line 5", "line 8"]
    assert [len(batch) for batch in bench.engine.batches] == [3, 3, 2]


def test_a_stream_reads_no_further_than_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translator_module, "CHUNK_LINES", 3)
    read: list[str] = []

    def source() -> Iterator[str]:
        for line in LINES:
            read.append(line)
            yield line

    stream = Bench().translator.stream(source())
    assert next(stream).text == "C B A"
    assert len(read) == 3
    assert [translation.text for translation in stream] == [turned(line) for line in LINES[1:]]


def test_a_chunk_is_told_its_first_line_number() -> None:
    bench = Bench(max_source_length=3)
    bench.translator.translate_chunk(["a", "a b c"], first_line=4097)
    assert bench.warnings[0].startswith("line 4098 ")


@pytest.mark.parametrize("tokens", [1, 9, 4096])
def test_progress_adds_up_to_the_lines(tokens: int) -> None:
    bench = Bench(batch_tokens=tokens)
    bench(["", *LINES, " "])
    assert sum(bench.progress) == 12
    assert all(step >= 0 for step in bench.progress)


def test_progress_adds_up_to_the_lines_where_one_is_split() -> None:
    bench = Bench(batch_sentences=2, max_source_length=4, long_lines="split")
    bench(["a b c d e f g h i", "a"])
    assert sum(bench.progress) == 2
