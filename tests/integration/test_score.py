"""`nmt score`: what a model makes of given translations, a line out for each line in."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nmt_cli import load_run
from tests.integration.conftest import FIXTURES, ROOT, corpus_lines, nmt, write_config

SOURCES, TARGETS = corpus_lines(FIXTURES / "tiny.tsv", 0), corpus_lines(FIXTURES / "tiny.tsv", 1)


def written(path: Path, lines: list[str]) -> Path:
    """Write lines to a file and return its path."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[str | Path]:
    """Return the options that name the two sides of the fixture."""
    source, target = written(tmp_path / "in.en", list(SOURCES)), written(tmp_path / "in.fr", list(TARGETS))
    return ["--source", source, "--target", target]


def records(run: Path, *arguments: str | Path, stdin: bytes = b"") -> list[dict[str, Any]]:
    """Return the objects that `--format json` gives."""
    done = nmt("score", run, "--format", "json", *arguments, stdin=stdin)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_a_line_out_for_each_line_in_and_a_summary(run: Path, files: list[str | Path]) -> None:
    done = nmt("score", run, *files)
    assert done.code == 0, done.err
    scores = [float(line) for line in done.out.splitlines()]
    assert len(scores) == len(SOURCES)
    assert all(score < 0 for score in scores)
    found = records(run, *files)
    tokens = sum(len(record["tokens"]) for record in found)
    assert [record["log_probability"] for record in found] == pytest.approx(scores, abs=1e-5)
    (summary,) = [line for line in done.err.splitlines() if "perplexity" in line]
    assert summary.startswith("update-000")
    assert f"lines {len(SOURCES)}, tokens with end marks {tokens}, " in summary
    ((total, per_token),) = re.findall(r" log-probability (\S+), perplexity per token (\S+)$", summary)
    assert float(total) == pytest.approx(sum(scores), abs=1e-3)
    assert float(per_token) == pytest.approx(math.exp(-sum(scores) / tokens), abs=1e-3)


def test_the_fields_of_json(run: Path, files: list[str | Path]) -> None:
    for number, record in enumerate(records(run, *files), start=1):
        assert list(record) == [
            "line",
            "source",
            "target",
            "tokens",
            "log_probabilities",
            "log_probability",
            "score",
            "perplexity",
        ]
        assert (record["line"], record["source"], record["target"]) == (number, SOURCES[number - 1], TARGETS[number - 1])
        assert record["tokens"][-1] == "<eos>"
        assert len(record["tokens"]) == len(record["log_probabilities"])
        total, count = record["log_probability"], len(record["tokens"])
        assert total == pytest.approx(sum(record["log_probabilities"]), abs=1e-4)
        assert record["score"] == pytest.approx(total / (count - 1), abs=1e-5)  # alpha is 1
        assert record["perplexity"] == pytest.approx(math.exp(-total / count), rel=1e-4)


def test_a_translation_of_the_model_has_the_score_that_search_gave_it(run: Path, tmp_path: Path) -> None:
    translator = load_run(run, checkpoint="last", beam=3)
    found = [translation.hypotheses[0] for translation in translator.stream(SOURCES)]
    texts = [translator.target.decode(hypothesis.tokens) for hypothesis in found]
    target = written(tmp_path / "out.fr", texts)
    source = written(tmp_path / "in.en", list(SOURCES))
    forced = records(run, "--source", source, "--target", target, "--checkpoint", "last")
    same = [
        (hypothesis, record)
        for hypothesis, record in zip(found, forced, strict=True)
        if hypothesis.ended == "eos" and tuple(translator.target.encode(record["target"])) == hypothesis.tokens
    ]
    assert len(same) >= 15
    for hypothesis, record in same:
        assert record["score"] == pytest.approx(hypothesis.score, abs=1e-4)
        assert record["log_probability"] == pytest.approx(hypothesis.log_probability, abs=1e-4)


def test_the_score_has_the_length_penalty_of_the_run(tmp_path: Path, files: list[str | Path]) -> None:
    config = write_config(tmp_path, decoding="beam_size: 2, length_penalty: 0.5")
    assert nmt("train", config, "--run-dir", tmp_path / "run").code == 0
    for record in records(tmp_path / "run", *files):
        length = len(record["tokens"]) - 1
        assert record["score"] == pytest.approx(record["log_probability"] / length**0.5, abs=1e-5)


def test_the_perplexity_of_the_validation_set_is_that_of_training(run: Path, tmp_path: Path) -> None:
    history = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    trained = [event["perplexity"] for event in history if "perplexity" in event][-1]
    sides = [written(tmp_path / f"{column}.txt", list(corpus_lines(FIXTURES / "more.tsv", column))) for column in (0, 1)]
    done = nmt("score", run, "--source", sides[0], "--target", sides[1], "--checkpoint", "last")
    assert float(done.err.split()[-1]) == pytest.approx(trained, rel=1e-3)
    assert "scored as <unk> " in done.err


def test_batch_size_changes_nothing(run: Path, files: list[str | Path]) -> None:
    one, other = (nmt("score", run, *files, "--batch-tokens", size).out.splitlines() for size in ("1", "60"))
    assert [float(line) for line in one] == pytest.approx([float(line) for line in other], abs=1e-4)


def test_blank_lines_keep_their_place(run: Path, tmp_path: Path) -> None:
    source = written(tmp_path / "in.en", ["The cat is asleep.", "", "  ", "I see the dog."])
    target = written(tmp_path / "in.fr", ["", "", "Le chat dort.", "Je vois le chien."])
    done = nmt("score", run, "--source", source, "--target", target)
    lines = done.out.splitlines()
    assert done.code == 0
    assert (float(lines[0]) < 0, lines[1], lines[2], float(lines[3]) < 0) == (True, "0.000000", "nan", True)
    assert "line 3: the source is blank" in done.err
    assert "lines without a score 1" in done.err
    found = records(run, "--source", source, "--target", target)
    assert [record["tokens"] for record in found[:3]] == [["<eos>"], [], []]
    assert [record["log_probability"] for record in found[1:3]] == [0.0, None]
    assert [record["perplexity"] for record in found[1:3]] == [None, None]


@pytest.mark.parametrize("extra", ["source", "target"])
def test_files_of_different_length_are_refused_before_any_work(run: Path, tmp_path: Path, extra: str) -> None:
    lines = {"source": list(SOURCES), "target": list(TARGETS)}
    lines[extra].append("one more")
    paths = {side: written(tmp_path / side, texts) for side, texts in lines.items()}
    done = nmt("score", run, "--source", paths["source"], "--target", paths["target"], "--checkpoint", "none")
    assert (done.code, done.out) == (3, "")
    for side, path in paths.items():
        assert f"{path} has {len(lines[side])}" in done.err
    assert "Traceback" not in done.err


def test_standard_input(run: Path, files: list[str | Path]) -> None:
    expected = nmt("score", run, *files).out
    targets = "".join(f"{line}\n" for line in TARGETS).encode()
    assert nmt("score", run, *files[:2], "--target", "-", stdin=targets).out == expected
    sources = "".join(f"{line}\n" for line in SOURCES).encode()
    assert nmt("score", run, *files[2:], "--source", "-", stdin=sources).out == expected
    both = nmt("score", run, "--source", "-", "--target", "-")
    assert (both.code, "only one of them can be standard input" in both.err) == (2, True)
    for given in (b"Le chat dort.\n", targets + b"Encore.\n"):
        different = nmt("score", run, *files[:2], "--target", "-", stdin=given)
        assert different.code == 3
        assert f"standard input has {given.count(10)} lines and {files[1]} has {len(SOURCES)}" in different.err


def test_a_pipe_is_answered_line_by_line(run: Path, files: list[str | Path]) -> None:
    command = [sys.executable, "-m", "nmt_cli", "score", str(run), *map(str, files[:2]), "--target", "-"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in TARGETS:  # the answer must come while the pipe stays open
            process.stdin.write(f"{line}\n".encode())
            process.stdin.flush()
            assert float(process.stdout.readline()) < 0
        process.stdin.close()
        assert process.stdout.read() == b""
        assert process.wait(timeout=30) == 0


def test_named_pipes_gzip_and_windows_line_ends(run: Path, tmp_path: Path, files: list[str | Path]) -> None:
    expected = nmt("score", run, *files).out
    packed, windows = tmp_path / "in.en.gz", tmp_path / "windows.fr"
    packed.write_bytes(gzip.compress(Path(files[1]).read_bytes()))
    windows.write_bytes(b"\xef\xbb\xbf" + "".join(f"{line}\r\n" for line in TARGETS).encode())
    assert nmt("score", run, "--source", packed, "--target", windows).out == expected
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["bash", "-c", f"zcat {packed} > {pipe}"]):
        assert nmt("score", run, "--source", pipe, "--target", windows).out == expected


def test_a_file_appears_whole_or_not_at_all(run: Path, tmp_path: Path, files: list[str | Path]) -> None:
    out = tmp_path / "scores.txt"
    done = nmt("score", run, *files, "--out", out)
    assert (done.code, done.out) == (0, "")
    assert out.read_text(encoding="utf-8") == nmt("score", run, *files).out
    failed = nmt("score", run, *files[:2], "--target", "-", "--out", tmp_path / "none.txt", stdin=b"Le chat dort.\n")
    assert failed.code == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.en", "in.fr", "scores.txt"]


def test_a_source_above_the_limit_is_cut_with_a_warning(run: Path, files: list[str | Path]) -> None:
    done = nmt("score", run, *files, "--max-source-length", "6")
    assert done.code == 0
    assert done.out.count("\n") == len(SOURCES)
    assert "line 9: the source has " not in done.err  # The house is big. and an end mark
    assert "line 12: the source has 7 tokens with its end mark, more than the limit of 6; it was cut" in done.err


def test_what_is_missing_is_named(run: Path, tmp_path: Path, files: list[str | Path]) -> None:
    missing = nmt("score", run, *files[:2], "--target", tmp_path / "none.fr")
    assert (missing.code, "none.fr" in missing.err) == (3, True)
    no_run = nmt("score", tmp_path / "nothing", *files)
    assert (no_run.code, "expected a run folder" in no_run.err) == (4, True)
    checkpoint = nmt("score", run, *files, "--checkpoint", "beest")
    assert (checkpoint.code, "best, last, " in checkpoint.err) == (4, True)
    device = nmt("score", run, *files, "--device", "cuda:7")
    assert (device.code, "cuda:7" in device.err) == (2, True)
    for done in (missing, no_run, checkpoint, device):
        assert "Traceback" not in done.err
        assert done.out == ""
