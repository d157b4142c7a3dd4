"""`nmt split`: one's own files into sets of the same kind."""

from __future__ import annotations

import gzip
from pathlib import Path

from nmt_cli.text.parallel import read_lines
from tests.integration.conftest import FIXTURES, nmt


def test_a_tsv_becomes_three(tmp_path: Path) -> None:
    done = nmt("split", FIXTURES / "tiny.tsv", "--out", tmp_path / "my", "--valid", "3", "--test", "4", "--seed", "5")
    assert done.code == 0, done.err
    assert "train 13, test 4, valid 3 pairs" in done.err
    sets = {name: read_lines(tmp_path / "my" / f"{name}.tsv") for name in ("train", "valid", "test")}
    assert [len(lines) for lines in sets.values()] == [13, 3, 4]
    assert sorted(line for lines in sets.values() for line in lines) == sorted(read_lines(FIXTURES / "tiny.tsv"))
    again = nmt("split", FIXTURES / "tiny.tsv", "--out", tmp_path / "my", "--valid", "3", "--test", "4")
    assert again.code == 2
    assert "exists already" in again.err


def test_two_files_keep_their_endings_and_stay_aligned(tmp_path: Path) -> None:
    rows = [line.split("\t") for line in read_lines(FIXTURES / "tiny.tsv")]
    (tmp_path / "all.en.gz").write_bytes(gzip.compress("".join(f"{row[0]}\n" for row in rows).encode()))
    (tmp_path / "all.fr").write_bytes("".join(f"{row[1]}\r\n" for row in rows).encode())
    done = nmt("split", tmp_path / "all.en.gz", tmp_path / "all.fr", "--out", tmp_path, "--valid", "0", "--test", "5")
    assert done.code == 0, done.err
    assert not (tmp_path / "valid.en").exists()
    found = [
        list(pair)
        for name in ("train", "test")
        for pair in zip(read_lines(tmp_path / f"{name}.en"), read_lines(tmp_path / f"{name}.fr"), strict=True)
    ]
    assert sorted(found) == sorted(rows)


def test_mistakes(tmp_path: Path) -> None:
    three = nmt("split", "a", "b", "c", "--out", tmp_path / "my")
    assert three.code == 2
    assert "got 3 files" in three.err
    few = nmt("split", FIXTURES / "tiny.tsv", "--out", tmp_path / "my")
    assert few.code == 3
    assert "ask for fewer" in few.err
    assert not (tmp_path / "my").exists()
