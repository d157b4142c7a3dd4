"""Subword pieces through `nmt train`: models that are brought along, and sampling."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sentencepiece
import yaml
from safetensors.numpy import load_file

from tests.integration.conftest import FIXTURES, nmt, write_config


def pieces_config(folder: Path, tokenizer: str, training: str = "max_updates: 2") -> Path:
    config = write_config(folder, training=training)
    lines = config.read_text(encoding="utf-8").splitlines()
    lines[1] = f"tokenizer: {{type: sentencepiece, {tokenizer}}}"
    config.write_text("\n".join(lines), encoding="utf-8")
    return config


def foreign_model(path: Path, column: int, size: int, kind: str = "bpe") -> Path:
    """Train a sentencepiece model as its own command would, with its own ids for the control symbols."""
    lines = [line.split("\t")[column] for line in (FIXTURES / "tiny.tsv").read_text(encoding="utf-8").splitlines()]
    with open(path, "wb") as stream:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(lines), model_writer=stream, model_type=kind, vocab_size=size, minloglevel=2
        )
    return path


def weights(run: Path) -> dict[str, bytes]:
    arrays = load_file(next((run / "checkpoints").glob("update-00000006/model.safetensors")))
    return {name: array.tobytes() for name, array in arrays.items()}


def test_models_that_are_brought_along(tmp_path: Path) -> None:
    """Relative paths are relative to the config; the run keeps copies and needs the files no more; they may move."""
    source, target = foreign_model(tmp_path / "en.model", 0, 60), foreign_model(tmp_path / "fr.model", 1, 80)
    config = pieces_config(tmp_path, "model_file: {source: en.model, target: fr.model}")
    done = nmt("train", config, "--run-dir", tmp_path / "run")
    assert done.code == 0, done.err
    assert json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))["vocabulary"] == {
        "source": 61,  # ours have a padding symbol
        "target": 81,
    }
    assert (tmp_path / "run" / "tokenizer" / "source.model").read_bytes() == source.read_bytes()
    moved = target.rename(tmp_path / "moved.model")
    assert nmt("translate", tmp_path / "run", stdin=b"The cat.\n").out.count("\n") == 1
    same = nmt("train", config, "--run-dir", tmp_path / "run", "--set", f"tokenizer.model_file.target={moved}")
    assert same.code == 0, same.err
    foreign_model(moved, 1, 70)
    other = nmt("train", config, "--run-dir", tmp_path / "run", "--set", f"tokenizer.model_file.target={moved}")
    assert other.code == 2
    assert "tokenizer.model_file (another model than the run's)" in other.err
    foreign_model(target, 1, 70)
    at_its_place = nmt("train", config, "--run-dir", tmp_path / "run", "--resume", "--set", "training.max_updates=3")
    assert at_its_place.code == 2
    assert "tokenizer.model_file (another model than the run's)" in at_its_place.err


def test_one_model_for_both_sides(tmp_path: Path) -> None:
    foreign_model(tmp_path / "both.model", 1, 80)
    config = pieces_config(tmp_path, "model_file: both.model, shared: true")
    done = nmt("train", config, "--run-dir", tmp_path / "run", "--set", "model.tie_embeddings=all")
    assert done.code == 0, done.err
    assert {path.name for path in (tmp_path / "run" / "tokenizer").iterdir()} == {"shared.model", "shared.json"}


@pytest.mark.parametrize(
    ("tokenizer", "code", "words"),
    [
        ("model_file: none.model", 3, ["none.model", "cannot read"]),
        ("model_file: config.yaml", 3, ["config.yaml", "expected a sentencepiece model"]),
        ("model_file: a.model, vocab_size: 90", 2, ["model_file brings its own vocab_size"]),
        ("model_file: {source: a.model, target: b.model}, shared: true", 2, ["shared: true needs one model_file"]),
        ("model_file: {source: a.model}", 2, ["needs `target` beside `source`"]),
        ("model_file: [a.model]", 2, ["tokenizer.model_file: expected a path"]),
        ("model_file: ''", 2, ["tokenizer.model_file"]),
        ("model_file: char.model, sampling: 0.1", 2, ["tokenizer.sampling: needs a BPE or unigram model"]),
        ("sampling: 1", 2, ["tokenizer.sampling: expected", "less than 1"]),
        ("type: word, sampling: 0.1", 2, ["sampling belongs to type: sentencepiece, but type is word"]),
    ],
)
def test_mistakes_stop_before_any_work(tmp_path: Path, tokenizer: str, code: int, words: list[str]) -> None:
    config = pieces_config(tmp_path, tokenizer)
    foreign_model(tmp_path / "char.model", 0, 30, "char")
    if tokenizer.startswith("type:"):
        config.write_text(config.read_text(encoding="utf-8").replace("type: sentencepiece, ", ""), encoding="utf-8")
    done = nmt("train", config, "--run-dir", tmp_path / "run")
    assert done.code == code, done.err
    for word in words:
        assert word in done.err
    assert not (tmp_path / "run").exists()


@pytest.mark.fault("PB-12")
def test_a_resumed_run_with_sampling_is_the_uninterrupted_one(tmp_path: Path) -> None:
    config = pieces_config(
        tmp_path, "vocab_size: 90, shared: true, sampling: 0.3", "max_updates: 6, validate_every: 6, save_every: 4"
    )  # three batches an epoch: it stops in the middle of the second
    other = {"OMP_NUM_THREADS": "1"}  # an interpreter of its own
    assert nmt("train", config, "--run-dir", tmp_path / "whole").code == 0
    assert nmt("train", config, "--run-dir", tmp_path / "parts", "--set", "training.max_updates=4").code == 0
    assert nmt("train", config, "--run-dir", tmp_path / "parts", "--resume", environment=other).code == 0
    assert weights(tmp_path / "whole") == weights(tmp_path / "parts")
    usual = nmt("train", config, "--run-dir", tmp_path / "usual", "--set", "tokenizer.sampling=null")
    assert usual.code == 0, usual.err
    assert weights(tmp_path / "usual") != weights(tmp_path / "whole")


def test_a_dry_run_shows_a_sampled_batch(tmp_path: Path) -> None:
    config = pieces_config(tmp_path, "vocab_size: 90, shared: true")

    def first(*options: str) -> str:
        done = nmt("train", config, "--dry-run", *options)
        assert done.code == 0, done.err
        row = next(line for line in done.out.splitlines() if "target_out" in line)
        return row.replace("<pad>", "").rstrip()

    usual, sampled = first(), first("--set", "tokenizer.sampling=0.5")
    assert usual != sampled
    assert usual.replace(" ", "") == sampled.replace(" ", "")
    assert yaml.safe_load(nmt("train", config, "--dry-run").out.split("\n\n")[0])["tokenizer"]["sampling"] is None
