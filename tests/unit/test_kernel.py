"""Nadaraya-Watson pooling against the formula worked out by hand and a plain loop (rows 2, 3 and 4)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from nmt_cli.attention.kernel import KernelPooling, average_pooling, leave_one_out

X, Y = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.0, 1.0, 4.0])


def test_average_pooling_is_a_constant_line() -> None:
    np.testing.assert_allclose(average_pooling(torch.arange(5.0), Y), [5 / 3] * 5, rtol=1e-6)


def test_three_points_by_hand() -> None:
    predicted, weights = KernelPooling()(torch.tensor([1.0]), X, Y)
    assert float(predicted) == pytest.approx(1.548137, abs=1e-6)
    side = math.exp(-0.5) / (1 + 2 * math.exp(-0.5))
    np.testing.assert_allclose(weights[0], [side, 1 - 2 * side, side], atol=1e-6)


def test_equal_weights_give_means() -> None:
    """Ten keys equally far away: weights of 0.1 on the values 0..9 and 10..19."""
    values = torch.arange(20.0).view(2, 10)
    predicted, weights = KernelPooling()(torch.zeros(2), torch.full((2, 10), 3.0), values)
    np.testing.assert_allclose(weights, np.full((2, 10), 0.1), atol=1e-6)
    np.testing.assert_allclose(predicted, [4.5, 14.5], atol=1e-5)


def test_a_narrow_kernel_is_the_nearest_neighbour_and_a_wide_one_the_mean() -> None:
    queries = torch.tensor([0.2, 1.9])
    np.testing.assert_allclose(KernelPooling(0.01)(queries, X, Y)[0], [0, 4], atol=1e-6)
    np.testing.assert_allclose(KernelPooling(1e4)(queries, X, Y)[0], [5 / 3] * 2, atol=1e-5)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.5])
def test_it_equals_a_plain_loop(sigma: float) -> None:
    random = np.random.default_rng(3)
    queries, keys, values = random.normal(size=7), random.normal(size=11), random.normal(size=11)
    expected = []
    for query in queries:
        weights = np.array([math.exp(-((query - key) ** 2) / (2 * sigma**2)) for key in keys])
        expected.append(float((weights / weights.sum() * values).sum()))
    to_tensor = torch.from_numpy
    predicted, weights = KernelPooling(sigma).double()(to_tensor(queries), to_tensor(keys), to_tensor(values))
    np.testing.assert_allclose(predicted, expected, rtol=1e-6)
    np.testing.assert_allclose(weights.sum(dim=1), np.ones(7), rtol=1e-6)


def test_leave_one_out() -> None:
    assert leave_one_out(torch.tensor([1.0, 2.0, 3.0])).tolist() == [[2, 3], [1, 3], [1, 2]]


def test_the_width_can_be_learned_and_is_fixed_otherwise() -> None:
    assert [name for name, p in KernelPooling().named_parameters() if p.requires_grad] == []
    learned = KernelPooling(2.0, learned=True).double()
    assert learned.sigma == pytest.approx(2.0)
    keys, values = X.double(), Y.double()
    predicted, _ = learned(torch.tensor([0.5, 1.7], dtype=torch.float64), keys, values)
    predicted.sum().backward()
    step = 1e-6

    def total(inverse: float) -> float:
        fixed = KernelPooling().double()
        torch.nn.init.constant_(fixed.inverse_width, inverse)
        return float(fixed(torch.tensor([0.5, 1.7], dtype=torch.float64), keys, values)[0].sum())

    assert learned.inverse_width.grad is not None
    assert float(learned.inverse_width.grad) == pytest.approx((total(0.5 + step) - total(0.5 - step)) / (2 * step), rel=1e-6)
