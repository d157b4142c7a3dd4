"""Every file in configs/ and every `nmt` line of the README runs, on the fixture; counts prove that they were found."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import FIXTURES, ROOT, nmt

CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
FIXTURE_DATA = [
    "--set",
    f"data.train={FIXTURES / 'tiny.tsv'}",
    "--set",
    f"data.tests={{test: {FIXTURES / 'more.tsv'}}}",
    "--set",
    "training.max_updates=2",
]


def commands_of(page: str) -> list[str]:
    """Return every `nmt` line of the shell blocks of a page, without comments."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:bash|sh)\n(.*?)```", text, flags=re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return [re.sub(r"\s+#.*", "", line) for line in lines if re.search(r"(^|\| )nmt ", line)]


README, RECIPE = commands_of("README.md"), commands_of("docs/recipe.md")


def test_all_configs_are_found() -> None:
    assert {path.stem for path in CONFIGS} >= {
        "sample-seq2seq",
        "sample-transformer",
        "tatoeba600-seq2seq",
        "tatoeba600-transformer",
        "multi30k-seq2seq",
        "multi30k-transformer",
        "tatoeba-seq2seq",
        "tatoeba-transformer",
        "wmt14-transformer-base",
        "wmt14-transformer-big",
    }


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_each_config_trains_two_updates_or_is_ready_to(config: Path, tmp_path: Path) -> None:
    options = list(FIXTURE_DATA)
    if re.search(r"^  valid:", config.read_text(encoding="utf-8"), flags=re.MULTILINE):
        options += ["--set", f"data.valid={FIXTURES / 'more.tsv'}"]
    if config.stem.startswith("wmt14"):  # too large to train here
        done = nmt("train", config, "--run-dir", tmp_path / "run", *options, "--dry-run")
        assert done.code == 0, done.err
        assert re.search(r"parameters: \d{2,3},\d{3},\d{3} ", done.out)
        return
    done = nmt("train", config, "--run-dir", tmp_path / "run", *options)
    assert done.code == 0, done.err
    assert "2 updates" in done.err
    assert (tmp_path / "run" / "reports" / "test.json").exists()


def test_commands_are_found() -> None:
    def names(commands: list[str]) -> set[str]:
        return {found[1] for line in commands if (found := re.search(r"nmt ([\w-]+)", line))}

    assert len(README) >= 16
    assert names(README) == {"train", "translate", "evaluate", "score", "export", "attn-dump", "info", "fetch", "split", "demo"}
    assert len(RECIPE) == 7
    assert names(RECIPE) == {"split", "train", "evaluate", "translate", "attn-dump", "info"}


def run_commands(commands: list[str], folder: Path) -> None:
    """Run commands in their order in `folder`: trainings for two updates, held-out sets small."""
    sources, targets = zip(
        *(line.split("\t")[:2] for line in (FIXTURES / "more.tsv").read_text(encoding="utf-8").splitlines()), strict=True
    )
    (folder / "input.en").write_text("".join(f"{line}\n" for line in sources), encoding="utf-8")
    (folder / "reference.fr").write_text("".join(f"{line}\n" for line in targets), encoding="utf-8")
    for name, lines in (("corpus.en", sources), ("corpus.fr", targets)):
        text = "".join(f"{lines[number % len(lines)]} {number}\n" for number in range(60))
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "bin").mkdir()
    (folder / "bin" / "nmt").write_text(f'#!/bin/sh\nexec {sys.executable} -m nmt_cli "$@"\n', encoding="utf-8")
    (folder / "bin" / "nmt").chmod(0o755)
    environment = {"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    for command in commands:
        line = re.sub(r"--(valid|test) \d+", r"--\1 9", command)
        if line.startswith("nmt train"):
            line += " --set training.max_updates=2"
        if line.startswith("nmt fetch"):
            line = line.replace("nmt fetch", "nmt fetch --help; true")  # the corpora are not part of the project
        done = subprocess.run(["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, check=False)
        allowed = {0, 5} if "--fail-under" in line else {0}
        assert done.returncode in allowed, f"{line}\n{done.stderr}"


def test_every_readme_command_runs(tmp_path: Path) -> None:
    """The folder is like the project's, with the fixture in the place of each corpus."""
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    for name in ("train", "valid", "test", "test-grammar", "test-phrasebook"):
        (tmp_path / "data" / "sample").mkdir(parents=True, exist_ok=True)
        fixture = FIXTURES / ("tiny.tsv" if name == "train" else "more.tsv")
        shutil.copy(fixture, tmp_path / "data" / "sample" / f"{name}.tsv")
    shutil.copy(ROOT / "data" / "book.tsv", tmp_path / "data")
    run_commands(README, tmp_path)


def test_every_command_of_the_recipe_runs(tmp_path: Path) -> None:
    """With the config that stands there."""
    config = re.search(r"```yaml\n(# my.yaml\n.*?)```", (ROOT / "docs" / "recipe.md").read_text(encoding="utf-8"), re.DOTALL)
    assert config is not None
    (tmp_path / "my.yaml").write_text(config[1], encoding="utf-8")
    run_commands(RECIPE, tmp_path)
    assert (tmp_path / "output.fr").read_text(encoding="utf-8").count("\n") == 5
