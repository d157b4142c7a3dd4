"""The Transformer (docs/attention.md rows 12 to 16, docs/faults.md PB-09, PB-10, PB-11)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nmt_cli.attention.masking import visible_from_lengths
from nmt_cli.config import TransformerConfig
from nmt_cli.errors import DataError
from nmt_cli.models.dropout import RandomSource
from nmt_cli.models.interface import Seq2Seq, count_parameters
from nmt_cli.models.transformer import FeedForward, Residual, TransformerDecoder, TransformerEncoder, TransformerState
from nmt_cli.runs.build import build_model

CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}
SOURCE_SIZE, TARGET_SIZE = 13, 11
LENGTHS = torch.tensor([5, 2, 3])
SHAPES = [
    {"norm": "post"},
    {"norm": "pre"},
    {"norm": "pre", "positions": "learned", "max_positions": 9, "attention_bias": True},
]
VARIANTS = pytest.mark.parametrize("settings", SHAPES, ids=["post", "pre", "learned"])


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def ids(rows: int, columns: int, size: int, *, seed: int) -> Tensor:
    return torch.randint(4, size, (rows, columns), generator=torch.Generator().manual_seed(seed))


def build(*, seed: int = 1, **settings: Any) -> Seq2Seq:
    """A tiny model without dropout; biases and norms are drawn too, so that none can be forgotten."""
    sizes: dict[str, Any] = {
        "width": 12,
        "heads": 3,
        "feed_forward": 14,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "dropout": 0.0,
    }
    config = TransformerConfig(type="transformer", **{**sizes, **settings})
    torch.manual_seed(seed)
    model = build_model(config, source_size=SOURCE_SIZE, target_size=TARGET_SIZE, random=RandomSource(seed))
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            nn.init.uniform_(parameter, *((0.5, 1.5) if "norm.weight" in name else (-0.5, 0.5)))
    return model


def padded_source() -> tuple[Tensor, Tensor]:
    visible = visible_from_lengths(LENGTHS, 5)
    return ids(3, 5, SOURCE_SIZE, seed=2) * visible, visible


def logits_of(model: Seq2Seq, source: Tensor, visible: Tensor, target: Tensor) -> Tensor:
    return model.decoder.project(model(source, visible, target).hidden)


# -- parts (rows 12 and 13) --------------------------------------------------------------------------------------------


def test_feed_forward_shapes_and_equal_rows() -> None:
    torch.manual_seed(2)
    layer = FeedForward(4, 4, dropout=nn.Identity(), output_width=8)
    result = layer(torch.ones(2, 3, 4))
    assert result.shape == (2, 3, 8)
    torch.testing.assert_close(result, result[:1, :1].expand(2, 3, 8))


def test_feed_forward_equals_the_formula() -> None:
    torch.manual_seed(3)
    layer, x = FeedForward(5, 7, dropout=nn.Identity()), normal(2, 3, 5, seed=4)
    w1, b1, w2, b2 = (p.detach().double().numpy() for p in layer.parameters())
    expected = np.maximum(0, x.double().numpy() @ w1.T + b1) @ w2.T + b2
    found = layer(x).detach().numpy()
    assert found.shape == (2, 3, 5)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_layer_norm_works_on_rows_and_batch_norm_on_columns() -> None:
    x = torch.tensor([[1.0, 2.0], [2.0, 3.0]])
    residual = Residual(2, pre_norm=False, dropout=nn.Identity())
    torch.testing.assert_close(residual(x, torch.zeros_like), torch.tensor([[-1.0, 1.0], [-1.0, 1.0]]), rtol=0, atol=1e-4)
    batch_normed = nn.BatchNorm1d(2).train()(x)
    torch.testing.assert_close(batch_normed, torch.tensor([[-1.0, -1.0], [1.0, 1.0]]), rtol=0, atol=1e-4)


def test_ones_added_to_ones_give_zeros() -> None:
    residual = Residual(4, pre_norm=False, dropout=nn.Identity())
    assert torch.equal(residual(torch.ones(2, 3, 4), torch.ones_like), torch.zeros(2, 3, 4))


@pytest.mark.parametrize("pre_norm", [False, True])
def test_residual_equals_the_formula_over_the_last_axis(pre_norm: bool) -> None:
    residual, x = Residual(5, pre_norm=pre_norm, dropout=nn.Identity()), normal(2, 3, 5, seed=5)

    def normed(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        mean, variance = values.mean(axis=-1, keepdims=True), values.var(axis=-1, keepdims=True)
        return np.asarray((values - mean) / np.sqrt(variance + 1e-5))

    values = x.double().numpy()
    expected = values + normed(values) ** 2 if pre_norm else normed(values + values**2)
    np.testing.assert_allclose(residual(x, torch.square).detach().numpy(), expected, atol=1e-5)


def test_dropout_acts_on_what_is_added_only() -> None:
    class Nothing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.zeros_like(x)

    x = normal(2, 3, 5, seed=6)
    assert torch.equal(Residual(5, pre_norm=True, dropout=Nothing())(x, torch.square), x)
    expected = nn.functional.layer_norm(x, (5,))
    torch.testing.assert_close(Residual(5, pre_norm=False, dropout=Nothing())(x, torch.square), expected)


# -- shapes and sizes (rows 14 to 16) ----------------------------------------------------------------------------------


def test_the_books_shapes() -> None:
    """Vocabulary 200, width 24, feed-forward 48, 8 heads, 2 layers, ids (2, 100), lengths [3, 2]."""
    config = TransformerConfig(
        type="transformer", width=24, heads=8, feed_forward=48, encoder_layers=2, decoder_layers=2, norm="post"
    )
    model = build_model(config, source_size=200, target_size=200, random=RandomSource(1)).eval()
    tokens = torch.ones(2, 100, dtype=torch.int64)
    encoded = model.encoder(tokens, visible_from_lengths(torch.tensor([3, 2]), 100))
    assert encoded.memory.shape == (2, 100, 24)
    assert encoded.final == ()
    output, _ = model.decoder(tokens, model.decoder.start(encoded))
    assert output.hidden.shape == (2, 100, 24)
    assert model.decoder.project(output.hidden).shape == (2, 100, 200)


def test_row_16_parameter_count() -> None:
    """Width 32, feed-forward 64, 4 heads, 2 layers, vocabularies of 184 and 201: 22,720 + 38,217."""
    config = TransformerConfig(
        type="transformer", width=32, heads=4, feed_forward=64, encoder_layers=2, decoder_layers=2, norm="post"
    )
    model = build_model(config, source_size=184, target_size=201, random=RandomSource(1))
    attention, norm, feed_forward = 4 * 32 * 32, 2 * 32, 2 * 32 * 64 + 64 + 32
    encoder = 184 * 32 + 2 * (attention + feed_forward + 2 * norm)
    decoder = 201 * 32 + 2 * (2 * attention + feed_forward + 3 * norm) + 32 * 201 + 201
    assert (encoder, decoder) == (22_720, 38_217)
    assert count_parameters(model.encoder) == encoder
    assert count_parameters(model.decoder) == decoder
    assert count_parameters(model) == 60_937


@VARIANTS
def test_weights_have_documented_names_and_shapes_and_rows_sum_to_one(settings: dict[str, Any]) -> None:
    model = build(encoder_layers=1, **settings)
    source, visible = padded_source()
    weights = model(source, visible, ids(3, 4, TARGET_SIZE, seed=3), want_weights=True).weights
    assert {name: tuple(values.shape) for name, values in weights.items()} == {
        "encoder.0": (3, 3, 5, 5),
        "decoder.0": (3, 3, 4, 4),
        "decoder.1": (3, 3, 4, 4),
        "cross.0": (3, 3, 4, 5),
        "cross.1": (3, 3, 4, 5),
    }
    for name, values in weights.items():
        torch.testing.assert_close(values.sum(dim=3), torch.ones(values.shape[:3]))
        if name.startswith("decoder"):
            assert (values.triu(1) == 0).all()
            assert (values[:, :, torch.tril(torch.ones(4, 4)) > 0] > 0).all()
        else:
            hidden = ~visible[:, None, None, :].expand_as(values)
            assert (values[hidden] == 0).all()
            assert (values[~hidden] > 0).all()
    assert model(source, visible, ids(3, 4, TARGET_SIZE, seed=3)).weights == {}


@VARIANTS
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_asking_for_weights_changes_no_output(settings: dict[str, Any], training: bool) -> None:
    model = build(**settings).train(training)
    source, visible = padded_source()
    target = ids(3, 4, TARGET_SIZE, seed=3)
    with_weights = model(source, visible, target, want_weights=True).hidden
    torch.testing.assert_close(model(source, visible, target).hidden, with_weights, **CLOSE)


@pytest.mark.parametrize("tie", ["none", "output", "all"])
def test_tied_embeddings_share_storage(tie: str) -> None:
    model = build(tie_embeddings=tie)
    assert isinstance(model.encoder, TransformerEncoder)
    assert isinstance(model.decoder, TransformerDecoder)
    source, target = model.encoder.embedder.embedding.weight, model.decoder.embedder.embedding.weight
    weight, bias = model.decoder.output_layer
    assert bias is not None
    assert bias.shape == (TARGET_SIZE,)
    assert (weight.data_ptr() == target.data_ptr()) == (tie != "none")
    assert (source.data_ptr() == target.data_ptr()) == (tie == "all")
    saved = {"none": 0, "output": TARGET_SIZE * 12, "all": (TARGET_SIZE + SOURCE_SIZE) * 12}[tie]
    assert count_parameters(build()) - count_parameters(model) == saved


# -- layers against torch's own ----------------------------------------------------------------------------------------


def copy_attention(ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    parts = dict(ours.named_parameters())
    for kind, joined in (("weight", theirs.in_proj_weight), ("bias", theirs.in_proj_bias)):
        joined.data = torch.cat([parts[f"{layer}.{kind}"].data for layer in ("query_layer", "key_layer", "value_layer")])
    theirs.out_proj.weight.data, theirs.out_proj.bias.data = parts["output_layer.weight"].data, parts["output_layer.bias"].data


def copy_layer(ours: Any, theirs: Any, norms: list[str]) -> None:
    copy_attention(ours.self_attention, theirs.self_attn)
    theirs.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.outer.state_dict())
    for index, name in enumerate(norms):
        getattr(theirs, f"norm{index + 1}").load_state_dict(getattr(ours, name).norm.state_dict())


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_layers_equal_torchs_transformer_layers(norm: str) -> None:
    model = build(norm=norm, attention_bias=True)
    assert isinstance(model.encoder, TransformerEncoder)
    assert isinstance(model.decoder, TransformerDecoder)
    sizes: dict[str, Any] = {"dim_feedforward": 14, "dropout": 0.0, "batch_first": True, "norm_first": norm == "pre"}
    x, y, visible = normal(3, 5, 12, seed=7), normal(3, 4, 12, seed=8), visible_from_lengths(LENGTHS, 5)

    ours: Any = model.encoder.layers[1]
    theirs = nn.TransformerEncoderLayer(12, 3, **sizes)
    copy_layer(ours, theirs, ["attention_residual", "feed_forward_residual"])
    found, _ = ours(x, visible, want_weights=False)
    expected = theirs(x, src_key_padding_mask=~visible)
    torch.testing.assert_close(found[visible], expected[visible], **CLOSE)

    ours = model.decoder.layers[1]
    decoder_layer = nn.TransformerDecoderLayer(12, 3, **sizes)
    copy_layer(ours, decoder_layer, ["self_residual", "cross_residual", "feed_forward_residual"])
    copy_attention(ours.cross_attention, decoder_layer.multihead_attn)
    found, _, _ = ours(y, None, ours.cross_attention.project(x), visible, want_weights=False)
    future = torch.ones(4, 4, dtype=torch.bool).triu(1)
    expected = decoder_layer(y, x, tgt_mask=future, memory_key_padding_mask=~visible)
    torch.testing.assert_close(found, expected, **CLOSE)


def test_pre_norm_stacks_end_with_a_norm_and_post_norm_stacks_do_not_need_one() -> None:
    for norm, kind in (("pre", nn.LayerNorm), ("post", nn.Identity)):
        model = build(norm=norm)
        assert isinstance(model.encoder, TransformerEncoder)
        assert isinstance(model.decoder, TransformerDecoder)
        assert isinstance(model.encoder.norm, kind)
        assert isinstance(model.decoder.norm, kind)


# -- padding, future, steps --------------------------------------------------------------------------------------------


@VARIANTS
def test_source_padding_changes_nothing(settings: dict[str, Any]) -> None:
    """Neither what stands in it nor how much of it there is: a sentence alone gives the same."""
    model = build(**settings)
    source, visible = padded_source()
    target = ids(3, 4, TARGET_SIZE, seed=3)
    expected = logits_of(model, source, visible, target)
    torch.testing.assert_close(logits_of(model, source.masked_fill(~visible, 9), visible, target), expected, **CLOSE)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = logits_of(model, source[row : row + 1, :length], visible[row : row + 1, :length], target[row : row + 1])
        torch.testing.assert_close(alone[0], expected[row], **CLOSE)


@VARIANTS
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.fault("PB-11")
def test_later_target_tokens_change_nothing_before_them(settings: dict[str, Any], training: bool) -> None:
    """PB-11: logits up to t are the same whatever follows."""
    model = build(**settings).train(training)
    source, visible = padded_source()
    target = ids(3, 4, TARGET_SIZE, seed=3)
    before = logits_of(model, source, visible, target)
    for t in range(3):
        changed = target.clone()
        changed[:, t + 1 :] = 4 + (changed[:, t + 1 :] - 3) % (TARGET_SIZE - 4)
        after = logits_of(model, source, visible, changed)
        torch.testing.assert_close(after[:, : t + 1], before[:, : t + 1], **CLOSE)
        assert (after[:, t + 1 :] - before[:, t + 1 :]).abs().max() > 1e-3
        shorter = logits_of(model, source, visible, target[:, : t + 1])
        torch.testing.assert_close(shorter, before[:, : t + 1], **CLOSE)


@VARIANTS
@pytest.mark.parametrize("pieces", [[1, 1, 1, 1], [3, 1], [1, 3]])
def test_stepwise_with_cache_equals_one_pass(settings: dict[str, Any], pieces: list[int]) -> None:
    """Position t is used at step t, and each step sees exactly the tokens so far."""
    model = build(**settings).eval()
    source, visible = padded_source()
    target = ids(3, 4, TARGET_SIZE, seed=3)
    encoded = model.encoder(source, visible)
    whole, _ = model.decoder(target, model.decoder.start(encoded), want_weights=True)
    state = model.decoder.start(encoded)
    start = 0
    for size in pieces:
        end = start + size
        output, after = model.decoder(target[:, start:end], state, want_weights=True)
        fast, state = model.decoder(target[:, start:end], state)
        torch.testing.assert_close(output.hidden, whole.hidden[:, start:end], **CLOSE)
        torch.testing.assert_close(fast.hidden, whole.hidden[:, start:end], **CLOSE)
        for layer in range(2):
            cross, own = output.weights[f"cross.{layer}"], output.weights[f"decoder.{layer}"]
            torch.testing.assert_close(cross, whole.weights[f"cross.{layer}"][:, :, start:end], **CLOSE)
            torch.testing.assert_close(own, whole.weights[f"decoder.{layer}"][:, :, start:end, :end], **CLOSE)
        assert after.position == state.position == end
        start = end


@VARIANTS
def test_a_reordered_state_goes_on_for_the_chosen_sentences(settings: dict[str, Any]) -> None:
    model = build(**settings)
    start = model.decoder.start(model.encoder(*padded_source()))
    assert isinstance(start, TransformerState)
    order, after = torch.tensor([2, 0, 2, 2]), ids(3, 1, TARGET_SIZE, seed=4)
    _, later = model.decoder(ids(3, 2, TARGET_SIZE, seed=3), start)
    for state in (start, later):
        expected, _ = model.decoder(after, state)
        found, _ = model.decoder(after[order], state.reorder(order))
        torch.testing.assert_close(found.hidden, expected.hidden[order], **CLOSE)


def test_a_state_is_a_value() -> None:
    model = build()
    _, state = model.decoder(ids(3, 2, TARGET_SIZE, seed=3), model.decoder.start(model.encoder(*padded_source())))
    first, _ = model.decoder(ids(3, 2, TARGET_SIZE, seed=4), state)
    again, _ = model.decoder(ids(3, 2, TARGET_SIZE, seed=4), state)
    assert torch.equal(first.hidden, again.hidden)


@VARIANTS
@pytest.mark.parametrize("want_weights", [False, True])
@pytest.mark.fault("PB-09")
def test_a_sentence_without_visible_tokens_harms_no_other(settings: dict[str, Any], want_weights: bool) -> None:
    """PB-09: lengths 5, 3, 0; the third sentence is out of the loss, as padding sentences are."""
    model = build(**settings)
    visible = visible_from_lengths(torch.tensor([5, 3, 0]), 5)
    source, target = ids(3, 5, SOURCE_SIZE, seed=2) * visible, ids(3, 4, TARGET_SIZE, seed=3)

    def gradients(rows: int, counted: int) -> list[Tensor]:
        output = model(source[:rows], visible[:rows], target[:rows], want_weights=want_weights)
        logits = model.decoder.project(output.hidden)[:counted]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target[:counted].flatten())
        return list(torch.autograd.grad(loss, list(model.parameters())))

    output = model(source, visible, target, want_weights=want_weights)
    assert torch.isfinite(output.hidden).all()
    for name, weights in output.weights.items():
        assert (weights[2] == 0).all() != name.startswith("decoder")
    assert all(torch.isfinite(gradient).all() for gradient in gradients(3, 3))
    for found, expected in zip(gradients(3, 2), gradients(2, 2), strict=True):
        torch.testing.assert_close(found, expected, **CLOSE)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_every_parameter_has_a_finite_gradient(norm: str) -> None:
    model = build(norm=norm, positions="learned", max_positions=5)
    source, visible = padded_source()
    target = ids(3, 4, TARGET_SIZE, seed=3)
    loss = nn.functional.cross_entropy(logits_of(model, source, visible, target).flatten(0, 1), target.flatten())
    for (name, _), gradient in zip(model.named_parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True):
        assert torch.isfinite(gradient).all(), name
        assert gradient.abs().max() > 0, f"{name} has no part in the loss"


# -- positions (PB-10) -------------------------------------------------------------------------------------------------


@pytest.mark.fault("PB-10")
def test_learned_positions_refuse_longer_sentences_with_a_message() -> None:
    """PB-10: a table of 32 positions and 40 tokens, on the source side, on the target side, and step by step."""
    model = build(positions="learned", max_positions=32)
    assert model.max_positions == 32
    short, long = ids(1, 32, TARGET_SIZE, seed=3), ids(1, 40, TARGET_SIZE, seed=3)
    message = "learned positions for 32 tokens, but a sentence has {}"
    with pytest.raises(DataError, match=message.format(40)):
        model(long, long > 0, short)
    with pytest.raises(DataError, match=message.format(40)):
        model(short, short > 0, long)
    _, state = model.decoder(short, model.decoder.start(model.encoder(short, short > 0)))
    with pytest.raises(DataError, match=message.format(33)):
        model.decoder(short[:, :1], state)


def test_sinusoidal_positions_have_no_end() -> None:
    model = build()
    assert model.max_positions is None
    long = ids(1, 300, TARGET_SIZE, seed=3)
    assert torch.isfinite(model(long, long > 0, long).hidden).all()


@pytest.mark.parametrize("settings", [{"position_base": 1000.0}, {"positions": "learned"}])
def test_position_settings_reach_the_model(settings: dict[str, Any]) -> None:
    model, plain = build(**settings), build()
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if ".table." not in name})
    source, visible = padded_source()
    assert (model.encoder(source, visible).memory - plain.encoder(source, visible).memory).abs().max() > 1e-2


# -- dropout -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rates",
    [
        {"dropout": 0.5, "embedding_dropout": 0.0},
        {"embedding_dropout": 0.5},
        {"attention_dropout": 0.5},
        {"activation_dropout": 0.5},
    ],
)
def test_each_dropout_rate_reaches_its_place_in_training_only(rates: dict[str, Any]) -> None:
    model, plain = build(**rates), build()
    source, visible = padded_source()
    target = ids(3, 4, TARGET_SIZE, seed=3)
    expected = logits_of(plain, source, visible, target)
    torch.testing.assert_close(logits_of(model.eval(), source, visible, target), expected, **CLOSE)
    assert (logits_of(model.train(), source, visible, target) - expected).abs().max() > 1e-2


def test_embedding_dropout_follows_dropout_unless_it_is_set() -> None:
    def rate(model: Seq2Seq) -> str:
        assert isinstance(model.encoder, TransformerEncoder)
        return repr(model.encoder.embedder.dropout)

    assert rate(build(dropout=0.25)) == "Dropout(rate=0.2500)"
    assert rate(build(dropout=0.25, embedding_dropout=0.5)) == "Dropout(rate=0.5000)"
    assert rate(build(dropout=0.25, embedding_dropout=0.0)) == "Identity()"


def test_embeddings_begin_small_so_that_scaled_ones_have_unit_variance() -> None:
    torch.manual_seed(1)
    config = TransformerConfig(type="transformer", width=64, heads=2, feed_forward=8, encoder_layers=1, decoder_layers=1)
    model = build_model(config, source_size=500, target_size=7, random=RandomSource(1))
    assert isinstance(model.encoder, TransformerEncoder)
    embedded = model.encoder.embedder.embedding.weight * math.sqrt(64)
    assert embedded.std().item() == pytest.approx(1.0, rel=0.02)
