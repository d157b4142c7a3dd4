"""Adam and AdamW through torch's fused kernels alone: `torch.optim` imports a compiler, a second of every start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class FusedAdam:
    """Adam, or AdamW where weight decay is decoupled from the gradient; one kernel updates a whole group.

    Bit for bit what `torch.optim.Adam` and `AdamW` do with `fused=True`, with the same state by the same names. The clock of a
    parameter, `step`, counts the steps that were not skipped, and stays on the parameter's device: nothing waits.

    Reference: Kingma, Ba 2015; Loshchilov, Hutter 2019.

    Args:
        groups: Each with its `params`, all of one kind and device, and its `weight_decay`.
        learning_rate: To begin with; a group's `lr` may be changed at any time.
        betas: Decay of the running averages of gradient and squared gradient.
        epsilon: Added to the root of the squared gradient's average.
        decoupled: Decay weights themselves (AdamW) instead of adding to their gradients (Adam).
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        learning_rate: float,
        betas: tuple[float, float],
        epsilon: float,
        decoupled: bool,
    ) -> None:
        self.param_groups = [{"lr": learning_rate, **group} for group in groups]
        self.state: dict[Tensor, dict[str, Tensor]] = {}
        self.betas, self.epsilon, self.decoupled = betas, epsilon, decoupled

    @staticmethod
    def runs_on(device: torch.device) -> bool:
        """Return whether this version of torch has the kernels, for this kind of device."""
        return device.type in {"cpu", "cuda"} and hasattr(torch, "_fused_adam_") and hasattr(torch, "_fused_adamw_")

    def step(self, *, grad_scale: Tensor | None = None, found_inf: Tensor | None = None) -> None:
        """Update all parameters that have a gradient.

        Args:
            grad_scale: Float32 of no dimension, on the device: what gradients are divided by first, in place.
            found_inf: The same: where it is 1, nothing is changed but what a first step creates, all zeros.
        """
        kernel = torch._fused_adamw_ if self.decoupled else torch._fused_adam_
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not parameters:
                continue
            states = [self._state_of(parameter) for parameter in parameters]
            steps = [state["step"] for state in states]
            with torch.no_grad():
                torch._foreach_add_(steps, 1)
                kernel(
                    parameters,
                    [parameter.grad for parameter in parameters],
                    [state["exp_avg"] for state in states],
                    [state["exp_avg_sq"] for state in states],
                    [],
                    steps,
                    lr=group["lr"],
                    beta1=self.betas[0],
                    beta2=self.betas[1],
                    weight_decay=group["weight_decay"],
                    eps=self.epsilon,
                    amsgrad=False,
                    maximize=False,
                    grad_scale=grad_scale,
                    found_inf=found_inf,
                )
                if found_inf is not None:
                    torch._foreach_sub_(steps, [found_inf] * len(steps))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Let go of all gradients, or fill them with zeros."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if set_to_none:
                    parameter.grad = None
                elif parameter.grad is not None:
                    parameter.grad.zero_()

    def _state_of(self, parameter: Tensor) -> dict[str, Tensor]:
        if parameter not in self.state:
            self.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        return self.state[parameter]


Optimizer = FusedAdam | torch.optim.Optimizer
"""What a training steps with."""
