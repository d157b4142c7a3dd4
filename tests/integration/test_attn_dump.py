"""`nmt attn-dump`: one record a line, in order, that says the same as `nmt translate`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt_cli import load_run
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


def test_a_given_translation_is_looked_at_instead(run: Path, tmp_path: Path) -> None:
    """The model's own translation, given back, has the same maps and the same score; another one has its own rows."""
    (tmp_path / "in.txt").write_text(TEXT, encoding="utf-8")
    assert nmt("attn-dump", run, "--input", tmp_path / "in.txt", "--out", tmp_path / "own", "--beam", "3").code == 0
    own = dumped(tmp_path / "own")
    (tmp_path / "own.txt").write_text("".join(f"{record['translation']}\n" for record in own), encoding="utf-8")
    options = ["--input", str(tmp_path / "in.txt"), "--targets", str(tmp_path / "own.txt"), "--out", str(tmp_path / "given")]
    assert nmt("attn-dump", run, *options).code == 0
    for found, given in zip(own, dumped(tmp_path / "given"), strict=True):
        assert (found["forced"], given["forced"]) == (False, True)
        if found["ended"] == "eos":
            assert given["target_tokens"] == found["target_tokens"]
            assert given["score"] == pytest.approx(found["score"], abs=1e-5)
            for one, other in zip(found["maps"], given["maps"], strict=True):
                np.testing.assert_allclose(other["weights"], one["weights"], atol=1e-5)
    other = ["--text", "The cat.", "--target", "un chien noir", "--out", str(tmp_path / "other")]
    assert nmt("attn-dump", run, *other).code == 0
    (record,) = dumped(tmp_path / "other")
    assert (record["translation"], len(record["target_tokens"]), record["ended"]) == ("un chien noir", 4, "eos")


@pytest.mark.fault("PB-23")
def test_scores_are_those_of_the_search(run: Path, tmp_path: Path) -> None:
    """The forced pass gives the score that the search found; an output that was cut has as many rows as tokens."""
    options = ["--text", "I see the dog and the cat.", "--out", str(tmp_path / "out"), "--max-length", "3", "--beam", "2"]
    assert nmt("attn-dump", run, *options).code == 0
    (record,) = dumped(tmp_path / "out")
    assert (record["ended"], len(record["target_tokens"])) == ("limit", 3)
    assert all(len(one["weights"]) == 3 for one in record["maps"] if one["kind"] != "encoder")
    translator = load_run(run, beam=2)
    search = dataclasses.replace(translator.settings.search, max_length=3)
    translator.settings = dataclasses.replace(translator.settings, search=search)
    (translation,) = translator.stream(["I see the dog and the cat."])
    assert record["score"] == pytest.approx(translation.hypotheses[0].score, abs=1e-5)


def test_selected_and_averaged_maps(run: Path, tmp_path: Path) -> None:
    options = ["--text", "The cat.", "--kind", "cross", "--layer", "0", "--average", "heads,layers"]
    assert nmt("attn-dump", run, *options, "--out", tmp_path / "out", "--format", "json,npz,svg").code == 0
    (record,) = dumped(tmp_path / "out")
    assert [(one["kind"], one["layer"], one["head"]) for one in record["maps"]] == [("cross", "mean", "mean")]
    with np.load(tmp_path / "out" / "line-00001.npz", allow_pickle=False) as arrays:
        np.testing.assert_allclose(arrays["cross.mean"][0], record["maps"][0]["weights"], atol=1e-6)
    assert sorted(path.name for path in (tmp_path / "out").glob("*.svg")) == ["line-00001-cross.svg"]


def test_alignments_have_a_line_for_each_line(run: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(TEXT, encoding="utf-8")
    done = nmt("attn-dump", run, "--input", tmp_path / "in.txt", "--out", tmp_path / "out", "--format", "pharaoh,json")
    assert done.code == 0, done.err
    lines = (tmp_path / "out" / "alignment.txt").read_text(encoding="utf-8").splitlines()
    records = dumped(tmp_path / "out")
    assert len(lines) == len(records) == 4
    assert lines[1] == ""
    for line, record in zip(lines, records, strict=True):
        links = [tuple(map(int, link.split("-"))) for link in line.split()]
        outputs = [token for token in record["target_tokens"] if token != "<eos>"]
        assert [target for _, target in links] == list(range(len(outputs)))
        assert all(0 <= source < len(record["source_tokens"]) - 1 for source, _ in links)


def test_the_terminal_needs_no_folder(run: Path) -> None:
    done = nmt("attn-dump", run, "--text", "The cat.", "--format", "terminal")
    assert (done.code, done.err) == (0, "")
    assert "decoder-encoder attention, layer 0, head 0" in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_the_page_holds_all_lines(run: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(TEXT, encoding="utf-8")
    done = nmt("attn-dump", run, "--input", tmp_path / "in.txt", "--out", tmp_path / "out", "--format", "html")
    assert done.code == 0, done.err
    page = (tmp_path / "out" / "attention.html").read_text(encoding="utf-8")
    assert page.count('class="record"') == 4
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["attention.html"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--text TEXT or --input FILE"),
        (["--text", "a", "--format", "pgn"], "did you mean 'png'"),
        (["--text", "a", "--checkpoint", "x"], "there is no checkpoint"),
        (["--text", "a", "--kind", "crosss"], "did you mean 'cross'"),
        (["--text", "a", "--layer", "7"], "--layer 7:"),
        (["--text", "a", "--head", "x"], "--head: expected numbers from 0"),
        (["--text", "a", "--average", "all"], "--average: unknown value 'all'"),
        (["--text", "a", "--targets", "x"], "for --text use --target TEXT"),
        (["--input", "a", "--target", "x"], "for --input use --targets FILE"),
    ],
)
def test_mistakes_are_named(run: Path, tmp_path: Path, options: list[str], message: str) -> None:
    done = nmt("attn-dump", run, "--out", tmp_path / "out", *options)
    assert done.code in {2, 4}
    assert message in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "out").exists()
