"""How soon `nmt --help` and a config error answer, beside `import torch`: median and range of several rounds, in turn.

python benchmarks/startup.py [--rounds 7]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MISSPELT = """data: {source: en, target: fr, train: a.tsv}
model: {type: transformer}
training: {max_epochs: 1, learning_rte: 1}
"""


def seconds(command: list[str]) -> float:
    """Return how long a command takes."""
    started = time.perf_counter()
    subprocess.run(command, capture_output=True, check=False)
    return time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "misspelt.yaml"
        config.write_text(MISSPELT, encoding="utf-8")
        nmt = str(Path(sys.executable).with_name("nmt"))
        commands = {
            "import torch": [sys.executable, "-c", "import torch"],
            "nmt --help": [nmt, "--help"],
            "nmt train, misspelt key": [nmt, "train", str(config)],
        }
        found: dict[str, list[float]] = {name: [] for name in commands}
        for turn in range(rounds + 1):
            for name, command in commands.items():
                taken = seconds(command)
                if turn:  # the first round fills the disk cache
                    found[name].append(taken)
    whole = statistics.median(found["import torch"])
    for name, times in found.items():
        middle = statistics.median(times)
        print(f"{name:24} {middle:.3f} s ({min(times):.3f} to {max(times):.3f})  {middle / whole:.2f} of import torch")


if __name__ == "__main__":
    main()
