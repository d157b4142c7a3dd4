"""Masks and the softmax that obeys them. The one place that hides positions.

A boolean mask is called `visible`: True means "may be attended".
"""

from __future__ import annotations

import torch
from torch import Tensor


def visible_from_lengths(lengths: Tensor, size: int) -> Tensor:
    """Return which of `size` positions lie within each length.

    Args:
        lengths: Whole numbers of any shape, for example `(B,)` or `(B, T)`.
        size: Number of positions S.

    Returns:
        Bool, the shape of `lengths` with S added at the end.
    """
    return torch.arange(size, device=lengths.device) < lengths.unsqueeze(-1)


def causal_visible(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """Return which keys each query may see when the last query stands at the last key: itself and all before it.

    Returns:
        Bool `(queries, keys)`; with as many queries as keys, the lower triangle.
    """
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(diagonal=keys - queries)


def masked_softmax(scores: Tensor, visible: Tensor | None = None) -> Tensor:
    """Softmax over the last axis with hidden positions at weight 0.

    A row with nothing visible gives zeros (not a uniform row as in the d2l book), and no NaN forward or backward.

    Args:
        scores: `(…, S)` floating point; not changed.
        visible: Bool, of a shape that broadcasts to `scores`; None: all visible.

    Returns:
        Weights of the shape of `scores`; each row sums to 1, or to 0 where nothing is visible.
    """
    if visible is None:
        return scores.softmax(dim=-1)
    hidden = ~visible
    lowest = torch.finfo(scores.dtype).min  # not -inf: a row of -inf would give NaN
    return scores.masked_fill(hidden, lowest).softmax(dim=-1).masked_fill(hidden, 0.0)
