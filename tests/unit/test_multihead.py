"""Multi-head and self-attention (docs/attention.md rows 9 and 10, docs/faults.md PB-09)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nmt_cli.attention.masking import causal_visible, visible_from_lengths
from nmt_cli.attention.multihead import KeysValues, MultiHeadAttention, merge_heads, split_heads
from nmt_cli.attention.positional import SinusoidalPositions
from nmt_cli.errors import ConfigError
from nmt_cli.models.dropout import RandomSource, dropout

CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def build(width: int, heads: int, *, bias: bool = False, rate: float = 0.0) -> MultiHeadAttention:
    attention = MultiHeadAttention(width, heads, dropout=dropout(rate, RandomSource(3)), bias=bias)
    for index, parameter in enumerate(attention.parameters()):
        parameter.data = normal(*parameter.shape, seed=20 + index) / width**0.5
    return attention


def attend_self(attention: MultiHeadAttention, x: Tensor, visible: Tensor | None = None, *, causal: bool = False) -> Tensor:
    context, _ = attention(x, attention.project(x), visible, causal=causal)
    assert isinstance(context, Tensor)
    return context


def test_the_books_shapes_and_40000_parameters() -> None:
    attention = MultiHeadAttention(100, 5, dropout=nn.Identity())
    memory = attention.project(torch.ones(2, 6, 100))
    visible = visible_from_lengths(torch.tensor([3, 2]), 6)
    context, weights = attention(torch.ones(2, 4, 100), memory, visible, want_weights=True)
    assert context.shape == (2, 4, 100)
    assert weights is not None
    assert weights.shape == (2, 5, 4, 6)
    assert memory.keys.shape == memory.values.shape == (2, 5, 6, 20)
    assert attend_self(attention, torch.ones(2, 4, 100), visible_from_lengths(torch.tensor([3, 2]), 4)).shape == (2, 4, 100)
    assert sum(p.numel() for p in attention.parameters()) == 4 * 100 * 100 == 40_000


def test_split_puts_each_head_where_it_belongs() -> None:
    joined = torch.arange(2 * 3 * 20).reshape(2, 3, 20)
    split = split_heads(joined, 4)
    assert split.shape == (2, 4, 3, 5)
    for head in range(4):
        assert torch.equal(split[:, head], joined[:, :, 5 * head : 5 * head + 5])


def test_split_then_merge_is_the_identity() -> None:
    joined = normal(2, 3, 20, seed=1)
    assert torch.equal(merge_heads(split_heads(joined, 4)), joined)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mask", ["none", "padding", "causal", "both"])
def test_equals_torchs_module_with_the_same_weights(bias: bool, mask: str) -> None:
    ours = build(12, 3, bias=bias)
    theirs = nn.MultiheadAttention(12, 3, bias=bias, batch_first=True)
    layers = (ours.query_layer, ours.key_layer, ours.value_layer)
    theirs.in_proj_weight.data = torch.cat([layer.weight.data for layer in layers])
    theirs.out_proj.weight.data = ours.output_layer.weight.data
    if bias:
        theirs.in_proj_bias.data = torch.cat([layer.bias.data for layer in layers])
        theirs.out_proj.bias.data = ours.output_layer.bias.data
    queries, keys = normal(2, 5, 12, seed=2), normal(2, 5, 12, seed=3)
    visible = visible_from_lengths(torch.tensor([4, 2]), 5) if mask in {"padding", "both"} else None
    causal = mask in {"causal", "both"}
    expected, expected_weights = theirs(
        queries,
        keys,
        keys,
        key_padding_mask=None if visible is None else ~visible,
        attn_mask=~causal_visible(5, 5) if causal else None,
        average_attn_weights=False,
    )
    memory = ours.project(keys)
    context, weights = ours(queries, memory, visible, causal=causal, want_weights=True)
    torch.testing.assert_close(context, expected, **CLOSE)
    torch.testing.assert_close(weights, expected_weights, **CLOSE)
    torch.testing.assert_close(ours(queries, memory, visible, causal=causal)[0], expected, **CLOSE)


def outputs_and_gradients(
    attention: MultiHeadAttention, queries: Tensor, keys: Tensor, visible: Tensor | None, *, causal: bool, explicit: bool
) -> list[Tensor]:
    inputs = [queries.clone().requires_grad_(), keys.clone().requires_grad_()]
    context, weights = attention(inputs[0], attention.project(inputs[1]), visible, causal=causal, want_weights=explicit)
    assert (weights is not None) == explicit
    loss = (context * normal(*context.shape, seed=6)).sum()
    return [context, *torch.autograd.grad(loss, [*inputs, *attention.parameters()])]


@pytest.mark.parametrize("mask", ["none", "padding", "causal", "both", "per query", "per query causal"])
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (3, 5), (1, 5)])
def test_the_fast_path_equals_the_explicit_one(mask: str, queries: int, keys: int) -> None:
    attention = build(12, 3)
    visible = None
    if mask in {"padding", "both"}:
        visible = visible_from_lengths(torch.tensor([5, 3]), keys)
    elif mask.startswith("per query"):
        visible = visible_from_lengths(torch.arange(2 * queries).reshape(2, queries) % keys + 1, keys)
    asked, memory = normal(2, queries, 12, seed=4), normal(2, keys, 12, seed=5)
    causal = mask in {"causal", "both", "per query causal"}
    fast = outputs_and_gradients(attention, asked, memory, visible, causal=causal, explicit=False)
    explicit = outputs_and_gradients(attention, asked, memory, visible, causal=causal, explicit=True)
    for found, expected in zip(fast, explicit, strict=True):
        torch.testing.assert_close(found, expected, **CLOSE)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.fault("PB-09")
def test_a_sentence_without_keys_gives_zeros_and_harms_no_other(explicit: bool, causal: bool) -> None:
    """PB-09: lengths 5, 3, 0, forward and backward, on both paths."""
    attention = build(12, 3)
    visible = visible_from_lengths(torch.tensor([5, 3, 0]), 5)
    asked, memory = normal(3, 5, 12, seed=4), normal(3, 5, 12, seed=5)
    coefficients = normal(3, 5, 12, seed=6)

    def run(rows: int) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        inputs = [asked[:rows].clone().requires_grad_(), memory[:rows].clone().requires_grad_()]
        projected = attention.project(inputs[1])
        context, weights = attention(inputs[0], projected, visible[:rows], causal=causal, want_weights=explicit)
        loss = (context * coefficients[:rows]).sum()
        return context, weights, list(torch.autograd.grad(loss, [*inputs, *attention.parameters()]))

    context, weights, with_row = run(3)
    alone, _, without_row = run(2)
    assert (context[2] == 0).all()
    assert weights is None or (weights[2] == 0).all()
    torch.testing.assert_close(context[:2], alone, **CLOSE)
    for index, (found, expected) in enumerate(zip(with_row, without_row, strict=True)):
        assert torch.isfinite(found).all()
        torch.testing.assert_close(found[:2] if index < 2 else found, expected, **CLOSE)
        if index < 2:
            assert (found[2] == 0).all()


def test_weights_are_a_distribution_over_what_is_visible() -> None:
    attention = build(12, 3)
    x = normal(2, 5, 12, seed=7)
    visible = visible_from_lengths(torch.tensor([4, 2]), 5)
    _, weights = attention(x, attention.project(x), visible, causal=True, want_weights=True)
    assert weights is not None
    torch.testing.assert_close(weights.sum(dim=3), torch.ones(2, 3, 5))
    allowed = visible[:, None, None, :] & causal_visible(5, 5)
    assert (weights[~allowed.expand_as(weights)] == 0).all()
    assert (weights[allowed.expand_as(weights)] > 0).all()


def test_permuting_the_input_permutes_the_output_unless_there_are_positions() -> None:
    attention, positions = build(12, 3), SinusoidalPositions(12)
    x, order = normal(2, 5, 12, seed=8), torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(attend_self(attention, x[:, order]), attend_self(attention, x)[:, order], **CLOSE)
    placed = attend_self(attention, positions(x))[:, order]
    assert (attend_self(attention, positions(x[:, order])) - placed).abs().max() > 0.05


def test_keys_beyond_the_length_change_nothing() -> None:
    attention = build(12, 3)
    x = normal(2, 5, 12, seed=9)
    changed = x.clone()
    changed[0, 3:], changed[1, 2:] = 7.0, -7.0
    visible = visible_from_lengths(torch.tensor([3, 2]), 5)
    before, after = attend_self(attention, x, visible), attend_self(attention, changed, visible)
    assert torch.equal(before[0, :3], after[0, :3])
    assert torch.equal(before[1, :2], after[1, :2])
    assert not torch.allclose(attend_self(attention, x)[0, :3], attend_self(attention, changed)[0, :3], atol=1e-2)


@pytest.mark.parametrize("mode", ["train", "train with dropout", "eval"])
def test_later_positions_change_nothing_before_them(mode: str) -> None:
    """In training and in evaluation mode; with dropout the same masks are drawn twice."""
    attention = build(12, 3, rate=0.3 if mode == "train with dropout" else 0.0).train(mode != "eval")
    x = normal(2, 5, 12, seed=10)

    def attend(inputs: Tensor) -> Tensor:
        if mode == "train with dropout":
            attention.dropout = dropout(0.3, RandomSource(11))
        return attend_self(attention, inputs, causal=True)

    before = attend(x)
    for t in range(4):
        changed = x.clone()
        changed[:, t + 1 :] += 3.0
        after = attend(changed)
        torch.testing.assert_close(after[:, : t + 1], before[:, : t + 1], **CLOSE)
        assert (after[:, t + 1 :] - before[:, t + 1 :]).abs().max() > 0.05


@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("pieces", [[1, 1, 1, 1, 1], [2, 3], [1, 3, 1]])
def test_causal_attention_with_cached_keys_equals_one_pass(pieces: list[int], explicit: bool) -> None:
    attention = build(12, 3)
    x = normal(2, 5, 12, seed=12)
    whole, whole_weights = attention(x, attention.project(x), causal=True, want_weights=True)
    assert whole_weights is not None
    past: KeysValues | None = None
    start = 0
    for size in pieces:
        new = x[:, start : start + size]
        past = attention.project(new) if past is None else past.append(attention.project(new))
        assert past.keys.shape == past.values.shape == (2, 3, start + size, 4)
        context, weights = attention(new, past, causal=True, want_weights=explicit)
        torch.testing.assert_close(context, whole[:, start : start + size], **CLOSE)
        if weights is not None:
            torch.testing.assert_close(weights, whole_weights[:, :, start : start + size, : start + size], **CLOSE)
        start += size


def test_keys_and_values_follow_their_sentence() -> None:
    memory = KeysValues(normal(3, 2, 5, 4, seed=13), normal(3, 2, 5, 4, seed=14))
    reordered = memory.reorder(torch.tensor([2, 0, 2, 1]))
    for row, taken in enumerate([2, 0, 2, 1]):
        assert torch.equal(reordered.keys[row], memory.keys[taken])
        assert torch.equal(reordered.values[row], memory.values[taken])


@pytest.mark.parametrize("with_room", [False, True])
def test_picked_positions_are_those_of_their_sentence(with_room: bool) -> None:
    memory = KeysValues(normal(3, 2, 5, 4, seed=13), normal(3, 2, 5, 4, seed=14))
    if with_room:
        with torch.inference_mode():
            memory = memory.append(KeysValues(normal(3, 2, 1, 4, seed=15), normal(3, 2, 1, 4, seed=16)))
    sentences, positions = torch.tensor([2, 0]), torch.tensor([[4, 0, 1], [3, 3, 2]])
    picked = memory.pick(sentences, positions, room=2)
    later = KeysValues(normal(2, 2, 2, 4, seed=17), normal(2, 2, 2, 4, seed=18))
    with torch.inference_mode():
        grown = picked.append(later)
    assert grown.room is picked.room  # nothing had to move
    for name in ("keys", "values"):
        for row, sentence in enumerate(sentences):
            taken = getattr(memory, name)[sentence][:, positions[row]]
            assert torch.equal(getattr(picked, name)[row], taken)
            assert torch.equal(getattr(grown, name)[row], torch.cat((taken, getattr(later, name)[row]), dim=1))


def test_dropout_changes_the_output_in_training_only_and_never_the_weights() -> None:
    attention, plain = build(12, 3, rate=0.5), build(12, 3)
    x = normal(2, 5, 12, seed=15)
    expected, expected_weights = plain(x, plain.project(x), want_weights=True)
    dropped, weights = attention.train()(x, attention.project(x), want_weights=True)
    torch.testing.assert_close(weights, expected_weights)
    assert (dropped - expected).abs().max() > 0.05
    assert (attend_self(attention, x) - expected).abs().max() > 0.05
    torch.testing.assert_close(attend_self(attention.eval(), x), expected, **CLOSE)


def test_width_must_be_a_multiple_of_heads() -> None:
    with pytest.raises(ConfigError, match="width must be a multiple of heads, but is 10 with 3 heads"):
        MultiHeadAttention(10, 3, dropout=nn.Identity())
