"""Additive, dot, scaled dot and general attention (docs/attention.md rows 6 and 7, docs/faults.md PB-09)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from nmt_cli.attention.masking import visible_from_lengths
from nmt_cli.attention.scoring import SCORES, AdditiveScore, Attention, DotScore, GeneralScore, Score
from nmt_cli.errors import ConfigError

TIGHT: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def build(name: str, query_width: int, key_width: int, hidden_width: int, *, seed: int = 1) -> Score:
    """A score whose weights are drawn anew, so that no default initialisation matters."""
    score = SCORES[name](query_width, key_width, hidden_width)
    for index, parameter in enumerate(score.parameters()):
        parameter.data = normal(*parameter.shape, seed=seed + index)
    return score


def attend(score: Score, queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None) -> tuple[Tensor, Tensor]:
    attention = Attention(score, nn.Identity())
    context, weights = attention(queries, attention.prepare(keys), values, visible)
    return context, weights


def hand_score() -> AdditiveScore:
    """W_q = [[1,0],[0,2]], W_k = [[1,0,1],[0,1,-1]], w_v = (1,-1)."""
    score = AdditiveScore(2, 3, 2)
    score.query_layer.weight.data = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    score.key_layer.weight.data = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, -1.0]])
    score.value_layer.weight.data = torch.tensor([[1.0, -1.0]])
    return score


HAND_QUERY = torch.tensor([[[0.5, -0.25]]])
HAND_KEYS = torch.cat((torch.zeros(1, 3), torch.eye(3))).unsqueeze(0)
HAND_VALUES = torch.tensor([[[1.0], [2.0], [3.0], [4.0]]])


def test_additive_scores_by_hand() -> None:
    """W_q q = (.5, -.5); keys add (0,0), (1,0), (0,1), (1,-1): tanh .5 + tanh .5, tanh 1.5 + tanh .5, 0, 2 tanh 1.5."""
    score = hand_score()
    scores = score(HAND_QUERY, score.prepare(HAND_KEYS))
    expected = [2 * math.tanh(0.5), math.tanh(1.5) + math.tanh(0.5), 0.0, 2 * math.tanh(1.5)]
    assert expected == pytest.approx([0.924234, 1.367265, 0.0, 1.810297], abs=1e-6)
    assert scores.shape == (1, 1, 4)
    assert scores[0, 0].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("length", "expected"), [(4, 2.789610), (3, 1.795832)])
def test_additive_output_by_hand(length: int, expected: float) -> None:
    visible = visible_from_lengths(torch.tensor([length]), 4)
    context, weights = attend(hand_score(), HAND_QUERY, HAND_KEYS, HAND_VALUES, visible)
    scores = [2 * math.tanh(0.5), math.tanh(1.5) + math.tanh(0.5), 0.0, 2 * math.tanh(1.5)][:length]
    total = sum(math.exp(score) for score in scores)
    assert sum(math.exp(score) / total * (index + 1) for index, score in enumerate(scores)) == pytest.approx(expected, abs=1e-6)
    assert context.item() == pytest.approx(expected, abs=1e-5)
    assert weights[0, 0, length:].tolist() == [0.0] * (4 - length)


@pytest.mark.parametrize(("name", "query_width"), [("additive", 20), ("general", 20), ("scaled_dot", 2), ("dot", 2)])
def test_the_books_case(name: str, query_width: int) -> None:
    """Equal keys get equal weights: the mean of values 0..39 in rows of four, over the first 2 and the first 6 rows."""
    queries, keys = normal(2, 1, query_width, seed=2), torch.ones(2, 10, 2)
    values = torch.arange(40.0).reshape(1, 10, 4).repeat(2, 1, 1)
    visible = visible_from_lengths(torch.tensor([2, 6]), 10)
    context, weights = attend(build(name, query_width, 2, 8), queries, keys, values, visible)
    torch.testing.assert_close(context, torch.tensor([[[2.0, 3.0, 4.0, 5.0]], [[10.0, 11.0, 12.0, 13.0]]]))
    assert weights.shape == (2, 1, 10)
    torch.testing.assert_close(weights[0, 0], torch.tensor([0.5] * 2 + [0.0] * 8))
    torch.testing.assert_close(weights[1, 0], torch.tensor([1 / 6] * 6 + [0.0] * 4))


def test_additive_equals_a_numpy_loop() -> None:
    score = build("additive", 3, 5, 7)
    assert isinstance(score, AdditiveScore)
    queries, keys = normal(2, 4, 3, seed=3), normal(2, 6, 5, seed=4)
    scores = score(queries, score.prepare(keys))
    assert scores.shape == (2, 4, 6)
    w_q, w_k, w_v = (
        p.detach().double().numpy() for p in (score.query_layer.weight, score.key_layer.weight, score.value_layer.weight)
    )
    for b in range(2):
        for t in range(4):
            for s in range(6):
                inside = w_q @ queries[b, t].double().numpy() + w_k @ keys[b, s].double().numpy()
                assert scores[b, t, s].item() == pytest.approx(float(w_v[0] @ np.tanh(inside)), abs=1e-5)


def test_general_equals_a_numpy_loop() -> None:
    score = build("general", 3, 5, 7)
    assert isinstance(score, GeneralScore)
    queries, keys = normal(2, 4, 3, seed=3), normal(2, 6, 5, seed=4)
    scores = score(queries, score.prepare(keys))
    assert scores.shape == (2, 4, 6)
    matrix = score.key_layer.weight.detach().double().numpy()
    for b in range(2):
        for t in range(4):
            for s in range(6):
                expected = queries[b, t].double().numpy() @ matrix @ keys[b, s].double().numpy()
                assert scores[b, t, s].item() == pytest.approx(float(expected), abs=1e-5)


@pytest.mark.parametrize(("name", "divisor"), [("dot", 1.0), ("scaled_dot", math.sqrt(5))])
def test_dot_equals_a_numpy_loop(name: str, divisor: float) -> None:
    score = build(name, 5, 5, 7)
    queries, keys = normal(2, 4, 5, seed=3), normal(2, 6, 5, seed=4)
    scores = score(queries, score.prepare(keys))
    assert scores.shape == (2, 4, 6)
    for b in range(2):
        for t in range(4):
            for s in range(6):
                expected = float(queries[b, t].double().numpy() @ keys[b, s].double().numpy()) / divisor
                assert scores[b, t, s].item() == pytest.approx(expected, abs=1e-5)


def test_why_scores_are_scaled() -> None:
    """With q, k ~ N(0, 1) of width d the product has variance d; divided by √d it has variance 1."""
    width = 64
    queries, keys = normal(1, 300, width, seed=5), normal(1, 400, width, seed=6)
    raw = DotScore(width, scaled=False)(queries, keys)
    scaled = DotScore(width, scaled=True)(queries, keys)
    assert raw.var().item() == pytest.approx(width, rel=0.05)
    assert scaled.var().item() == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("mask", ["none", "sentence", "query"])
def test_scaled_dot_equals_torchs_own(mask: str) -> None:
    queries, keys, values = normal(2, 4, 5, seed=7), normal(2, 6, 5, seed=8), normal(2, 6, 3, seed=9)
    lengths = {"none": None, "sentence": torch.tensor([6, 2]), "query": torch.tensor([[1, 2, 3, 4], [6, 5, 1, 3]])}[mask]
    visible = None if lengths is None else visible_from_lengths(lengths, 6)
    context, weights = attend(DotScore(5, scaled=True), queries, keys, values, visible)
    torch_mask = visible[:, None] if visible is not None and visible.dim() == 2 else visible
    expected = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=torch_mask)
    assert context.shape == (2, 4, 3)
    torch.testing.assert_close(context, expected, **TIGHT)
    torch.testing.assert_close(weights.sum(dim=2), torch.ones(2, 4))


@pytest.mark.parametrize("name", sorted(SCORES))
def test_context_is_the_weighted_sum_of_values(name: str) -> None:
    queries, keys, values = normal(2, 4, 5, seed=10), normal(2, 6, 5, seed=11), normal(2, 6, 3, seed=12)
    context, weights = attend(build(name, 5, 5, 7), queries, keys, values, visible_from_lengths(torch.tensor([6, 4]), 6))
    assert weights.shape == (2, 4, 6)
    torch.testing.assert_close(weights.sum(dim=2), torch.ones(2, 4))
    assert (weights[1, :, 4:] == 0).all()
    torch.testing.assert_close(context, torch.einsum("bts,bsd->btd", weights, values), **TIGHT)


@pytest.mark.parametrize("name", sorted(SCORES))
@pytest.mark.fault("PB-09")
def test_a_sentence_without_keys_gives_zeros_and_harms_no_other(name: str) -> None:
    """PB-09: lengths 5, 3, 0, forward and backward."""
    score = build(name, 6, 6, 7)
    visible = visible_from_lengths(torch.tensor([5, 3, 0]), 5)
    coefficients = normal(3, 2, 4, seed=13)

    def gradients(rows: int) -> tuple[Tensor, Tensor, list[Tensor]]:
        inputs = [normal(3, 2, 6, seed=14), normal(3, 5, 6, seed=15), normal(3, 5, 4, seed=16)]
        inputs = [part[:rows].clone().requires_grad_() for part in inputs]
        context, weights = attend(score, inputs[0], inputs[1], inputs[2], visible[:rows])
        found = torch.autograd.grad((context * coefficients[:rows]).sum(), [*inputs, *score.parameters()])
        return context, weights, list(found)

    context, weights, with_row = gradients(3)
    _, _, without_row = gradients(2)
    assert (context[2] == 0).all()
    assert (weights[2] == 0).all()
    for whole in (context, weights, *with_row):
        assert torch.isfinite(whole).all()
    for index, (found, expected) in enumerate(zip(with_row, without_row, strict=True)):
        torch.testing.assert_close(found[:2] if index < 3 else found, expected, **TIGHT)
        if index < 3:
            assert (found[2] == 0).all()


def test_dropout_touches_the_sum_but_not_the_weights_returned() -> None:
    class Nothing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.zeros_like(x)

    attention = Attention(DotScore(5, scaled=True), Nothing())
    context, weights = attention(normal(2, 4, 5, seed=1), normal(2, 6, 5, seed=2), normal(2, 6, 3, seed=3), None)
    assert (context == 0).all()
    torch.testing.assert_close(weights.sum(dim=2), torch.ones(2, 4))


def test_keys_are_prepared_once_for_all_queries() -> None:
    attention = Attention(build("additive", 3, 5, 7), nn.Identity())
    queries, keys, values = normal(2, 4, 3, seed=1), normal(2, 6, 5, seed=2), normal(2, 6, 3, seed=3)
    prepared = attention.prepare(keys)
    assert prepared.shape == (2, 6, 7)
    together, _ = attention(queries, prepared, values, None)
    for t in range(4):
        alone, _ = attention(queries[:, t : t + 1], prepared, values, None)
        torch.testing.assert_close(alone[:, 0], together[:, t], **TIGHT)


@pytest.mark.parametrize("name", ["dot", "scaled_dot"])
def test_dot_of_different_widths_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"queries and keys of one width, but they have 4 and 6"):
        SCORES[name](4, 6, 8)


def test_no_biases() -> None:
    counts = {name: sum(p.numel() for p in SCORES[name](5, 5, 7).parameters()) for name in SCORES}
    assert counts == {"additive": 5 * 7 + 5 * 7 + 7, "general": 5 * 5, "dot": 0, "scaled_dot": 0}
