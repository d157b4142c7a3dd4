"""Visible masks, the causal mask, and the softmax that obeys them (docs/attention.md row 5)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt_cli.attention.masking import causal_visible, masked_softmax, visible_from_lengths

PER_SENTENCE = [2, 3]
PER_QUERY = [[1, 3], [2, 4]]


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_lengths_per_sentence() -> None:
    visible = visible_from_lengths(torch.tensor([2, 0, 4, 3]), 4)
    assert visible.dtype == torch.bool
    assert visible.tolist() == [
        [True, True, False, False],
        [False, False, False, False],
        [True, True, True, True],
        [True, True, True, False],
    ]


def test_lengths_per_query_add_an_axis() -> None:
    lengths = torch.tensor([[1, 3, 0], [2, 5, 4]])
    visible = visible_from_lengths(lengths, 5)
    assert visible.shape == (2, 3, 5)
    for sentence in range(2):
        for query in range(3):
            length = int(lengths[sentence, query])
            assert visible[sentence, query].tolist() == [True] * length + [False] * (5 - length)


def test_causal_mask_is_the_lower_triangle() -> None:
    visible = causal_visible(4, 4)
    assert visible.tolist() == [[key <= query for key in range(4)] for query in range(4)]


@pytest.mark.parametrize(("queries", "keys"), [(1, 5), (2, 5), (3, 4)])
def test_causal_mask_with_past_keys_ends_at_the_last_key(queries: int, keys: int) -> None:
    past = keys - queries
    assert causal_visible(queries, keys).tolist() == [[key <= past + query for key in range(keys)] for query in range(queries)]


@pytest.mark.parametrize(
    ("length", "expected"),
    [(2, [0.268941, 0.731059, 0.0, 0.0]), (3, [0.090031, 0.244728, 0.665241, 0.0])],
)
def test_hand_numbers(length: int, expected: list[float]) -> None:
    """1/(1+e) and e/(1+e); then 1, e, e² over their sum."""
    weights = masked_softmax(torch.arange(4.0), visible_from_lengths(torch.tensor(length), 4))
    assert weights.tolist() == pytest.approx(expected, abs=1e-6)
    assert weights[length:].tolist() == [0.0] * (4 - length)


@pytest.mark.parametrize("per_query", [False, True])
def test_rows_of_a_batch_equal_a_numpy_loop(per_query: bool) -> None:
    scores = normal(2, 2, 4, seed=1)
    lengths = torch.tensor(PER_QUERY) if per_query else torch.tensor(PER_SENTENCE)[:, None].expand(2, 2)
    visible = visible_from_lengths(torch.tensor(PER_QUERY if per_query else PER_SENTENCE), 4)
    weights = masked_softmax(scores, visible if per_query else visible[:, None, :])
    assert weights.shape == (2, 2, 4)
    for sentence in range(2):
        for query in range(2):
            length = int(lengths[sentence, query])
            exponentials = np.exp(scores[sentence, query, :length].double().numpy())
            expected = [*(exponentials / exponentials.sum()), *[0.0] * (4 - length)]
            assert weights[sentence, query].tolist() == pytest.approx(expected, abs=1e-6)
            assert weights[sentence, query, length:].tolist() == [0.0] * (4 - length)


def test_without_a_mask_it_is_the_softmax() -> None:
    scores = normal(2, 3, 5, seed=2)
    torch.testing.assert_close(masked_softmax(scores), torch.softmax(scores, dim=-1))
    torch.testing.assert_close(masked_softmax(scores, torch.ones(2, 1, 5, dtype=torch.bool)), torch.softmax(scores, dim=-1))


def test_length_zero_gives_a_zero_row_and_finite_gradients() -> None:
    scores = normal(3, 5, seed=3).requires_grad_()
    weights = masked_softmax(scores, visible_from_lengths(torch.tensor([5, 0, 2]), 5))
    assert weights[1].tolist() == [0.0] * 5
    torch.testing.assert_close(weights.sum(dim=1), torch.tensor([1.0, 0.0, 1.0]))
    (gradient,) = torch.autograd.grad((weights * normal(3, 5, seed=4)).sum(), scores)
    assert torch.isfinite(gradient).all()
    assert gradient[1].tolist() == [0.0] * 5
    assert gradient[2, 2:].tolist() == [0.0] * 3
    assert gradient[2, :2].abs().min() > 1e-3


def test_gradients_of_visible_scores_equal_those_of_the_short_softmax() -> None:
    scores, coefficients = normal(3, seed=5).requires_grad_(), normal(3, seed=6)
    (expected,) = torch.autograd.grad((scores.softmax(dim=0) * coefficients).sum(), scores)
    padded = torch.cat((scores.detach(), torch.tensor([9.0, -9.0]))).requires_grad_()
    weights = masked_softmax(padded, visible_from_lengths(torch.tensor(3), 5))
    (gradient,) = torch.autograd.grad((weights * torch.cat((coefficients, torch.ones(2)))).sum(), padded)
    torch.testing.assert_close(gradient[:3], expected)
    assert gradient[3:].tolist() == [0.0, 0.0]


def test_the_input_is_not_changed() -> None:
    scores = normal(2, 4, seed=7)
    before = scores.clone()
    masked_softmax(scores, visible_from_lengths(torch.tensor([1, 3]), 4))
    assert torch.equal(scores, before)


@pytest.mark.parametrize("hidden_score", [1e30, -1e30, 0.0])
def test_what_is_hidden_has_no_influence(hidden_score: float) -> None:
    visible = visible_from_lengths(torch.tensor(2), 3)
    weights = masked_softmax(torch.tensor([-1000.0, -1001.0, hidden_score]), visible)
    expected = torch.softmax(torch.tensor([0.0, -1.0]), dim=0)
    torch.testing.assert_close(weights, torch.cat((expected, torch.zeros(1))))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_precisions(dtype: torch.dtype) -> None:
    weights = masked_softmax(
        torch.tensor([[0.0, 2.0, 5.0], [1.0, 1.0, 1.0]], dtype=dtype), torch.tensor([[1, 1, 0], [0, 0, 0]]) > 0
    )
    assert weights.dtype == dtype
    expected = [1 / (1 + np.exp(2)), np.exp(2) / (1 + np.exp(2)), 0.0]
    assert weights[0].tolist() == pytest.approx(expected, abs=1e-12 if dtype == torch.float64 else 4e-3)
    assert weights[1].tolist() == [0.0] * 3
