"""Forced decoding against a plain twin: one sentence at a time, the whole softmax, in NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import nmt_cli.decoding.forced
from nmt_cli.config import Seq2SeqConfig, TransformerConfig
from nmt_cli.decoding.forced import ForcedScorer, ScoredLine, forced_log_probabilities, perplexity
from nmt_cli.errors import DataError
from nmt_cli.models.dropout import RandomSource
from nmt_cli.models.interface import Seq2Seq
from nmt_cli.runs.build import build_model
from nmt_cli.text.tokenizers import WordSettings, WordTokenizer
from nmt_cli.text.vocab import BOS, EOS, SPECIALS, Vocabulary

CONFIGS: dict[str, Seq2SeqConfig | TransformerConfig] = {
    "seq2seq": Seq2SeqConfig(type="seq2seq", embedding_size=6, hidden_size=8),
    "transformer": TransformerConfig(
        type="transformer", width=8, heads=2, feed_forward=10, encoder_layers=2, decoder_layers=1, dropout=0.3
    ),
    "learned": TransformerConfig(
        type="transformer",
        width=8,
        heads=2,
        feed_forward=10,
        encoder_layers=1,
        decoder_layers=1,
        positions="learned",
        max_positions=6,
    ),
}
SOURCE = WordTokenizer(Vocabulary((*SPECIALS, *"abcdefg")), WordSettings())
TARGET = WordTokenizer(Vocabulary((*SPECIALS, *"stuvwxyz")), WordSettings())
PAIRS = [
    ("a b c", "s t"),
    ("d", "u v w x y z s t u"),
    ("a b c d e f g a b", ""),
    ("g f", "nowhere s nothing"),
    ("e e e e", "t t"),
]
CPU = torch.device("cpu")


def make_model(kind: str) -> Seq2Seq:
    sizes = {"source_size": len(SOURCE.vocabulary), "target_size": len(TARGET.vocabulary)}
    return build_model(CONFIGS[kind], **sizes, random=RandomSource(1), seed=4).eval()


def make_scorer(model: Seq2Seq, *, batch_tokens: int = 4096, max_source_length: int = 1024) -> tuple[ForcedScorer, list[str]]:
    """Return a scorer and the list that its warnings go to."""
    warnings: list[str] = []
    limits = {"batch_tokens": batch_tokens, "max_source_length": max_source_length}
    scorer = ForcedScorer(model, SOURCE, TARGET, device=CPU, **limits, warn=warnings.append, on_progress=lambda _: None)
    return scorer, warnings


def scored(model: Seq2Seq, pairs: list[tuple[str, str]], *, batch_tokens: int = 4096) -> list[ScoredLine]:
    return make_scorer(model, batch_tokens=batch_tokens)[0].score_chunk(pairs)


@torch.inference_mode()
def twin(model: Seq2Seq, source: str, target: str) -> list[float]:
    """The log-probability of each token: log(exp(its logit) / sum of exp(logits)) in float64."""
    ids, output = [*SOURCE.encode(source), EOS], [*TARGET.encode(target), EOS]
    hidden = model(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool), torch.tensor([[BOS, *output[:-1]]])).hidden
    logits = model.decoder.project(hidden)[0].double().numpy()  # (1, T, D) -> (T, V)
    return [float(np.log(np.exp(row[token]) / np.exp(row).sum())) for row, token in zip(logits, output, strict=True)]


@pytest.mark.parametrize("batch_tokens", [1, 20, 4096])
@pytest.mark.parametrize("kind", ["seq2seq", "transformer"])
def test_every_token_is_scored_as_in_a_plain_pass_over_each_sentence(kind: str, batch_tokens: int) -> None:
    model = make_model(kind)
    for line, (source, target) in zip(scored(model, PAIRS, batch_tokens=batch_tokens), PAIRS, strict=True):
        expected = twin(model, source, target)
        assert (line.source, line.target) == (source, target)
        assert len(line.log_probabilities) == len(target.split()) + 1
        np.testing.assert_allclose(line.log_probabilities, expected, atol=1e-5)
        assert line.log_probability == pytest.approx(sum(expected), abs=1e-5)
        assert line.perplexity == pytest.approx(math.exp(-sum(expected) / len(expected)), rel=1e-5)


@pytest.mark.parametrize("kind", ["seq2seq", "transformer"])
def test_the_order_of_lines_is_kept_and_changes_nothing(kind: str) -> None:
    model = make_model(kind)
    forwards, backwards = scored(model, PAIRS), scored(model, PAIRS[::-1], batch_tokens=20)
    assert [line.line for line in forwards] == [1, 2, 3, 4, 5]
    for one, other in zip(forwards, backwards[::-1], strict=True):
        assert (one.source, one.target, one.tokens) == (other.source, other.target, other.tokens)
        np.testing.assert_allclose(one.log_probabilities, other.log_probabilities, atol=1e-5)


@pytest.mark.parametrize("kind", ["seq2seq", "transformer"])
def test_all_translations_together_have_probability_one(kind: str) -> None:
    """The end mark counts: what ends after two tokens, and what goes on, add up to 1."""
    model = make_model(kind)
    words = range(len(TARGET.vocabulary))
    ended = [[], *([a] for a in words if a != EOS)]
    going_on = [[a, b] for a in words for b in words if EOS not in (a, b)]
    rows = forced_log_probabilities(model, [[5, 6]] * (len(ended) + len(going_on)), [*ended, *going_on], CPU)
    probabilities = [math.exp(sum(row)) for row in rows[: len(ended)]] + [math.exp(sum(row[:-1])) for row in rows[len(ended) :]]
    assert sum(probabilities) == pytest.approx(1, abs=1e-5)
    assert all(row.dtype == np.float32 for row in rows)


def test_only_real_tokens_are_projected_and_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = make_model("transformer"), []
    expected = scored(model, PAIRS)
    project = model.decoder.project

    def recorded(hidden: Tensor) -> Tensor:
        rows.append(len(hidden))
        return project(hidden)

    monkeypatch.setattr(model.decoder, "project", recorded)
    monkeypatch.setattr(nmt_cli.decoding.forced, "BLOCK_ROWS", 4)
    for one, other in zip(scored(model, PAIRS), expected, strict=True):
        np.testing.assert_allclose(one.log_probabilities, other.log_probabilities, atol=1e-6)
    assert max(rows) == 4
    assert sum(rows) == sum(len(target.split()) + 1 for _, target in PAIRS)


def test_a_batch_stays_within_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def recorded(
        model: Seq2Seq, sources: list[list[int]], targets: list[list[int]], device: torch.device
    ) -> list[np.ndarray[tuple[int], np.dtype[np.float32]]]:
        sizes.append((len(sources), max(len(ids) + 1 for ids in (*sources, *targets))))
        return [np.zeros(len(target) + 1, dtype=np.float32) for target in targets]

    monkeypatch.setattr(nmt_cli.decoding.forced, "forced_log_probabilities", recorded)
    scored(make_model("seq2seq"), PAIRS, batch_tokens=20)
    assert sizes == [(2, 10), (3, 5)]


def test_blank_lines() -> None:
    model = make_model("transformer")
    scorer, warnings = make_scorer(model)
    pairs = [("  ", "\t"), ("a b", " "), ("", "s t"), ("a b", "s")]
    both, only_target, only_source, _ = scorer.score_chunk(pairs, first_line=10)
    assert (both.tokens, both.log_probability, both.perplexity) == ((), 0.0, None)
    assert only_target.tokens == ("<eos>",)
    np.testing.assert_allclose(only_target.log_probabilities, twin(model, "a b", ""), atol=1e-5)
    assert (only_source.tokens, only_source.log_probability, only_source.perplexity) == ((), None, None)
    assert warnings == ["line 12: the source is blank, but the target is not: it has no score"]
    assert [line.log_probability for line in scorer.score_chunk(pairs[:1])] == [0.0]
    assert scorer.score_chunk([]) == []


def test_words_that_are_not_in_the_vocabulary() -> None:
    model = make_model("seq2seq")
    (line,) = scored(model, [("a", "s <eos> nowhere <unk> t")])
    assert line.tokens == ("s", "<unk>", "<unk>", "<unk>", "t", "<eos>")
    assert line.unknown == 3
    np.testing.assert_allclose(line.log_probabilities, twin(model, "a", "s ? ? ? t"), atol=1e-5)


def test_a_long_source_is_cut_with_a_warning() -> None:
    model = make_model("transformer")
    scorer, warnings = make_scorer(model, max_source_length=4)
    cut, short = scorer.score_chunk([("a b c d e", "s t"), ("a b c", "s t")], first_line=7)
    assert warnings == ["line 7: the source has 6 tokens with its end mark, more than the limit of 4; it was cut"]
    assert cut.log_probabilities == pytest.approx(short.log_probabilities, abs=1e-6)
    assert cut.source == "a b c d e"


def test_what_learned_positions_cannot_take() -> None:
    model = make_model("learned")
    scorer, warnings = make_scorer(model)
    scorer.score_chunk([("a b c d e f g", "s t u v w")])
    assert warnings == ["line 1: the source has 8 tokens with its end mark, more than the limit of 6; it was cut"]
    with pytest.raises(DataError, match=r"line 42: the target has 7 tokens .* but this model .* positions for 6;"):
        scorer.score_chunk([("a", "s"), ("a", "s t u v w x")], first_line=41)


def test_progress_counts_every_line_once() -> None:
    done: list[int] = []
    model = make_model("seq2seq")
    scorer = ForcedScorer(
        model, SOURCE, TARGET, device=CPU, batch_tokens=20, max_source_length=99, warn=lambda _: None, on_progress=done.append
    )
    scorer.score_chunk([*PAIRS, ("", "")])
    assert sum(done) == 6


def test_perplexity() -> None:
    assert perplexity(-3 * math.log(7), 3) == pytest.approx(7)
    assert perplexity(0.0, 5) == 1
    assert perplexity(-1e6, 1) == math.exp(700)  # no overflow
