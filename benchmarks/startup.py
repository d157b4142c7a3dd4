"""How soon `nmt` answers, beside `import torch`: median and range of several rounds, in turn.

    python benchmarks/startup.py [RUN] [--rounds 7]

`--help` and a config error; with a RUN also the translation of one line, by CTranslate2 too where the run was exported with
`nmt export RUN --to ctranslate2 --in-place`.
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
    """Return how long a command takes, from its start until it has answered to a line and ended."""
    started = time.perf_counter()
    subprocess.run(command, input=b"A man is sleeping.\n", capture_output=True, check=False)
    return time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "misspelt.yaml"
        config.write_text(MISSPELT, encoding="utf-8")
        nmt = str(Path(sys.executable).with_name("nmt"))
        commands = {
            "import torch": [sys.executable, "-c", "import torch"],
            "nmt --help": [nmt, "--help"],
            "nmt train, misspelt key": [nmt, "train", str(config)],
        }
        if arguments.run is not None:
            commands["nmt translate"] = [nmt, "translate", str(arguments.run)]
            if (arguments.run / "export" / "ctranslate2").is_dir():
                commands["the same, CTranslate2"] = [nmt, "translate", str(arguments.run), "--engine", "ctranslate2"]
        found: dict[str, list[float]] = {name: [] for name in commands}
        for turn in range(arguments.rounds + 1):
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
