"""`nmt attn-dump`: one record a line, in order, that says the same as `nmt translate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.integration.conftest import nmt

TEXT = "The cat.\n\nI see the dog and the cat and the house, too.\nsee\n"


def dumped(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "attention.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("beam", ["1", "4"])
@pytest.mark.fault("PB-23")
def test_records_belong_to_lines_and_translations(run: Path, tmp_path: Path, beam: str) -> None:
    source = tmp_path / "in.txt"
    source.write_text(TEXT, encoding="utf-8")
    done = nmt("attn-dump", run, "--input", source, "--out", tmp_path / "out", "--beam", beam)
    assert (done.code, done.out) == (0, ""), done.err
    translations = nmt("translate", run, source, "--beam", beam).out.splitlines()
    records = dumped(tmp_path / "out")
    assert [record["line"] for record in records] == [1, 2, 3, 4]
    assert [record["source"] for record in records] == TEXT.splitlines()
    assert [record["translation"] for record in records] == translations
    assert records[1]["maps"] == []
    for record in (records[0], records[2], records[3]):
        assert record["source_tokens"][-1] == "<eos>"
        assert (record["target_tokens"][-1] == "<eos>") == (record["ended"] == "eos")
        assert "".join(record["translation"].split()) == "".join(t for t in record["target_tokens"] if t != "<eos>")
        assert record["maps"]
        for one in record["maps"]:
            weights = np.array(one["weights"])
            assert weights.shape == (len(one["row_tokens"]), len(one["column_tokens"]))
            assert np.abs(weights.sum(axis=1) - 1).max() < 1e-4
            assert "<pad>" not in [*one["row_tokens"], *one["column_tokens"]]


def test_all_formats_of_one_sentence(run: Path, tmp_path: Path) -> None:
    done = nmt("attn-dump", run, "--text", "I see the cat.", "--out", tmp_path / "out", "--format", "json,npz,png")
    assert done.code == 0, done.err
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    kinds = ["cross"] if "seq2seq" in run.name else ["cross", "decoder", "encoder"]
    assert names == ["attention.jsonl", *(f"line-00001-{kind}.png" for kind in kinds), "line-00001.npz"]
    with np.load(tmp_path / "out" / "line-00001.npz", allow_pickle=False) as arrays:
        first = dumped(tmp_path / "out")[0]["maps"][0]
        np.testing.assert_allclose(arrays[f"{first['kind']}.0"][0], first["weights"], atol=1e-6)
    for kind in kinds:
        assert (tmp_path / "out" / f"line-00001-{kind}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--text TEXT or --input FILE"),
        (["--text", "a", "--format", "pgn"], "did you mean 'png'"),
        (["--text", "a", "--checkpoint", "x"], "there is no checkpoint"),
    ],
)
def test_mistakes_are_named(run: Path, tmp_path: Path, options: list[str], message: str) -> None:
    done = nmt("attn-dump", run, "--out", tmp_path / "out", *options)
    assert done.code in {2, 4}
    assert message in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "out").exists()
