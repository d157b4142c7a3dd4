"""Attention before there were learned projections: predicting y at a query from points (x, y), by weighing the known y.

Reference: Nadaraya 1964; Watson 1964; chapter 10 of Dive into Deep Learning.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nmt_cli.attention.masking import masked_softmax


def average_pooling(queries: Tensor, values: Tensor) -> Tensor:
    """Return the mean of all values for every query: attention without asking.

    Args:
        queries: `(N,)`.
        values: `(M,)`.

    Returns:
        `(N,)`.
    """
    return values.mean().expand(queries.shape)


class KernelPooling(nn.Module):
    """f(x) = Σ_i weight_i y_i with weight_i = softmax_i(-((x - x_i) w)² / 2): Nadaraya-Watson with a Gaussian kernel.

    Args:
        sigma: Width of the kernel; w = 1 / sigma.
        learned: Whether w is a parameter.
    """

    def __init__(self, sigma: float = 1.0, *, learned: bool = False) -> None:
        super().__init__()
        self.inverse_width = nn.Parameter(torch.tensor(1 / sigma), requires_grad=learned)

    @property
    def sigma(self) -> float:
        """Width of the kernel, 1 / |w|; infinite for w = 0."""
        inverse = abs(float(self.inverse_width.detach()))
        return 1 / inverse if inverse else float("inf")

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Attend.

        Args:
            queries: `(N,)`, the x at which y is asked for.
            keys: `(M,)`, the known x; or `(N, M)` where each query has its own.
            values: `(M,)` or `(N, M)`, the known y.

        Returns:
            Predictions `(N,)` and weights `(N, M)`; each row of these sums to 1.
        """
        scores = -(((queries.unsqueeze(1) - keys) * self.inverse_width) ** 2) / 2  # (N, 1) - (M,) -> (N, M)
        weights = masked_softmax(scores)
        return (weights * values).sum(dim=1), weights


def leave_one_out(points: Tensor) -> Tensor:
    """Return for each of N points all the others, `(N, N - 1)`: what it may be predicted from in training."""
    count = len(points)
    others = ~torch.eye(count, dtype=torch.bool)
    return points.expand(count, count)[others].view(count, count - 1)
