"""One step of the optimizer: the arithmetic of torch's own parts, and nothing changed by what is not finite."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from nmt_cli.training.adam import FusedAdam, Optimizer
from nmt_cli.training.step import optimizer_step

SIZES = [(7, 3), (5,), (2, 3)]
KINDS: dict[str, type[torch.optim.Adam]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def parameters() -> list[nn.Parameter]:
    draw = torch.Generator().manual_seed(3)
    return [nn.Parameter(torch.randn(size, generator=draw)) for size in SIZES]


def optimizer_of(kind: str, found: list[nn.Parameter], *, fused: bool) -> Optimizer:
    groups = [{"params": found[:1], "weight_decay": 0.1}, {"params": found[1:], "weight_decay": 0.0}]
    if fused:
        return FusedAdam(groups, learning_rate=0.03, betas=(0.9, 0.98), epsilon=1e-9, decoupled=kind == "adamw")
    return KINDS[kind](groups, lr=0.03, betas=(0.9, 0.98), eps=1e-9)


def gradients(step: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(100 + step)
    return [torch.randn(size, generator=draw) for size in SIZES]


def give(found: list[nn.Parameter], values: list[Tensor]) -> None:
    for parameter, value in zip(found, values, strict=True):
        parameter.grad = value.clone()


def everything(found: list[nn.Parameter], optimizer: Optimizer) -> list[Tensor]:
    state = [value for parameter in found for _, value in sorted(optimizer.state[parameter].items())]
    return [tensor.detach().clone() for tensor in (*found, *state)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("clip_norm", [None, 0.5, 1000.0])
def test_equals_mean_gradients_clipped_and_stepped_by_torch(kind: str, fused: bool, clip_norm: float | None) -> None:
    found, expected = parameters(), parameters()
    optimizer = optimizer_of(kind, found, fused=fused)
    reference = KINDS[kind](
        [{"params": expected[:1], "weight_decay": 0.1}, {"params": expected[1:], "weight_decay": 0.0}],
        lr=0.03,
        betas=(0.9, 0.98),
        eps=1e-9,
        foreach=False,
    )
    for step, tokens in enumerate([3, 17, 1, 250, 12]):
        mean = gradients(step)
        give(found, [gradient * tokens for gradient in mean])
        give(expected, mean)
        norm = nn.utils.clip_grad_norm_(expected, math.inf if clip_norm is None else clip_norm)
        reference.step()
        figures = optimizer_step(optimizer, torch.tensor(2.5), tokens, clip_norm=clip_norm)
        torch.testing.assert_close(figures, torch.stack((torch.tensor(2.5), norm)))
        assert all(parameter.grad is None for parameter in found)
        torch.testing.assert_close(everything(found, optimizer), everything(expected, reference))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("clip_norm", [None, 0.5])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["gradient", "loss"])
@pytest.mark.fault("PB-16")
def test_what_is_not_finite_changes_nothing(fused: bool, clip_norm: float | None, value: float, where: str) -> None:
    found, never_saw = parameters(), parameters()
    optimizer, other = (optimizer_of("adamw", each, fused=fused) for each in (found, never_saw))
    for step in range(5):
        if step != 2:
            for each, its in ((found, optimizer), (never_saw, other)):
                give(each, gradients(step))
                optimizer_step(its, torch.tensor(1.0), 4, clip_norm=clip_norm)
            continue
        bad = gradients(step)
        if where == "gradient":
            bad[1][3] = value
        give(found, bad)
        before = everything(found, optimizer)
        figures = optimizer_step(optimizer, torch.tensor(1.0 if where == "gradient" else value), 4, clip_norm=clip_norm)
        assert not math.isfinite(figures[1 if where == "gradient" else 0].item())
        assert all(torch.equal(*pair) for pair in zip(everything(found, optimizer), before, strict=True))
        assert all(parameter.grad is None for parameter in found)
    pairs = zip(everything(found, optimizer), everything(never_saw, other), strict=True)
    assert all(torch.equal(*pair) for pair in pairs), "and what comes after is as if it had not been"


@pytest.mark.fault("PB-16")
def test_the_very_first_step_may_be_bad() -> None:
    found, never_saw = parameters(), parameters()
    optimizer, other = (optimizer_of("adam", each, fused=True) for each in (found, never_saw))
    give(found, [gradient * math.nan for gradient in gradients(0)])
    optimizer_step(optimizer, torch.tensor(1.0), 4)
    for each, its in ((found, optimizer), (never_saw, other)):
        give(each, gradients(1))
        optimizer_step(its, torch.tensor(1.0), 4)
    assert all(torch.equal(*pair) for pair in zip(everything(found, optimizer), everything(never_saw, other), strict=True))


def test_zero_gradients_are_no_reason_to_divide_by_zero() -> None:
    found = parameters()
    give(found, [torch.zeros(size) for size in SIZES])
    before = [parameter.detach().clone() for parameter in found]
    figures = optimizer_step(optimizer_of("adam", found, fused=True), torch.tensor(0.0), 4, clip_norm=1.0)
    assert figures.tolist() == [0.0, 0.0]
    torch.testing.assert_close([parameter.detach() for parameter in found[1:]], before[1:])


def test_parameters_without_a_gradient_are_left_alone() -> None:
    found = parameters()
    give(found, gradients(0))
    found[1].grad = None
    before = found[1].detach().clone()
    optimizer_step(optimizer_of("adam", found, fused=True), torch.tensor(1.0), 4)
    assert torch.equal(found[1], before)
