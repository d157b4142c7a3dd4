"""Positions: sine waves of falling frequency, or a learned table.

Reference: Vaswani et al. 2017, section 3.5.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nmt_cli.errors import ConfigError, DataError


def sinusoidal_encoding(
    length: int, width: int, *, start: int = 0, base: float = 10000.0, device: torch.device | None = None
) -> Tensor:
    """Return PE(p, 2i) = sin(p / base^(2i/D)), PE(p, 2i+1) = cos(p / base^(2i/D)) for p = start … start + length - 1.

    Returns:
        `(length, width)` float32.

    Raises:
        ConfigError: `width` is odd.
    """
    if width % 2:
        raise ConfigError(f"width must be even for sinusoidal positions, but is {width}")
    positions = torch.arange(start, start + length, dtype=torch.float32, device=device)
    exponents = torch.arange(0, width, 2, dtype=torch.float32, device=device) / width
    angles = positions[:, None] * base**-exponents  # (T, D/2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)  # (T, D/2, 2) -> (T, D)


class SinusoidalPositions(nn.Module):
    """Adds sinusoidal positions; there is no longest sentence.

    Args:
        width: D.
        base: The slowest wave has a period of about 2π x base.
    """

    def __init__(self, width: int, *, base: float = 10000.0) -> None:
        super().__init__()
        self.width, self.base = width, base
        self._table = sinusoidal_encoding(0, width, base=base)  # grows with the sentences

    def forward(self, embedded: Tensor, start: int = 0) -> Tensor:
        """Return `(B, T, D)` plus the encoding of the positions from `start` on."""
        end, table = start + embedded.shape[1], self._table
        if end > len(table) or table.device != embedded.device:
            table = self._table = sinusoidal_encoding(2 * end, self.width, base=self.base, device=embedded.device)
        return embedded + table[start:end].to(embedded.dtype)


class LearnedPositions(nn.Module):
    """Adds a learned vector for each position.

    Args:
        width: D.
        max_positions: Size of the table.
    """

    def __init__(self, width: int, *, max_positions: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_positions, width)

    def forward(self, embedded: Tensor, start: int = 0) -> Tensor:
        """Return `(B, T, D)` plus the vectors of the positions from `start` on.

        Raises:
            DataError: A position lies beyond the table.
        """
        end = start + embedded.shape[1]
        if end > self.table.num_embeddings:
            raise DataError(
                f"this model has learned positions for {self.table.num_embeddings} tokens, but a sentence has {end}; "
                "shorten the sentence, or train with sinusoidal positions or a larger model.max_positions"
            )
        return embedded + self.table.weight[start:end]
