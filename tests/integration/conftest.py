"""One tiny trained run of each model, shared by all integration tests, and a way to call `nmt`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

import nmt_cli.cli.train
import nmt_cli.cli.translate  # noqa: F401 - so that forks find torch imported
from nmt_cli.cli.app import main

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
MODELS = {
    "seq2seq": "{type: seq2seq, embedding_size: 20, hidden_size: 24, embedding_dropout: 0.0, output_dropout: 0.1}",
    "transformer": "{type: transformer, width: 16, heads: 2, feed_forward: 24, encoder_layers: 2, decoder_layers: 1}",
}


@dataclass(frozen=True)
class Done:
    """What a finished process left: exit code, standard output and standard error as text."""

    code: int
    out: str
    err: str


def nmt(*arguments: str | Path, stdin: bytes = b"", cwd: Path | None = None, environment: dict[str, str] | None = None) -> Done:
    """Run the command in a process of its own: a fork of this one, which has torch imported already.

    With an `environment`, which Python reads at its start, it is a new interpreter.
    """
    if environment is not None:
        command = [sys.executable, "-m", "nmt_cli", *map(str, arguments)]
        whole = {**os.environ, **environment}
        done = subprocess.run(command, input=stdin, capture_output=True, cwd=cwd or ROOT, env=whole, timeout=120, check=False)
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        source.write(stdin)
        source.seek(0)
        child = os.fork()
        if child == 0:
            _run_and_leave(["nmt", *map(str, arguments)], cwd or ROOT, (source.fileno(), out.fileno(), err.fileno()))
        _, status = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        return Done(os.waitstatus_to_exitcode(status), out.read().decode(), err.read().decode())


def _run_and_leave(arguments: list[str], cwd: Path, streams: tuple[int, int, int]) -> NoReturn:
    """In the forked child: put the streams in place, run the command, and end the process with its exit code."""
    code: object = 1
    try:
        for number, handle in enumerate(streams):
            os.dup2(handle, number)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115 - closed with the process
        os.chdir(cwd)
        sys.argv = arguments
        main()
    except SystemExit as leave:
        code = leave.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


def write_config(
    folder: Path,
    model: str = "transformer",
    *,
    name: str = "config.yaml",
    training: str = "max_updates: 2",
    data: str = "",
    decoding: str = "beam_size: 2",
) -> Path:
    """Write a small config over the fixtures and return its path."""
    path = folder / name
    corpus = data or f"train: {FIXTURES / 'tiny.tsv'}, valid: {FIXTURES / 'more.tsv'}, tests: {{test: {FIXTURES / 'more.tsv'}}}"
    path.write_text(
        f"data: {{source: en, target: fr, {corpus}}}\n"
        "tokenizer: {type: word, space_before: ',.!?', space_after: \"'\"}\n"
        f"model: {MODELS[model]}\n"
        "training: {batch_sentences: 7, learning_rate: 0.01, schedule: constant, warmup_updates: 0, log_every: 1,\n"
        f"  {training}}}\n"
        f"decoding: {{{decoding}}}\n",
        encoding="utf-8",
    )
    return path


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return model -> run folder, each trained until it knows the fixture."""
    folder = tmp_path_factory.mktemp("runs")
    for model in MODELS:
        config = write_config(
            folder, model, name=f"{model}.yaml", training="max_epochs: 60, validate_every: 90, save_every: 90"
        )
        done = nmt("train", config, "--run-dir", folder / model)
        assert done.code == 0, done.err
    return {model: folder / model for model in MODELS}


@pytest.fixture(params=sorted(MODELS))
def run(request: pytest.FixtureRequest, runs: dict[str, Path]) -> Path:
    """Return the run folder of each model in turn."""
    return runs[request.param]


def corpus_lines(path: Path, column: int) -> Sequence[str]:
    """Return one column of a .tsv fixture."""
    return [line.split("\t")[column] for line in path.read_text(encoding="utf-8").splitlines()]
