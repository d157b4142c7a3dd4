"""States of decoders with several rows for each sentence: what a beam asks of them, against full passes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nmt_cli.attention.multihead import KeysValues
from nmt_cli.config import Seq2SeqConfig, TransformerConfig
from nmt_cli.decoding.search import TURNED_FROM, projection
from nmt_cli.models.dropout import RandomSource
from nmt_cli.models.interface import Seq2Seq, split_order
from nmt_cli.models.transformer import TIDY_STEPS, TransformerState
from nmt_cli.runs.build import build_model
from nmt_cli.text.batching import pad
from nmt_cli.text.vocab import BOS, EOS

MODELS: dict[str, Seq2SeqConfig | TransformerConfig] = {
    "gru": Seq2SeqConfig(type="seq2seq", embedding_size=5, hidden_size=6, encoder_layers=2, decoder_layers=2),
    "lstm, general": Seq2SeqConfig(type="seq2seq", cell="lstm", embedding_size=5, hidden_size=6, attention="general"),
    "gru, dot": Seq2SeqConfig(type="seq2seq", embedding_size=5, hidden_size=6, attention="scaled_dot"),
    "transformer": TransformerConfig(type="transformer", width=12, heads=3, feed_forward=7, encoder_layers=1, decoder_layers=2),
    "transformer, post-norm, learned": TransformerConfig(
        type="transformer", width=8, heads=2, feed_forward=7, encoder_layers=2, decoder_layers=1, norm="post",
        positions="learned", max_positions=40,
    ),
}  # fmt: skip
SOURCES = [[4, 5, 6, EOS], [7, EOS], [8, 9, 10, 4, 5, EOS]]


@pytest.fixture(name="model", params=list(MODELS))
def _model(request: pytest.FixtureRequest) -> Seq2Seq:
    return build_model(MODELS[request.param], source_size=13, target_size=11, random=RandomSource(1), seed=3).eval()


def assert_rows_are_full_passes(model: Seq2Seq, hidden: torch.Tensor, sources: list[int], histories: list[list[int]]) -> None:
    """Each row of `hidden` `(rows, 1, D)` is what one pass over its source and its history gives at the end."""
    for row, (source, history) in enumerate(zip(sources, histories, strict=True)):
        ids, visible = pad([SOURCES[source]])
        expected = model(ids, visible, torch.tensor([[BOS, *history]])).hidden[:, -1:]
        torch.testing.assert_close(hidden[row : row + 1], expected, rtol=1e-4, atol=1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("beams", [1, 3])
def test_rows_are_those_of_full_passes(model: Seq2Seq, beams: int) -> None:
    """A beam opens after the first token; hypotheses fork, change places and die; a sentence leaves; storage grows."""
    random = np.random.default_rng(5)
    ids, visible = pad(SOURCES)
    state = model.decoder.start(model.encoder(ids, visible))
    output, state = model.decoder(torch.full((3, 1), BOS), state)
    assert_rows_are_full_passes(model, output.hidden, [0, 1, 2], [[], [], []])
    state = state.reorder(torch.arange(3).repeat_interleave(beams), beams)
    sources = [source for source in range(3) for _ in range(beams)]
    histories: list[list[int]] = [[] for _ in sources]
    for step in range(9):
        words = random.integers(4, 11, len(sources)).tolist()
        histories = [[*history, word] for history, word in zip(histories, words, strict=True)]
        output, state = model.decoder(torch.tensor(words).unsqueeze(1), state)
        assert output.hidden.shape[:2] == (len(sources), 1)
        assert_rows_are_full_passes(model, output.hidden, sources, histories)
        kept = [0, 2] if step == 4 else range(len(sources) // beams)  # the second sentence leaves
        order = [sentence * beams + int(row) for sentence in kept for row in random.integers(0, beams, beams)]
        state = state.reorder(torch.tensor(order))
        sources, histories = [sources[row] for row in order], [histories[row] for row in order]


@torch.inference_mode()
def test_sentences_may_repeat_and_change_places(model: Seq2Seq) -> None:
    ids, visible = pad(SOURCES)
    _, state = model.decoder(torch.tensor([[BOS, 5], [BOS, 6], [BOS, 7]]), model.decoder.start(model.encoder(ids, visible)))
    order = [2, 0, 0, 1, 2]
    output, _ = model.decoder(torch.tensor([[4], [5], [6], [7], [8]]), state.reorder(torch.tensor(order)))
    assert_rows_are_full_passes(model, output.hidden, order, [[7, 4], [5, 5], [5, 6], [6, 7], [7, 8]])


@torch.inference_mode()
def test_a_state_is_a_value(model: Seq2Seq) -> None:
    """What is read after a state changes nothing about it: two continuations of one state do not know of each other."""
    ids, visible = pad(SOURCES)
    state = model.decoder.start(model.encoder(ids, visible))
    for word in (BOS, 5, 6, 7, 8):
        _, state = model.decoder(torch.full((3, 1), word), state)
    one, after_one = model.decoder(torch.full((3, 1), 9), state)
    other, after_other = model.decoder(torch.full((3, 1), 10), state)
    again, _ = model.decoder(torch.full((3, 1), 9), state)
    torch.testing.assert_close(again.hidden, one.hidden, rtol=0, atol=0)
    assert not torch.equal(other.hidden, one.hidden)
    for history, after in (([5, 6, 7, 8, 9], after_one), ([5, 6, 7, 8, 10], after_other)):
        output, _ = model.decoder(torch.full((3, 1), 4), after)
        assert_rows_are_full_passes(model, output.hidden, [0, 1, 2], [[*history, 4]] * 3)


def normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


@pytest.mark.parametrize("gradients", [True, False])
def test_appending_is_joining(gradients: bool) -> None:
    parts = [KeysValues(normal(3, 2, n, 5, seed=n), normal(3, 2, n, 5, seed=50 + n)) for n in (2, 1, 3, 1, 1, 4, 1)]
    with torch.set_grad_enabled(gradients):
        grown = parts[0]
        for part in parts[1:]:
            branch = grown.append(parts[2])  # leaves its mark where the next would write
            grown = grown.append(part)
            torch.testing.assert_close(branch.keys[:, :, -3:], parts[2].keys, rtol=0, atol=0)
    for name in ("keys", "values"):
        joined = torch.cat([getattr(part, name) for part in parts], dim=2)
        torch.testing.assert_close(getattr(grown, name), joined, rtol=0, atol=0)


@torch.inference_mode()
def test_a_transformer_forgets_what_no_hypothesis_came_by() -> None:
    """When all come by the first row each time, the storage holds one position a step, and those of the last few steps."""
    model = build_model(MODELS["transformer"], source_size=13, target_size=11, random=RandomSource(1), seed=3).eval()
    ids, visible = pad(SOURCES)
    _, state = model.decoder(torch.full((3, 1), BOS), model.decoder.start(model.encoder(ids, visible)))
    state = state.reorder(torch.arange(3).repeat_interleave(4), 4)
    for steps in range(1, 21):
        output, state = model.decoder(torch.full((12, 1), 5), state)
        assert_rows_are_full_passes(model, output.hidden, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2], [[5] * steps] * 12)
        state = state.reorder(torch.tensor([0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8]))
        assert isinstance(state, TransformerState)
        first = state.past[0]
        assert first is not None
        assert steps + 1 <= first.keys.shape[2] <= steps + 1 + 3 * TIDY_STEPS


def test_orders_are_divided() -> None:
    rows, sentences = split_order(torch.tensor([2, 0, 1, 5, 5, 3]), 3, 3, 2)
    assert rows.tolist() == [[2, 0, 1], [2, 2, 0]]
    assert sentences is None
    rows, sentences = split_order(torch.tensor([5, 4, 3]), 3, 3, 2)
    assert rows.tolist() == [[2, 1, 0]]
    assert sentences is not None
    assert sentences.tolist() == [1]
    rows, sentences = split_order(torch.tensor([0, 0, 1, 1]), 1, 2, 2)
    assert (rows.tolist(), sentences) == ([[0, 0], [0, 0]], None)
    _, sentences = split_order(torch.tensor([1, 0]), 1, 1, 2)
    assert sentences is not None
    assert sentences.tolist() == [1, 0]


@torch.inference_mode()
@pytest.mark.parametrize("with_bias", [True, False])
def test_a_weight_turned_round_gives_the_logits_of_the_output_layer(
    model: Seq2Seq, with_bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight, bias = model.decoder.output_layer
    assert bias is not None
    bias.copy_(torch.arange(11.0))  # it begins at zero
    layer = weight, bias if with_bias else None
    monkeypatch.setattr(type(model.decoder), "output_layer", layer)
    hidden = torch.from_numpy(np.random.default_rng(3).normal(size=(5, weight.shape[1])).astype(np.float32))
    expected = torch.nn.functional.linear(hidden, *layer)
    for sentences in (TURNED_FROM - 1, TURNED_FROM):
        torch.testing.assert_close(projection(model.decoder, sentences)(hidden), expected, rtol=1e-5, atol=1e-5)
    assert projection(model.decoder, TURNED_FROM - 1) == model.decoder.project
    assert projection(model.decoder, TURNED_FROM) != model.decoder.project
