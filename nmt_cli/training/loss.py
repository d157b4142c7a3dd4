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
        count, vocabulary = len(hidden), len(weight)
        with torch.autocast(hidden.device.type, enabled=False):
            matrix = weight.to(hidden.dtype)
            grad_hidden = torch.empty_like(hidden) if wanted else None
            grad_weight = torch.zeros_like(weight) if wanted else None
            grad_bias = torch.zeros_like(bias) if wanted and bias is not None else None
            sums = torch.zeros(3, dtype=torch.float32, device=hidden.device)
            room = hidden.new_empty(min(count, BLOCK_ROWS), vocabulary)  # one for all blocks: fresh memory is slow
            for start in range(0, count, BLOCK_ROWS):
                rows, truth = hidden[start : start + BLOCK_ROWS], targets[start : start + BLOCK_ROWS, None]
                logits = torch.mm(rows, matrix.T, out=room[: len(rows)]).float()
                if bias is not None:
                    logits += bias
                if count_correct:
                    sums[2] += (logits.argmax(dim=1) == truth[:, 0]).sum()
                true_logits = logits.gather(1, truth)
                log_probabilities = torch.log_softmax(logits, dim=1, out=logits)
                true_log_probabilities = log_probabilities.gather(1, truth)
                sums[0] += (true_logits - true_log_probabilities).sum()  # the logarithm of what divides the exponentials
                sums[1] -= true_log_probabilities.sum()
                if grad_hidden is not None and grad_weight is not None:
                    gradient = log_probabilities.exp_()
                    gradient.scatter_add_(1, truth, gradient.new_full((len(truth), 1), smoothing - 1))
                    if grad_bias is not None:
                        grad_bias += gradient.sum(dim=0)
                    gradient = gradient.to(hidden.dtype)
                    torch.mm(gradient, matrix, out=grad_hidden[start : start + BLOCK_ROWS])
                    if rows.dtype == grad_weight.dtype:
                        torch.addmm(grad_weight, gradient.T, rows, out=grad_weight)
                    else:
                        grad_weight += gradient.T @ rows
            # what smoothing spreads over all tokens needs no pass over the logits: their sum is a product of sums
            row_sum, token_sum = hidden.float().sum(dim=0), matrix.float().sum(dim=0)
            mean_logits = (row_sum @ token_sum + (0 if bias is None else count * bias.sum())) / vocabulary
            sums[0] = (1 - smoothing) * sums[1] + smoothing * (sums[0] - mean_logits)
            if grad_hidden is not None and grad_weight is not None:
                share = smoothing / vocabulary
                grad_hidden -= (share * token_sum).to(hidden.dtype)
                grad_weight -= share * row_sum
                if grad_bias is not None:
                    grad_bias -= share * count
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
