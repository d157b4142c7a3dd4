"""Adam and AdamW of our own: torch's optimizers bit for bit, without what they import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nmt_cli.training.adam import FusedAdam

SIZES = [(7, 3), (5,), (40, 33), (2, 3), ()]
KINDS: dict[str, type[torch.optim.Adam]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
REPOSITORY = Path(__file__).parent.parent.parent


def pair(kind: str) -> tuple[list[nn.Parameter], FusedAdam, list[nn.Parameter], torch.optim.Adam]:
    """Return parameters in two groups with ours, and their twins with torch's."""
    draw = torch.Generator().manual_seed(3)
    values = [torch.randn(size, generator=draw) for size in SIZES]
    ours, theirs = ([nn.Parameter(value.clone()) for value in values] for _ in range(2))

    def groups(found: list[nn.Parameter]) -> list[dict[str, Any]]:
        return [{"params": found[:3], "weight_decay": 0.1}, {"params": found[3:], "weight_decay": 0.0}]

    own = FusedAdam(groups(ours), learning_rate=0.03, betas=(0.9, 0.98), epsilon=1e-9, decoupled=kind == "adamw")
    return ours, own, theirs, KINDS[kind](groups(theirs), lr=0.03, betas=(0.9, 0.98), eps=1e-9, fused=True)


def give(step: int, *twins: list[nn.Parameter], leave_out: int | None = None) -> None:
    """Give all twins the same gradients."""
    draw = torch.Generator().manual_seed(100 + step)
    for index, size in enumerate(SIZES):
        gradient = 3 * torch.randn(size, generator=draw)
        for parameters in twins:
            parameters[index].grad = None if index == leave_out else gradient.clone()


def assert_equal(ours: list[nn.Parameter], own: FusedAdam, theirs: list[nn.Parameter], torchs: torch.optim.Adam) -> None:
    for found, expected in zip(ours, theirs, strict=True):
        assert torch.equal(found, expected)
        state, twin = own.state.get(found, {}), torchs.state.get(expected, {})
        assert state.keys() == twin.keys()
        for name, value in twin.items():
            assert state[name].dtype == value.dtype, name
            assert torch.equal(state[name], value), name


@pytest.mark.parametrize("kind", KINDS)
def test_equals_torch_bit_for_bit(kind: str) -> None:
    ours, own, theirs, torchs = pair(kind)
    before = [parameter.detach().clone() for parameter in ours]
    for step in range(8):
        give(step, ours, theirs, leave_out=step if step < 2 else None)
        for group, twin in zip(own.param_groups, torchs.param_groups, strict=True):
            group["lr"] = twin["lr"] = 0.03 / (1 + step)
        own.step()
        torchs.step()
        assert_equal(ours, own, theirs, torchs)
    assert not any(torch.equal(*values) for values in zip(ours, before, strict=True))
    assert [own.state[parameter]["step"].item() for parameter in ours] == [7, 7, 8, 8, 8]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("skipped", [{0}, {2, 3}, {0, 1, 4}])
def test_equals_torch_where_gradients_are_scaled_and_steps_skipped(kind: str, skipped: set[int]) -> None:
    ours, own, theirs, torchs = pair(kind)
    for step in range(6):
        give(step, ours, theirs)
        scale, found_inf = torch.tensor(7.0 + step), torch.tensor(float(step in skipped))
        before = [parameter.detach().clone() for parameter in ours]
        own.step(grad_scale=scale, found_inf=found_inf)
        torchs.grad_scale, torchs.found_inf = scale, found_inf  # type: ignore[attr-defined]
        torchs.step()
        assert_equal(ours, own, theirs, torchs)
        assert all(torch.equal(*values) == (step in skipped) for values in zip(ours, before, strict=True))
    assert own.state[ours[0]]["step"].item() == 6 - len(skipped)


def test_adam_and_adamw_differ_where_weights_decay_and_only_there() -> None:
    first, adam, *_ = pair("adam")
    second, adamw, *_ = pair("adamw")
    for step in range(3):
        give(step, first, second)
        adam.step()
        adamw.step()
    assert [torch.equal(*values) for values in zip(first, second, strict=True)] == [False, False, False, True, True]


def test_clearing_gradients() -> None:
    ours, own, theirs, torchs = pair("adam")
    give(0, ours, leave_out=1)
    own.zero_grad(set_to_none=False)
    assert [None if found.grad is None else found.grad.abs().sum().item() for found in ours] == [0, None, 0, 0, 0]
    own.zero_grad()
    assert all(parameter.grad is None for parameter in ours)
    own.step()
    assert_equal(ours, own, theirs, torchs)


def test_steps_are_taken_on_the_tensors_themselves() -> None:
    ours, own, *_ = pair("adam")
    give(0, ours)
    own.step()
    held: list[Tensor] = [*ours, *(value for state in own.state.values() for value in state.values())]
    addresses = [tensor.data_ptr() for tensor in held]
    give(1, ours)
    own.step()
    assert [tensor.data_ptr() for tensor in held] == addresses
    assert own.state[ours[0]]["step"].item() == 2


@pytest.mark.parametrize(("device", "expected"), [("cpu", True), ("cuda", True), ("cuda:1", True), ("mps", False)])
def test_devices_with_the_kernels(device: str, expected: bool) -> None:
    assert FusedAdam.runs_on(torch.device(device)) is expected


def test_a_torch_without_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, "_fused_adamw_")
    assert not FusedAdam.runs_on(torch.device("cpu"))


def test_training_imports_no_compiler(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.unit.test_loop import MODELS, Run\n"
        "for kind in MODELS:\n"
        f"    run = Run(Path({str(tmp_path)!r}) / kind, late=False, kind=kind, max_updates=2)\n"
        "    run.trainer.fit()\n"
        "    print(kind, run.state.progress.update, len(run.state.optimizer.state) > 0, 'torch._dynamo' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["seq2seq 2 True False", "transformer 2 True False"]
