"""How soon `nmt train` has done its first update, in this tree and in another one: median and range of several rounds, in turn.

    python benchmarks/first_update.py CONFIG [--against TREE] [--rounds 5]

CONFIG is a path within a tree, such as configs/multi30k-transformer.yaml. Measured from the start of the command until
`train.log` has the line of the first update: cold, with nothing there (vocabulary and ids are made from the text), and again,
with what a run before has left beside the runs. What importing torch takes of that is measured in the same rounds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parents[1]
SETTINGS = ("training.max_updates=1", "training.log_every=1", "data.tests={}")


def seconds_to_first_update(tree: Path, config: str, runs: Path) -> float:
    """Return how long `nmt train` of a tree takes from its start to its first update; the run is removed again."""
    run = runs / "run"
    command = [sys.executable, "-m", "nmt_cli", "train", config, "--run-dir", str(run), "--device", "cpu"]
    for setting in SETTINGS:
        command += ["--set", setting]
    started = time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    process = subprocess.Popen(command, cwd=tree, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    log = run / "train.log"
    while not (log.exists() and " update      1 " in log.read_text(encoding="utf-8")):
        if process.poll():
            sys.exit(f"nmt train failed in {tree}:\n{process.stderr.read().decode() if process.stderr else ''}")
        time.sleep(0.01)
    seconds = time.perf_counter() - started
    process.kill()
    process.wait()
    shutil.rmtree(run)
    return seconds


def seconds_to_import_torch() -> float:
    """Return how long a process takes that imports torch."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--against", type=Path, help="another checkout, with the same config and corpora")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    trees = {"here": HERE, **({"against": arguments.against.resolve()} if arguments.against else {})}
    found: dict[str, list[float]] = {}
    for turn in range(arguments.rounds + 1):
        taken = {"import torch": seconds_to_import_torch()}
        for name, tree in trees.items():
            with tempfile.TemporaryDirectory() as folder:
                for state in ("cold", "again"):
                    taken[f"{name}, {state}"] = seconds_to_first_update(tree, arguments.config, Path(folder))
        for name, seconds in taken.items():
            found.setdefault(name, [])
            if turn:  # the first round fills the disk cache
                found[name].append(seconds)
    for name, times in found.items():
        print(f"{name:16} {statistics.median(times):.2f} s ({min(times):.2f} to {max(times):.2f})")
    for state in ("cold", "again") if arguments.against else ():
        ratios = [old / new for old, new in zip(found[f"against, {state}"], found[f"here, {state}"], strict=True)]
        print(f"against / here, {state}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
