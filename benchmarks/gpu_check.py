"""Checks on a machine with a GPU, where nothing need be installed: training to a BLEU report, numbers, speed, memory.

    make gpu-check PYTHON=python3
    PYTHONPATH=. python3 benchmarks/gpu_check.py [--device cuda] [--only speed-base,speed-big] [--small]

Ends within four minutes. Prints a line for each check, and writes all figures to `gpu-check.json` (in the folder that the
environment variable OUT names, if it is set). Exit: 0 all is well, 1 a check failed, 2 it cannot run here.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from benchmarks.gpu_measures import Finding
    from nmt_cli.config import Config

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 230.0
NEEDED = ("torch", "numpy", "pydantic", "yaml", "typer", "rich", "tqdm", "sacrebleu", "safetensors", "matplotlib")
KINDS = {"transformer": "sample-transformer", "recurrent": "sample-seq2seq"}
NO_DROPOUT = {
    "transformer": ("model.dropout=0",),
    "recurrent": ("model.dropout=0", "model.embedding_dropout=0", "model.output_dropout=0"),
}


@dataclass(frozen=True)
class Sizes:
    """How much is computed.

    Args:
        train: `--set` values of the trainings to a report.
        least_bleu: What they must reach on the test set.
        speed: `--set` values by size.
        vocabulary: Of made-up ids.
        seconds: How long each speed is measured.
        matmul: Rows and columns of the matrix product.
    """

    train: tuple[str, ...]
    least_bleu: float
    speed: dict[str, tuple[str, ...]]
    vocabulary: int
    seconds: float
    matmul: int


def transformer(width: int, heads: int, feed_forward: int, layers: int, batch_tokens: int) -> tuple[str, ...]:
    """Return the `--set` values of a Transformer."""
    return (
        f"model.width={width}",
        f"model.heads={heads}",
        f"model.feed_forward={feed_forward}",
        f"model.encoder_layers={layers}",
        f"model.decoder_layers={layers}",
        f"training.batch_tokens={batch_tokens}",
    )


FULL = Sizes(
    train=(
        "training.batch_tokens=3200",
        "training.max_updates=800",
        "training.max_minutes=0.5",
        "training.validate_every=400",
        "training.save_every=800",
    ),
    least_bleu=5.0,
    speed={"base": transformer(512, 8, 2048, 6, 25000), "big": transformer(1024, 16, 4096, 6, 25000)},
    vocabulary=32000,
    seconds=8.0,
    matmul=8192,
)
SMALL = Sizes(
    train=(
        "data.max_pairs=200",
        "data.tests={test: data/sample/test-phrasebook.tsv}",
        "training.max_updates=2",
        "training.warmup_updates=1",
        "training.validation_metrics=[]",
        "training.early_stopping.metric=loss",
        "decoding.beam_size=1",
        "decoding.max_length=3",
    ),
    least_bleu=0.0,
    speed={"base": transformer(16, 2, 32, 1, 400), "big": transformer(32, 4, 64, 2, 400)},
    vocabulary=100,
    seconds=0.1,
    matmul=64,
)


# -- what is needed ----------------------------------------------------------------------------------------------------


def missing(names: Sequence[str]) -> list[str]:
    """Return the modules that cannot be imported here."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def refuse(text: str) -> None:
    """Say why nothing can be checked, and end with exit code 2."""
    print(f"gpu-check: {text}", file=sys.stderr)
    raise SystemExit(2)


# -- training through the command --------------------------------------------------------------------------------------


def train_to_report(kind: str, device: str, sizes: Sizes, seconds: float) -> Finding:
    """Run `nmt train` on the sample corpus to its report."""
    from benchmarks.gpu_measures import Finding

    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        config = ROOT / "configs" / f"{KINDS[kind]}.yaml"
        command = [sys.executable, "-m", "nmt_cli", "train", str(config), "--device", device, "--run-dir", str(run)]
        command += [part for value in sizes.train for part in ("--set", value)]
        started = time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)
        elapsed = time.perf_counter() - started
        if done.returncode:
            return Finding(False, f"exit code {done.returncode}: {' / '.join(done.stderr.splitlines()[-5:])}", {})
        report = json.loads((run / "reports" / "test.json").read_text(encoding="utf-8"))
        manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    bleu, updates = report["scores"]["bleu"]["score"], manifest["finished"]["updates"]
    speed = manifest["finished"]["target_tokens"] / manifest["finished"]["seconds"]
    text = (
        f"BLEU {bleu:.1f} after {updates} updates in {manifest['precision']}, {speed:,.0f} target tokens/s with validations, "
        f"{elapsed:.0f} s from command to report"
    )
    figures = {"bleu": bleu, "updates": updates, "tokens_per_second": speed, "seconds": elapsed}
    return Finding(bleu >= sizes.least_bleu and manifest["finished"]["bad_updates"] == 0, text, figures)


# -- all checks --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    """A check: its name, the most seconds it may take, whether it needs a GPU, and what it does with the seconds it has."""

    name: str
    seconds: float
    needs_gpu: bool
    run: Callable[[float], Finding]


def sample_config(kind: str, *overrides: str) -> Config:
    """Return the config of a sample model with `--set` values."""
    from nmt_cli.config_file import load_config

    return load_config(ROOT / "configs" / f"{KINDS[kind]}.yaml", overrides).config


def all_checks(device: torch.device, name: str, sizes: Sizes) -> list[Check]:
    """Return every check, the short ones first.

    Args:
        device: The device.
        name: Its name as `--device` takes it.
        sizes: How much is computed.
    """
    from benchmarks import gpu_measures as measures
    from nmt_cli.devices import choose_precision

    words, precision = sizes.vocabulary, choose_precision("auto", device)

    def of_kind(kind: str) -> list[Check]:
        exact, usual = sample_config(kind, *NO_DROPOUT[kind]), sample_config(kind)
        return [
            Check(f"float32-{kind}", 30, True, lambda _: measures.check_float32(exact, words, device)),
            Check(f"bf16-{kind}", 20, False, lambda _: measures.check_bf16(exact, words, device)),
            Check(f"waiting-{kind}", 20, True, lambda _: measures.check_waiting(usual, words, device, precision)),
        ]

    def speed(size: str) -> Check:
        config = sample_config("transformer", *sizes.speed[size])

        def measure(_: float) -> Finding:
            return measures.check_speed(config, words, device, precision, seconds=sizes.seconds, matmul=sizes.matmul)

        return Check(f"speed-{size}", 40, False, measure)

    def training(kind: str) -> Check:
        return Check(f"train-{kind}", 75, False, lambda seconds: train_to_report(kind, name, sizes, seconds))

    return [
        Check("matmul", 20, False, lambda _: measures.check_matmul(device, sizes.matmul)),
        *of_kind("transformer"),
        *of_kind("recurrent"),
        *(speed(size) for size in sizes.speed),
        *(training(kind) for kind in KINDS),
    ]


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise a `TimeoutError` in what takes longer."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"took longer than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_check(check: Check, left: float) -> dict[str, object]:
    """Run a check within the seconds that are left for all, print its line, and return its record."""
    started, seconds = time.perf_counter(), min(check.seconds, left)
    figures: dict[str, float] = {}
    try:
        if seconds <= 0:
            raise TimeoutError("no time was left for it")
        with limited(seconds + 1):  # a command has its own limit, and ends before
            finding = check.run(seconds)
        ok, text, figures = finding.ok, finding.text, finding.figures
    except Exception as error:  # a check that breaks must not keep the others from running
        ok, text = False, f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
    gc.collect()  # the next one's peak of memory is its own
    print(f"check {check.name}: {'ok' if ok else 'FAILED'} ({text})", flush=True)
    return {"name": check.name, "ok": ok, "text": text, "figures": figures, "seconds": time.perf_counter() - started}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all checks; return the exit code."""
    started = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", help="names of checks, comma-separated")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try the script itself")
    options = parser.parse_args(arguments)
    if absent := missing(("nmt_cli", *NEEDED)):
        refuse(
            f"needs {', '.join(absent)}, which {sys.executable} (Python {platform.python_version()}) cannot import; nothing is "
            "installed here, so run it with a Python that has them, or add their folder to PYTHONPATH"
        )
    import torch

    from nmt_cli.devices import choose_device, prepare_device
    from nmt_cli.errors import NmtError

    try:
        device = choose_device(options.device)
    except NmtError as error:
        refuse(str(error))
    prepare_device(device)
    if options.small:
        torch.set_num_threads(1)  # a second one would only wait
    checks = all_checks(device, options.device, SMALL if options.small else FULL)
    wanted = options.only.split(",") if options.only else [check.name for check in checks]
    if unknown := set(wanted) - {check.name for check in checks}:
        refuse(f"--only: no check is called {', '.join(sorted(unknown))}; there are {', '.join(c.name for c in checks)}")
    print(f"torch {torch.__version__}, Python {platform.python_version()}, device {options.device}", flush=True)
    records = []
    for check in checks:
        if check.name not in wanted:
            continue
        if check.needs_gpu and device.type != "cuda":
            print(f"check {check.name}: skipped (needs a GPU; this is {device})", flush=True)
            continue
        records.append(run_check(check, SECONDS - (time.perf_counter() - started)))
    ok = all(record["ok"] for record in records)
    seconds = time.perf_counter() - started
    out = Path(os.environ.get("OUT", ".")) / "gpu-check.json"
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "python": platform.python_version()}
    out.write_text(json.dumps({"ok": ok, "seconds": seconds, "versions": versions, "checks": records}, indent=1) + "\n")
    print(f"{'all is well' if ok else 'something FAILED'}: {len(records)} checks in {seconds:.0f} s; figures in {out}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
