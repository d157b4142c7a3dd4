"""`nmt evaluate` and `nmt info`: scores that can be quoted, forms that scripts can read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import FIXTURES, corpus_lines, nmt

SACREBLEU = {"bleu": ["-m", "bleu"], "bleu-lower": ["-m", "bleu", "-lc"], "chrf": ["-m", "chrf"], "ter": ["-m", "ter"]}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Return a file of hypotheses and one of references: the fixture with every third word left out, and itself."""
    references = [*corpus_lines(FIXTURES / "tiny.tsv", 1), *corpus_lines(FIXTURES / "more.tsv", 1)]
    hypotheses = [" ".join(w for i, w in enumerate(line.split()) if (i + n) % 3 or i == 0) for n, line in enumerate(references)]
    paths = tmp_path / "hypotheses.txt", tmp_path / "references.txt"
    for path, lines in zip(paths, (hypotheses, references), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


@pytest.mark.parametrize("metric", sorted(SACREBLEU))
@pytest.mark.fault("PB-22")
def test_scores_equal_the_sacrebleu_command(files: tuple[Path, Path], metric: str) -> None:
    command = [sys.executable, "-m", "sacrebleu", str(files[1]), "-i", str(files[0]), "-b", "-w", "2", *SACREBLEU[metric]]
    expected = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    done = nmt("evaluate", "--hypotheses", files[0], "--references", files[1], "--metrics", metric, "--score-only")
    assert done.out.strip() == expected
    assert 0 < float(expected) < 100


@pytest.mark.fault("PB-21")
def test_json_table_and_bare_score(run: Path) -> None:
    done = nmt("evaluate", run, "--split", "test,valid", "--metrics", "bleu,chrf", "--json")
    assert done.code == 0, done.err
    scores = json.loads(done.out)
    assert {split: sorted(found) for split, found in scores.items()} == {s: ["bleu", "chrf"] for s in ("test", "valid")}
    assert "tok:13a" in scores["test"]["bleu"]["signature"]
    bare = nmt("evaluate", run, "--split", "test", "--metrics", "chrf", "--score-only").out
    assert bare == f"{scores['test']['chrf']['score']:.2f}\n"
    table = nmt("evaluate", run, "--metrics", "chrf").out
    assert bare.strip() in table
    assert "chrf: nrefs:1" in table


def test_fail_under(run: Path) -> None:
    assert nmt("evaluate", run, "--metrics", "bleu", "--fail-under", "bleu=0").code == 0
    done = nmt("evaluate", run, "--metrics", "chrf", "--score-only", "--fail-under", "chrf=101")
    assert done.code == 5
    assert "--fail-under asks for 101" in done.err
    assert float(done.out) <= 100, "the score is printed all the same"


@pytest.mark.fault("PB-02")
def test_files_of_different_length_are_never_scored(files: tuple[Path, Path]) -> None:
    files[1].write_text("une seule ligne\n", encoding="utf-8")
    done = nmt("evaluate", "--hypotheses", files[0], "--references", files[1])
    assert (done.code, done.out) == (3, "")
    assert f"{files[0]} has 25 lines and {files[1]} has 1" in done.err


@pytest.mark.fault("PB-22")
def test_tokenised_text_is_warned_about(files: tuple[Path, Path], tmp_path: Path) -> None:
    marked = tmp_path / "marked.txt"
    marked.write_text(files[1].read_text(encoding="utf-8").replace(".", " ."), encoding="utf-8")
    done = nmt("evaluate", "--hypotheses", marked, "--references", files[1])
    assert "look tokenised" in done.err
    assert "look tokenised" not in nmt("evaluate", "--hypotheses", files[0], "--references", files[1]).err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--metrics", "bluh"], "did you mean 'bleu'"),
        (["--split", "tset"], "test, valid"),
        (["--score-only"], "one split and one metric"),
        (["--fail-under", "bleu"], "metric=score"),
        (["--hypotheses", "x"], "--references"),
        (["--fail-under", "blue=3"], "--fail-under: unknown metric"),
        (["--target", "fr"], "--target belongs to --hypotheses"),
        (["--json", "--score-only", "--metrics", "bleu"], "give one of them"),
    ],
)
def test_mistakes_are_named(run: Path, options: list[str], message: str) -> None:
    done = nmt("evaluate", run, *options)
    assert done.code in {2, 4}
    assert message in done.err
    assert "Traceback" not in done.err


def test_info_fits_one_screen(run: Path) -> None:
    done = nmt("info", run)
    lines = done.out.splitlines()
    assert done.code == 0
    assert len(lines) < 24
    assert run.name in lines[1]
    assert any("best" in line and "update-" in line for line in lines)
    assert any("chrf" in line for line in lines)


def test_fetch_copies_only_what_is_right(tmp_path: Path) -> None:
    (tmp_path / "from" / "tatoeba-600").mkdir(parents=True)
    (tmp_path / "from" / "tatoeba-600" / "eng-fra.tsv").write_text("Go.\tVa !\n", encoding="utf-8")
    damaged = nmt("fetch", "tatoeba-600", "--from", tmp_path / "from", cwd=tmp_path)
    assert damaged.code == 3
    assert "SHA-256" in damaged.err
    assert not (tmp_path / "data").exists()
    unknown = nmt("fetch", "tatoeba-60", "--from", tmp_path / "from", cwd=tmp_path)
    assert unknown.code == 2
    assert "did you mean 'tatoeba-600'" in unknown.err
