"""Attention of one head: a score compares a query with each key, the softmax of the scores weighs the values.

Reference: Bahdanau, Cho, Bengio 2015, appendix A.1.2 (additive); Luong, Pham, Manning 2015, section 3.1 (dot, general);
Vaswani et al. 2017, equation 1 (scaled dot).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from nmt_cli.attention.masking import masked_softmax
from nmt_cli.errors import ConfigError


class Score(nn.Module, ABC):
    """How well each key fits each query. B sentences, T queries, S keys."""

    query_layer: nn.Linear | None
    """What queries go through first, without bias; None: they are compared as they are."""

    def prepare(self, keys: Tensor) -> Tensor:
        """Return what of the keys does not depend on the query, to be made once a sentence. `(B, S, …)`."""
        return keys

    @abstractmethod
    def compare(self, projected: Tensor, prepared: Tensor) -> Tensor:
        """Return scores `(B, T, S)` of queries that came through `query_layer` and keys as `prepare` gave them."""

    def forward(self, queries: Tensor, prepared: Tensor) -> Tensor:
        """Return scores `(B, T, S)` of queries `(B, T, Q)` and keys as `prepare` gave them."""
        return self.compare(self.project(queries), prepared)

    def project(self, queries: Tensor) -> Tensor:
        """Return queries `(B, T, Q)` as they are compared, `(B, T, …)`."""
        return queries if self.query_layer is None else self.query_layer(queries)


class AdditiveScore(Score):
    """a(q, k) = w_v · tanh(W_q q + W_k k), without biases. Queries and keys may differ in width.

    Args:
        query_width: Width of queries.
        key_width: Width of keys.
        hidden_width: Width of the sum inside tanh.
    """

    query_layer: nn.Linear

    def __init__(self, query_width: int, key_width: int, hidden_width: int) -> None:
        super().__init__()
        self.query_layer = nn.Linear(query_width, hidden_width, bias=False)
        self.key_layer = nn.Linear(key_width, hidden_width, bias=False)
        self.value_layer = nn.Linear(hidden_width, 1, bias=False)

    def prepare(self, keys: Tensor) -> Tensor:
        """Return W_k k, `(B, S, A)`."""
        projected: Tensor = self.key_layer(keys)
        return projected

    def compare(self, projected: Tensor, prepared: Tensor) -> Tensor:
        """Return scores `(B, T, S)`."""
        features = (projected.unsqueeze(2) + prepared.unsqueeze(1)).tanh_()  # (B, T, S, A)
        return torch.matmul(features, self.value_layer.weight[0])  # (B, T, S, A) -> (B, T, S)


class DotScore(Score):
    """a(q, k) = q · k, divided by √d on request: with unit-variance q and k the plain product has variance d.

    Args:
        width: Width d of queries and keys.
        scaled: Divide by √d.
    """

    def __init__(self, width: int, *, scaled: bool) -> None:
        super().__init__()
        self.query_layer = None
        self.scale = 1 / math.sqrt(width) if scaled else 1.0

    def compare(self, projected: Tensor, prepared: Tensor) -> Tensor:
        """Return scores `(B, T, S)`."""
        return torch.matmul(projected * self.scale, prepared.transpose(1, 2))


class GeneralScore(Score):
    """a(q, k) = q · W k. Queries and keys may differ in width.

    Args:
        query_width: Width of queries.
        key_width: Width of keys.
    """

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__()
        self.query_layer = None
        self.key_layer = nn.Linear(key_width, query_width, bias=False)

    def prepare(self, keys: Tensor) -> Tensor:
        """Return W k, `(B, S, Q)`."""
        projected: Tensor = self.key_layer(keys)
        return projected

    def compare(self, projected: Tensor, prepared: Tensor) -> Tensor:
        """Return scores `(B, T, S)`."""
        return torch.matmul(projected, prepared.transpose(1, 2))


def _dot(query_width: int, key_width: int, *, scaled: bool) -> Score:
    if query_width != key_width:
        raise ConfigError(
            f"dot-product attention needs queries and keys of one width, but they have {query_width} and {key_width}"
        )
    return DotScore(query_width, scaled=scaled)


SCORES: Mapping[str, Callable[[int, int, int], Score]] = {
    "additive": AdditiveScore,
    "dot": lambda query, key, hidden: _dot(query, key, scaled=False),
    "scaled_dot": lambda query, key, hidden: _dot(query, key, scaled=True),
    "general": lambda query, key, hidden: GeneralScore(query, key),
}
"""Name in the config -> builder from query width, key width and hidden width."""


class Attention(nn.Module):
    """Weights from a score, and the weighted sum of values.

    Args:
        score: How queries and keys are compared.
        dropout: Applied to the weights.
    """

    def __init__(self, score: Score, dropout: nn.Module) -> None:
        super().__init__()
        self.score = score
        self.dropout = dropout

    def prepare(self, keys: Tensor) -> Tensor:
        """Return what of the keys is computed once a sentence."""
        return self.score.prepare(keys)

    def forward(self, queries: Tensor, prepared: Tensor, values: Tensor, visible: Tensor | None) -> tuple[Tensor, Tensor]:
        """Attend.

        Args:
            queries: `(B, T, Q)`.
            prepared: `(B, S, …)`, the keys as `prepare` gave them.
            values: `(B, S, D)`.
            visible: Bool `(B, S)`, or `(B, T, S)` where queries differ; None: all visible.

        Returns:
            Context `(B, T, D)` and weights `(B, T, S)`, the weights before dropout.
        """
        weights = self.weigh(self.score.project(queries), prepared, visible)
        return torch.bmm(self.dropout(weights), values), weights

    def weigh(self, projected: Tensor, prepared: Tensor, visible: Tensor | None) -> Tensor:
        """Return the weights `(B, T, S)`, before dropout, of queries that came through the score's query layer."""
        if visible is not None and visible.dim() == 2:
            visible = visible.unsqueeze(1)  # (B, S) -> (B, 1, S)
        return masked_softmax(self.score.compare(projected, prepared), visible)
