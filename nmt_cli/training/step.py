"""One step of the optimizer, without waiting for the device."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt_cli.training.adam import FusedAdam, Optimizer


def optimizer_step(optimizer: Optimizer, loss_sum: Tensor, tokens: int, *, clip_norm: float | None = None) -> Tensor:
    """Step on gradients that were summed over tokens, and clear them. Where loss or gradient is not finite nothing is changed.

    `FusedAdam` takes the mean, clips and decides on the device, in the pass that it makes anyway; torch's own optimizers, where
    it cannot run, wait for the decision.

    Args:
        optimizer: Of parameters that all are on the device of `loss_sum`.
        loss_sum: Summed loss, float32, of no dimension.
        tokens: What the sums are to be divided by.
        clip_norm: Largest norm of the mean gradient; None: no clipping.

    Returns:
        `(2,)` float32 on the device: `loss_sum`, and the norm of the mean gradient before clipping.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))) / tokens
    figures = torch.stack((loss_sum, norm))
    is_bad = 1 - figures.isfinite().all().float()
    divisor = torch.full_like(norm, tokens) if clip_norm is None else (norm / clip_norm).clamp(min=1) * tokens
    if isinstance(optimizer, FusedAdam):
        optimizer.step(grad_scale=divisor, found_inf=is_bad)
    elif not is_bad.item():
        torch._foreach_div_(gradients, divisor)
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return figures
