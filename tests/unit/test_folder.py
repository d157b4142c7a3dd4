"""The run folder: files that appear whole or not at all, the lock, clearing, checkpoints and their index."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt_cli.config import Config
from nmt_cli.errors import NmtError, ResourceError, RunError
from nmt_cli.runs.folder import STORE, CheckpointIndex, CheckpointRecord, RunFolder, write_atomically
from nmt_cli.text.parallel import Pair
from nmt_cli.text.tokenizers import train_tokenizer


def config() -> Config:
    return Config.model_validate(
        {
            "name": "toy",
            "data": {"source": "en", "target": "fr", "train": "/a.tsv"},
            "model": {"type": "seq2seq", "hidden_size": 8},
            "training": {"max_updates": 5},
        }
    )


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "runs" / "toy")
    folder.write_manifest({"seed": 3})
    return folder


def names_in(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def failing(number: int) -> Callable[[int], None]:
    def fail(handle: int) -> None:
        raise OSError(number, os.strerror(number))

    return fail


# -- files that appear whole -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["é\r\n\u2028x\n", b"\x00\xff", ""])
def test_a_file_is_written_as_it_is(content: str | bytes, tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "a.txt"
    write_atomically(path, content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert names_in(path.parent) == ["a.txt"]
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOSPC, ResourceError, "no space left"),
        (errno.EDQUOT, ResourceError, "no space left"),
        (errno.EFBIG, ResourceError, "no space left"),
        (errno.EIO, RunError, "cannot write"),
    ],
)
def test_a_failing_write_leaves_the_old_file_and_nothing_else(
    number: int, kind: type[NmtError], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, "old")
    monkeypatch.setattr(os, "fsync", failing(number))
    with pytest.raises(kind, match=words) as caught:
        write_atomically(path, "new")
    assert str(caught.value).startswith(f"{path}: ")
    assert path.read_text() == "old"
    assert names_in(tmp_path) == ["a.txt"]


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(handle: int) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "a.txt"
    write_atomically(path, "old")
    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert names_in(tmp_path) == ["a.txt"]


def test_a_folder_that_cannot_be_made_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match=r"file/a\.txt: cannot write"):
        write_atomically(tmp_path / "file" / "a.txt", "x")


# -- opening, lock, clearing -------------------------------------------------------------------------------------------


def test_an_existing_run_is_opened(run: RunFolder) -> None:
    assert RunFolder.open(run.path).manifest() == {"format": 1, "seed": 3}


@pytest.mark.parametrize("version", [2, 99, None, "1"])
def test_a_newer_format_is_refused(version: object, run: RunFolder) -> None:
    run.write_json("manifest.json", {"format": version})
    with pytest.raises(RunError, match=f"format {version}, this one reads up to 1"):
        RunFolder.open(run.path)


def test_a_missing_run_names_the_nearest(run: RunFolder) -> None:
    (run.path.parent / "toys").mkdir()  # nearer, but no run
    with pytest.raises(RunError) as caught:
        RunFolder.open(run.path.parent / "toi")
    assert "toi: expected a run folder as `nmt train` makes it, but it does not exist" in str(caught.value)
    assert str(caught.value).endswith("; did you mean 'toy'?")


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=r"empty: .*is not a run folder: it has no manifest\.json"):
        RunFolder.open(tmp_path / "empty")


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b""])
def test_a_damaged_manifest_is_refused_by_its_name(content: bytes, run: RunFolder) -> None:
    (run.path / "manifest.json").write_bytes(content)
    with pytest.raises(RunError, match=r"manifest\.json.*damaged"):
        RunFolder.open(run.path)


def test_one_writer_at_a_time(run: RunFolder) -> None:
    with run.locked(), pytest.raises(RunError, match="another `nmt train` is at work"), RunFolder(run.path).locked():
        pass
    with RunFolder(run.path).locked():  # free again
        assert (run.path / ".lock").exists()


def test_the_lock_is_freed_by_an_error(run: RunFolder) -> None:
    def fail() -> None:
        with run.locked():
            raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        fail()
    with run.locked():
        assert run.manifest()["seed"] == 3


def fill(run: RunFolder) -> None:
    """Write one of everything that a run holds."""
    run.write_manifest({"seed": 3, "corpora": {"train": [], "valid": [], "test": []}})
    run.write_config(config(), {"name": "toy"})
    run.write_tokenizers(train_tokenizer("word", ["a"]), train_tokenizer("char", ["b"]))
    for split in ("valid", "test"):
        run.write_split(split, [Pair("a", "b", "f", 1)])
    checkpoint(run, 1)
    for name in ("metrics.jsonl", "curves.png", "train.log", "reports/test.json"):
        write_atomically(run.path / name, "x")


def test_clearing_removes_only_what_is_ours(run: RunFolder) -> None:
    fill(run)
    (run.path / "notes.txt").write_text("mine")
    (run.path / "mine").mkdir()
    (run.path / "mine" / "config.yaml").write_text("mine")
    with run.locked():
        run.clear()
    assert names_in(run.path) == ["mine", "notes.txt"]
    assert (run.path / "mine" / "config.yaml").read_text() == "mine"


def test_training_text_inside_a_run_is_nobody_elses_and_outlives_the_run(run: RunFolder, tmp_path: Path) -> None:
    fill(run)
    (run.path / STORE).mkdir()
    run.clear()
    assert names_in(run.path) == [STORE]
    run.refuse_foreign()


def test_clearing_follows_no_links(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").write_text("x")
    (run.path / "data").symlink_to(tmp_path / "elsewhere")
    run.clear()
    assert names_in(run.path) == []
    assert names_in(tmp_path / "elsewhere") == ["precious"]


def test_clearing_an_empty_folder_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    RunFolder(tmp_path / "x").clear()
    assert names_in(tmp_path / "x") == []


# -- config, tokenizers, data ------------------------------------------------------------------------------------------


def test_configs_are_read_back(run: RunFolder) -> None:
    requested = {"name": "toy", "data": {"source": "no"}, "training": {"learning_rate": 1e-4}}
    run.write_config(config(), requested)
    assert run.config() == config()
    assert run.requested() == requested


def test_two_tokenizers_or_a_shared_one(run: RunFolder) -> None:
    source, target = train_tokenizer("word", ["un deux"]), train_tokenizer("char", ["xyz"])
    run.write_tokenizers(source, target)
    again = run.tokenizers()
    assert [again[0].encode("deux"), again[1].encode("zx")] == [source.encode("deux"), target.encode("zx")]
    shutil.rmtree(run.path / "tokenizer")
    run.write_tokenizers(source, source)
    assert names_in(run.path / "tokenizer") == ["shared.json", "shared.vocab"]
    first, second = run.tokenizers()
    assert first is second
    assert first.encode("un x") == source.encode("un x")


def test_a_missing_tokenizer_is_damage(run: RunFolder) -> None:
    run.write_tokenizers(train_tokenizer("word", ["a"]), train_tokenizer("word", ["b"]))
    (run.path / "tokenizer" / "target.vocab").unlink()
    with pytest.raises(RunError, match=r"target\.vocab: .*the run folder is damaged"):
        run.tokenizers()


def test_sets_are_kept_line_by_line(run: RunFolder) -> None:
    pairs = [Pair("un\u2028x", "a", "f", 1), Pair("", "b", "f", 2), Pair("deux\ry", "", "f", 3)]
    run.write_split("valid", pairs)
    run.write_split("test2017.a", pairs[:1])
    assert run.splits() == ["test2017.a", "valid"]
    assert run.split("valid") == (["un\u2028x", "", "deux\ry"], ["a", "b", ""])
    with pytest.raises(RunError, match=r"there is no split 'tset'; this run has test2017\.a, valid"):
        run.split("tset")


# -- checkpoints -------------------------------------------------------------------------------------------------------


def checkpoint(run: RunFolder, update: int, content: str = "weights") -> Path:
    def write(folder: Path) -> None:
        (folder / "model.safetensors").write_text(f"{content} {update}")
        (folder / "training.json").write_text("{}")

    run.write_checkpoint(f"update-{update:08d}", update, write, {"loss": 1 / update})
    return run.path / "checkpoints" / f"update-{update:08d}"


def test_a_checkpoint_is_entered_with_its_hashes_and_scores(run: RunFolder) -> None:
    path = checkpoint(run, 4)
    assert names_in(path) == ["model.safetensors", "training.json"]
    assert run.index().checkpoints == {
        "update-00000004": CheckpointRecord(
            4,
            {"loss": 0.25},
            {
                "model.safetensors": hashlib.sha256(b"weights 4").hexdigest(),
                "training.json": hashlib.sha256(b"{}").hexdigest(),
            },
        )
    }
    assert names_in(run.path / "checkpoints") == ["index.json", "update-00000004"]


def test_a_checkpoint_folder_appears_whole_or_not_at_all(run: RunFolder) -> None:
    checkpoint(run, 4)
    before = run.index()
    seen: list[list[str]] = []

    def fail(folder: Path) -> None:
        (folder / "model.safetensors").write_text("half")
        seen.append([name for name in names_in(folder.parent) if not name.startswith(".")])
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ResourceError, match=r"checkpoints/update-00000008: cannot write: no space left"):
        run.write_checkpoint("update-00000008", 8, fail, {})
    assert seen == [["index.json", "update-00000004"]]  # nothing under its own name while it is written
    assert names_in(run.path / "checkpoints") == ["index.json", "update-00000004"]
    assert run.index() == before
    assert run.verified(run.checkpoint_path("4"), "model.safetensors").read_text() == "weights 4"


def test_the_same_update_again_takes_the_place_of_the_old_one(run: RunFolder) -> None:
    checkpoint(run, 4)
    path = checkpoint(run, 4, "other")
    assert run.verified(path, "model.safetensors").read_text() == "other 4"
    assert names_in(run.path / "checkpoints") == ["index.json", "update-00000004"]


def test_checkpoints_are_found_by_name_and_by_update(run: RunFolder) -> None:
    paths = [checkpoint(run, update) for update in (4, 8)]
    index = run.index()
    run.write_index(CheckpointIndex({"best": "update-00000004", "last": "update-00000008"}, index.checkpoints))
    assert [run.checkpoint_path(name) for name in ("best", "4", "last", "8", "00008")] == [
        paths[0], paths[0], paths[1], paths[1], paths[1],
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["bset", "5", "update-5", "", "-4", "../x", "²"])
def test_an_unknown_checkpoint_names_those_there_are(name: str, run: RunFolder) -> None:
    checkpoint(run, 4)
    run.write_index(CheckpointIndex({"best": "update-00000004"}, run.index().checkpoints))
    with pytest.raises(RunError, match=r"there is no checkpoint .*; this run has best, 4$"):
        run.checkpoint_path(name)


def test_a_run_without_checkpoints_says_so(run: RunFolder) -> None:
    assert run.index() == CheckpointIndex()
    with pytest.raises(RunError, match="there is no checkpoint 'best'; this run has none yet"):
        run.checkpoint_path("best")


@pytest.mark.parametrize("damage", ["cut", "changed", "missing"])
def test_a_damaged_checkpoint_names_another_one(damage: str, run: RunFolder) -> None:
    paths = [checkpoint(run, update) for update in (4, 8)]
    file = paths[1] / "model.safetensors"
    if damage == "cut":
        os.truncate(file, 3)
    elif damage == "changed":
        file.write_text("weights 9")  # of the same length
    else:
        file.unlink()
    with pytest.raises(RunError, match=r"update-00000008/model\.safetensors: .*; checkpoint 4 may still be whole$"):
        run.verified(paths[1], "model.safetensors")
    assert run.verified(paths[0], "model.safetensors").read_text() == "weights 4"


def test_a_damaged_checkpoint_without_another_says_so(run: RunFolder) -> None:
    path = checkpoint(run, 4)
    os.truncate(path / "training.json", 1)
    with pytest.raises(RunError, match="there is no other checkpoint in this run"):
        run.verified(path, "training.json")


@pytest.mark.parametrize(
    "content", ["{", "{}", "[]", '{"names": {}, "checkpoints": {"a": {"update": 1}}}', '{"names": {}, "checkpoints": []}']
)
def test_a_damaged_index_is_refused_by_its_name(content: str, run: RunFolder) -> None:
    write_atomically(run.path / "checkpoints" / "index.json", content)
    with pytest.raises(RunError, match=r"checkpoints/index\.json.*damaged"):
        run.index()


def test_old_checkpoints_and_leftovers_are_removed(run: RunFolder) -> None:
    for update in (4, 8, 12):
        checkpoint(run, update)
    names = {"best": "update-00000004", "last": "update-00000012", "averaged": "update-00000008"}
    run.write_index(CheckpointIndex(names, run.index().checkpoints))
    (run.path / "checkpoints" / ".update-00000016.abc").mkdir()  # a process was killed while it wrote
    (run.path / "checkpoints" / "mine").mkdir()
    run.name_checkpoints({"last": "update-00000012"}, keep={"update-00000004", "update-00000012"})
    assert names_in(run.path / "checkpoints") == ["index.json", "mine", "update-00000004", "update-00000012"]
    assert run.index().names == {"best": "update-00000004", "last": "update-00000012"}
    assert [record.update for record in run.index().checkpoints.values()] == [4, 12]


def test_json_is_written_for_people(run: RunFolder) -> None:
    run.write_json("x.json", {"é": [1]})
    text = (run.path / "x.json").read_text(encoding="utf-8")
    assert "é" in text
    assert text.endswith("}\n")
    assert run.read_json("x.json") == json.loads(text) == {"é": [1]}
