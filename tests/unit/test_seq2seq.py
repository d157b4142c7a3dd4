"""The recurrent model with attention (docs/attention.md row 8, docs/faults.md PB-09)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from nmt_cli.attention.masking import visible_from_lengths
from nmt_cli.config import Seq2SeqConfig
from nmt_cli.models.dropout import RandomSource
from nmt_cli.models.interface import Encoded, Seq2Seq, count_parameters
from nmt_cli.models.seq2seq import Bridge, RecurrentDecoder, RecurrentEncoder, RecurrentState, gru_step, lstm_step
from nmt_cli.runs.build import build_model

CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}
SOURCE_SIZE, TARGET_SIZE = 13, 11
LENGTHS = torch.tensor([5, 2, 3])


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def ids(rows: int, columns: int, size: int, *, seed: int) -> Tensor:
    return torch.randint(4, size, (rows, columns), generator=torch.Generator().manual_seed(seed))


def build(*, seed: int = 1, **settings: Any) -> Seq2Seq:
    """A tiny model without dropout; biases are drawn too, so that none can be forgotten."""
    sizes: dict[str, Any] = {"embedding_size": 7, "hidden_size": 6, "encoder_layers": 2, "decoder_layers": 2}
    off: dict[str, Any] = {"dropout": 0.0, "embedding_dropout": 0.0, "output_dropout": 0.0}
    config = Seq2SeqConfig(type="seq2seq", **{**sizes, **off, **settings})
    torch.manual_seed(seed)
    model = build_model(config, source_size=SOURCE_SIZE, target_size=TARGET_SIZE, random=RandomSource(seed))
    for name, parameter in model.named_parameters():
        if "bias" in name:
            nn.init.uniform_(parameter, -0.5, 0.5)
    return model


def padded_source() -> tuple[Tensor, Tensor]:
    visible = visible_from_lengths(LENGTHS, 5)
    return ids(3, 5, SOURCE_SIZE, seed=2) * visible, visible


def logits_of(model: Seq2Seq, source: Tensor, visible: Tensor, target: Tensor) -> Tensor:
    return model.decoder.project(model(source, visible, target).hidden)


CELLS = pytest.mark.parametrize("cell", ["gru", "lstm"])
DIRECTIONS = pytest.mark.parametrize("bidirectional", [False, True], ids=["one-way", "two-way"])


def test_the_books_shapes() -> None:
    """Vocabulary 10, embedding 8, hidden 16, 2 layers, ids (4, 7) all real."""
    config = Seq2SeqConfig(
        type="seq2seq",
        embedding_size=8,
        hidden_size=16,
        encoder_layers=2,
        decoder_layers=2,
        bidirectional=False,
        bridge="copy",
    )
    model = build_model(config, source_size=10, target_size=10, random=RandomSource(1)).eval()
    tokens, visible = torch.zeros(4, 7, dtype=torch.int64), torch.ones(4, 7, dtype=torch.bool)
    encoded = model.encoder(tokens, visible)
    output, state = model.decoder(tokens, model.decoder.start(encoded), want_weights=True)
    assert model.decoder.project(output.hidden).shape == (4, 7, 10)
    assert encoded.memory.shape == (4, 7, 16)
    assert [part.shape for part in encoded.final] == [(2, 4, 16)]
    assert [part.shape for layer in state.layers for part in layer] == [(4, 16), (4, 16)]
    assert {name: weights.shape for name, weights in output.weights.items()} == {"cross.0": (4, 1, 7, 7)}


@CELLS
@DIRECTIONS
def test_documented_shapes_with_all_sizes_different(cell: str, bidirectional: bool) -> None:
    model = build(cell=cell, bidirectional=bidirectional, encoder_hidden_size=5, encoder_layers=3, decoder_layers=2)
    memory = 10 if bidirectional else 5
    source, visible = padded_source()
    encoded = model.encoder(source, visible)
    output, state = model.decoder(ids(3, 4, TARGET_SIZE, seed=3), model.decoder.start(encoded), want_weights=True)
    assert encoded.memory.shape == (3, 5, memory)
    assert [part.shape for part in encoded.final] == [(3, 3, memory)] * (2 if cell == "lstm" else 1)
    assert encoded.weights == {}
    assert torch.equal(encoded.visible, visible)
    assert output.hidden.shape == (3, 4, 6)
    assert model.decoder.project(output.hidden).shape == (3, 4, TARGET_SIZE)
    assert {name: weights.shape for name, weights in output.weights.items()} == {"cross.0": (3, 1, 4, 5)}
    assert [[part.shape for part in layer] for layer in state.layers] == [[(3, 6)] * (2 if cell == "lstm" else 1)] * 2
    assert model(source, visible, ids(3, 4, TARGET_SIZE, seed=3)).weights == {}


@pytest.mark.parametrize("attention", ["additive", "scaled_dot", "dot", "general"])
@pytest.mark.parametrize("bridge", ["copy", "dense"])
@CELLS
@DIRECTIONS
def test_every_combination_runs_and_trains(cell: str, bidirectional: bool, bridge: str, attention: str) -> None:
    model = build(cell=cell, bidirectional=bidirectional, bridge=bridge, attention=attention)
    source, visible = padded_source()
    target = ids(3, 4, TARGET_SIZE, seed=3)
    logits = logits_of(model, source, visible, target)
    assert logits.shape == (3, 4, TARGET_SIZE)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    for (name, _), gradient in zip(model.named_parameters(), gradients, strict=True):
        assert torch.isfinite(gradient).all(), name
        assert gradient.abs().max() > 0, f"{name} has no part in the loss"


@pytest.mark.parametrize(("encoder_layers", "decoder_layers"), [(1, 3), (3, 1)])
@CELLS
def test_a_dense_bridge_joins_stacks_of_different_heights(cell: str, encoder_layers: int, decoder_layers: int) -> None:
    model = build(cell=cell, encoder_layers=encoder_layers, decoder_layers=decoder_layers, bridge="dense")
    source, visible = padded_source()
    assert logits_of(model, source, visible, ids(3, 4, TARGET_SIZE, seed=3)).shape == (3, 4, TARGET_SIZE)


def test_a_copying_bridge_needs_stacks_of_equal_size() -> None:
    with pytest.raises(ValidationError, match="bridge: copy needs as many encoder_layers as decoder_layers"):
        build(bridge="copy", encoder_layers=1)


def test_the_bridge_copies_or_goes_through_tanh() -> None:
    final = (normal(2, 3, 6, seed=4), normal(2, 3, 6, seed=5))
    copied = Bridge("copy", 6, 6, layers=2, parts=2)(final)
    assert all(torch.equal(copied[layer][part], final[part][layer]) for layer in range(2) for part in range(2))
    torch.manual_seed(6)
    bridge = Bridge("dense", 6, 7, layers=3, parts=2)
    linears = [module for module in bridge.modules() if isinstance(module, nn.Linear)]
    assert len(linears) == 6
    for layer, state in enumerate(bridge(final)):
        for part in range(2):
            linear = linears[2 * layer + part]
            expected = torch.tanh(final[part][min(layer, 1)] @ linear.weight.T + linear.bias)
            torch.testing.assert_close(state[part], expected, **CLOSE)


def test_gru_step_equals_torchs_cell() -> None:
    torch.manual_seed(7)
    cell, x, hidden = nn.GRUCell(5, 4), normal(3, 5, seed=8), normal(3, 4, seed=9)
    after = gru_step(x @ cell.weight_ih.T + cell.bias_ih, hidden @ cell.weight_hh.T + cell.bias_hh, (hidden,))
    assert len(after) == 1
    torch.testing.assert_close(after[0], cell(x, hidden), **CLOSE)


def test_lstm_step_equals_torchs_cell() -> None:
    torch.manual_seed(7)
    cell, x, before = nn.LSTMCell(5, 4), normal(3, 5, seed=8), (normal(3, 4, seed=9), normal(3, 4, seed=10))
    after = lstm_step(x @ cell.weight_ih.T + cell.bias_ih, before[0] @ cell.weight_hh.T + cell.bias_hh, before)
    assert len(after) == 2
    for found, expected in zip(after, cell(x, before), strict=True):
        torch.testing.assert_close(found, expected, **CLOSE)


@CELLS
@DIRECTIONS
def test_the_encoder_equals_torchs_own_stack(cell: str, bidirectional: bool) -> None:
    """One nn.GRU or nn.LSTM of two layers with the same weights, over each sentence without its padding."""
    model = build(cell=cell, bidirectional=bidirectional, encoder_hidden_size=5)
    encoder = model.encoder
    assert isinstance(encoder, RecurrentEncoder)
    stack = {"gru": nn.GRU, "lstm": nn.LSTM}[cell](7, 5, num_layers=2, batch_first=True, bidirectional=bidirectional)
    own = {name.replace("l0", f"l{i}"): p for i, layer in enumerate(encoder.layers) for name, p in layer.named_parameters()}
    stack.load_state_dict(own)
    source, visible = padded_source()
    encoded = encoder(source, visible)
    for row, length in enumerate(LENGTHS.tolist()):
        outputs, final = stack(encoder.embedding(source[row : row + 1, :length]))
        torch.testing.assert_close(encoded.memory[row, :length], outputs[0], **CLOSE)
        for found, part in zip(encoded.final, final if isinstance(final, tuple) else (final,), strict=True):
            expected = part.view(2, -1, 5).flatten(1)  # (layers x directions, 1, H) -> (layers, directions x H)
            torch.testing.assert_close(found[:, row], expected, **CLOSE)


def test_the_final_state_is_that_of_the_last_real_token() -> None:
    model = build(bidirectional=False)
    source, visible = padded_source()
    encoded = model.encoder(source, visible)
    for row, length in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(encoded.final[0][-1, row], encoded.memory[row, length - 1])


@CELLS
def test_the_decoder_equals_a_plain_loop_over_cells(cell: str) -> None:
    """The query is the top state of the step before; embedding and context, in this order, feed the first cell."""
    model = build(cell=cell, encoder_hidden_size=4)
    decoder = model.decoder
    assert isinstance(decoder, RecurrentDecoder)
    source, visible = padded_source()
    target = ids(3, 4, TARGET_SIZE, seed=3)
    encoded = model.encoder(source, visible)
    output, _ = decoder(target, decoder.start(encoded), want_weights=True)
    states = list(decoder.bridge(encoded.final))
    for t in range(4):
        query = states[-1][0].unsqueeze(1)
        context, weights = decoder.attention(query, decoder.attention.prepare(encoded.memory), encoded.memory, visible)
        x = torch.cat((decoder.embedding(target[:, t]), context[:, 0]), dim=1)
        for index, module in enumerate(decoder.cells):
            after = module(x, states[index] if cell == "lstm" else states[index][0])
            states[index] = after if cell == "lstm" else (after,)
            x = states[index][0]
        torch.testing.assert_close(output.hidden[:, t], x, **CLOSE)
        torch.testing.assert_close(output.weights["cross.0"][:, 0, t], weights[:, 0], **CLOSE)


@CELLS
@DIRECTIONS
def test_a_sentence_alone_gives_the_same_as_padded(cell: str, bidirectional: bool) -> None:
    model = build(cell=cell, bidirectional=bidirectional)
    source, visible = padded_source()
    target = ids(3, 4, TARGET_SIZE, seed=3)
    together = logits_of(model, source, visible, target)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = logits_of(model, source[row : row + 1, :length], visible[row : row + 1, :length], target[row : row + 1])
        torch.testing.assert_close(alone[0], together[row], **CLOSE)


def test_what_stands_in_the_padding_changes_nothing() -> None:
    model = build()
    source, visible = padded_source()
    target = ids(3, 4, TARGET_SIZE, seed=3)
    assert torch.equal(
        logits_of(model, source, visible, target), logits_of(model, source.masked_fill(~visible, 9), visible, target)
    )


@CELLS
@pytest.mark.parametrize("pieces", [[1, 1, 1, 1], [3, 1], [1, 2, 1]])
def test_stepwise_equals_one_pass(cell: str, pieces: list[int]) -> None:
    model = build(cell=cell).eval()
    source, visible = padded_source()
    target = ids(3, 4, TARGET_SIZE, seed=3)
    encoded = model.encoder(source, visible)
    whole, last = model.decoder(target, model.decoder.start(encoded), want_weights=True)
    state = model.decoder.start(encoded)
    start = 0
    for size in pieces:
        output, state = model.decoder(target[:, start : start + size], state, want_weights=True)
        torch.testing.assert_close(output.hidden, whole.hidden[:, start : start + size], **CLOSE)
        weights = output.weights["cross.0"]
        torch.testing.assert_close(weights, whole.weights["cross.0"][:, :, start : start + size], **CLOSE)
        start += size
    assert isinstance(state, RecurrentState)
    for found, expected in zip(state.layers, last.layers, strict=True):
        for part, whole_part in zip(found, expected, strict=True):
            torch.testing.assert_close(part, whole_part, **CLOSE)


def test_a_state_is_a_value() -> None:
    model = build()
    state = model.decoder.start(model.encoder(*padded_source()))
    first, _ = model.decoder(ids(3, 4, TARGET_SIZE, seed=3), state)
    again, _ = model.decoder(ids(3, 4, TARGET_SIZE, seed=3), state)
    assert torch.equal(first.hidden, again.hidden)


@CELLS
def test_a_reordered_state_goes_on_for_the_chosen_sentences(cell: str) -> None:
    model = build(cell=cell)
    _, state = model.decoder(ids(3, 2, TARGET_SIZE, seed=3), model.decoder.start(model.encoder(*padded_source())))
    order, after = torch.tensor([2, 0, 2, 2]), ids(3, 2, TARGET_SIZE, seed=4)
    assert isinstance(state, RecurrentState)
    expected, _ = model.decoder(after, state, want_weights=True)
    found, _ = model.decoder(after[order], state.reorder(order), want_weights=True)
    torch.testing.assert_close(found.hidden, expected.hidden[order], **CLOSE)
    torch.testing.assert_close(found.weights["cross.0"], expected.weights["cross.0"][order], **CLOSE)


def test_weights_are_a_distribution_over_real_source_tokens() -> None:
    model = build()
    source, visible = padded_source()
    weights = model(source, visible, ids(3, 4, TARGET_SIZE, seed=3), want_weights=True).weights["cross.0"]
    torch.testing.assert_close(weights.sum(dim=3), torch.ones(3, 1, 4))
    hidden = ~visible[:, None, None, :].expand_as(weights)
    assert hidden.any()
    assert (weights[hidden] == 0).all()
    assert (weights[~hidden] > 0).all()


@CELLS
@DIRECTIONS
@pytest.mark.parametrize("attention", ["additive", "scaled_dot"])
@pytest.mark.fault("PB-09")
def test_a_sentence_without_visible_tokens_harms_no_other(cell: str, bidirectional: bool, attention: str) -> None:
    """PB-09: lengths 5, 3, 0; the third sentence is out of the loss, as padding sentences are."""
    model = build(cell=cell, bidirectional=bidirectional, attention=attention)
    visible = visible_from_lengths(torch.tensor([5, 3, 0]), 5)
    source, target = ids(3, 5, SOURCE_SIZE, seed=2) * visible, ids(3, 4, TARGET_SIZE, seed=3)

    def gradients(rows: int, counted: int) -> list[Tensor]:
        logits = logits_of(model, source[:rows], visible[:rows], target[:rows])
        loss = nn.functional.cross_entropy(logits[:counted].flatten(0, 1), target[:counted].flatten())
        return list(torch.autograd.grad(loss, list(model.parameters())))

    output = model(source, visible, target, want_weights=True)
    assert torch.isfinite(output.hidden).all()
    assert (output.weights["cross.0"][2] == 0).all()
    torch.testing.assert_close(output.weights["cross.0"][:2].sum(dim=3), torch.ones(2, 1, 4))
    assert all(torch.isfinite(gradient).all() for gradient in gradients(3, 3))
    for found, expected in zip(gradients(3, 2), gradients(2, 2), strict=True):
        torch.testing.assert_close(found, expected, **CLOSE)


@pytest.mark.fault("PB-11")
def test_later_target_tokens_change_nothing_before_them() -> None:
    """PB-11: a recurrent decoder cannot look ahead either."""
    model = build()
    source, visible = padded_source()
    target = ids(3, 4, TARGET_SIZE, seed=3)
    before = logits_of(model, source, visible, target)
    for t in range(3):
        changed = target.clone()
        changed[:, t + 1 :] = 4 + (changed[:, t + 1 :] - 3) % (TARGET_SIZE - 4)
        after = logits_of(model, source, visible, changed)
        torch.testing.assert_close(after[:, : t + 1], before[:, : t + 1], **CLOSE)
        assert (after[:, t + 1 :] - before[:, t + 1 :]).abs().max() > 1e-3


def test_dropout_acts_in_training_only() -> None:
    model = build(dropout=0.5, embedding_dropout=0.5, attention_dropout=0.5, output_dropout=0.5)
    plain = build()
    plain.load_state_dict(model.state_dict())
    source, visible = padded_source()
    target = ids(3, 4, TARGET_SIZE, seed=3)
    expected = logits_of(plain, source, visible, target)
    assert not torch.allclose(logits_of(model.train(), source, visible, target), expected, atol=1e-2)
    assert torch.equal(logits_of(model.eval(), source, visible, target), expected)


@pytest.mark.parametrize("place", ["dropout", "embedding_dropout", "attention_dropout", "output_dropout"])
def test_each_dropout_rate_reaches_its_place(place: str) -> None:
    rates: dict[str, Any] = {place: 0.5}
    model, plain = build(**rates).train(), build()
    source, visible = padded_source()
    target = ids(3, 4, TARGET_SIZE, seed=3)
    difference = logits_of(model, source, visible, target) - logits_of(plain, source, visible, target)
    assert difference.abs().max() > 1e-3


@pytest.mark.parametrize("tie", ["none", "output", "all"])
def test_tied_embeddings_share_storage(tie: str) -> None:
    model = build(embedding_size=6, tie_embeddings=tie)
    assert isinstance(model.encoder, RecurrentEncoder)
    assert isinstance(model.decoder, RecurrentDecoder)
    weight, _ = model.decoder.output_layer
    assert (weight.data_ptr() == model.decoder.embedding.weight.data_ptr()) == (tie != "none")
    assert (model.encoder.embedding is model.decoder.embedding) == (tie == "all")


def test_project_is_the_output_layer() -> None:
    model = build()
    weight, bias = model.decoder.output_layer
    assert bias is not None
    hidden = normal(3, 4, 6, seed=12)
    torch.testing.assert_close(model.decoder.project(hidden), hidden @ weight.T + bias, **CLOSE)


def test_row_16_parameter_count() -> None:
    """Embedding and hidden 32, 2 layers, vocabularies of 184 and 201: 18,560 + 30,889."""
    config = Seq2SeqConfig(
        type="seq2seq",
        embedding_size=32,
        hidden_size=32,
        encoder_layers=2,
        decoder_layers=2,
        bidirectional=False,
        bridge="copy",
    )
    model = build_model(config, source_size=184, target_size=201, random=RandomSource(1))
    gru = 3 * 32 * (32 + 32) + 2 * 3 * 32
    first = 3 * 32 * (32 + 32 + 32) + 2 * 3 * 32
    encoder = 184 * 32 + 2 * gru
    decoder = 201 * 32 + first + gru + (2 * 32 * 32 + 32) + (32 * 201 + 201)
    assert (encoder, decoder) == (18_560, 30_889)
    assert count_parameters(model.encoder) == encoder
    assert count_parameters(model.decoder) == decoder
    assert count_parameters(model) == 49_449


def test_the_source_side_is_not_recomputed_between_steps() -> None:
    """Keys are projected once a sentence: a step uses the state's prepared keys, whatever the memory says."""
    model = build()
    decoder = model.decoder
    encoded: Encoded = model.encoder(*padded_source())
    state = decoder.start(encoded)
    assert isinstance(state, RecurrentState)
    assert isinstance(decoder, RecurrentDecoder)
    torch.testing.assert_close(state.prepared, decoder.attention.prepare(encoded.memory))
    _, after = decoder(ids(3, 1, TARGET_SIZE, seed=3), state)
    assert after.prepared is state.prepared
    assert after.memory is state.memory
