"""`nmt train`: what it leaves behind, the same command again, stops, and mistakes."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.numpy import load_file

from tests.integration.conftest import FIXTURES, MODELS, ROOT, nmt, write_config


def weights(run: Path, checkpoint: str = "last") -> dict[str, bytes]:
    index = json.loads((run / "checkpoints" / "index.json").read_text(encoding="utf-8"))
    arrays = load_file(run / "checkpoints" / index["names"][checkpoint] / "model.safetensors")
    return {name: array.tobytes() for name, array in arrays.items()}


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def test_what_a_run_folder_holds(run: Path) -> None:
    assert {path.name for path in run.iterdir()} >= {
        "config.yaml",
        "requested.yaml",
        "manifest.json",
        "data",
        "tokenizer",
        "checkpoints",
        "metrics.jsonl",
        "curves.png",
        "reports",
        "train.log",
    }
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["corpora"]["train"][0]["lines"] == 20
    assert manifest["finished"]["updates"] == 180
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
    report = json.loads((run / "reports" / "test.json").read_text(encoding="utf-8"))
    assert report["scores"]["bleu"]["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a")
    assert "| bleu |" in (run / "reports" / "test.md").read_text(encoding="utf-8")
    assert (run / "reports" / "test.hypotheses.txt").read_text(encoding="utf-8").count("\n") == 5
    validations = [event for event in events(run) if event["event"] == "validation"]
    assert [event["update"] for event in validations] == [90, 180]
    assert all(0 <= event["bleu"] <= 100 and event["perplexity"] > 1 for event in validations)
    index = json.loads((run / "checkpoints" / "index.json").read_text(encoding="utf-8"))
    best = min(validations, key=lambda event: event["loss"])
    assert index["names"] == {"last": "update-00000180", "best": f"update-{best['update']:08d}"}


def test_a_moved_run_folder_works_without_its_corpora(run: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    subprocess.run(["cp", "-r", run, moved], check=True)
    config = (moved / "config.yaml").read_text(encoding="utf-8").replace(str(FIXTURES), "/nowhere")
    (moved / "config.yaml").write_text(config, encoding="utf-8")
    assert nmt("translate", moved, stdin=b"I see the cat.\n").out == nmt("translate", run, stdin=b"I see the cat.\n").out
    assert nmt("evaluate", moved, "--metrics", "bleu", "--score-only").code == 0


@pytest.mark.fault("PB-26")
def test_the_same_command_again(tmp_path: Path) -> None:
    config, folder = write_config(tmp_path), tmp_path / "run"
    first = nmt("train", config, "--run-dir", folder)
    assert first.code == 0
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}
    again = nmt("train", config, "--run-dir", folder)
    assert (again.code, again.out) == (0, first.out)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.name != ".lock"} == before
    other = nmt("train", config, "--run-dir", folder, "--set", "model.width=32", "--set", "training.learning_rate=0.1")
    assert other.code == 2
    assert "model.width, training.learning_rate" in other.err
    more = nmt("train", config, "--run-dir", folder, "--set", "training.max_updates=4", "--resume")
    assert more.code == 0
    assert [event["update"] for event in events(folder) if event["event"] == "update"] == [1, 2, 3, 4]
    anew = nmt("train", config, "--run-dir", folder, "--overwrite")
    assert anew.code == 0
    assert [event["update"] for event in events(folder) if event["event"] == "update"] == [1, 2]
    assert (folder / "notes.txt").read_text(encoding="utf-8") == "mine"


def test_files_that_are_not_ours_are_safe(tmp_path: Path) -> None:
    """A folder with files of our names but without a manifest is no run: nothing in it is touched, `--overwrite` or not."""
    config, folder = write_config(tmp_path), tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "config.yaml").write_text("mine", encoding="utf-8")
    for option in ([], ["--overwrite"]):
        done = nmt("train", config, "--run-dir", folder, *option)
        assert done.code == 4
        assert "it holds config.yaml, data and no manifest.json" in done.err
        assert (folder / "config.yaml").read_text(encoding="utf-8") == "mine"


def test_a_damaged_run_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    config, folder = write_config(tmp_path), tmp_path / "run"
    assert nmt("train", config, "--run-dir", folder).code == 0
    kept = weights(folder)
    for name in ("requested.yaml", "checkpoints/index.json"):
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        done = nmt("train", config, "--run-dir", folder, "--resume")
        assert done.code == 4
        assert f"{name} is missing" in done.err
        (folder / name).write_bytes(content)
    assert weights(folder) == kept
    last = next(iter((folder / "checkpoints").glob("update-*/training.safetensors")))
    last.write_bytes(last.read_bytes()[:-1])
    raised = ["--resume", "--set", "training.max_updates=3"]
    assert nmt("train", config, "--run-dir", folder, *raised).code == 4
    assert nmt("train", config, "--run-dir", folder).code == 0, "it is still finished"


def test_an_empty_folder_of_the_user_stays(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    done = nmt("train", write_config(tmp_path), "--run-dir", tmp_path / "run", "--set", "data.max_length=1")
    assert done.code == 3
    assert list((tmp_path / "run").iterdir()) == []


def test_corpora_may_move_but_not_change(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for name in ("a", "b"):
        (tmp_path / name / "train.tsv").write_bytes((FIXTURES / "tiny.tsv").read_bytes())
    config, folder = write_config(tmp_path, data=f"train: {tmp_path}/a/train.tsv"), tmp_path / "run"
    assert nmt("train", config, "--run-dir", folder).code == 0
    moved = ["train", str(config), "--run-dir", str(folder), "--set", f"data.train={tmp_path}/b/train.tsv"]
    assert nmt(*moved).code == 0
    (tmp_path / "b" / "train.tsv").write_bytes((FIXTURES / "more.tsv").read_bytes())
    changed = nmt(*moved)
    assert changed.code == 2
    assert "data.train" in changed.err


@pytest.mark.parametrize("model", sorted(MODELS))
@pytest.mark.fault("PB-12")
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path, model: str) -> None:
    """Six updates at once and three plus three give the same weights and the same log, bit for bit."""
    config = write_config(tmp_path, model, training="max_updates: 6, validate_every: 2, save_every: 3, accumulate: 2")
    assert nmt("train", config, "--run-dir", tmp_path / "whole").code == 0
    assert nmt("train", config, "--run-dir", tmp_path / "parts", "--set", "training.max_updates=3").code == 0
    assert nmt("train", config, "--run-dir", tmp_path / "parts", "--resume").code == 0
    assert weights(tmp_path / "whole") == weights(tmp_path / "parts")
    assert len(weights(tmp_path / "whole")) > 5

    def exact(run: Path, kind: str) -> list[dict[str, Any]]:
        keys = ("update", "epoch", "loss", "learning_rate", "gradient_norm", "bleu", "accuracy")
        return [{k: e[k] for k in keys if k in e} for e in events(run) if e["event"] == kind and e["update"] != 3]

    for kind, count in (("update", 5), ("validation", 3)):
        assert exact(tmp_path / "whole", kind) == exact(tmp_path / "parts", kind)
        assert len(exact(tmp_path / "whole", kind)) == count

    def patience(run: Path) -> object:
        state = json.loads(next(iter((run / "checkpoints").glob("update-00000006/training.json"))).read_text(encoding="utf-8"))
        return state["progress"]["score_to_beat"], state["progress"]["validations_without_improvement"]

    assert patience(tmp_path / "whole") == patience(tmp_path / "parts")


def test_the_last_validation_is_in_the_last_checkpoint(tmp_path: Path) -> None:
    """Where a save is due and a validation is not, the one at the end still comes first; a worse resume keeps the best."""
    config = write_config(tmp_path, training="max_updates: 3, validate_every: 2, save_every: 3")
    folder = tmp_path / "run"
    assert nmt("train", config, "--run-dir", folder).code == 0
    index = json.loads((folder / "checkpoints" / "index.json").read_text(encoding="utf-8"))
    scores = {event["update"]: event["loss"] for event in events(folder) if event["event"] == "validation"}
    assert sorted(scores) == [2, 3]
    assert index["checkpoints"]["update-00000003"]["scores"]["loss"] == scores[3]
    raised = ["--set", "training.max_updates=5", "--resume"]
    assert nmt("train", config, "--run-dir", folder, *raised).code == 0
    index = json.loads((folder / "checkpoints" / "index.json").read_text(encoding="utf-8"))
    assert set(index["names"].values()) <= set(index["checkpoints"])
    scores = {event["update"]: event["loss"] for event in events(folder) if event["event"] == "validation"}
    assert index["names"]["best"] == f"update-{min(scores, key=lambda update: scores[update]):08d}"
    again = nmt("train", config, "--run-dir", folder, *raised)
    assert again.code == 0
    assert "nothing left to train: max_updates: 5 reached" in again.err


def test_overwriting_waits_until_the_new_run_can_begin(tmp_path: Path) -> None:
    config, folder = write_config(tmp_path), tmp_path / "run"
    assert nmt("train", config, "--run-dir", folder).code == 0
    before = weights(folder)
    assert nmt("train", config, "--run-dir", folder, "--overwrite", "--set", "data.max_length=1").code == 3
    assert weights(folder) == before
    both = nmt("train", config, "--run-dir", folder, "--overwrite", "--resume")
    assert both.code == 2
    assert "give one of them" in both.err


def test_training_goes_on_when_nobody_reads_its_log(tmp_path: Path) -> None:
    config, folder = write_config(tmp_path, training="max_updates: 5"), tmp_path / "run"
    command = f"{sys.executable} -m nmt_cli train {config} --run-dir {folder} 2>&1 >/dev/null | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0
    assert "5 updates" in (folder / "train.log").read_text(encoding="utf-8")
    assert json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["finished"]["updates"] == 5


@pytest.mark.parametrize("pieces", ["bpe", "unigram"])
@pytest.mark.fault("PB-06")
def test_more_pieces_than_the_corpus_can_fill(tmp_path: Path, pieces: str) -> None:
    config = write_config(tmp_path)
    text = config.read_text(encoding="utf-8").splitlines()
    text[1] = f"tokenizer: {{type: sentencepiece, model_type: {pieces}, vocab_size: 8000, shared: true}}"
    config.write_text("\n".join(text), encoding="utf-8")
    done = nmt("train", config, "--run-dir", tmp_path / "run", "--set", "model.tie_embeddings=all")
    assert done.code == 0, done.err
    size = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))["vocabulary"]["target"]
    assert f"asked for 8,000 pieces, got {size}" in done.err
    assert 40 < size < 500
    assert nmt("translate", tmp_path / "run", stdin=b"The cat.\n\nx\n").out.count("\n") == 3


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_the_same_command_goes_on(tmp_path: Path, number: signal.Signals, code: int) -> None:
    config, folder = write_config(tmp_path, training="max_updates: 100000, save_every: 100000"), tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "nmt_cli", "train", str(config), "--run-dir", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    metrics = folder / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert b"saved" in err
    assert b"Traceback" not in err
    done = len([event for event in events(folder) if event["event"] == "update"])
    # limits may be lowered: one more update, then the run is over
    again = nmt("train", config, "--run-dir", folder, "--set", f"training.max_updates={done + 1}")
    assert again.code == 0, again.err
    assert f"going on after update {done:,}" in again.err


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    before = sorted(tmp_path.iterdir())
    done = nmt("train", config, "--dry-run", cwd=tmp_path)
    assert done.code == 0
    assert sorted(tmp_path.iterdir()) == before
    assert "label_smoothing: 0.1" in done.out, "the effective config, defaults filled in"
    assert re.search(r"first batch: [67] sentences", done.out)
    assert "parameters:" in done.out
    shown = yaml.safe_load(done.out.split("\n\n")[0])
    assert shown["model"]["width"] == 16


def stored(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (folder / ".store").rglob("*")}


def test_dry_run_reads_what_is_stored_and_adds_nothing(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    first = nmt("train", config, "--run-dir", tmp_path / "run")
    assert first.code == 0, first.err
    before = stored(tmp_path)
    assert len(before) > 5
    for options in ([], ["--set", "data.max_length=9", "--set", "tokenizer.min_frequency=2"]):
        done = nmt("train", config, "--run-dir", tmp_path / "other", "--dry-run", *options)
        assert done.code == 0, done.err
        assert stored(tmp_path) == before


def test_a_run_needs_nothing_but_its_folder(tmp_path: Path) -> None:
    """Where nothing can be written beside the run, its text is kept in it, for a run in its place too."""
    config, folder = write_config(tmp_path), tmp_path / "out" / "run"
    folder.mkdir(parents=True)
    (folder.parent / ".store").write_text("in the way, for root too", encoding="utf-8")
    done = nmt("train", config, "--run-dir", folder)
    assert done.code == 0, done.err
    before = stored(folder)
    assert len(before) > 5
    for options in (["--dry-run"], ["--overwrite"]):
        done = nmt("train", config, "--run-dir", folder, *options)
        assert done.code == 0, done.err
        assert stored(folder) == before
    (folder / "manifest.json").unlink()
    for path in list(folder.iterdir()):
        if path.name != ".store":
            subprocess.run(["rm", "-r", path], check=True)
    assert nmt("train", config, "--run-dir", folder).code == 0, "what a run that was killed early left is no obstacle"
    assert stored(folder) == before
    (folder.parent / ".store").unlink()
    assert nmt("train", config, "--run-dir", folder, "--overwrite").code == 0
    assert not (folder.parent / ".store").exists(), "it is found there, wherever new text would go"


def test_a_folder_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    done = nmt("train", write_config(tmp_path), "--run-dir", tmp_path / "file" / "run")
    assert done.code == 4
    assert "file/run: expected a run folder that can be written" in done.err
    assert "choose another --run-dir" in done.err


@pytest.mark.fault("PB-08")
def test_empty_sides_are_dropped_and_counted(tmp_path: Path) -> None:
    """PB-08: an empty source, an empty target, both, and a line of spaces; nothing of it reaches the model."""
    train, valid = tmp_path / "train.tsv", tmp_path / "valid.tsv"
    good = (FIXTURES / "tiny.tsv").read_text(encoding="utf-8")
    train.write_text(good + "\tseul\nalone\t\n\t\n  \t \u2003\n", encoding="utf-8")
    valid.write_text("\tseul\n" + (FIXTURES / "more.tsv").read_text(encoding="utf-8"), encoding="utf-8")
    config = write_config(tmp_path, data=f"train: {train}, valid: {valid}, tests: {{test: {valid}}}")
    done = nmt("train", config, "--run-dir", tmp_path / "run")
    assert done.code == 0, done.err
    assert "dropped 4 pairs: a side without a token" in done.err
    assert (tmp_path / "run" / "reports" / "test.hypotheses.txt").read_text(encoding="utf-8").startswith("\n")


def test_sentences_beyond_learned_positions(tmp_path: Path) -> None:
    """PB-10: long training pairs are counted out, long validation and test lines are cut with a warning."""
    long = " ".join(["cat"] * 40)
    train, valid = tmp_path / "train.tsv", tmp_path / "valid.tsv"
    train.write_text((FIXTURES / "tiny.tsv").read_text(encoding="utf-8") + f"{long}\tchat\n", encoding="utf-8")
    valid.write_text((FIXTURES / "more.tsv").read_text(encoding="utf-8") + f"{long}\tchat\n", encoding="utf-8")
    config = write_config(tmp_path, data=f"train: {train}, valid: {valid}, tests: {{test: {valid}}}")
    options = ["--set", "model.positions=learned", "--set", "model.max_positions=32"]
    done = nmt("train", config, "--run-dir", tmp_path / "run", *options)
    assert done.code == 0, done.err
    assert "dropped 1 pairs: longer than 32 tokens" in done.err
    assert "line 6 has 41 tokens" in done.err
    assert nmt("translate", tmp_path / "run", stdin=f"{long}\n".encode()).out.count("\n") == 1


@pytest.mark.fault("PB-04")
def test_windows_corpora_train_the_same_model(tmp_path: Path) -> None:
    """PB-04: the same ids, losses and weights from CRLF files."""
    unix, windows = tmp_path / "unix.tsv", tmp_path / "windows.tsv"
    unix.write_bytes((FIXTURES / "tiny.tsv").read_bytes())
    windows.write_bytes(unix.read_bytes().replace(b"\n", b"\r\n"))
    for path in (unix, windows):
        config = write_config(tmp_path, data=f"train: {path}")
        assert nmt("train", config, "--run-dir", tmp_path / path.stem).code == 0
    assert weights(tmp_path / "unix") == weights(tmp_path / "windows")
    vocabulary = (tmp_path / "windows" / "tokenizer" / "target.vocab").read_bytes()
    assert b"\r" not in vocabulary


BAD_CONFIGS = {
    "unknown key": ("--set training.learning_rte=0.1", "training.learning_rte", "learning_rate"),
    "misplaced key": ("--set training.beam_size=3", "training.beam_size", "decoding"),
    "word for number": ("--set training.max_epochs=many", "training.max_epochs", "whole number"),
    "out of range": ("--set model.dropout=1.5", "model.dropout", "less than 1"),
    "wrong choice": ("--set model.type=transfomer", "model.type", "transformer"),
    "heads": ("--set model.heads=3", "width must be a multiple of heads", "16"),
    "no value": ("--set training.seed", "training.seed", "section.key=value"),
    "device": ("--device gpu", "--device", "cuda"),
}


@pytest.mark.parametrize("case", sorted(BAD_CONFIGS))
@pytest.mark.fault("PB-25")
def test_config_mistakes_stop_at_once(tmp_path: Path, case: str) -> None:
    options, where, what = BAD_CONFIGS[case]
    done = nmt("train", write_config(tmp_path), "--run-dir", tmp_path / "run", *options.split())
    assert done.code == 2
    assert where in done.err
    assert what in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "run").exists()


@pytest.mark.fault("PB-24")
def test_numbers_written_as_text_are_numbers(tmp_path: Path) -> None:
    config = write_config(tmp_path, training='learning_rate: 1e-4, batch_sentences: "5", max_updates: 2.0')
    config.write_text(
        config.read_text(encoding="utf-8").replace("batch_sentences: 7, learning_rate: 0.01, ", ""), encoding="utf-8"
    )
    done = nmt("train", config, "--dry-run")
    assert done.code == 0, done.err
    shown = yaml.safe_load(done.out.split("\n\n")[0])["training"]
    assert (shown["learning_rate"], shown["batch_sentences"], shown["max_updates"]) == (0.0001, 5, 2)


def bad_corpora(folder: Path) -> dict[str, tuple[str, list[str]]]:
    """Return case -> data section and what the message must hold."""
    files = {
        "short.fr": b"un\n",
        "two.en": b"one\ntwo\n",
        "latin.tsv": b"ok\tbon\ncaf\xe9\tnoir\n",
        "columns.tsv": b"one\tun\nno tab here\n",
        "empty.tsv": b"",
        "broken.gz": b"\x1f\x8b\x08\x00garbage",
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return {
        "two lengths": (
            f"train: {{source: {folder}/two.en, target: {folder}/short.fr}}",
            ["two.en has 2", "short.fr has 1"],
        ),
        "not UTF-8": (f"train: {folder}/latin.tsv", ["latin.tsv:2", "byte 4", "0xe9"]),
        "columns": (f"train: {folder}/columns.tsv", ["columns.tsv:2", "1 column"]),
        "empty": (f"train: {folder}/empty.tsv", ["expected sentence pairs for train"]),
        "missing": (f"train: {folder}/none.tsv", ["none.tsv", "cannot read"]),
        "damaged gzip": (f"train: {folder}/broken.gz", ["broken.gz", "damaged"]),
        "test set": (
            f"train: {FIXTURES}/tiny.tsv, tests: {{test: {folder}/columns.tsv}}",
            ["columns.tsv:2", "source<TAB>target"],
        ),
    }


@pytest.mark.parametrize("case", ["two lengths", "not UTF-8", "columns", "empty", "missing", "damaged gzip", "test set"])
@pytest.mark.fault("PB-03")
def test_corpus_mistakes_stop_before_any_work(tmp_path: Path, case: str) -> None:
    data, words = bad_corpora(tmp_path)[case]
    done = nmt("train", write_config(tmp_path, data=data), "--run-dir", tmp_path / "run", environment={"LC_ALL": "C"})
    assert done.code == 3, done.err
    for word in words:
        assert word in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "run").exists()


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str, int]]:
        return os.mkdir, (str(self.marker), 0o700)


@pytest.mark.fault("PB-28")
def test_no_checkpoint_can_run_code(runs: dict[str, Path], tmp_path: Path) -> None:
    """PB-28: pickles in the place of every checkpoint file are refused and not executed."""
    run, marker = tmp_path / "run", tmp_path / "marker"
    subprocess.run(["cp", "-r", runs["transformer"], run], check=True)
    for path in (run / "checkpoints").glob("update-*/*"):
        path.write_bytes(pickle.dumps(Payload(marker)))
    translated = nmt("translate", run, stdin=b"x\n")
    assert translated.code == 4
    assert "changed since it was written" in translated.err
    resumed = nmt("train", runs["transformer"] / "config.yaml", "--run-dir", run, "--resume", "--set", "training.max_epochs=50")
    assert resumed.code in {2, 4}
    assert not marker.exists()
    pickle.loads(pickle.dumps(Payload(marker)))  # the payload itself works
    assert marker.exists()


@pytest.mark.fault("PB-16")
def test_a_bad_rate_stops_with_the_good_checkpoints_kept(tmp_path: Path) -> None:
    """PB-16: losses that are not finite never reach the weights."""
    config = write_config(tmp_path, "seq2seq", training="max_updates: 3, save_every: 1")
    folder = tmp_path / "run"
    assert nmt("train", config, "--run-dir", folder).code == 0
    kept = weights(folder)
    raised = ["--set", "training.max_updates=60", "--resume"]
    code = (
        "import torch, sys\n"
        "from nmt_cli.training import loop\n"
        "true = loop.batch_loss\n"
        "def broken(*a, **k):\n"
        "    loss = true(*a, **k)\n"
        "    return type(loss)(loss.smoothed * float('nan'), loss.plain * float('nan'), loss.correct)\n"
        "loop.batch_loss = broken\n"
        f"sys.argv = ['nmt', 'train', {str(config)!r}, '--run-dir', {str(folder)!r}, *{raised!r}]\n"
        "from nmt_cli.cli.app import main\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 6, done.stderr
    assert "10 updates in a row" in done.stderr
    assert "Traceback" not in done.stderr
    assert weights(folder) == kept
