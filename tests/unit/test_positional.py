"""Sinusoidal and learned positions (docs/attention.md row 11)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nmt_cli.attention.positional import LearnedPositions, SinusoidalPositions, sinusoidal_encoding
from nmt_cli.errors import ConfigError, DataError
from nmt_cli.models.transformer import Embedder


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("base", "expected"),
    [(10000.0, [0.176892, 0.984230, 0.099833, 0.995004]), (1000.0, [0.270432, 0.962739, 0.176892, 0.984230])],
)
def test_hand_numbers(base: float, expected: list[float]) -> None:
    """Columns 6 to 9 of width 32 at position 1: sin and cos of base^(-6/32) and of base^(-8/32)."""
    encoding = sinusoidal_encoding(2, 32, base=base)
    angles = [base ** (-6 / 32), base ** (-8 / 32)]
    assert [f(angle) for angle in angles for f in (math.sin, math.cos)] == pytest.approx(expected, abs=1e-6)
    assert encoding[1, 6:10].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("base", [10000.0, 1000.0])
def test_equals_the_formula(base: float) -> None:
    encoding = sinusoidal_encoding(60, 10, base=base)
    assert encoding.shape == (60, 10)
    assert encoding.dtype == torch.float32
    expected = np.empty((60, 10))
    for position in range(60):
        for pair in range(5):
            angle = position / base ** (2 * pair / 10)
            expected[position, 2 * pair], expected[position, 2 * pair + 1] = math.sin(angle), math.cos(angle)
    assert np.abs(encoding.numpy() - expected).max() < 2e-5


def test_the_base_defaults_to_the_papers() -> None:
    assert torch.equal(sinusoidal_encoding(3, 8), sinusoidal_encoding(3, 8, base=10000.0))


def test_a_step_of_d_positions_is_a_rotation_of_each_pair() -> None:
    """PE(p + d) = [[cos dω, sin dω], [-sin dω, cos dω]] PE(p), whatever p."""
    width, steps = 12, 7
    encoding = sinusoidal_encoding(40, width).double()
    for pair in range(width // 2):
        turn = steps * 10000.0 ** (-2 * pair / width)
        matrix = torch.tensor([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]], dtype=torch.float64)
        here, there = encoding[:-steps, 2 * pair : 2 * pair + 2], encoding[steps:, 2 * pair : 2 * pair + 2]
        torch.testing.assert_close(here @ matrix.T, there, rtol=0, atol=1e-5)


@pytest.mark.parametrize("start", [1, 17, 3000])
def test_a_start_offset_continues_the_table(start: int) -> None:
    whole = sinusoidal_encoding(start + 4, 6)
    torch.testing.assert_close(sinusoidal_encoding(4, 6, start=start), whole[start:])


def test_there_is_no_longest_sentence() -> None:
    """Far beyond any table: position 100,000 within what float32 angles allow."""
    encoding = sinusoidal_encoding(1, 6, start=100_000)[0]
    expected = [f(100_000 / 10000 ** (2 * pair / 6)) for pair in range(3) for f in (math.sin, math.cos)]
    assert encoding.tolist() == pytest.approx(expected, abs=5e-3)


def test_odd_widths_are_refused() -> None:
    with pytest.raises(ConfigError, match="width must be even for sinusoidal positions, but is 7"):
        sinusoidal_encoding(3, 7)


def test_sinusoidal_positions_are_added() -> None:
    embedded = normal(2, 5, 6, seed=1)
    placed = SinusoidalPositions(6, base=1000.0)(embedded, 3)
    torch.testing.assert_close(placed, embedded + sinusoidal_encoding(8, 6, base=1000.0)[3:])
    assert SinusoidalPositions(6)(embedded.bfloat16()).dtype == torch.bfloat16
    assert list(SinusoidalPositions(6).parameters()) == []


def test_learned_positions_are_added() -> None:
    torch.manual_seed(1)
    positions, embedded = LearnedPositions(6, max_positions=8), normal(2, 5, 6, seed=1)
    placed = positions(embedded, 3)
    for row in range(5):
        torch.testing.assert_close(placed[:, row], embedded[:, row] + positions.table.weight[3 + row])


@pytest.mark.parametrize(("start", "length"), [(0, 9), (4, 5), (8, 1)])
@pytest.mark.fault("PB-10")
def test_a_position_beyond_the_learned_table_is_a_data_error(start: int, length: int) -> None:
    """PB-10: never an index error."""
    positions = LearnedPositions(6, max_positions=8)
    expected = rf"learned positions for 8 tokens, but a sentence has {start + length}; .*max_positions"
    with pytest.raises(DataError, match=expected):
        positions(torch.zeros(2, length, 6), start)
    assert positions(torch.zeros(2, length - 1, 6), start).shape == (2, length - 1, 6)


def test_embeddings_are_scaled_before_positions_are_added() -> None:
    torch.manual_seed(2)
    embedding = nn.Embedding(11, 6)
    ids = torch.tensor([[3, 5, 10], [0, 1, 3]])
    embedded = Embedder(embedding, SinusoidalPositions(6), nn.Identity())(ids, 2)
    expected = embedding.weight[ids] * math.sqrt(6) + sinusoidal_encoding(5, 6)[2:]
    torch.testing.assert_close(embedded, expected)


def test_dropout_comes_after_the_sum() -> None:
    class Tenfold(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 10 * x

    torch.manual_seed(3)
    embedding, ids = nn.Embedding(11, 6), torch.tensor([[3, 5, 10]])
    plain = Embedder(embedding, SinusoidalPositions(6), nn.Identity())(ids)
    torch.testing.assert_close(Embedder(embedding, SinusoidalPositions(6), Tenfold())(ids), 10 * plain)
