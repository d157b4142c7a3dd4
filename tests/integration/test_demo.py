"""`nmt demo`: every demonstration writes its numbers and pictures, the same for the same seed, and says what to look at."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt_cli.cli.demo import DEMOS
from tests.integration.conftest import Done, nmt


def demo(name: str, folder: Path, *options: str) -> tuple[Done, dict[str, Any]]:
    done = nmt("demo", name, "--out", folder, *options)
    assert done.code == 0, done.err
    return done, json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(set(DEMOS) - {"complexity"}))
def test_pictures_numbers_and_text(name: str, tmp_path: Path) -> None:
    done, numbers = demo(name, tmp_path / "one")
    pictures = sorted(path.name for path in (tmp_path / "one").glob("*.png"))
    assert pictures
    assert sorted(set(re.findall(r"[\w-]+\.png", done.out))) == pictures, "the text names every picture"
    for picture in pictures:
        assert (tmp_path / "one" / picture).read_bytes().startswith(b"\x89PNG")
    assert max(map(len, done.out.splitlines())) <= 80
    assert demo(name, tmp_path / "two")[1] == numbers
    if name != "positions":  # nothing there is random
        assert demo(name, tmp_path / "three", "--seed", "2")[1] != numbers


def test_kernel_regression_learns_a_narrower_kernel(tmp_path: Path) -> None:
    done, numbers = demo("kernel-regression", tmp_path)
    assert len(numbers["losses"]) == 5
    assert numbers["losses"][-1] < numbers["losses"][0]
    assert [f"epoch {n}, loss {loss:.6f}" in done.out for n, loss in enumerate(numbers["losses"], start=1)] == [True] * 5
    assert numbers["learned_width"] == pytest.approx(1 / abs(numbers["w"]))
    assert numbers["learned_width"] < 1
    assert len(numbers["x"]) == 50
    assert numbers["x"] == sorted(numbers["x"])
    assert numbers["queries"] == pytest.approx(np.arange(0, 5, 0.1))
    assert len(set(numbers["curves"]["average"])) == 1
    for weights in numbers["weights"].values():
        np.testing.assert_allclose(np.sum(weights, axis=1), np.ones(50), atol=1e-4)
    spread = {name: np.mean(np.max(weights, axis=1)) for name, weights in numbers["weights"].items()}
    assert spread["learned width"] > spread["fixed width"]


def test_masked_softmax_by_hand(tmp_path: Path) -> None:
    _, numbers = demo("masked-softmax", tmp_path)
    rows = numbers["weights_of_0_1_2_3_by_length"]
    assert rows["0"] == [0, 0, 0, 0]
    assert rows["2"] == pytest.approx([0.268941, 0.731059, 0, 0], abs=1e-6)
    assert rows["3"] == pytest.approx([0.090031, 0.244728, 0.665241, 0], abs=1e-6)


def test_scores_by_hand_and_their_variance(tmp_path: Path) -> None:
    _, numbers = demo("scores", tmp_path)
    assert numbers["by_hand"]["scores"] == pytest.approx([0.924234, 1.367265, 0, 1.810297], abs=1e-5)
    assert numbers["by_hand"]["output"] == [pytest.approx(2.789610, abs=1e-5)]
    for context in numbers["book"].values():
        np.testing.assert_allclose(context, [[[2, 3, 4, 5]], [[10, 11, 12, 13]]], atol=1e-4)
    for row in numbers["variances"]:
        assert row["variance"] == pytest.approx(row["width"], rel=0.1)
        assert row["variance_scaled"] == pytest.approx(1, rel=0.1)


def test_positions_at_one(tmp_path: Path) -> None:
    _, numbers = demo("positions", tmp_path)
    assert numbers["encoding"]["10000"][1][6:10] == pytest.approx([0.176892, 0.984230, 0.099833, 0.995004], abs=1e-6)
    assert numbers["encoding"]["1000"][1][6:10] == pytest.approx([0.270432, 0.962739, 0.176892, 0.984230], abs=1e-6)
    assert numbers["binary"][6] == [1, 1, 0]
    assert max(numbers["largest_rotation_error"].values()) < 1e-5


def test_shapes_of_the_blocks(tmp_path: Path) -> None:
    _, numbers = demo("transformer-blocks", tmp_path)
    shapes = list(numbers["shapes"].values())
    for shape in ([2, 4, 100], [2, 3, 8], [4, 7, 16], [4, 7, 10], [4, 1, 7, 7], [2, 100, 24]):
        assert shape in shapes
    assert numbers["facts"]["parameters of multi-head attention"] == 40_000
    np.testing.assert_allclose(numbers["norms"]["layer"], [[-1, 1], [-1, 1]], atol=1e-4)
    np.testing.assert_allclose(numbers["norms"]["batch"], [[-1, -1], [1, 1]], atol=1e-4)


def test_complexity_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = {"self-attention": (8, 16, 32), "recurrence": (8, 16, 32, 64), "convolution": (8, 16, 32)}
    monkeypatch.setattr("nmt_cli.inspection.demos.complexity.LENGTHS", lengths)
    done, numbers = demo("complexity", tmp_path)
    assert {name: len(values) for name, values in numbers["seconds"].items()} == {
        name: len(values) for name, values in lengths.items()
    }
    assert all(value > 0 for values in numbers["seconds"].values() for value in values)
    assert numbers["slope_ranges"]["recurrence"] == [16, 64]
    assert "8..32" in done.out
    assert (tmp_path / "complexity-time.png").exists()


def test_an_unknown_name_is_told_the_nearest(tmp_path: Path) -> None:
    done = nmt("demo", "position", "--out", tmp_path / "out")
    assert done.code == 2
    assert "did you mean 'positions'" in done.err
    assert not (tmp_path / "out").exists()
