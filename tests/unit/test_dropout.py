"""Dropout whose randomness is handed in and saved (models/dropout.py)."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor, nn

from nmt_cli.models.dropout import Dropout, RandomSource, add_dropped, dropout

SHAPES = [(3,), (5, 1), (13, 7), (2, 3, 11)]


def draw(source: RandomSource) -> list[list[int]]:
    """Bytes of odd numbers, so that some are left over inside the generator's words."""
    return [source.bytes_for(torch.empty(shape)).flatten().tolist() for shape in SHAPES]


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_mean_is_preserved_and_the_rate_is_kept(rate: float) -> None:
    ones = torch.ones(500, 401)
    dropped = Dropout(rate, RandomSource(1))(ones)
    assert dropped.shape == ones.shape
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.02)
    assert (dropped == 0).float().mean().item() == pytest.approx(rate, abs=0.004)


def test_what_is_kept_is_scaled_by_what_is_really_kept() -> None:
    """0.3 rounds to 77 of 256, so 179 of 256 are kept."""
    x = torch.linspace(1, 2, 1000)
    dropped = Dropout(0.3, RandomSource(2))(x)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], x[kept] * 256 / (256 - 77))


def test_every_position_is_dropped_now_and_then() -> None:
    layer = Dropout(0.5, RandomSource(3))
    share = torch.stack([layer(torch.ones(4, 5)) == 0 for _ in range(400)]).float().mean(dim=0)
    assert share.min() > 0.4
    assert share.max() < 0.6


def test_evaluation_mode_gives_the_input_and_draws_nothing() -> None:
    source, x = RandomSource(4), torch.ones(3, 5)
    before = source.state()
    assert Dropout(0.5, source).eval()(x) is x
    assert source.state() == before
    Dropout(0.5, source).train()(x)
    assert source.state() != before


@pytest.mark.parametrize("rate", [0.0, 0.001])
def test_rate_zero_is_the_identity(rate: float) -> None:
    source, x = RandomSource(5), torch.ones(3, 5)
    assert isinstance(dropout(rate, source), nn.Identity)
    assert Dropout(rate, source).train()(x) is x
    assert isinstance(dropout(0.1, source), Dropout)


@pytest.mark.parametrize("rate", [0.99, 0.999])
def test_the_highest_rates_still_give_numbers(rate: float) -> None:
    """The config takes any rate below 1."""
    dropped = dropout(rate, RandomSource(6)).train()(torch.ones(100, 100))
    assert torch.isfinite(dropped).all()
    assert (dropped == 0).float().mean().item() == pytest.approx(rate, abs=0.01)


def test_the_same_seed_gives_the_same_masks_and_another_does_not() -> None:
    assert draw(RandomSource(7)) == draw(RandomSource(7))
    assert draw(RandomSource(7, 0)) == draw(RandomSource(7, 0))
    assert draw(RandomSource(7, 0)) != draw(RandomSource(7, 1))
    assert draw(RandomSource(7)) != draw(RandomSource(8))


def test_masks_go_on_changing() -> None:
    source = RandomSource(9)
    assert draw(source) != draw(source)


def test_a_restored_state_gives_the_same_masks() -> None:
    source = RandomSource(10)
    draw(source)
    saved = json.loads(json.dumps(source.state()))
    expected = [draw(source), draw(source)]
    another = RandomSource(11)
    draw(another)
    another.restore(saved)
    assert [draw(another), draw(another)] == expected
    source.restore(saved)
    assert draw(source) == expected[0]


def test_a_state_is_a_copy() -> None:
    source = RandomSource(12)
    saved = source.state()
    text = json.dumps(saved)
    draw(source)
    assert json.dumps(saved) == text


def test_the_gradient_is_masked_like_the_output() -> None:
    x = torch.full((7, 11), 3.0, requires_grad=True)
    dropped = Dropout(0.5, RandomSource(13))(x)
    assert 0 < int((dropped == 0).sum()) < 77
    coefficients = torch.randn(7, 11, generator=torch.Generator().manual_seed(1))
    (gradient,) = torch.autograd.grad((dropped * coefficients).sum(), x)
    torch.testing.assert_close(gradient, dropped.detach() / 3 * coefficients)


def test_a_transposed_input_is_masked_in_place_of_its_own() -> None:
    x = torch.arange(1.0, 36.0).reshape(5, 7).T.requires_grad_()
    dropped = Dropout(0.5, RandomSource(14))(x)
    assert dropped.shape == (7, 5)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], 2 * x[kept])
    (gradient,) = torch.autograd.grad(dropped.sum(), x)
    assert torch.equal(gradient, 2.0 * kept)


def test_the_input_is_not_changed() -> None:
    x = torch.ones(5, 7)
    Dropout(0.5, RandomSource(15))(x)
    assert torch.equal(x, torch.ones(5, 7))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions(dtype: torch.dtype) -> None:
    dropped: Tensor = Dropout(0.5, RandomSource(16))(torch.ones(5, 7, dtype=dtype))
    assert dropped.dtype == dtype
    assert set(dropped.flatten().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize("training", [True, False])
def test_adding_and_dropping_in_one_pass_equals_doing_one_after_the_other(rate: float, *, training: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    base, x, above = (torch.randn(3, 5, 7, generator=generator) for _ in range(3))
    results = []
    for at_once in (True, False):
        layer = dropout(rate, RandomSource(18)).train(training)
        inputs = base.clone().requires_grad_(), x.clone().requires_grad_()
        added = add_dropped(*inputs, layer) if at_once else inputs[0] + layer(inputs[1])
        results.append((added, *torch.autograd.grad((added * above).sum(), inputs)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_the_mask_bytes_are_even() -> None:
    """Each of the 256 values as often as the others, at every place of the generator's words (chi-square, 255 degrees)."""
    drawn = RandomSource(19).bytes_for(torch.empty(1 << 18, 8))
    for counts in (torch.bincount(drawn[:, place].long(), minlength=256) for place in range(8)):
        expected = (1 << 18) / 256
        assert float(((counts - expected) ** 2 / expected).sum()) < 340  # 1 in 3,000 by chance


def test_torchs_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    Dropout(0.5, RandomSource(17))(torch.ones(5, 7))
    assert torch.equal(torch.get_rng_state(), before)
