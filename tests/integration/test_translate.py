"""`nmt translate`: N lines in, N lines out, whatever the lines hold."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from nmt_cli import load_run
from tests.integration.conftest import FIXTURES, ROOT, corpus_lines, nmt


def test_the_model_has_learned_its_training_lines(run: Path) -> None:
    sources, targets = corpus_lines(FIXTURES / "tiny.tsv", 0), corpus_lines(FIXTURES / "tiny.tsv", 1)
    done = nmt("translate", run, "--checkpoint", "last", stdin="\n".join(sources).encode())
    right = sum(line == target for line, target in zip(done.out.split("\n"), targets, strict=False))
    assert right >= 15, done.out  # plain text: marks and elisions written as in the corpus


SEPARATORS = ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r", "\u00a0", "\u202f", "\u3000"]


@pytest.mark.fault("PB-01")
def test_only_a_newline_ends_a_line(run: Path) -> None:
    text = "".join(f"the cat{separator}is asleep.\n" for separator in SEPARATORS)
    done = nmt("translate", run, stdin=text.encode())
    lines = done.out.split("\n")
    assert done.code == 0
    assert lines.pop() == ""
    assert len(lines) == len(SEPARATORS)
    assert len(set(lines)) == 1, "every separator is white space inside the sentence"


@pytest.mark.fault("PB-18")
def test_blank_lines_keep_their_place(run: Path) -> None:
    done = nmt("translate", run, "--batch-sentences", "4", stdin=b"The cat is asleep.\n\n  \n\t\nI see the dog.\n\n")
    lines = done.out.split("\n")
    assert len(lines) == 7
    assert lines[-1] == ""
    assert [bool(line) for line in lines[:6]] == [True, False, False, False, True, False]


@pytest.mark.fault("PB-04")
def test_a_last_line_without_newline_and_windows_line_ends(run: Path) -> None:
    unix = nmt("translate", run, stdin=b"The cat is asleep.\nI see the dog.")
    windows = nmt("translate", run, stdin=b"\xef\xbb\xbfThe cat is asleep.\r\nI see the dog.\r\n")
    assert unix.out.count("\n") == 2
    assert windows.out == unix.out


@pytest.mark.parametrize("beam", ["1", "4"])
@pytest.mark.fault("PB-17")
def test_batch_size_and_order_change_nothing(run: Path, tmp_path: Path, beam: str) -> None:
    words = ["the", "cat", "dog", "eats", "sees", "bread", "fish", "a", "house", "is", "big", "small"]
    lines = [" ".join(words[(i * 7 + j) % len(words)] for j in range(1 + (i * 5) % 23)) for i in range(20)]
    source = tmp_path / "in.txt"
    source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    outputs = [nmt("translate", run, source, "--beam", beam, "--batch-sentences", size).out for size in ("1", "7", "20")]
    assert outputs[0] == outputs[1] == outputs[2]
    source.write_text("".join(f"{line}\n" for line in reversed(lines)), encoding="utf-8")
    backwards = nmt("translate", run, source, "--beam", beam, "--batch-sentences", "7").out
    assert backwards.splitlines() == outputs[0].splitlines()[::-1]


@pytest.mark.fault("PB-19")
def test_a_line_above_the_limit_is_cut_with_a_warning(run: Path) -> None:
    lines = [b"The cat is asleep."] * 4 + [b"cat " * 5000] + [b"The cat is asleep."] * 5
    done = nmt("translate", run, stdin=b"\n".join(lines))
    assert done.code == 0
    assert done.out.count("\n") == 10
    assert "line 5 has 5001 tokens" in done.err
    assert "1024" in done.err
    error = nmt("translate", run, "--long-lines", "error", stdin=b"\n".join(lines))
    assert error.code == 3
    assert "line 5" in error.err
    assert "Traceback" not in error.err


@pytest.mark.fault("PB-20")
def test_a_pipe_is_answered_line_by_line(run: Path) -> None:
    command = [sys.executable, "-m", "nmt_cli", "translate", str(run)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(3):  # the answer must come while the pipe stays open
            process.stdin.write(b"The cat is asleep.\n")
            process.stdin.flush()
            assert process.stdout.readline().endswith(b"\n")
        process.stdin.close()
        assert process.stdout.read() == b""
        assert process.wait(timeout=30) == 0


@pytest.mark.fault("PB-20")
def test_a_closed_reader_ends_quietly(run: Path, tmp_path: Path) -> None:
    source = tmp_path / "many.txt"
    source.write_text("The cat is asleep.\n" * 9000, encoding="utf-8")
    command = f"{sys.executable} -m nmt_cli translate {run} {source} --beam 1 | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0
    assert done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.fault("PB-21")
def test_output_is_utf8_in_any_locale_and_nothing_but_translations(run: Path) -> None:
    environment = {"LC_ALL": "C", "PYTHONIOENCODING": "", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    plain = nmt("translate", run, stdin="I like the bird, Zoé.\n".encode())
    bare = nmt("translate", run, stdin="I like the bird, Zoé.\n".encode(), environment=environment)
    assert bare.out == plain.out
    assert bare.out.count("\n") == 1


@pytest.mark.fault("PB-03")
def test_bytes_that_are_not_utf8(run: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_bytes(b"The cat is asleep.\ncaf\xe9 noir\n")
    done = nmt("translate", run, source, "--out", out)
    assert done.code == 3
    assert f"{source}:2: expected UTF-8 text, but byte 4 is 0xe9" in done.err
    assert not out.exists()
    assert list(tmp_path.iterdir()) == [source], "nothing half-written"
    done = nmt("translate", run, source, "--out", out, "--invalid-utf8", "replace")
    assert done.code == 0
    assert f"{source}:2" in done.err
    assert out.read_text(encoding="utf-8").count("\n") == 2


@pytest.mark.fault("PB-07")
def test_control_symbols_in_the_text(run: Path) -> None:
    done = nmt("translate", run, stdin=b"press </s> to stop <pad> <unk> now <bos> <eos>\n<eos>\n")
    assert done.code == 0
    assert done.out.count("\n") == 2
    assert "<" not in done.out


def test_files_gzip_and_python(run: Path, tmp_path: Path) -> None:
    lines = corpus_lines(FIXTURES / "more.tsv", 0)
    plain, packed = tmp_path / "in.txt", tmp_path / "in.gz"
    plain.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    expected = nmt("translate", run, plain).out
    assert nmt("translate", run, packed).out == expected
    assert load_run(run).translate(lines) == expected.splitlines()


def test_what_is_missing_is_named(run: Path, tmp_path: Path) -> None:
    missing = nmt("translate", run, tmp_path / "none.txt")
    assert (missing.code, "none.txt" in missing.err) == (3, True)
    no_run = nmt("translate", tmp_path / "nothing")
    assert (no_run.code, "expected a run folder" in no_run.err) == (4, True)
    checkpoint = nmt("translate", run, "--checkpoint", "beest", stdin=b"x\n")
    assert checkpoint.code == 4
    assert "best, last, " in checkpoint.err
    device = nmt("translate", run, "--device", "cuda:7", stdin=b"x\n")
    assert (device.code, "cuda:7" in device.err) == (2, True)
    for done in (missing, no_run, checkpoint, device):
        assert "Traceback" not in done.err
        assert done.out == ""


def test_where_translations_may_go(run: Path, tmp_path: Path) -> None:
    folder = nmt("translate", run, "--out", tmp_path, stdin=b"The cat.\n")
    assert (folder.code, "it is a folder" in folder.err) == (2, True)
    device = nmt("translate", run, "--out", "/dev/null", stdin=b"The cat.\n")
    assert (device.code, device.out) == (0, "")
    assert Path("/dev/null").is_char_device()
    (tmp_path / "real.txt").write_text("old", encoding="utf-8")
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    assert nmt("translate", run, "--out", tmp_path / "link.txt", stdin=b"The cat.\n").code == 0
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text(encoding="utf-8").count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.txt", "real.txt"]


def test_a_named_pipe_is_a_file_too(run: Path) -> None:
    command = f"{sys.executable} -m nmt_cli translate {run} <(printf 'The cat.\\nThe dog.\\n')"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.count("\n") == 2
