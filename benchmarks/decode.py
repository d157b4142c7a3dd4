"""Decoding speed beside other engines, all in one run: ours, CTranslate2, Marian, JoeyNMT; they take turns.

    nmt export RUN --to ctranslate2 --in-place
    python benchmarks/peers/train_peers.py PEERS --run RUN --recurrent GRU-RUN …
    python benchmarks/decode.py --run RUN --recurrent GRU-RUN --peers PEERS \
        --joeynmt-python JOEYNMT/bin/python --marian-python MARIAN/bin/python --out OUT

Every engine is a process of its own (`benchmarks/peers/worker.py`) that loads its model once. First each tries a few batch
sizes once and keeps its best, for each beam. Then, beam by beam, all are warmed up and translate the same lines in turn, in
`--rounds` rounds; only one works at a time. Seconds are those from raw lines to plain text. Output is counted here, for all
alike: words between spaces, and pieces of one sentencepiece model. Peak memory is the most that the process has held up to
the end of that beam's rounds. A ratio is that of pieces a second, ours / theirs: the median over ratios inside one round.

An engine that cannot be had is left out, and the report says so. OUT gets `decode.json`, `decode.md`, all translations and
what the engines said. `--tuned OUT/decode.json` takes the batch sizes of an earlier run instead of looking for them again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE
from typing import Any

import sacrebleu
import sentencepiece

from nmt_cli.text.parallel import read_lines

WORKER = Path(__file__).parent / "peers" / "worker.py"
TABLES = Path(__file__).parent / "decode_tables.py"
CORPUS = Path(__file__).parents[1] / "data" / "corpora" / "multi30k"
PAUSE_SECONDS = 0.5  # threads of the engine before may still be spinning
Setting = dict[str, Any]
OURS: list[Setting] = [{"batch_tokens": tokens} for tokens in (256, 512, 1024, 2048, 4096, 8192)]
SETTINGS: dict[str, list[Setting]] = {  # engine -> batch sizes to try
    "ours-torch": OURS,
    "ours-ctranslate2": OURS,
    "ctranslate2": [
        {"batch_type": kind, "max_batch_size": size, "parallel": parallel}
        for parallel in (False, True)  # one batch with all threads, or as many batches at once
        for kind, size in (*(("examples", size) for size in (16, 32, 64, 128)), ("tokens", 1024), ("tokens", 2048))
    ],
    "marian": [{"mini_batch": size, "maxi_batch": 1000, "workspace": 128} for size in (8, 16, 32, 64, 128)],
    "joeynmt": [{"batch_size": size} for size in (16, 32, 64, 128)],
}
GOALS = (  # group, ours, other, least ratio
    ("transformer", "ours by torch", "CTranslate2 float32", 1.0),
    ("transformer", "ours by torch", "Marian", 1.0),
    ("transformer", "ours by torch", "JoeyNMT", 5.0),
    ("transformer", "ours by CTranslate2 float32", "CTranslate2 float32", 0.97),
    ("transformer", "ours by CTranslate2 int8", "CTranslate2 int8", 0.97),
    ("recurrent", "ours by torch", "Marian", 1.0),
    ("recurrent", "ours by torch", "JoeyNMT", 3.0),
)


class WorkerError(Exception):
    """A worker cannot do what it was asked for."""


@dataclass(frozen=True)
class Engine:
    """An engine with a model.

    Args:
        group: `transformer` or `recurrent`.
        name: Name in the report.
        kind: What `worker.py` calls it.
        command: Starts its worker.
    """

    group: str
    name: str
    kind: str
    command: tuple[str, ...]

    @property
    def label(self) -> str:
        """Name with that of its kind of model."""
        return f"{self.group}: {self.name}"

    @property
    def stem(self) -> str:
        """Name of its files."""
        return self.label.replace(":", "").replace(" ", "-")


@dataclass(frozen=True)
class Measured:
    """One translation of all lines.

    Args:
        output: The translations.
        seconds: From raw lines to plain text.
        words: Words of the output, between spaces.
        pieces: Pieces of the output by the common sentencepiece model.
        peak_kb: Most resident memory of the worker so far.
    """

    output: list[str]
    seconds: float
    words: int
    pieces: int
    peak_kb: int


def engines_of(options: argparse.Namespace) -> list[Engine]:
    """Return all engines that the command line names, whether they can be had or not."""
    found = []

    def add(group: str, name: str, python: str | None, kind: str, folder: Path | None, compute_type: str = "float32") -> None:
        if python and folder:
            more = ("--threads", str(options.threads), "--compute-type", compute_type, "--pieces", str(options.pieces))
            found.append(Engine(group, name, kind, (python, str(WORKER), kind, str(folder), *more)))

    for group, run in (("transformer", options.run), ("recurrent", options.recurrent)):
        add(group, "ours by torch", sys.executable, "ours-torch", run)
        for compute_type in ("float32", "int8") if group == "transformer" else ():
            exported = run and run / "export" / "ctranslate2"
            add(group, f"ours by CTranslate2 {compute_type}", sys.executable, "ours-ctranslate2", run, compute_type)
            add(group, f"CTranslate2 {compute_type}", sys.executable, "ctranslate2", exported, compute_type)
        for name, kind in (("Marian", "marian"), ("JoeyNMT", "joeynmt")):
            folder = options.peers / f"{kind}-{group}" if options.peers and run else None
            add(group, name, getattr(options, f"{kind}_python"), kind, folder)
    return found


class Worker:
    """A running engine.

    Args:
        engine: The engine.
        threads: Threads that it may use.
        log: Where its messages go.
        pieces: Counts pieces.

    Raises:
        WorkerError: It does not start.
    """

    def __init__(self, engine: Engine, threads: int, log: Path, pieces: sentencepiece.SentencePieceProcessor) -> None:
        self._log, self._pieces = log, pieces
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "PYTHONUTF8": "1"}
        with log.open("a", encoding="utf-8") as stream:
            try:
                self._process = subprocess.Popen(
                    engine.command, stdin=PIPE, stdout=PIPE, stderr=stream, env=environment, encoding="utf-8"
                )
            except OSError as error:
                raise WorkerError(str(error)) from None
        self.versions: dict[str, str] = self._read()["versions"]

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            said = self._log.read_text(encoding="utf-8", errors="replace").strip()
            raise WorkerError(f"it ended with {self._process.wait()}: {said.rpartition(chr(10))[2]}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def run(self, lines: Sequence[str], beam: int, setting: Setting) -> Measured:
        """Translate lines.

        Raises:
            WorkerError: It cannot, or has died.
        """
        assert self._process.stdin
        time.sleep(PAUSE_SECONDS)
        try:
            print(json.dumps({"lines": lines, "beam": beam, "setting": setting}), file=self._process.stdin, flush=True)
        except OSError as error:
            raise WorkerError(str(error)) from None
        answer = self._read()
        output: list[str] = answer["output"]
        words, pieces = (sum(map(len, split)) for split in (map(str.split, output), self._pieces.encode(output)))
        return Measured(output, answer["seconds"], words, pieces, answer["peak_kb"])

    def close(self) -> None:
        """End it."""
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(OSError):  # it may have died
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@dataclass
class Bench:
    """What all measurements share.

    Args:
        lines: To translate.
        references: Their translations by people.
        beams: Beam sizes.
        rounds: Turns of each engine.
        threads: Threads of each.
        tune_lines: Lines that batch sizes are tried on.
        out: Folder of results.
        pieces: Counts pieces.
        tuned: Engine -> beam -> best setting.
        left_out: Engine -> why.
        versions: Of all engines.
    """

    lines: list[str]
    references: list[str]
    beams: list[int]
    rounds: int
    threads: int
    tune_lines: int
    out: Path
    pieces: sentencepiece.SentencePieceProcessor
    tuned: dict[str, dict[str, Setting]]
    left_out: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def start(self, engine: Engine) -> Worker:
        """Start the worker of an engine."""
        worker = Worker(engine, self.threads, self.out / f"{engine.stem}.log", self.pieces)
        self.versions |= worker.versions
        return worker

    @contextlib.contextmanager
    def leaving_out(self, engine: Engine) -> Iterator[None]:
        """Note an engine that cannot do something; the others go on."""
        try:
            yield
        except WorkerError as error:
            self.left_out[engine.label] = str(error)
            print(f"{engine.label} is left out: {error}", flush=True)

    def tune(self, engine: Engine) -> None:
        """Find the batch size of each beam, in a worker of its own: it must not count in the memory of the other.

        Raises:
            WorkerError: It cannot be had.
        """
        if engine.label in self.tuned:
            return
        worker, settings, lines = self.start(engine), SETTINGS[engine.kind], self.lines[: self.tune_lines]
        best: dict[str, Setting] = {}
        try:
            for beam in self.beams:
                worker.run(lines[:100], beam, settings[0])
                speeds = [len(lines) / worker.run(lines, beam, setting).seconds for setting in settings]
                best[str(beam)] = settings[speeds.index(max(speeds))]
                tried = "; ".join(f"{short(s)}: {speed:.0f}" for s, speed in zip(settings, speeds, strict=True))
                print(f"{engine.label}, beam {beam}, sentences/s: {tried}", flush=True)
        finally:
            worker.close()
        self.tuned[engine.label] = best

    def measure(self, engines: Sequence[Engine]) -> dict[str, dict[int, list[Measured]]]:
        """Return name -> beam -> each round's results. The engines take turns, beginning with another one each round."""
        workers: dict[str, Worker] = {}
        found: dict[str, dict[int, list[Measured]]] = {engine.name: {beam: [] for beam in self.beams} for engine in engines}
        for engine in engines:
            with self.leaving_out(engine):
                self.tune(engine)
        for engine in engines:
            with self.leaving_out(engine):
                workers |= {} if engine.label in self.left_out else {engine.name: self.start(engine)}
        for beam in self.beams:
            for turn in range(self.rounds + 1):  # the first one warms up
                shift = turn % len(engines)
                for engine in [*engines[shift:], *engines[:shift]]:
                    if engine.label in self.left_out:
                        continue
                    with self.leaving_out(engine):
                        measured = workers[engine.name].run(self.lines, beam, self.tuned[engine.label][str(beam)])
                        found[engine.name][beam] += [measured] if turn else []
                        speed = measured.pieces / measured.seconds
                        print(f"{engine.label}, beam {beam}, round {turn}: {speed:,.0f} pieces/s", flush=True)
        for worker in workers.values():
            worker.close()
        return {engine.name: found[engine.name] for engine in engines if engine.label not in self.left_out}

    def results(self, group: str, engines: Sequence[Engine]) -> dict[str, Any]:
        """Measure a group and return a row for each engine and beam, and the ratios that have a goal."""
        found = self.measure(engines)
        rows, ratios = [], []
        for beam in self.beams:
            for engine in engines:
                if engine.name in found:
                    rows.append(self.row(engine, beam, found[engine.name][beam]))
            for wanted, ours, other, goal in GOALS:
                if wanted == group and ours in found and other in found:
                    compared = ratio(found[ours][beam], found[other][beam])
                    verdict = {"goal": goal, "reached": compared["median"] >= goal}
                    ratios.append({"ours": ours, "other": other, "beam": beam, **compared, **verdict})
        return {"rows": rows, "ratios": ratios}

    def row(self, engine: Engine, beam: int, runs: Sequence[Measured]) -> dict[str, Any]:
        """Return the results of one engine at one beam, and write its translations."""
        last = runs[-1]
        text = "".join(f"{line}\n" for line in last.output)
        (self.out / f"{engine.stem}-beam{beam}.txt").write_text(text, encoding="utf-8")
        return {
            "engine": engine.name,
            "beam": beam,
            "setting": self.tuned[engine.label][str(beam)],
            "words": last.words,
            "pieces": last.pieces,
            "pieces_per_second": spread([run.pieces / run.seconds for run in runs]),
            "words_per_second": spread([run.words / run.seconds for run in runs]),
            "sentences_per_second": spread([len(run.output) / run.seconds for run in runs]),
            "seconds": [run.seconds for run in runs],
            "peak_mb": last.peak_kb / 1024,
            "bleu": sacrebleu.corpus_bleu(last.output, [self.references]).score,
            "same_every_round": all(run.output == last.output for run in runs),
        }


def short(setting: Setting) -> str:
    """Return a setting as a short text."""
    return " ".join(f"{key.replace('_', ' ')} {value}" for key, value in setting.items())


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, least and greatest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratio(ours: Sequence[Measured], theirs: Sequence[Measured]) -> dict[str, float]:
    """Return our pieces a second by theirs, round by round."""
    return spread([a.pieces / a.seconds / (b.pieces / b.seconds) for a, b in zip(ours, theirs, strict=True)])


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="run folder of our Transformer, exported in place")
    parser.add_argument("--recurrent", type=Path, help="run folder of our recurrent model")
    parser.add_argument("--peers", type=Path, help="folder that benchmarks/peers/train_peers.py made")
    parser.add_argument("--joeynmt-python", help="interpreter that has JoeyNMT")
    parser.add_argument("--marian-python", help="interpreter that has pymarian")
    parser.add_argument("--pieces", type=Path, help="sentencepiece model that counts; default: that of --run or --recurrent")
    parser.add_argument("--source", type=Path, default=CORPUS / "test_2016_flickr.en.gz")
    parser.add_argument("--reference", type=Path, default=CORPUS / "test_2016_flickr.fr.gz")
    parser.add_argument("--lines", type=int, help="translate only the first so many")
    parser.add_argument("--tune-lines", type=int, help="try batch sizes on the first so many only")
    parser.add_argument("--tuned", type=Path, help="decode.json of an earlier run, whose batch sizes are taken")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    runs = [run / "tokenizer" / "shared.model" for run in (options.run, options.recurrent) if run]
    options.pieces = options.pieces or (runs[0] if runs else parser.error("give --run or --recurrent"))
    return options


def main() -> None:
    """Measure and write the report."""
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    lines, references = (read_lines(path)[: options.lines] for path in (options.source, options.reference))
    bench = Bench(
        lines=lines,
        references=references,
        beams=options.beams,
        rounds=options.rounds,
        threads=options.threads,
        tune_lines=options.tune_lines or len(lines),
        out=options.out,
        pieces=sentencepiece.SentencePieceProcessor(model_file=str(options.pieces)),
        tuned=json.loads(options.tuned.read_text(encoding="utf-8"))["tuned"] if options.tuned else {},
    )
    groups: dict[str, list[Engine]] = {}
    for engine in engines_of(options):
        groups.setdefault(engine.group, []).append(engine)
    measured = {group: bench.results(group, engines) for group, engines in groups.items()}
    results = {
        "sentences": len(lines),
        "rounds": bench.rounds,
        "threads": bench.threads,
        "versions": bench.versions,
        "groups": measured,
        "left_out": bench.left_out,
        "tuned": bench.tuned,
    }
    (bench.out / "decode.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    subprocess.run([sys.executable, TABLES, bench.out / "decode.json", "--out", bench.out / "decode.md"], check=True)


if __name__ == "__main__":
    main()
