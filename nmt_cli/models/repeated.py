"""A matrix that is multiplied with at each of many steps, and whose gradient is taken in one product after the last of them.

Autograd would take it step by step: a small product each time, added to a gradient as large as the matrix. Concatenated over
all steps it is the same sum.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class RepeatedProduct:
    """x -> x M + b, to be called at each step of a loop.

    A backward pass must reach the matrix, as that of a loss does: one that is asked for the gradient of an input alone would
    leave what belongs to the matrix for the next pass.

    Args:
        matrix: M, `(K, N)`, or `(B, K, N)` with a matrix for each sentence.
        bias: b, `(N,)` or of a shape that is added to `(…, N)`; None: nothing is added.
    """

    def __init__(self, matrix: Tensor, bias: Tensor | None = None) -> None:
        self._steps: list[tuple[Tensor, Tensor]] = []  # input and gradient of each step, the last one first
        if torch.is_autocast_enabled(matrix.device.type):
            kind = torch.get_autocast_dtype(matrix.device.type)
            matrix, bias = matrix.to(kind), bias if bias is None else bias.to(kind)
        self._matrix, self._bias = matrix, bias
        self._deferred = torch.is_grad_enabled() and (matrix.requires_grad or (bias is not None and bias.requires_grad))
        if self._deferred:
            self._matrix, self._bias = _Gathered.apply(matrix, bias, self._steps)  # type: ignore[no-untyped-call]

    def __call__(self, x: Tensor) -> Tensor:
        """Return `(n, N)` of `(n, K)`, or `(B, n, N)` of `(B, n, K)`; n may differ from step to step."""
        x = x.to(self._matrix.dtype)
        if not self._deferred:
            return _product(x, self._matrix, self._bias)
        product: Tensor = _Step.apply(x, self._matrix, self._bias, self._steps)  # type: ignore[no-untyped-call]
        return product


def _product(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return torch.matmul(x, matrix)
    return torch.addmm(bias, x, matrix) if x.dim() == 2 else torch.baddbmm(bias, x, matrix)


class _Step(torch.autograd.Function):
    """One product. Its backward hands on the gradient of x only and leaves the rest to `_Gathered`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, bias: Tensor | None, steps: list[tuple[Tensor, Tensor]]) -> Tensor:
        ctx.save_for_backward(x, matrix)
        ctx.steps = steps
        return _product(x, matrix, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None, None]:
        x, matrix = ctx.saved_tensors
        ctx.steps.append((x.detach(), gradient))
        return torch.matmul(gradient, matrix.mT) if ctx.needs_input_grad[0] else None, None, None, None


class _Gathered(torch.autograd.Function):
    """Matrix and bias as they are; comes last in backward, when each step has left its input and gradient."""

    @staticmethod
    def forward(
        ctx: Any, matrix: Tensor, bias: Tensor | None, steps: list[tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor | None]:
        ctx.steps = steps
        ctx.set_materialize_grads(False)
        ctx.is_turned = matrix.stride(-2) == 1
        ctx.bias_shape = None if bias is None else bias.shape
        return matrix.view_as(matrix), None if bias is None else bias.view_as(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        if not ctx.steps:  # no step has come by
            return None, None, None
        inputs, gradients = (torch.cat(parts, dim=-2) for parts in zip(*ctx.steps, strict=True))
        ctx.steps.clear()
        of_matrix = None
        if ctx.needs_input_grad[0]:  # laid out as the matrix is, so that nobody need copy it
            of_matrix = (gradients.mT @ inputs).mT if ctx.is_turned else inputs.mT @ gradients
        of_bias = gradients.sum_to_size(ctx.bias_shape) if ctx.needs_input_grad[1] else None
        return of_matrix, of_bias, None
