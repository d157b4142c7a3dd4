"""Greedy and beam search against a plain-Python twin of the design's rules, and against real models."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
import torch

from nmt_cli.config import Seq2SeqConfig, TransformerConfig
from nmt_cli.decoding.engine import Hypothesis, PenaltyKind, Sampling, SearchSettings, hypothesis_score
from nmt_cli.decoding.torch_engine import TorchEngine
from nmt_cli.models.dropout import RandomSource
from nmt_cli.runs.build import build_model
from nmt_cli.text.batching import pad
from nmt_cli.text.vocab import BOS, EOS, PAD, UNK
from tests.unit.table_model import VOCABULARY, Prefix, run_search, table

pytestmark = pytest.mark.usefixtures("_one_thread")


@pytest.fixture(name="_one_thread", scope="module")
def _one_thread_fixture() -> Iterator[None]:
    """Tensors are tiny here: a second thread would only wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def twin(sentence: int, limit: int, settings: SearchSettings, prefix: Prefix = ()) -> list[Hypothesis]:
    """The rules of docs/guide.md, one sentence at a time, with lists."""
    size = settings.beam_size
    limit = max(limit, len(prefix) + 1)
    live: list[tuple[Prefix, float]] = [((), 0.0)]
    finished: list[Hypothesis] = []
    for step in range(1, limit + 1):
        continued = [
            (total + log_probability, past, word)
            for past, total in live
            for word, log_probability in enumerate(table(sentence, past))
            if allowed(settings, past, word, prefix)
        ]
        best = sorted(continued, reverse=True)[: 2 * size]
        if not best:
            finished += [Hypothesis(past, total, penalised(total, len(past), settings), "limit") for past, total in live]
            break
        for total, past, word in best[:size]:
            if word == EOS:
                finished.append(Hypothesis(past, total, penalised(total, len(past), settings), "eos"))
            elif step == limit:
                finished.append(Hypothesis((*past, word), total, penalised(total, step, settings), "limit"))
        live = [((*past, word), total) for total, past, word in best if word != EOS][:size]
        if len(finished) >= size and (settings.stopping == "beam-full" or not can_win(live, finished, limit, settings)):
            break
    return sorted(finished, key=lambda hypothesis: -hypothesis.score)[:size]


def allowed(settings: SearchSettings, past: Prefix, word: int, prefix: Prefix) -> bool:
    """Whether `word` may follow `past` in a translation that begins with `prefix`."""
    if len(past) < len(prefix):
        return word == prefix[len(past)]
    if word in {PAD, BOS} or (word == UNK and not settings.unknown) or (word == EOS and len(past) < settings.min_length):
        return False
    size = settings.no_repeat_ngram
    ngrams = [(*past, word)[i : i + size] for i in range(len(past) + 2 - size)]
    return not size or ngrams.count(ngrams[-1] if ngrams else ()) <= 1


def penalised(total: float, length: int, settings: SearchSettings) -> float:
    """The score of a hypothesis."""
    penalty = max(1, length) if settings.length_penalty_kind == "length" else (5 + length) / 6
    return float(total / penalty**settings.length_penalty)


def can_win(live: list[tuple[Prefix, float]], finished: list[Hypothesis], limit: int, settings: SearchSettings) -> bool:
    """Whether a live hypothesis that lost nothing more on the way to the limit would be among the best."""
    worst = sorted((hypothesis.score for hypothesis in finished), reverse=True)[settings.beam_size - 1]
    return any(penalised(total, limit, settings) > worst for _, total in live)


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [(h.tokens, h.ended) for h in found] == [(h.tokens, h.ended) for h in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-5)
        assert one.score == pytest.approx(other.score, abs=1e-5)


SENTENCES = list(range(1, 13))
LIMITS = [6, 1, 9, 3, 2, 12, 5, 4, 8, 7, 10, 11]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_beam_search_follows_the_rules(size: int, alpha: float) -> None:
    assert_follows_the_rules(SearchSettings(size, alpha))


def assert_follows_the_rules(settings: SearchSettings, prefixes: list[Prefix] | None = None) -> None:
    found = run_search(SENTENCES, LIMITS, settings, prefixes=prefixes)
    for sentence, limit, prefix, hypotheses in zip(SENTENCES, LIMITS, prefixes or [()] * 12, found, strict=True):
        assert_same(hypotheses, twin(sentence, limit, settings, prefix))


@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize(
    "settings",
    [
        SearchSettings(min_length=3),
        SearchSettings(min_length=20),
        SearchSettings(no_repeat_ngram=1),
        SearchSettings(no_repeat_ngram=2, min_length=8),
        SearchSettings(no_repeat_ngram=3, min_length=12),
        SearchSettings(unknown=True),
        SearchSettings(length_penalty_kind="gnmt", length_penalty=0.8),
        SearchSettings(stopping="exact", length_penalty=1.0),
        SearchSettings(stopping="exact", length_penalty=0.3, length_penalty_kind="gnmt"),
    ],
    ids=lambda settings: str(settings).removeprefix("SearchSettings"),
)
def test_every_setting_follows_the_rules(settings: SearchSettings, size: int) -> None:
    assert_follows_the_rules(dataclasses.replace(settings, beam_size=size))


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("repeat", [0, 2])
def test_prefixes_are_kept(size: int, repeat: int) -> None:
    prefixes: list[Prefix] = [(), (4,), (5, 6), (8, 8, 8), (7, UNK), (), (6,) * 7, (4, 5, 6, 7), (), (8,), (5,), ()]
    settings = SearchSettings(size, no_repeat_ngram=repeat)
    assert_follows_the_rules(settings, prefixes)
    for prefix, hypotheses in zip(prefixes, run_search(SENTENCES, LIMITS, settings, prefixes=prefixes), strict=True):
        assert all(hypothesis.tokens[: len(prefix)] == prefix for hypothesis in hypotheses)


@pytest.mark.parametrize("settings", [SearchSettings(min_length=20), SearchSettings(no_repeat_ngram=1, min_length=12)])
def test_what_nothing_may_follow_is_cut_there(settings: SearchSettings) -> None:
    [hypotheses] = run_search([4], [12], settings)
    assert hypotheses
    assert {h.ended for h in hypotheses} == {"limit"}
    assert {len(h.tokens) for h in hypotheses} == {5 if settings.no_repeat_ngram else 12}  # there are five words


# -- proof by counting through -----------------------------------------------------------------------------------------

WORDS = range(EOS + 1, VOCABULARY)


def every_translation(sentence: int, limit: int, settings: SearchSettings) -> list[Hypothesis]:
    """All sequences of words that end, or are cut at the limit, with their scores."""
    found: list[Hypothesis] = []
    live: list[tuple[Prefix, float]] = [((), 0.0)]
    for step in range(1, limit + 1):
        for past, total in live:
            ended = total + table(sentence, past)[EOS]
            found.append(Hypothesis(past, ended, penalised(ended, len(past), settings), "eos"))
        live = [((*past, word), total + table(sentence, past)[word]) for past, total in live for word in WORDS]
        if step == limit:
            found += [Hypothesis(past, total, penalised(total, step, settings), "limit") for past, total in live]
    return sorted(found, key=lambda hypothesis: -hypothesis.score)


@pytest.mark.parametrize("kind", ["length", "gnmt"])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.0])
def test_exact_search_with_a_wide_beam_finds_the_best_of_all(alpha: float, kind: PenaltyKind) -> None:
    settings = SearchSettings(700, alpha, length_penalty_kind=kind, stopping="exact")  # there are 5 + 25 + 125 + 625 at most
    found = run_search([1, 2, 3], [4, 3, 4], settings)
    for sentence, limit, hypotheses in zip([1, 2, 3], [4, 3, 4], found, strict=True):
        everything = every_translation(sentence, limit, settings)
        assert len(hypotheses) == min(700, len(everything))
        assert_same(hypotheses[:50], everything[:50])


def test_exact_search_finds_what_a_full_beam_stops_before() -> None:
    better = 0
    for alpha in (1.0, 2.0):
        for size in (1, 2, 3):
            full, exact = (
                run_search(SENTENCES, LIMITS, SearchSettings(size, alpha, stopping=stopping))
                for stopping in ("beam-full", "exact")
            )
            for one, other in zip(full, exact, strict=True):
                assert other[0].score >= one[0].score - 1e-6
                better += other[0].score > one[0].score + 1e-6
    assert better >= 5


def test_token_log_probabilities_add_up() -> None:
    for settings in (SearchSettings(4), SearchSettings(3, sampling=Sampling(seed=5)), SearchSettings(2, no_repeat_ngram=1)):
        for sentence, hypotheses in zip(SENTENCES, run_search(SENTENCES, LIMITS, settings), strict=True):
            for h in hypotheses:
                target = (*h.tokens, EOS) if h.ended == "eos" else h.tokens
                expected = [table(sentence, target[:i])[token] for i, token in enumerate(target)]
                assert list(h.token_log_probabilities) == pytest.approx(expected, abs=1e-5)
                assert h.log_probability == pytest.approx(sum(expected), abs=1e-5)


def test_the_table_tries_what_matters() -> None:
    """Both endings, early and late, an end mark at once, and a winner that depends on the length penalty."""
    hypotheses = [
        h for size in (1, 3) for s, n in zip(SENTENCES, LIMITS, strict=True) for h in twin(s, n, SearchSettings(size))
    ]
    assert {h.ended for h in hypotheses} == {"eos", "limit"}
    assert {0, 1, 2, 3, 4} <= {len(h.tokens) for h in hypotheses if h.ended == "eos"}
    winners = [[twin(s, 12, SearchSettings(5, alpha))[0].tokens for s in SENTENCES] for alpha in (0.0, 2.0)]
    assert winners[0] != winners[1]


def test_a_beam_of_one_is_the_greedy_loop() -> None:
    for sentence, limit, [hypothesis] in zip(SENTENCES, LIMITS, run_search(SENTENCES, LIMITS, SearchSettings(1)), strict=True):
        tokens: list[int] = []
        total = 0.0
        ended = False
        while not ended and len(tokens) < limit:
            allowed = {word: p for word, p in enumerate(table(sentence, tuple(tokens))) if word >= EOS}
            word = max(allowed, key=allowed.__getitem__)
            total += allowed[word]
            ended = word == EOS
            tokens += [] if ended else [word]
        assert hypothesis.tokens == tuple(tokens)
        assert hypothesis.ended == ("eos" if ended else "limit")
        assert hypothesis.log_probability == pytest.approx(total, abs=1e-5)


@pytest.mark.parametrize("size", [1, 4])
def test_a_sentence_does_not_depend_on_its_neighbours(size: int) -> None:
    settings = SearchSettings(size)
    together = run_search(SENTENCES, LIMITS, settings)
    turned = run_search(SENTENCES[::-1], LIMITS[::-1], settings)[::-1]
    for sentence, limit, hypotheses, other in zip(SENTENCES, LIMITS, together, turned, strict=True):
        assert hypotheses == other
        assert hypotheses == run_search([sentence], [limit], settings)[0]


@pytest.mark.parametrize("size", [1, 3])
def test_hypotheses_are_sorted_distinct_and_within_their_limit(size: int) -> None:
    for limit, hypotheses in zip(LIMITS, run_search(SENTENCES, LIMITS, SearchSettings(size)), strict=True):
        assert 1 <= len(hypotheses) <= size
        assert all(better.score >= worse.score for better, worse in pairwise(hypotheses))
        assert len({h.tokens for h in hypotheses}) == len(hypotheses)
        for hypothesis in hypotheses:
            length = len(hypothesis.tokens) + (hypothesis.ended == "eos")
            assert length <= limit
            assert (hypothesis.ended == "eos") or length == limit
            assert not {PAD, UNK, BOS, EOS} & set(hypothesis.tokens)


def test_a_limit_of_one_leaves_one_token_or_none() -> None:
    [hypotheses] = run_search([3], [1], SearchSettings(3))
    log_probabilities = table(3, ())
    best = sorted(range(EOS, VOCABULARY), key=lambda word: -log_probabilities[word])[:3]
    assert {h.tokens for h in hypotheses} == {() if word == EOS else (word,) for word in best}
    assert {h.ended for h in hypotheses} <= {"eos", "limit"}


def test_a_beam_wider_than_the_vocabulary_invents_nothing() -> None:
    # six usable continuations at the first step and a beam of eight: nothing impossible is given
    [hypotheses] = run_search([5], [1], SearchSettings(8))
    assert len(hypotheses) == 6
    assert all(math.isfinite(h.log_probability) for h in hypotheses)


# docs/guide.md: log-probability / max(1, length)^alpha
@pytest.mark.parametrize(
    ("total", "length", "alpha", "score"),
    [(-6.0, 3, 1.0, -2.0), (-6.0, 4, 0.5, -3.0), (-6.0, 4, 0.0, -6.0), (-6.0, 0, 1.0, -6.0), (-6.0, 1, 2.0, -6.0)],
)
def test_score_of_a_hypothesis(total: float, length: int, alpha: float, score: float) -> None:
    assert hypothesis_score(total, length, alpha) == pytest.approx(score)


def test_length_limit() -> None:
    assert SearchSettings().limit(7) == 24  # 2 x source + 10
    assert SearchSettings(max_length=5).limit(7) == 5


# -- real models -------------------------------------------------------------------------------------------------------

MODELS: dict[str, Seq2SeqConfig | TransformerConfig] = {
    "gru": Seq2SeqConfig(type="seq2seq", embedding_size=5, hidden_size=6, encoder_layers=2, decoder_layers=2),
    "gru one-way, dot": Seq2SeqConfig(
        type="seq2seq", embedding_size=5, hidden_size=6, bidirectional=False, bridge="copy", attention="scaled_dot"
    ),
    "lstm, general": Seq2SeqConfig(type="seq2seq", cell="lstm", embedding_size=5, hidden_size=6, attention="general"),
    "transformer": TransformerConfig(
        type="transformer", width=12, heads=3, feed_forward=10, encoder_layers=2, decoder_layers=2
    ),
    "transformer post-norm": TransformerConfig(
        type="transformer", width=12, heads=2, feed_forward=10, encoder_layers=1, decoder_layers=2, norm="post"
    ),
    "transformer learned": TransformerConfig(
        type="transformer", width=12, heads=4, feed_forward=10, encoder_layers=2, decoder_layers=1, positions="learned",
        max_positions=9,
    ),
}  # fmt: skip
SOURCES = [[4, 5, 6], [7], [8, 9, 10, 11, 4, 5, 6, 7], [5, 5], [12, 4, 9, 8, 6]]


@pytest.fixture(name="engine", params=list(MODELS))
def _engine(request: pytest.FixtureRequest) -> TorchEngine:
    with torch.random.fork_rng():
        torch.manual_seed(11)
        model = build_model(MODELS[request.param], source_size=13, target_size=11, random=RandomSource(1))
    with torch.no_grad():
        for parameter in model.decoder.output_layer:
            if parameter is not None:
                parameter *= 3  # far from uniform, so that no two continuations tie
    return TorchEngine(model, torch.device("cpu"))


@pytest.mark.parametrize("size", [1, 4])
def test_real_models_do_not_mind_the_batch(engine: TorchEngine, size: int) -> None:
    settings = SearchSettings(size, max_length=9)
    together = engine.translate(SOURCES, settings)
    turned = engine.translate(SOURCES[::-1], settings)[::-1]
    alone = [engine.translate([source], settings)[0] for source in SOURCES]
    for found, other, single in zip(together, turned, alone, strict=True):
        for hypotheses in (other, single):
            assert [(h.tokens, h.ended) for h in hypotheses] == [(h.tokens, h.ended) for h in found]
            assert [h.score for h in hypotheses] == pytest.approx([h.score for h in found], abs=1e-4)


@pytest.mark.parametrize("size", [1, 4])
def test_the_log_probability_is_that_of_a_forced_pass(engine: TorchEngine, size: int) -> None:
    model = engine.model.eval()
    for source, hypotheses in zip(SOURCES, engine.translate(SOURCES, SearchSettings(size, max_length=9)), strict=True):
        for hypothesis in hypotheses:
            target = [*hypothesis.tokens, EOS] if hypothesis.ended == "eos" else list(hypothesis.tokens)
            ids, visible = pad([[*source, EOS]])
            with torch.inference_mode():
                output = model(ids, visible, torch.tensor([[BOS, *target[:-1]]]))
                log_probabilities = model.decoder.project(output.hidden[0]).log_softmax(dim=-1)
            forced = sum(float(row[token]) for row, token in zip(log_probabilities, target, strict=True))
            assert hypothesis.log_probability == pytest.approx(forced, abs=1e-4)


def test_real_models_put_no_control_symbol_out(engine: TorchEngine) -> None:
    with torch.no_grad():
        bias = engine.model.decoder.output_layer[1]
        assert bias is not None
        bias[[PAD, UNK, BOS]] += 50.0  # what the model wants most
    for hypotheses in engine.translate(SOURCES, SearchSettings(4, max_length=6)):
        assert hypotheses
        for hypothesis in hypotheses:
            assert all(EOS < token < 11 for token in hypothesis.tokens)


def test_output_limits_of_real_models(engine: TorchEngine) -> None:
    with torch.no_grad():
        bias = engine.model.decoder.output_layer[1]
        assert bias is not None
        bias[EOS] -= 50.0  # it never wants to end
    table_size = engine.max_source_tokens or 10**6
    for source, [hypothesis] in zip(SOURCES, engine.translate(SOURCES, SearchSettings(1)), strict=True):
        assert hypothesis.ended == "limit"
        assert len(hypothesis.tokens) == min(2 * (len(source) + 1) + 10, table_size)
    assert [len(found[0].tokens) for found in engine.translate(SOURCES, SearchSettings(3, max_length=2))] == [2] * 5


def test_the_engine_leaves_training_as_it_was(engine: TorchEngine) -> None:
    engine.model.train()
    first = engine.translate(SOURCES, SearchSettings(2, max_length=6))
    assert engine.model.training
    engine.model.eval()
    assert engine.translate(SOURCES, SearchSettings(2, max_length=6)) == first  # without dropout in both
    assert not engine.model.training


def test_worker_threads_change_nothing(engine: TorchEngine) -> None:
    settings, threads = SearchSettings(3, max_length=9), torch.get_num_threads()
    expected = [engine.translate([source], settings)[0] for source in SOURCES]
    several = TorchEngine(engine.models, engine.device, workers=2)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda source: several.translate([source], settings)[0], SOURCES * 3))
    for one, other in zip(expected * 3, found, strict=True):
        assert [h.tokens for h in one] == [h.tokens for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-4)
    assert torch.get_num_threads() == threads


def test_an_ensemble_of_a_model_with_itself(engine: TorchEngine) -> None:
    settings = SearchSettings(3, max_length=9)
    alone = engine.translate(SOURCES, settings)
    both = TorchEngine([engine.model, engine.model], engine.device).translate(SOURCES, settings)
    for one, other in zip(alone, both, strict=True):
        assert [h.tokens for h in one] == [h.tokens for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-4)


@pytest.mark.parametrize("settings", [SearchSettings(3, no_repeat_ngram=1), SearchSettings(2, sampling=Sampling(top_k=5))])
def test_constraints_and_sampling_do_not_mind_the_batch(engine: TorchEngine, settings: SearchSettings) -> None:
    prefixes = [(5,), (), (6, 7), (), (8,)]
    together = engine.translate(SOURCES, settings, prefixes=prefixes, lines=range(5))
    for i, (source, prefix) in enumerate(zip(SOURCES, prefixes, strict=True)):
        [alone] = engine.translate([source], settings, prefixes=[prefix], lines=[i])
        assert [h.tokens for h in alone] == [h.tokens for h in together[i]]
        assert [h.score for h in alone] == pytest.approx([h.score for h in together[i]], abs=1e-4)
        assert all(h.tokens[: len(prefix)] == prefix for h in alone)
