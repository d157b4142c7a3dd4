"""Label-smoothed cross-entropy of real target tokens, with the output layer inside.

The logits of a whole batch are never in memory at once: blocks of rows are projected, their loss is taken, and their gradients
are written at once, in the forward pass.

Reference: Szegedy et al. 2016, section 7 (label smoothing).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

BLOCK_ROWS = 512


@dataclass(frozen=True)
class TokenLoss:
    """Sums over N tokens.

    Args:
        smoothed: Label-smoothed cross-entropy in nats; has gradients.
        plain: Cross-entropy in nats, without smoothing or gradients.
        correct: Number of tokens whose likeliest prediction is right; 0 in training, where it is not asked for.
    """

    smoothed: Tensor
    plain: Tensor
    correct: Tensor


def token_loss(
    hidden: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    smoothing: float,
    count_correct: bool = False,
) -> TokenLoss:
    """Return the summed loss of N tokens.

    The target of a token is 1 - smoothing on the true token plus smoothing / V on every token, as in
    `torch.nn.functional.cross_entropy(label_smoothing=…)`.

    Args:
        hidden: `(N, D)`, the decoder's output at real tokens.
        targets: `(N,)` int64.
        weight: `(V, D)` of the output layer.
        bias: `(V,)` of the output layer, or None.
        smoothing: Share of the target spread over all tokens.
        count_correct: Count right predictions too.
    """
    smoothed, plain, correct = _BlockLoss.apply(
        hidden, targets, weight, bias, smoothing, count_correct, torch.is_grad_enabled()
    )  # type: ignore[no-untyped-call]
    return TokenLoss(smoothed, plain, correct)


class _BlockLoss(torch.autograd.Function):
    """Loss sums, with the gradients of hidden, weight and bias computed on the way."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        targets: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        smoothing: float,
        count_correct: bool,
        grad_enabled: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        wanted = grad_enabled and any(ctx.needs_input_grad)  # the latter is true in validation as well
        with torch.autocast(hidden.device.type, enabled=False):
            matrix = weight.to(hidden.dtype)
            grad_hidden = torch.empty_like(hidden) if wanted else None
            grad_weight = torch.zeros_like(weight) if wanted else None
            grad_bias = torch.zeros_like(bias) if wanted and bias is not None else None
            sums = torch.zeros(3, dtype=torch.float32, device=hidden.device)
            for start in range(0, len(hidden), BLOCK_ROWS):
                rows, truth = hidden[start : start + BLOCK_ROWS], targets[start : start + BLOCK_ROWS]
                logits = functional.linear(rows, matrix, None if bias is None else bias.to(hidden.dtype)).float()
                log_total = logits.logsumexp(dim=1)
                true_logits = logits.gather(1, truth[:, None]).squeeze(1)
                plain = log_total - true_logits
                smoothed = log_total - (1 - smoothing) * true_logits - smoothing * logits.mean(dim=1)
                sums[0] += smoothed.sum()
                sums[1] += plain.sum()
                if count_correct:
                    sums[2] += (logits.argmax(dim=1) == truth).sum()
                if grad_hidden is not None and grad_weight is not None:
                    gradient = logits.softmax(dim=1).sub_(smoothing / logits.shape[1])
                    gradient.scatter_add_(1, truth[:, None], gradient.new_full((len(truth), 1), smoothing - 1))
                    gradient = gradient.to(hidden.dtype)
                    torch.matmul(gradient, matrix, out=grad_hidden[start : start + BLOCK_ROWS])
                    grad_weight += gradient.T @ rows
                    if grad_bias is not None:
                        grad_bias += gradient.sum(dim=0)
        if wanted:
            ctx.gradients = (grad_hidden, grad_weight, grad_bias)
        ctx.mark_non_differentiable(plain_sum := sums[1].clone(), correct := sums[2].clone())
        return sums[0].clone(), plain_sum, correct

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias = ctx.gradients
        del ctx.gradients
        scaled = [None if part is None else part.mul_(gradient.to(part.dtype)) for part in (hidden, weight, bias)]
        return scaled[0], None, scaled[1], scaled[2], None, None, None
