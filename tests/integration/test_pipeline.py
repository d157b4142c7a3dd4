"""`nmt translate` in a pipeline: formats, n-best lists, sampling, constraints, ensembles, many files, jobs that go on."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import nmt_cli.cli.attention
import nmt_cli.cli.inputs as inputs
import nmt_cli.cli.torch_loading  # noqa: F401 - so that forks find them imported
from nmt_cli.cli.outputs import Parts
from nmt_cli.decoding import translator as translator_module
from nmt_cli.errors import DataError
from nmt_cli.runs.folder import RunFolder
from tests.integration.conftest import (
    FIXTURES,
    ROOT,
    Done,
    _run_and_leave,
    corpus_lines,
    nmt,
    write_config,
)

SOURCES = list(corpus_lines(FIXTURES / "tiny.tsv", 0))
ODD = ["The cat is asleep.", "", "I see\tthe\u2028dog.", " \t ", 'zebra {quagga} \\ "okapi"', "The house"]
SUMMARY = re.compile(
    r"(?P<lines>[\d,]+) lines? in \S+ \([\d,.]+ a second\): (?P<cut>\d+) cut or split, (?P<limit>\d+) hit the length limit, "
    r"(?P<loops>\d+) went into a loop"
)


def text_of(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def written(path: Path, lines: Sequence[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text_of(lines), encoding="utf-8", newline="\n")
    return path


def names_in(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def translated(run: Path, lines: Sequence[str], *options: str | Path) -> list[str]:
    """Return the lines on stdout for lines on stdin."""
    done = nmt("translate", run, *options, stdin=text_of(lines).encode())
    assert done.code == 0, done.err
    *found, end = done.out.split("\n")
    assert end == ""
    return found


def records(run: Path, lines: Sequence[str], *options: str | Path) -> list[dict[str, Any]]:
    """Return the objects of `--format jsonl` for lines on stdin."""
    return [json.loads(line) for line in translated(run, lines, "--format", "jsonl", *options)]


def words(record: Mapping[str, Any]) -> list[str]:
    return [token for token in record["tokens"] if token != "<eos>"]


def summary(done: Done) -> dict[str, int]:
    """Return the numbers of the last line on stderr."""
    found = SUMMARY.search(done.err.splitlines()[-1])
    assert found, done.err
    return {name: int(number.replace(",", "")) for name, number in found.groupdict().items()}


# -- formats -----------------------------------------------------------------------------------------------------------


@pytest.mark.fault("PB-18")
def test_json_lines_tell_how_the_text_came_about(run: Path) -> None:
    plain, found = translated(run, ODD), records(run, ODD)
    target = RunFolder.open(run).tokenizers()[1]
    assert [record["line"] for record in found] == [1, 2, 3, 4, 5, 6]
    assert [record["source"] for record in found] == ODD
    assert [record["translation"] for record in found] == plain
    for record, source in zip(found, ODD, strict=True):
        assert "n_best" not in record
        assert len(record["log_probabilities"]) == len(record["tokens"])
        if not source.strip():
            assert (record["tokens"], record["score"], record["ended"], record["translation"]) == ([], None, None, "")
            continue
        assert record["tokens"].count("<eos>") == (record["ended"] == "eos")
        assert target.decode(target.vocabulary.ids(words(record))) == record["translation"]
        assert record["score"] == pytest.approx(sum(record["log_probabilities"]) / max(1, len(words(record))), abs=1e-5)


@pytest.mark.fault("PB-18")
def test_columns_hold_what_json_lines_hold(run: Path) -> None:
    rows = [row.split("\t") for row in translated(run, ODD, "--format", "tsv")]
    found = records(run, ODD)
    assert [row[:2] for row in rows] == [[str(record["line"]), "1"] for record in found]
    assert [row[2] for row in rows] == ["" if record["score"] is None else f"{record['score']:.6f}" for record in found]
    assert [row[3] for row in rows] == [record["ended"] or "" for record in found]
    assert [row[4] for row in rows] == [source.replace("\t", " ") for source in ODD]
    assert [row[5:] for row in rows] == [[record["translation"]] for record in found]


def test_the_best_few_are_in_the_order_of_their_scores(run: Path) -> None:
    lines = ["The cat is asleep.", "", "Do you see the house?"]
    plain = translated(run, lines, "--beam", "4")
    found = records(run, lines, "--beam", "4", "--n-best", "3")
    assert [record["translation"] for record in found] == plain
    assert [len(record["n_best"]) for record in found] == [3, 0, 3]
    for record in (found[0], found[2]):
        scores = [few["score"] for few in record["n_best"]]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(few["tokens"]) for few in record["n_best"]}) == 3
        assert record["n_best"][0] == {name: record[name] for name in record["n_best"][0]}
    rows = [row.split("\t") for row in translated(run, lines, "--beam", "4", "--n-best", "3", "--format", "tsv")]
    assert [row[:2] for row in rows] == [["1", "1"], ["1", "2"], ["1", "3"], ["2", "1"], ["3", "1"], ["3", "2"], ["3", "3"]]
    assert [row[5] for row in rows if row[4]] == [few["translation"] for record in found for few in record["n_best"]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--n-best", "2"], "--n-best does not go with --format text"),
        (["--n-best", "9", "--format", "tsv"], "--n-best 9 needs a beam of that size or more, but it is 2"),
        (["--n-best", "2", "--format", "tsv", "--long-lines", "split"], "--n-best does not go with --long-lines split"),
        (["--sample", "--beam", "2"], "--beam searches and --sample draws"),
        (["--top-k", "2"], "--top-k says how to draw translations at random; add --sample"),
        (["--min-length", "4", "--max-length", "4"], "--min-length 4 leaves no room below --max-length 4"),
        (["--alignments", "links.txt", "--long-lines", "split"], "--alignments does not go with --long-lines split"),
        (["--replace-unknown", "--ensemble", "other"], "--replace-unknown reads the attention of one model"),
    ],
)
def test_options_that_do_not_go_together(runs: dict[str, Path], tmp_path: Path, options: list[str], message: str) -> None:
    done = nmt("translate", runs["seq2seq"], *options, stdin=b"a\n", cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "Traceback" not in done.err
    assert names_in(tmp_path) == []


@pytest.mark.fault("PB-17")
@pytest.mark.parametrize("beam", ["1", "5"])
def test_scores_do_not_depend_on_the_batch(run: Path, beam: str) -> None:
    known = " ".join(SOURCES).split()
    lines = [" ".join(known[(7 * i + j) % len(known)] for j in range(1 + (11 * i) % 30)) for i in range(20)]
    assert {1, 30} <= {len(line.split()) for line in lines}
    one, *others = [records(run, lines, "--beam", beam, "--batch-sentences", size) for size in ("1", "7", "20")]
    others.append(records(run, lines[::-1], "--beam", beam, "--batch-sentences", "7")[::-1])
    for other in others:
        assert [record["score"] for record in other] == pytest.approx([record["score"] for record in one], abs=1e-4)
        assert [record["translation"] for record in other] == [record["translation"] for record in one]


# -- sampling ----------------------------------------------------------------------------------------------------------


DRAW = ("--sample", "--temperature", "2", "--seed", "3")


@pytest.mark.fault("PB-17")
def test_what_is_drawn_depends_on_seed_and_line_number_alone(run: Path) -> None:
    lines = SOURCES[:8]
    drawn = translated(run, lines, *DRAW)
    for size in ("1", "3", "8"):
        assert translated(run, lines, *DRAW, "--batch-sentences", size) == drawn
    others = [line if number % 2 else f"{line} and the small dog, too" for number, line in enumerate(lines)]
    assert translated(run, others, *DRAW)[1::2] == drawn[1::2]
    assert translated(run, lines, *DRAW[:-1], "4") != drawn
    same = translated(run, lines[:1] * 4, *DRAW)
    assert len(set(same)) > 1, "the same line is drawn anew at each place"


def test_drawing_among_the_most_probable_alone_is_greedy_search(run: Path) -> None:
    greedy = translated(run, SOURCES[:8], "--beam", "1")
    assert translated(run, SOURCES[:8], *DRAW, "--top-k", "1") == greedy
    assert translated(run, SOURCES[:8], *DRAW, "--top-p", "0.000001") == greedy
    assert translated(run, SOURCES[:8], *DRAW, "--top-p", "0") == greedy


def test_the_best_few_are_as_many_draws(run: Path) -> None:
    found = records(run, [SOURCES[0], ""], *DRAW, "--n-best", "5")
    scores = [few["score"] for few in found[0]["n_best"]]
    assert len(scores) == 5
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) > 1
    assert found[0]["translation"] == found[0]["n_best"][0]["translation"]
    assert found[1]["n_best"] == []
    assert records(run, [SOURCES[0], ""], *DRAW, "--n-best", "5", "--batch-sentences", "1") == found


# -- what a translation must and may not hold --------------------------------------------------------------------------


def test_shortest_and_longest(run: Path) -> None:
    usual = [len(words(record)) for record in records(run, SOURCES[:6])]
    assert min(usual) < 9
    assert max(usual) > 2
    assert all(len(words(record)) >= 9 for record in records(run, SOURCES[:6], "--min-length", "9"))
    for record in records(run, SOURCES[:6], "--max-length", "2"):
        assert len(record["tokens"]) <= 2
        assert record["ended"] == ("eos" if "<eos>" in record["tokens"] else "limit")


def repeated(tokens: Sequence[str], size: int) -> bool:
    found = [tuple(tokens[start : start + size]) for start in range(len(tokens) - size + 1)]
    return len(set(found)) < len(found)


@pytest.mark.parametrize("size", [1, 2])
def test_no_ngram_comes_twice(run: Path, size: int) -> None:
    options = ("--min-length", "16", "--max-length", "20")
    assert any(repeated(words(record), size) for record in records(run, SOURCES[:6], *options))
    found = records(run, SOURCES[:6], *options, "--no-repeat-ngram", str(size))
    assert all(len(words(record)) >= 16 for record in found)
    assert not any(repeated(words(record), size) for record in found)


def test_prefixes_are_kept(run: Path, tmp_path: Path) -> None:
    lines = ["The cat is asleep.", "We see the house.", "", "I see the dog.", "The dog is small."]
    begin = ["Elle", "", "Le", "Je vois la maison", "Le chat est"]
    plain = translated(run, lines)
    assert not plain[0].startswith("Elle")
    file = written(tmp_path / "begin.txt", begin)
    found = translated(run, lines, "--prefixes", file)
    assert [line[: len(prefix)] for line, prefix in zip(found, begin, strict=True)] == ["Elle", "", "", *begin[3:]]
    assert (found[1], found[2]) == (plain[1], "")
    assert translated(run, lines, "--prefixes", file, "--batch-sentences", "1") == found
    assert translated(run, lines, "--prefixes", file, "--max-length", "2", "--beam", "1")[3].startswith("Je vois la maison")


@pytest.mark.fault("PB-07")
def test_a_prefix_that_the_model_does_not_know_is_kept_too(run: Path, tmp_path: Path) -> None:
    file = written(tmp_path / "begin.txt", ["Zoé <unk>", "L'okapi"])
    found = translated(run, SOURCES[:2], "--prefixes", file)
    assert found[0].startswith("Zoé <unk>")
    assert found[1].startswith("L'okapi")
    assert "<unk>" not in found[1]


@pytest.mark.fault("PB-02")
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("where", ["pipe", "file"])
def test_prefixes_must_be_as_many_as_lines(runs: dict[str, Path], tmp_path: Path, count: int, where: str) -> None:
    source, out = written(tmp_path / "in.txt", SOURCES[:3]), tmp_path / "out.txt"
    file = written(tmp_path / "begin.txt", ["Le"] * count)
    arguments: list[str | Path] = ["translate", runs["seq2seq"], "--prefixes", file, "--out", out]
    done = nmt(*arguments, stdin=source.read_bytes()) if where == "pipe" else nmt(*arguments, source)
    assert done.code == 3
    assert f"{file}: expected a prefix for each line of input, but it " in done.err
    assert names_in(tmp_path) == ["begin.txt", "in.txt"]


@pytest.mark.parametrize("out", [[], ["--out", "out.txt"]])
def test_prefixes_that_are_not_there_are_named(runs: dict[str, Path], tmp_path: Path, out: list[str]) -> None:
    source = written(tmp_path / "in.txt", SOURCES[:3])
    done = nmt("translate", runs["seq2seq"], source, "--prefixes", "none.txt", *out, cwd=tmp_path)
    assert (done.code, done.out) == (3, ""), done.err
    assert "none.txt: cannot read this file" in done.err
    assert names_in(tmp_path) == ["in.txt"]


# -- ensembles ---------------------------------------------------------------------------------------------------------


def test_an_ensemble_of_a_run_and_itself_is_the_run(run: Path) -> None:
    alone, twice = records(run, SOURCES[:8]), records(run, SOURCES[:8], "--ensemble", run)
    assert [record["translation"] for record in twice] == [record["translation"] for record in alone]
    assert [record["score"] for record in twice] == pytest.approx([record["score"] for record in alone], abs=1e-4)


def test_an_ensemble_of_two_models_of_one_vocabulary(runs: dict[str, Path]) -> None:
    one, other = runs["seq2seq"], runs["transformer"]
    together = records(one, SOURCES[:8], "--ensemble", other)
    turned = records(other, SOURCES[:8], "--ensemble", one)
    scores = [record["score"] for record in together]
    assert [record["translation"] for record in turned] == [record["translation"] for record in together]
    assert [record["score"] for record in turned] == pytest.approx(scores, abs=1e-4)
    alone = [record["score"] for record in records(one, SOURCES[:8])]
    assert scores != pytest.approx(alone, abs=1e-4)


def test_an_ensemble_needs_one_vocabulary(runs: dict[str, Path], tmp_path: Path) -> None:
    config = write_config(tmp_path, "seq2seq", training="max_updates: 1")
    trained = nmt("train", config, "--run-dir", tmp_path / "other", "--set", "tokenizer.lowercase=true")
    assert trained.code == 0, trained.err
    done = nmt("translate", runs["seq2seq"], "--ensemble", tmp_path / "other", stdin=b"The cat.\n")
    assert (done.code, done.out) == (2, "")
    assert f"the source tokenizers of {runs['seq2seq']} and {tmp_path / 'other'} differ" in done.err


# -- several files -----------------------------------------------------------------------------------------------------


def test_each_file_has_its_output_beside_the_template(run: Path, tmp_path: Path) -> None:
    first = written(tmp_path / "a" / "one.two.en", SOURCES[:3])
    second = written(tmp_path / "b" / "one.two.en", ["", SOURCES[4]])
    packed = tmp_path / "b" / "packed.en.gz"
    packed.write_bytes(gzip.compress(first.read_bytes()))
    done = nmt("translate", run, first, second, packed, "--out", "{folder}/{stem}.fr")
    assert (done.code, done.out) == (0, ""), done.err
    assert names_in(tmp_path / "a") == ["one.two.en", "one.two.fr"]
    assert names_in(tmp_path / "b") == ["one.two.en", "one.two.fr", "packed.en.gz", "packed.fr"]
    assert (tmp_path / "a" / "one.two.fr").read_text(encoding="utf-8") == text_of(translated(run, SOURCES[:3]))
    assert (tmp_path / "b" / "one.two.fr").read_text(encoding="utf-8") == text_of(translated(run, ["", SOURCES[4]]))
    assert (tmp_path / "b" / "packed.fr").read_bytes() == (tmp_path / "a" / "one.two.fr").read_bytes()
    told = [line for line in done.err.splitlines() if SUMMARY.search(line)]
    assert [line.split(": ")[0] for line in told] == [
        str(tmp_path / name) for name in ("a/one.two.fr", "b/one.two.fr", "b/packed.fr")
    ]


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        (["a.en", "b.en"], [], "several input files need an output each"),
        (["a.en", "b.en"], ["--out", "out.fr"], "out.fr"),
        (["a.en", "a.de"], ["--out", "{stem}.fr"], "a.fr"),
        (["a.en", "sub/../a.en"], ["--out", "{folder}/{stem}.fr"], "a.fr"),
        (["a.en", "sub/b.en"], ["--out", "{folder}"], "it is a folder"),
        (["a.en"], ["--out", "{name}"], "this is an input file"),
        (["b.en", "a.de"], ["--out", "{stem}.en"], "this is an input file"),
        (["a.de", "a.en"], ["--out", "{name}"], "this is an input file"),
        (["a.en"], ["--out", "link.en"], "this is an input file"),
        (["a.en", "b.en"], ["--out", "{stem}.fr", "--prefixes", "a.de"], "belong to one input file"),
        (["a.en"], ["--out", "out.fr", "--alignments", "out.fr"], "--alignments out.fr: "),
        (["a.en"], ["--out", "out.fr", "--alignments", "a.en"], "--alignments a.en: "),
        (["a.en"], ["--out", "out.fr", "--alignments", "sub"], "--alignments sub: expected a file, but it is a folder"),
        (["a.en"], ["--out", "a.de", "--prefixes", "a.de"], "--out a.de: "),
    ],
)
def test_outputs_that_cannot_be(
    runs: dict[str, Path], tmp_path: Path, files: list[str], options: list[str], message: str
) -> None:
    for name in ("a.en", "b.en", "a.de"):
        written(tmp_path / name, SOURCES[:2])
    written(tmp_path / "sub" / "b.en", SOURCES[:2])
    (tmp_path / "link.en").symlink_to(tmp_path / "a.en")
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    done = nmt("translate", runs["seq2seq"], *files, *options, cwd=tmp_path)
    assert (done.code, done.out) == (2, ""), done.err
    assert message in done.err
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_a_sentence_in_the_place_of_a_file_is_no_fault_of_ours(runs: dict[str, Path], tmp_path: Path) -> None:
    sentence = "The cat is asleep and " * 20
    for out in ([], ["--out", str(tmp_path / "out.txt")]):
        done = nmt("translate", runs["seq2seq"], sentence, *out)
        assert (done.code, done.out) == (3, "")
        assert "cannot read this file" in done.err
        assert "Traceback" not in done.err
    assert names_in(tmp_path) == []


def test_a_named_pipe_for_alignments_stays_one(runs: dict[str, Path], tmp_path: Path) -> None:
    source, out, pipe = written(tmp_path / "in.txt", SOURCES[:3]), tmp_path / "out.txt", tmp_path / "links"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        done = nmt("translate", runs["seq2seq"], source, "--out", out, "--alignments", pipe)
        assert done.code == 0, done.err
        assert pipe.is_fifo()
        assert os.read(reader, 1 << 16).count(b"\n") == 3
    finally:
        os.close(reader)
    assert out.read_text(encoding="utf-8").count("\n") == 3
    assert names_in(tmp_path) == ["in.txt", "links", "out.txt"]


# -- jobs that are stopped and go on -----------------------------------------------------------------------------------


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take up jobs at every fourth line."""
    monkeypatch.setattr(inputs, "CHUNK_LINES", 4)
    monkeypatch.setattr(translator_module, "CHUNK_LINES", 4)


@contextlib.contextmanager
def stopped_after(writes: int, stop: Callable[[], None]) -> Iterator[None]:
    """Make every job, in this process and its forks, stop right after so many chunks are written."""
    with pytest.MonkeyPatch.context() as patched:
        original, done = Parts.write, [0]

        def write(parts: Parts, texts: Sequence[str], lines: int, counts: Mapping[str, int]) -> None:
            original(parts, texts, lines, counts)
            done[0] += 1
            if done[0] == writes:
                stop()

        patched.setattr(Parts, "write", write)
        yield


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def interrupted() -> None:
    # whoever starts the tests in the background of a script hands down a signal that is ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(
    ("options", "writes"),
    [
        (["--alignments", "links.txt"], 1),
        (["--format", "jsonl", "--max-source-length", "4"], 2),
        (["--sample", "--temperature", "2"], 1),
        (["--prefixes", "begin.txt"], 2),
    ],
)
def test_a_killed_job_goes_on_and_gives_the_same_bytes(
    runs: dict[str, Path], tmp_path: Path, options: list[str], writes: int
) -> None:
    lines = [*SOURCES[:5], "", *SOURCES[5:10]]
    for folder in ("whole", "killed"):
        written(tmp_path / folder / "in.txt", lines)
        written(tmp_path / folder / "begin.txt", ["Le" if number % 2 else "" for number in range(11)])
    arguments: list[str | Path] = ["translate", runs["seq2seq"], "in.txt", "--out", "out.txt", *options]
    whole = nmt(*arguments, cwd=tmp_path / "whole")
    assert whole.code == 0, whole.err
    here = tmp_path / "killed"
    with stopped_after(writes, killed):
        assert nmt(*arguments, cwd=here).code == -signal.SIGKILL
    assert not (here / "out.txt").exists()
    assert {"out.txt.part", "out.txt.part.json"} < set(names_in(here))
    done = nmt(*arguments, cwd=here)
    assert done.code == 0, done.err
    assert f"out.txt.part holds {4 * writes} lines of this job; going on from there" in done.err
    assert {name: (here / name).read_bytes() for name in names_in(here)} == {
        name: (tmp_path / "whole" / name).read_bytes() for name in names_in(tmp_path / "whole")
    }
    assert summary(done) == summary(whole)
    assert summary(done)["lines"] == 11


@pytest.mark.usefixtures("small_chunks")
def test_another_job_does_not_go_on(runs: dict[str, Path], tmp_path: Path) -> None:
    source, out = written(tmp_path / "in.txt", SOURCES[:10]), tmp_path / "out.txt"
    arguments: list[str | Path] = ["translate", runs["seq2seq"], source, "--out", out]
    with stopped_after(1, killed):
        assert nmt(*arguments).code == -signal.SIGKILL
    (tmp_path / "out.txt.part").write_bytes(b"#" * (tmp_path / "out.txt.part").stat().st_size)
    done = nmt(*arguments, "--beam", "1")
    assert done.code == 0, done.err
    assert "going on from there" not in done.err
    assert f"{out}.part held 4 lines of a job with another input, model or options; it was begun anew" in done.err
    assert out.read_text(encoding="utf-8") == text_of(translated(runs["seq2seq"], SOURCES[:10], "--beam", "1"))
    with stopped_after(1, killed):
        assert nmt(*arguments).code == -signal.SIGKILL
    written(source, [*SOURCES[:9], "The cat."])
    done = nmt(*arguments)
    assert "going on from there" not in done.err
    assert out.read_text(encoding="utf-8") == text_of(translated(runs["seq2seq"], [*SOURCES[:9], "The cat."]))
    assert names_in(tmp_path) == ["in.txt", "out.txt"]


@pytest.mark.usefixtures("small_chunks")
def test_what_is_done_is_not_done_again(runs: dict[str, Path], tmp_path: Path) -> None:
    source, out = written(tmp_path / "in.txt", SOURCES[:10]), tmp_path / "out.txt"
    with stopped_after(2, killed):
        nmt("translate", runs["seq2seq"], source, "--out", out)
    part = tmp_path / "out.txt.part"
    part.write_bytes(b"#" + part.read_bytes()[1:])
    assert nmt("translate", runs["seq2seq"], source, "--out", out).code == 0
    whole = text_of(translated(runs["seq2seq"], SOURCES[:10]))
    assert out.read_text(encoding="utf-8") == f"#{whole[1:]}"


@pytest.mark.usefixtures("small_chunks")
def test_ctrl_c_leaves_what_is_done(runs: dict[str, Path], tmp_path: Path) -> None:
    source, out = written(tmp_path / "in.txt", SOURCES[:10]), tmp_path / "out.txt"
    with stopped_after(1, interrupted):
        done = nmt("translate", runs["seq2seq"], source, "--out", out)
    assert done.code == 130
    assert f"{out}.part holds 4 lines; the same command goes on from there" in done.err
    assert "Traceback" not in done.err
    assert names_in(tmp_path) == ["in.txt", "out.txt.part", "out.txt.part.json"]
    assert nmt("translate", runs["seq2seq"], source, "--out", out).code == 0
    assert out.read_text(encoding="utf-8") == text_of(translated(runs["seq2seq"], SOURCES[:10]))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.fault("PB-03")
def test_an_error_late_in_a_file_leaves_nothing(runs: dict[str, Path], tmp_path: Path) -> None:
    source, out = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_bytes(b"The cat is asleep.\n" * 6 + b"caf\xe9\n")
    for options in ([], ["--alignments", str(tmp_path / "links.txt")]):
        done = nmt("translate", runs["seq2seq"], source, "--out", out, *options)
        assert done.code == 3
        assert f"{source}:7: expected UTF-8 text, but byte 4 is 0xe9" in done.err
        assert names_in(tmp_path) == ["in.txt"]
    piped = nmt("translate", runs["seq2seq"], "--out", out, stdin=source.read_bytes())
    assert (piped.code, names_in(tmp_path)) == (3, ["in.txt"])
    done = nmt("translate", runs["seq2seq"], source, "--out", out, "--invalid-utf8", "replace")
    assert done.code == 0, done.err
    assert f"warning: {source}:7: expected UTF-8 text" in done.err
    assert out.read_text(encoding="utf-8").count("\n") == 7
    assert names_in(tmp_path) == ["in.txt", "out.txt"]


# -- the last line on stderr -------------------------------------------------------------------------------------------


@pytest.mark.fault("PB-19")
@pytest.mark.fault("PB-21")
def test_the_last_line_counts_what_went_wrong(run: Path, tmp_path: Path) -> None:
    lines = ["The cat", "", "The cat is asleep.", "I see the dog.", "Go"]  # 3, 0, 6, 6 and 2 tokens with their end marks
    done = nmt("translate", run, "--max-source-length", "3", stdin=text_of(lines).encode())
    assert (summary(done)["lines"], summary(done)["cut"]) == (5, 2)
    split = nmt("translate", run, "--max-source-length", "3", "--long-lines", "split", stdin=text_of(lines).encode())
    assert (summary(split)["lines"], summary(split)["cut"]) == (5, 2)
    assert done.out.count("\n") == split.out.count("\n") == 5
    limited = nmt("translate", run, "--max-length", "2", "--format", "jsonl", stdin=text_of(lines).encode())
    ended = [json.loads(line)["ended"] for line in limited.out.splitlines()]
    assert ended.count("limit") >= 3
    assert summary(limited) == {"lines": 5, "cut": 0, "limit": ended.count("limit"), "loops": 0}
    begin = written(tmp_path / "begin.txt", ["Le Le Le Le Le Le", "", "", "Le Le Le Le Le Le", ""])
    turning = nmt("translate", run, "--prefixes", begin, "--format", "jsonl", stdin=text_of(lines).encode())
    found = [json.loads(line)["repeats"] for line in turning.out.splitlines()]
    assert (found[0], found[1], found[3]) == (True, False, True)
    assert summary(turning)["loops"] == found.count(True)


def test_a_split_line_tells_of_all_its_parts(run: Path) -> None:
    options = ("--max-source-length", "3", "--long-lines", "split", "--max-length", "2", "--format", "jsonl")
    done = nmt("translate", run, *options, stdin=b"Go The cat is asleep and the dog too\n")  # parts of two words
    record = json.loads(done.out)
    target = RunFolder.open(run).tokenizers()[1]
    assert len(words(record)) > 2
    assert target.decode(target.vocabulary.ids(words(record))).replace(" ", "") == record["translation"].replace(" ", "")
    assert len(record["tokens"]) == len(record["log_probabilities"])
    assert (record["score"], record["ended"], record["cut"]) == (None, "limit", True)
    assert summary(done) == {"lines": 1, "cut": 1, "limit": 1, "loops": 0}


# -- pipes -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Driven:
    """A running `nmt` with a pipe on either side."""

    source: int
    out: int

    def send(self, text: bytes) -> None:
        os.write(self.source, text)

    def waits(self, seconds: float) -> bool:
        """Return whether nothing comes for so long."""
        return not select.select([self.out], [], [], seconds)[0]

    def lines(self, count: int) -> bytes:
        """Return what comes until there are so many lines; fails after a minute."""
        found, end = b"", time.monotonic() + 60
        while found.count(b"\n") < count:
            assert not self.waits(max(0.0, end - time.monotonic())), "no answer"
            block = os.read(self.out, 1 << 16)
            assert block, "it left"
            found += block
        return found


@contextlib.contextmanager
def driven(*arguments: str | Path) -> Iterator[Driven]:
    """Run the command between two pipes, in a fork; its input ends with the block, and it must leave well then."""
    (source, to_source), (from_out, out) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(to_source)
        os.close(from_out)
        _run_and_leave(["nmt", *map(str, arguments)], ROOT, (source, out, os.open(os.devnull, os.O_WRONLY)))
    os.close(source)
    os.close(out)
    try:
        yield Driven(to_source, from_out)
    finally:
        os.close(to_source)
        rest = b""
        while block := os.read(from_out, 1 << 16):
            rest += block
        os.close(from_out)
        _, status = os.waitpid(child, 0)
    assert (os.waitstatus_to_exitcode(status), rest) == (0, b"")


@pytest.mark.fault("PB-20")
@pytest.mark.parametrize("options", [[], ["--batch-sentences", "1"], ["--batch-tokens", "9"]])
def test_each_line_is_answered_before_the_next_one_comes(runs: dict[str, Path], options: list[str]) -> None:
    expected = text_of(translated(runs["seq2seq"], ["The cat is asleep.", "", "I see the dog."])).encode()
    with driven("translate", runs["seq2seq"], *options) as process:
        found = b""
        for line in (b"The cat is asleep.\n", b"\n", b"I see the dog.\n"):
            process.send(line)
            found += process.lines(1)
    assert found == expected


@pytest.mark.fault("PB-20")
def test_a_pipe_waits_for_as_many_lines_as_a_batch_has(runs: dict[str, Path]) -> None:
    with driven("translate", runs["seq2seq"], "--batch-sentences", "3") as process:
        process.send(b"The cat is asleep.\nI see the dog.\nThe cat.\n")
        assert process.lines(3).count(b"\n") == 3  # it is at work now: what does not come is not late
        process.send(b"The cat is asleep.\nI see the dog.\nThe ")
        assert process.waits(0.3)
        process.send(b"cat.\n")
        assert process.lines(3).count(b"\n") == 3


@contextlib.contextmanager
def piped(*blocks: bytes) -> Iterator[Any]:
    """Give the reading end of a pipe that holds some blocks and has ended."""
    read, write = os.pipe()
    for block in blocks:
        os.write(write, block)
    os.close(write)
    with open(read, "rb") as stream:
        yield stream


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"\n", [b""]),
        (b"a\n\n\nb", [b"a", b"", b"", b"b"]),
        (b"\n\n", [b"", b""]),
        (b"a\r\nb\rc\n\r", [b"a\r", b"b\rc", b"\r"]),
        (b"x" * 60_000 + b"\ny\n", [b"x" * 60_000, b"y"]),
    ],
)
@pytest.mark.parametrize("at_least", [1, 2, 100])
def test_a_pipe_gives_its_lines(text: bytes, lines: list[bytes], at_least: int) -> None:
    with piped(text) as stream:
        chunks = list(inputs.pipe_chunks(stream, at_least=at_least))
    assert [line for chunk in chunks for line in chunk] == lines
    assert all(chunks)


@pytest.mark.usefixtures("small_chunks")
def test_a_pipe_gives_no_more_lines_at_once_than_a_chunk_has() -> None:
    with piped(b"a\n" * 11) as stream:
        assert [len(chunk) for chunk in inputs.pipe_chunks(stream)] == [4, 4, 3]


def test_a_line_without_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MAX_LINE_BYTES", 10)
    with piped(b"0123456789\nab\n0123456789") as stream:
        assert [line for chunk in inputs.pipe_chunks(stream) for line in chunk][-1] == b"0123456789"
    with (
        piped(b"a\nb\n0123456789x") as stream,
        pytest.raises(DataError, match="standard input:3: expected text, but this line"),
    ):
        list(inputs.pipe_chunks(stream))


def test_long_lines_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MAX_LINE_BYTES", 70_000)
    (tmp_path / "in.txt").write_bytes((b"x" * 999 + b"\n") * 500)
    with open(tmp_path / "in.txt", "rb") as stream:  # there is always more at hand
        sizes = [len(chunk) for chunk in inputs.pipe_chunks(stream)]
    assert sum(sizes) == 500
    assert max(sizes) < 200
