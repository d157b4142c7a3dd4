"""Training speed beside other engines and beside the floor of the arithmetic, all in one run: they take turns.

    python benchmarks/train.py --joeynmt-python JOEYNMT/bin/python --marian-python MARIAN/bin/python \
        --d2l-python D2L/bin/python --tatoeba data/corpora/tatoeba-600/eng-fra.tsv --out OUT

Every engine is a process of its own that trains all the time, but only one runs at once; the others are stopped by a signal.
One after the other goes on for `--seconds`, in `--rounds` rounds after one to warm up, and says after each update how many real
target tokens (with end marks) it had. The clock is ours: it runs from the end of the first update after `SETTLE_SECONDS` to the
end of the first one after the window, so whole updates are counted, drawing batches included. All engines have the same corpus,
the same pieces, the same sizes, dropout, precision (float32) and threads, and about the same number of real target tokens an
update; how many is in the report. Ours is the loop of `nmt train` without validations and checkpoints.

Sizes are those of `benchmarks/train_cases.py`; `d2l` stands for both of the book's. The floor (`benchmarks/floor.py`) is the
time of the matrix products of our batches; at the book's sizes calls cost more than products, so there is none there. A ratio
is that of target tokens a second, ours / theirs: the median over ratios inside one round. Peak memory is the most that the
engine's processes have held.

An engine that cannot be had is left out, and the report says so. OUT gets `train.json`, `train.md` and what the engines said.

Environments for the others: those of `benchmarks/peers/train_peers.py`, and one with `pip install torch==2.13.0 numpy pandas
matplotlib matplotlib-inline ipython requests pillow` and `pip install --no-deps d2l==0.17.6`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # to be found when started as a file

from benchmarks.peers.train_peers import Plan, joeynmt_command, marian_command, prepare_data
from benchmarks.train_cases import CASES, FLOOR, Case, Goal, config_of, trainer_of
from benchmarks.train_tables import markdown
from nmt_cli.config import Seq2SeqConfig, TransformerConfig

TRAINER = Path(__file__).parent / "peers" / "trainer.py"
OURS = "ours"
SETTLE_SECONDS = 0.5  # caches are cold and threads asleep when an engine goes on
LEAST_UPDATES = 2
PATIENCE_SECONDS = 300  # for an engine that says nothing, beyond its turn
MARIAN_WORDS, JOEYNMT_SENTENCES = 1950, 130  # with these both have about 2,200 real target tokens an update
PACKAGES = {"JoeyNMT": ("joeynmt", "torch"), "Marian": ("pymarian",), "d2l": ("d2l", "torch")}
MARIAN_UPDATE = re.compile(r"Up\. \d+ .* Cost \S+ \* ([\d,]+)")  # target labels since the line before


class EngineError(Exception):
    """An engine cannot do what it was asked for."""


@dataclass(frozen=True)
class Window:
    """What an engine did in its turn.

    Args:
        tokens: Real target tokens of whole updates.
        updates: How many updates.
        seconds: From the end of the update before them to the end of the last.
        flops: Floating-point operations, of the floor only.
    """

    tokens: int
    updates: int
    seconds: float
    flops: int = 0

    @property
    def speed(self) -> float:
        """Target tokens a second."""
        return self.tokens / self.seconds


def update_of(line: str) -> tuple[int, int] | None:
    """Return the target tokens and floating-point operations (0 where it does not say) of an update; None of other lines."""
    if line.startswith('{"tokens"'):
        found = json.loads(line)
        return found["tokens"], found.get("flops", 0)
    marian = MARIAN_UPDATE.search(line)
    return (int(marian[1].replace(",", "")), 0) if marian else None


class Process:
    """A running engine; it is stopped whenever it is not its turn.

    Args:
        command: Starts it.
        threads: Threads that it may use.
        log: Where its messages go.

    Raises:
        EngineError: It does not start to train.
    """

    def __init__(self, command: Sequence[str], threads: int, log: Path) -> None:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
            "PYTHONUTF8": "1",
            "PYTHONUNBUFFERED": "1",
        }
        self._log = log.open("w", encoding="utf-8")
        try:
            self._process = subprocess.Popen(
                command, stdout=PIPE, stderr=STDOUT, env=environment, encoding="utf-8", errors="replace", start_new_session=True
            )
        except OSError as error:
            self._log.close()
            raise EngineError(str(error)) from None
        try:
            with self._patience(0):
                self._next_update()
        except EngineError:
            self.close()
            raise
        self._signal(signal.SIGSTOP)

    def window(self, seconds: float) -> Window:
        """Let it train for some seconds.

        Raises:
            EngineError: It has died.
        """
        self._signal(signal.SIGCONT)
        with self._patience(seconds):
            settled = time.perf_counter() + SETTLE_SECONDS
            while time.perf_counter() < settled:
                self._next_update()
            started = now = time.perf_counter()
            tokens = updates = flops = 0
            while now - started < seconds or updates < LEAST_UPDATES:
                more_tokens, more_flops = self._next_update()
                now = time.perf_counter()
                tokens, updates, flops = tokens + more_tokens, updates + 1, flops + more_flops
        self._signal(signal.SIGSTOP)
        return Window(tokens, updates, now - started, flops)

    def peak_kb(self) -> int:
        """Return the most memory that its processes have held, each by itself."""
        peaks = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # some end while we look
                if os.getpgid(int(path.name)) == self._process.pid:
                    status = (path / "status").read_text(encoding="utf-8")
                    peaks += re.findall(r"VmHWM:\s*(\d+) kB", status)
        return sum(map(int, peaks))

    def close(self) -> None:
        """End it."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout
        self._process.stdout.close()
        self._log.close()

    def _next_update(self) -> tuple[int, int]:
        assert self._process.stdout
        for line in self._process.stdout:
            update = update_of(line)
            if update is not None:
                return update
            self._log.write(line)
        self._log.flush()
        said = Path(self._log.name).read_text(encoding="utf-8").strip()
        raise EngineError(f"it ended with {self._process.wait()}: {said.rpartition(chr(10))[2]}")

    @contextlib.contextmanager
    def _patience(self, seconds: float) -> Iterator[None]:
        """End it when it takes far longer than it should."""
        timer = threading.Timer(seconds + PATIENCE_SECONDS, self._signal, [signal.SIGKILL])
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def commands_of(name: str, options: argparse.Namespace) -> dict[str, list[str]]:
    """Return engine -> what starts it, for a size: those that the command line names."""
    case, data = CASES[name], options.out / "data"
    here = [sys.executable, __file__, "--worker", name, "--out", str(options.out)]
    commands = {OURS: here}
    if case.book:
        if options.d2l_python:
            commands["d2l"] = [options.d2l_python, str(TRAINER), "d2l", case.kind, str(data / "book.tsv")]
        return commands
    commands[FLOOR] = [sys.executable, str(Path(__file__).with_name("floor.py")), name, str(data)]
    plan = plan_of(case, options)
    if options.marian_python:
        _, _, _, _, *rest = marian_command(options.marian_python, plan, f"{name}-marian", case.kind)
        commands["Marian"] = [options.marian_python, str(TRAINER), "marian", *rest]
    if options.joeynmt_python:
        joeynmt_command(options.joeynmt_python, plan, f"{name}-joeynmt", case.kind)
        config = plan.work / f"{name}-joeynmt.yaml"
        commands["JoeyNMT"] = [options.joeynmt_python, str(TRAINER), "joeynmt", str(config)]
    return commands


def plan_of(case: Case, options: argparse.Namespace) -> Plan:
    """Return what JoeyNMT and Marian need to know; only the sizes of the case's own kind matter."""
    sizes = case.model
    transformer = sizes if isinstance(sizes, TransformerConfig) else TransformerConfig(type="transformer")
    recurrent = sizes if isinstance(sizes, Seq2SeqConfig) else Seq2SeqConfig(type="seq2seq")
    words = options.marian_words * options.threads  # the plan divides them by the threads
    return Plan(
        options.out,
        transformer,
        recurrent,
        words,
        options.joeynmt_sentences,
        options.threads,
        log_every=1,
        marian_cost="ce-sum",
    )


@dataclass
class Bench:
    """What all measurements share.

    Args:
        options: The command line.
        left_out: Engine -> why.
    """

    options: argparse.Namespace
    left_out: dict[str, str] = field(default_factory=dict)

    def start(self, name: str, processes: dict[str, Process]) -> None:
        """Start all engines of a size, one after the other, and enter them into `processes`."""
        for engine, command in commands_of(name, self.options).items():
            log = self.options.out / f"{name}-{engine}.log"
            print(f"{name}: {engine} starts", flush=True)
            try:
                processes[engine] = Process(command, self.options.threads, log)
            except EngineError as error:
                self.leave_out(f"{name}: {engine}", error)

    def leave_out(self, label: str, why: EngineError) -> None:
        """Note an engine that cannot do something; the others go on."""
        self.left_out[label] = str(why)
        print(f"{label} is left out: {why}", flush=True)

    def measure(self, name: str) -> dict[str, Any]:
        """Return the results of a size. The engines take turns, beginning with another one each round."""
        processes: dict[str, Process] = {}
        peaks: dict[str, int] = {}
        try:
            self.start(name, processes)
            windows: dict[str, list[Window]] = {engine: [] for engine in processes}
            for turn in range(self.options.rounds + 1):  # the first one warms up
                engines = list(processes)
                shift = turn % max(1, len(engines))
                for engine in [*engines[shift:], *engines[:shift]]:
                    try:
                        window = processes[engine].window(self.options.seconds)
                    except EngineError as error:
                        self.leave_out(f"{name}: {engine}", error)
                        processes.pop(engine).close()
                        continue
                    windows[engine] += [window] if turn else []
                    peaks[engine] = processes[engine].peak_kb()
                    print(f"{name}, round {turn}: {engine} {window.speed:,.0f} target tokens/s", flush=True)
        finally:
            for process in processes.values():
                process.close()
        whole = {engine: windows[engine] for engine in processes}
        return {"title": CASES[name].title, "rows": rows_of(whole, peaks, CASES[name].goals)}


def rows_of(
    windows: Mapping[str, Sequence[Window]], peaks: Mapping[str, int], goals: Mapping[str, Goal]
) -> list[dict[str, Any]]:
    """Return a row of results for each engine; `ours_by_this` of others is our speed by theirs, round by round."""
    rows = []
    for engine, found in windows.items():
        tokens, updates, taken = (sum(getattr(window, name) for window in found) for name in ("tokens", "updates", "seconds"))
        row: dict[str, Any] = {
            "engine": engine,
            "tokens_per_second": spread([window.speed for window in found]),
            "rounds": [window.speed for window in found],
            "tokens_per_update": tokens / updates,
            "updates": updates,
            "peak_mb": peaks[engine] / 1024,
        }
        if engine == FLOOR:
            flops = sum(window.flops for window in found)
            row |= {"gflop_per_update": flops / updates / 1e9, "gflop_per_second": flops / taken / 1e9}
        if engine != OURS and OURS in windows:
            ratios = spread([ours.speed / theirs.speed for ours, theirs in zip(windows[OURS], found, strict=True)])
            row["ours_by_this"] = ratios
            if engine in goals:
                goal = goals[engine]
                reached = {"reached": ratios["median"] >= goal.least, "wanted_reached": ratios["median"] >= goal.wanted}
                row["goal"] = {"least": goal.least, "wanted": goal.wanted, **reached}
        rows.append(row)
    return rows


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, least and greatest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def versions_of(options: argparse.Namespace) -> dict[str, str]:
    """Return the versions of our torch and of all packages of others."""
    found = {"torch (ours)": version("torch")}
    program = "import importlib.metadata as m, sys; print(*(m.version(name) for name in sys.argv[1:]), sep='\\n')"
    for engine, packages in PACKAGES.items():
        python = getattr(options, f"{engine.lower()}_python")
        if python:
            answer = subprocess.run([python, "-c", program, *packages], stdout=PIPE, encoding="utf-8", check=False).stdout
            found |= dict(zip((f"{name} ({engine})" for name in packages), answer.split(), strict=False))
    return found


def work(name: str, out: Path) -> None:
    """Train with ours until killed."""
    trainer = trainer_of(config_of(name, out / "data"), out / "no-run")
    trainer.model.train()
    while True:
        group = trainer.next_group()
        trainer.update(group)
        print(json.dumps({"tokens": sum(batch.tokens for batch in group)}), flush=True)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=[*CASES, "d2l"], help="default: all; d2l only with --tatoeba")
    parser.add_argument("--joeynmt-python", help="interpreter that has JoeyNMT")
    parser.add_argument("--marian-python", help="interpreter that has pymarian")
    parser.add_argument("--d2l-python", help="interpreter that has the d2l book's package")
    parser.add_argument("--tatoeba", type=Path, help="the book's sentence pairs, eng-fra.tsv")
    parser.add_argument("--pieces", type=Path, help="sentencepiece model; default: 8,000 pieces learned from both sides")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=12.0, help="of each turn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--marian-words", type=int, default=MARIAN_WORDS, help="--mini-batch-words of Marian, of each thread")
    parser.add_argument("--joeynmt-sentences", type=int, default=JOEYNMT_SENTENCES, help="batch_size of JoeyNMT")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--worker", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out = options.out.resolve()
    given = options.sizes or [name for name, case in CASES.items() if options.tatoeba or not case.book]
    options.sizes = [name for name in CASES if name in given or ("d2l" in given and CASES[name].book)]
    if any(CASES[name].book for name in options.sizes) and not (options.tatoeba and options.tatoeba.is_file()):
        parser.error(
            "--tatoeba: the book's sizes need its sentence pairs, eng-fra.tsv, but there is no such file at "
            f"{options.tatoeba}; `nmt fetch tatoeba-600` brings it, or leave d2l out of --sizes"
        )
    return options


def lay_out(options: argparse.Namespace) -> None:
    """Write the corpora into the folder of results, the same for all engines."""
    data = options.out / "data"
    if any(not CASES[name].book for name in options.sizes):
        prepare_data(data, options.pieces)
    if options.tatoeba:
        data.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(options.tatoeba, data / "book.tsv")


def main() -> None:
    """Measure and write the report."""
    options = arguments()
    if options.worker:
        work(options.worker, options.out)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the engines are ended too
    lay_out(options)
    bench = Bench(options)
    for engine in PACKAGES:
        if not getattr(options, f"{engine.lower()}_python"):
            bench.left_out[engine] = f"--{engine.lower()}-python was not given"
    results: dict[str, Any] = {
        "rounds": options.rounds,
        "seconds": options.seconds,
        "threads": options.threads,
        "versions": versions_of(options),
        "sizes": {},
        "left_out": bench.left_out,
    }
    for name in options.sizes:
        results["sizes"][name] = bench.measure(name)
        (options.out / "train.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        (options.out / "train.md").write_text(markdown(results), encoding="utf-8")
    print(f"\n{markdown(results)}")


if __name__ == "__main__":
    main()
