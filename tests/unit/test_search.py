"""Greedy and beam search against a plain-Python twin of the design's rules, and against real models."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt_cli.config import Seq2SeqConfig, TransformerConfig
from nmt_cli.decoding.engine import Hypothesis, SearchSettings, hypothesis_score
from nmt_cli.decoding.search import next_log_probabilities, search
from nmt_cli.decoding.torch_engine import TorchEngine
from nmt_cli.models.dropout import RandomSource
from nmt_cli.models.interface import Decoder, DecoderOutput, DecoderState, Encoded, Encoder, Seq2Seq
from nmt_cli.runs.build import build_model
from nmt_cli.text.batching import pad
from nmt_cli.text.vocab import BOS, EOS, PAD, UNK

pytestmark = pytest.mark.usefixtures("_one_thread")
VOCABULARY = 9  # four specials and five words
Prefix = tuple[int, ...]


@pytest.fixture(name="_one_thread", scope="module")
def _one_thread_fixture() -> Iterator[None]:
    """Tensors are tiny here: a second thread would only wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def table(sentence: int, prefix: Prefix) -> tuple[float, ...]:
    """Log-probabilities of the next token of a sentence after a prefix: random, but always the same."""
    logits = np.random.default_rng([sentence, len(prefix), *prefix]).normal(size=VOCABULARY)
    logits[EOS] += 0.3 * len(prefix) - 0.5  # ends become likelier
    return tuple((logits - np.logaddexp.reduce(logits)).tolist())


@dataclass(frozen=True)
class TableState:
    rows: tuple[tuple[int, Prefix], ...]

    def reorder(self, order: Tensor) -> TableState:
        return TableState(tuple(self.rows[index] for index in order.tolist()))


class TableEncoder(Encoder):
    """The only token of a source is its number in the table."""

    def forward(self, source_ids: Tensor, source_visible: Tensor, *, want_weights: bool = False) -> Encoded:
        return Encoded(source_ids.unsqueeze(-1), source_visible)


class TableDecoder(Decoder):
    """Hidden states are the log-probabilities of `table`, and the output layer leaves them as they are."""

    def start(self, encoded: Encoded) -> DecoderState:
        return TableState(tuple((int(number), ()) for number in encoded.memory[:, 0, 0]))

    def forward(
        self, target_ids: Tensor, state: DecoderState, *, want_weights: bool = False
    ) -> tuple[DecoderOutput, DecoderState]:
        assert isinstance(state, TableState)
        assert target_ids.shape == (len(state.rows), 1)
        after = tuple((n, (*prefix, int(last))) for (n, prefix), last in zip(state.rows, target_ids[:, 0], strict=True))
        assert all(prefix[0] == BOS for _, prefix in after)
        hidden = torch.tensor([[table(n, prefix[1:])] for n, prefix in after], dtype=torch.float32)
        return DecoderOutput(hidden), TableState(after)

    @property
    def output_layer(self) -> tuple[Tensor, Tensor | None]:
        return torch.eye(VOCABULARY), None


def run_search(sentences: list[int], limits: list[int], settings: SearchSettings) -> list[list[Hypothesis]]:
    model = Seq2Seq(TableEncoder(), TableDecoder())
    ids = torch.tensor(sentences).unsqueeze(1)
    return search(model, model.encoder(ids, torch.ones_like(ids, dtype=torch.bool)), limits, settings)


def twin(sentence: int, limit: int, settings: SearchSettings) -> list[Hypothesis]:
    """The rules of docs/guide.md, one sentence at a time, with lists."""
    size = settings.beam_size
    live: list[tuple[Prefix, float]] = [((), 0.0)]
    finished: list[Hypothesis] = []
    for step in range(1, limit + 1):
        continued = [
            (total + log_probability, prefix, word)
            for prefix, total in live
            for word, log_probability in enumerate(table(sentence, prefix))
            if word not in {PAD, UNK, BOS}
        ]
        best = sorted(continued, reverse=True)[: 2 * size]
        for total, prefix, word in best[:size]:
            if word == EOS:
                score = total / max(1, len(prefix)) ** settings.length_penalty
                finished.append(Hypothesis(prefix, total, score, "eos"))
            elif step == limit:
                score = total / (len(prefix) + 1) ** settings.length_penalty
                finished.append(Hypothesis((*prefix, word), total, score, "limit"))
        live = [((*prefix, word), total) for total, prefix, word in best if word != EOS][:size]
        if len(finished) >= size:
            break
    return sorted(finished, key=lambda hypothesis: -hypothesis.score)[:size]


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
    settings = SearchSettings(size, alpha)
    found = run_search(SENTENCES, LIMITS, settings)
    for sentence, limit, hypotheses in zip(SENTENCES, LIMITS, found, strict=True):
        assert_same(hypotheses, twin(sentence, limit, settings))


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


def test_tokens_that_no_translation_contains_have_no_probability() -> None:
    model = Seq2Seq(TableEncoder(), TableDecoder())
    state = model.decoder.start(Encoded(torch.tensor([[[4]], [[6]]]), torch.ones(2, 1, dtype=torch.bool)))
    found, after = next_log_probabilities(model, torch.tensor([BOS, BOS]), state)
    assert found.shape == (2, VOCABULARY)
    assert torch.isneginf(found[:, [PAD, UNK, BOS]]).all()
    torch.testing.assert_close(found[:, EOS:], torch.tensor([table(4, ())[EOS:], table(6, ())[EOS:]]))
    assert after == TableState(((4, (BOS,)), (6, (BOS,))))


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
