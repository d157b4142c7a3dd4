"""A million lines through a pipe: as many come out, in order, and memory stays flat.

    python benchmarks/stream.py RUN FILE [--lines 1000000] [--beam 1] [--out DIR] [-- options of nmt translate]

The lines of FILE are repeated. Every line that comes out is compared with the first translation of the same line; lines that
differ are counted: batches differ in size, and two hypotheses whose scores are within 1e-4 may change places. The resident
memory of `nmt translate` is read once a second, and drawn to DIR/stream.png with the numbers in DIR/stream.json.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

Memory = list[tuple[float, int, float]]
"""(seconds, lines out, resident memory in MB)"""


def feed(pipe: IO[bytes], lines: Sequence[bytes], count: int) -> None:
    """Write `count` lines, over and over the same ones."""
    written = 0
    while written < count:
        block = lines[: count - written]
        pipe.write(b"".join(block))
        written += len(block)
    pipe.close()


def resident(process: int) -> float:
    """Return the resident memory of a process in MB."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def draw(memory: Memory, path: Path) -> None:
    """Draw memory against lines."""
    figure = Figure(figsize=(7, 3), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot([lines for _, lines, _ in memory], [size for _, _, size in memory])
    axes.set_xlabel("lines translated")
    axes.set_ylabel("resident memory (MB)")
    axes.set_ylim(bottom=0)
    axes.ticklabel_format(style="plain", axis="x")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def main() -> int:
    """Run, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out"))
    arguments, more = parser.parse_known_args()
    opened = gzip.open if arguments.file.suffix == ".gz" else open
    with opened(arguments.file, "rb") as stream:
        lines = [line.rstrip(b"\n") + b"\n" for line in stream]
    command = [sys.executable, "-m", "nmt_cli", "translate", str(arguments.run), "--beam", str(arguments.beam)]
    process = subprocess.Popen([*command, *(o for o in more if o != "--")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    threading.Thread(target=feed, args=(process.stdin, lines, arguments.lines), daemon=True).start()
    first: list[bytes] = []
    memory: Memory = []
    out = differ = 0
    started = looked = time.monotonic()
    for line in process.stdout:
        if out < len(lines):
            first.append(line)
        else:
            differ += line != first[out % len(lines)]
        out += 1
        if time.monotonic() - looked >= 1:
            looked = time.monotonic()
            memory.append((looked - started, out, resident(process.pid)))
    code = process.wait()
    seconds = time.monotonic() - started
    arguments.out.mkdir(parents=True, exist_ok=True)
    draw(memory, arguments.out / "stream.png")
    sizes = [size for _, lines_out, size in memory if lines_out >= out / 10] or [0.0]
    result = {
        "lines_in": arguments.lines,
        "lines_out": out,
        "differ": differ,
        "exit": code,
        "seconds": seconds,
        "lines_a_second": out / seconds,
        "memory_mb_after_a_tenth": sizes[0],
        "memory_mb_at_the_end": sizes[-1],
        "memory_mb_peak": max(size for _, _, size in memory) if memory else 0.0,
    }
    (arguments.out / "stream.json").write_text(json.dumps({**result, "memory": memory}, indent=1) + "\n", encoding="utf-8")
    for name, value in result.items():
        print(f"{name:24} {value:,.1f}" if isinstance(value, float) else f"{name:24} {value:,}")
    return int(code != 0 or out != arguments.lines)


if __name__ == "__main__":
    sys.exit(main())
