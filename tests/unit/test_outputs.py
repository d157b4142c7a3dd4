"""Where translations go: files that appear whole, devices, and files that the same job goes on with."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.cli.outputs import Parts, output
from nmt_cli.errors import ConfigError, ResourceError, RunError
from nmt_cli.runs.folder import whole_file

Opened = Callable[[Path], AbstractContextManager[Callable[[str], None]]]
JOB = {"search": {"beam": 5, "names": ["a", "b"]}, "input": "0af3"}


def names_in(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def stopped(finals: Sequence[Path], *texts: str) -> None:
    """Write texts as the job `JOB` that is stopped after the last of them; every file gets them, numbered by its place."""
    with Parts(finals, JOB) as parts:
        for lines, text in enumerate(texts, start=1):
            parts.write([f"{place}{text}\n" for place in range(len(finals))], lines, {"lines": lines, "cut": 10 * lines})


# -- files that grow ---------------------------------------------------------------------------------------------------


def test_nothing_has_its_final_name_before_the_end(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out.txt"
    with Parts([out], JOB) as parts:
        assert (parts.lines, parts.counts) == (0, {})
        parts.write(["é\r\u2028\n"], 1, {"lines": 1})
        parts.write(["b\n"], 2, {"lines": 2})
        assert names_in(out.parent) == ["out.txt.part", "out.txt.part.json"]
        assert (parts.lines, parts.counts) == (2, {"lines": 2})
        parts.finish()
    assert names_in(out.parent) == ["out.txt"]
    assert out.read_bytes() == "é\r\u2028\nb\n".encode()
    assert out.stat().st_mode & 0o777 == 0o644


def test_a_job_without_any_line_gives_an_empty_file(tmp_path: Path) -> None:
    with Parts([tmp_path / "out.txt"], JOB) as parts:
        parts.finish()
    assert names_in(tmp_path) == ["out.txt"]
    assert (tmp_path / "out.txt").read_bytes() == b""


def test_the_same_job_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    stopped([out], "é", "b")
    assert names_in(tmp_path) == ["out.txt.part", "out.txt.part.json"]
    with Parts([out], JOB) as parts:
        assert (parts.lines, parts.counts) == (2, {"lines": 2, "cut": 20})
        parts.write(["c\n"], 3, {"lines": 3, "cut": 20})
        parts.finish()
    assert out.read_text(encoding="utf-8") == "0é\n0b\nc\n"
    assert names_in(tmp_path) == ["out.txt"]


def test_a_job_stopped_twice_goes_on_twice(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    stopped([out], "a")
    with Parts([out], JOB) as parts:
        parts.write(["b\n"], 2, {})
    with Parts([out], JOB) as parts:
        assert parts.lines == 2
        parts.finish()
    assert out.read_text(encoding="utf-8") == "0a\nb\n"


def test_what_was_written_after_the_note_is_cut_off(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    stopped([out], "a", "b")
    with open(tmp_path / "out.txt.part", "ab") as part:
        part.write(b"half a li")
    with Parts([out], JOB) as parts:
        assert (tmp_path / "out.txt.part").read_bytes() == b"0a\n0b\n"
        parts.write(["c\n"], 3, {})
        parts.finish()
    assert out.read_bytes() == b"0a\n0b\nc\n"


def test_a_full_disk_leaves_what_was_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    out = tmp_path / "out.txt"
    with Parts([out], JOB) as parts:
        parts.write(["a\n"], 1, {"lines": 1})
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(ResourceError, match=r"out\.txt\.part: cannot write: no space"):
            parts.write(["b\n"], 2, {"lines": 2})
    monkeypatch.undo()
    with Parts([out], JOB) as parts:
        assert (parts.lines, parts.counts) == (1, {"lines": 1})
        assert (tmp_path / "out.txt.part").read_bytes() == b"a\n"


def anew(finals: Sequence[Path], job: Mapping[str, Any]) -> None:
    """Check that a job starts anew and that nothing of an earlier one is in what it writes."""
    with Parts(finals, job) as parts:
        assert (parts.lines, parts.counts) == (0, {})
        assert all(part.read_bytes() == b"" for part in finals[0].parent.glob("*.part"))
        parts.write(["new\n"] * len(finals), 1, {})
        parts.finish()
    assert [final.read_bytes() for final in finals] == [b"new\n"] * len(finals)
    assert names_in(finals[0].parent) == sorted(final.name for final in finals)


@pytest.mark.parametrize(
    "job",
    [
        {**JOB, "input": "0af4"},
        {**JOB, "search": {"beam": 4, "names": ["a", "b"]}},
        {**JOB, "search": {"beam": 5, "names": ["b", "a"]}},
        {**JOB, "format": "jsonl"},
        {"input": "0af3"},
    ],
)
def test_another_job_starts_anew(tmp_path: Path, job: dict[str, Any]) -> None:
    stopped([tmp_path / "out.txt"], "a", "b")
    anew([tmp_path / "out.txt"], job)


def test_another_job_takes_its_place(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    stopped([out], "a", "b")
    with Parts([out], {"other": 1}) as parts:
        parts.write(["o\n"], 7, {})
    with Parts([out], JOB) as parts:
        assert parts.lines == 0
    stopped([out], "a")
    with Parts([out], {"other": 1}) as parts:
        assert parts.lines == 0


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"3",
        b'{"job": null, "lines": 1, "bytes": [2], "counts": {}}',
        json.dumps({"job": JOB, "lines": 1, "counts": {}}).encode(),
        json.dumps({"job": JOB, "lines": 1, "bytes": [], "counts": {}}).encode(),
        json.dumps({"job": JOB, "lines": 1, "bytes": [2, 2], "counts": {}}).encode(),
        json.dumps({"job": JOB, "lines": 1, "bytes": ["2"], "counts": {}}).encode(),
        json.dumps({"job": JOB, "bytes": [2], "counts": {}}).encode(),
        json.dumps({"job": JOB, "lines": 1, "bytes": [2]}).encode(),
        json.dumps({"job": JOB, "lines": 1, "bytes": [4], "counts": {}}).encode(),  # more than there are
    ],
)
def test_a_damaged_note_starts_anew(tmp_path: Path, note: bytes) -> None:
    stopped([tmp_path / "out.txt"], "a")
    assert (tmp_path / "out.txt.part").stat().st_size == 3
    (tmp_path / "out.txt.part.json").write_bytes(note)
    anew([tmp_path / "out.txt"], JOB)


@pytest.mark.parametrize("size", [0, 5, None])
def test_a_part_that_is_cut_short_or_gone_starts_anew(tmp_path: Path, size: int | None) -> None:
    stopped([tmp_path / "out.txt"], "a", "b")
    if size is None:
        (tmp_path / "out.txt.part").unlink()
    else:
        os.truncate(tmp_path / "out.txt.part", size)
    anew([tmp_path / "out.txt"], JOB)


# -- two files in step -------------------------------------------------------------------------------------------------


def test_two_files_go_on_together(tmp_path: Path) -> None:
    out, links = tmp_path / "out.txt", tmp_path / "links.txt"
    stopped([out, links], "a", "bb")
    with open(tmp_path / "out.txt.part", "ab") as part:  # stopped between the two
        part.write(b"0c\n")
    with Parts([out, links], JOB) as parts:
        assert parts.lines == 2
        parts.write(["c\n", "d\n"], 3, {})
        assert names_in(tmp_path) == ["links.txt.part", "out.txt.part", "out.txt.part.json"]
        parts.finish()
    assert out.read_bytes() == b"0a\n0bb\nc\n"
    assert links.read_bytes() == b"1a\n1bb\nd\n"
    assert names_in(tmp_path) == ["links.txt", "out.txt"]


@pytest.mark.parametrize("damaged", ["out.txt.part", "links.txt.part"])
def test_two_files_of_which_one_is_cut_short_start_anew(tmp_path: Path, damaged: str) -> None:
    finals = [tmp_path / "out.txt", tmp_path / "links.txt"]
    stopped(finals, "a", "b")
    os.truncate(tmp_path / damaged, 5)
    anew(finals, JOB)


def test_a_second_file_that_was_not_asked_for_before_starts_anew(tmp_path: Path) -> None:
    stopped([tmp_path / "out.txt"], "a")
    anew([tmp_path / "out.txt", tmp_path / "links.txt"], JOB)


# -- the end of it -----------------------------------------------------------------------------------------------------


def test_an_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    out.write_text("old\n", encoding="utf-8")
    stopped([out], "a")
    assert out.read_text(encoding="utf-8") == "old\n"
    with Parts([out], JOB) as parts:
        parts.finish()
    assert out.read_text(encoding="utf-8") == "0a\n"


def test_to_remove_leaves_nothing_but_the_old_file(tmp_path: Path) -> None:
    finals = [tmp_path / "out.txt", tmp_path / "links.txt"]
    finals[0].write_text("old\n", encoding="utf-8")
    with Parts(finals, JOB) as parts:
        parts.write(["a\n", "b\n"], 1, {})
        parts.remove()
    assert names_in(tmp_path) == ["out.txt"]
    assert finals[0].read_text(encoding="utf-8") == "old\n"


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_its_target_is_written(tmp_path: Path, exists: bool) -> None:
    real, link = tmp_path / "real" / "real.txt", tmp_path / "link.txt"
    real.parent.mkdir()
    if exists:
        real.write_text("old\n", encoding="utf-8")
    link.symlink_to(real)
    stopped([link], "a")
    assert names_in(real.parent) == [*(["real.txt"] if exists else []), "real.txt.part", "real.txt.part.json"]
    with Parts([link], JOB) as parts:
        assert parts.lines == 1
        parts.finish()
    assert link.is_symlink()
    assert real.read_text(encoding="utf-8") == "0a\n"
    assert (names_in(tmp_path), names_in(real.parent)) == (["link.txt", "real"], ["real.txt"])


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(RunError, match=r"out\.txt\.part: cannot write: "), Parts([tmp_path / "file" / "out.txt"], JOB):
        pass


def test_two_jobs_do_not_write_one_file(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    with Parts([out], JOB) as parts:
        parts.write(["a\n"], 1, {})
        with pytest.raises(RunError, match=r"out\.txt\.part: another `nmt translate`"), Parts([out], {"other": 1}):
            pass
        parts.write(["b\n"], 2, {})
        parts.finish()
    assert out.read_bytes() == b"a\nb\n"
    assert names_in(tmp_path) == ["out.txt"]
    with Parts([out], {"other": 1}) as parts:
        assert parts.lines == 0
    assert out.read_bytes() == b"a\nb\n"


# -- one sitting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opened", [output, whole_file])
def test_a_file_appears_whole(tmp_path: Path, opened: Opened) -> None:
    out = tmp_path / "new" / "out.txt"
    with opened(out) as write:
        write("é\r\u2028\n")
        assert not out.exists()
        write("b\n")
    assert out.read_bytes() == "é\r\u2028\nb\n".encode()
    assert names_in(out.parent) == ["out.txt"]
    assert out.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("error", [ConfigError("no"), KeyboardInterrupt(), OSError("no")])
@pytest.mark.parametrize("old", [True, False])
def test_or_not_at_all(tmp_path: Path, error: BaseException, old: bool) -> None:
    out = tmp_path / "out.txt"
    if old:
        out.write_text("old\n", encoding="utf-8")

    def fail() -> None:
        with output(out) as write:
            write("a\n")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert names_in(tmp_path) == (["out.txt"] if old else [])
    assert not old or out.read_text(encoding="utf-8") == "old\n"


def test_a_link_to_a_whole_file_stays(tmp_path: Path) -> None:
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    with output(tmp_path / "link.txt") as write:
        write("a\n")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text(encoding="utf-8") == "a\n"


def test_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    with output(None) as write:
        write("é\n")
        assert capsys.readouterr().out == "é\n"


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it is a folder"), output(tmp_path):
        pass
    assert names_in(tmp_path) == []


def test_a_device_stays_a_device() -> None:
    with output(Path("/dev/null")) as write:
        write("a\n")
    assert Path("/dev/null").is_char_device()


def test_a_full_device_is_told() -> None:
    def fill() -> None:
        with output(Path("/dev/full")) as write:
            write("a\n")

    with pytest.raises(ResourceError, match="/dev/full: cannot write: no space left"):
        fill()


def test_a_named_pipe_is_answered_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with output(pipe) as write:
            write("é\n")
            assert os.read(reader, 100) == "é\n".encode()
            write("b\n")
            assert os.read(reader, 100) == b"b\n"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
