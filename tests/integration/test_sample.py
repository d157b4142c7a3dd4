"""The sample corpus is what its script makes, and keeps the promises of data/README.md."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.integration.conftest import ROOT

SAMPLE = ROOT / "data" / "sample"


def columns(name: str) -> list[list[str]]:
    return [line.split("\t") for line in (SAMPLE / name).read_text(encoding="utf-8").splitlines()]


def test_the_script_writes_these_very_bytes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(SAMPLE / "make.py"), "--out", str(tmp_path)], check=True, capture_output=True)
    made = sorted(path.name for path in tmp_path.glob("*.tsv"))
    assert made == ["test-grammar.tsv", "test-phrasebook.tsv", "test.tsv", "train.tsv", "valid.tsv"]
    for name in made:
        assert (tmp_path / name).read_bytes() == (SAMPLE / name).read_bytes(), name


def test_sizes_and_no_overlap() -> None:
    train, valid, test = columns("train.tsv"), columns("valid.tsv"), columns("test.tsv")
    assert len(columns("phrasebook.tsv")) >= 1000
    assert len(train) >= 15_000
    assert (len(valid), len(test)) == (500, 500)
    origins = Counter(row[2].split(":")[0] for row in test)
    assert origins == {"grammar": 400, "phrasebook": 100}
    english = Counter(row[0].lower() for row in [*train, *valid, *test])
    assert max(english.values()) == 1, "no English sentence twice, in one set or across sets"
    assert test == sorted(test, key=test.index)
    parts = columns("test-grammar.tsv") + columns("test-phrasebook.tsv")
    assert sorted(parts) == sorted(test)


def test_new_combinations_are_new() -> None:
    """Ask the generator which (pattern, lemma) pairs training holds, and compare with what the test file claims."""
    code = "import json, make; print(json.dumps(make.combinations()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=SAMPLE, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    phrases = {row[0] for row in columns("phrasebook.tsv")}
    written = {row[0] for row in columns("train.tsv")}
    assert {english for english, _, _ in found["train"]} == written - phrases, "the generator speaks of these very files"
    trained = {(pattern, lemma) for _, pattern, lemmas in found["train"] for lemma in lemmas}
    assert len({pattern for pattern, _ in trained}) >= 40
    assert len({lemma for _, lemma in trained}) >= 300
    claims = {row[0]: row[2].endswith(":new") for row in columns("test-grammar.tsv")}
    truth = {english: any((pattern, lemma) not in trained for lemma in lemmas) for english, pattern, lemmas in found["test"]}
    assert claims == truth
    assert sum(truth.values()) >= 200


def test_french_is_written_as_the_readme_says() -> None:
    for name in ("train.tsv", "valid.tsv", "test.tsv", "phrasebook.tsv"):
        for english, french, *_ in columns(name):
            assert english[-1] in ".?!", english
            assert french[-1] == english[-1], french
            assert not set(french) & set('\u00a0\u202f\u2009\u2019"«»'), french
            assert not re.search(r"\S[!?:;]", french), french
            assert not re.search(r"\s[,.]|  |\s[!?:;]", english), english
