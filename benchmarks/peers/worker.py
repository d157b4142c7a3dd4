"""One translation engine behind a pipe, for `benchmarks/decode.py`: it loads its model once, then answers requests.

    python benchmarks/peers/worker.py joeynmt FOLDER [--threads 2] [--compute-type float32] [--pieces shared.model]

ENGINE is one of
- ours-torch, ours-ctranslate2: FOLDER is a run folder, for the latter with an export in place;
- ctranslate2: FOLDER is what `nmt export --to ctranslate2` made, `--pieces` its sentencepiece model;
- marian: FOLDER holds `model.npz` and `vocab.spm`;
- joeynmt: FOLDER holds `config.yaml`, `latest.ckpt` and the files that they name.

It first writes {"ready": true, "versions": {...}} on a line. A request is a line of JSON with "lines", "beam" and "setting";
the answer has "output", "seconds" and "peak_kb" (most resident memory of this process so far), or "error". Seconds are those
from raw lines to plain text; what a new setting needs is made ready before the clock starts. The end of the input ends it.

It runs in the interpreter of the engine that it drives, which need not have anything of this project, on as many cores as it
may have threads.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

Setting = Mapping[str, Any]


class Engine(Protocol):
    """What a request needs."""

    versions: dict[str, str]

    def prepare(self, beam: int, setting: Setting) -> None:
        """Make ready for a beam and a batch size."""

    def translate(self, lines: Sequence[str]) -> list[str]:
        """Return the translation of each line."""


def version_of(*packages: str) -> dict[str, str]:
    """Return the versions of packages."""
    metadata = importlib.import_module("importlib.metadata")
    return {package: metadata.version(package) for package in packages}


class Ours:
    """A run of this project. Setting: `batch_tokens`, source tokens of a batch with padding."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._translator = self._load(options)
        self.versions = version_of("nmt-cli", "torch" if options.engine == "ours-torch" else "ctranslate2")

    @staticmethod
    def _load(options: argparse.Namespace) -> Any:
        """Return the translator: the one place that knows how a run is loaded."""
        from nmt_cli import load_run

        if options.engine == "ours-torch":
            torch = importlib.import_module("torch")
            torch.set_num_threads(options.threads)
            return load_run(options.folder, device="cpu")
        return load_run(options.folder, device="cpu", engine="ctranslate2", precision=options.compute_type)

    def prepare(self, beam: int, setting: Setting) -> None:
        """Set beam and batch size."""
        settings = self._translator.settings
        search = dataclasses.replace(settings.search, beam_size=beam, length_penalty=1.0)
        self._translator.settings = dataclasses.replace(settings, search=search, **setting)

    def translate(self, lines: Sequence[str]) -> list[str]:
        """Translate."""
        output: list[str] = self._translator.translate(lines)
        return output


class CTranslate2:
    """CTranslate2 by its own interface. Setting: `max_batch_size`, `batch_type`, `parallel`.

    With `parallel` it translates as many batches at once as there are threads, each with one, else one with all.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._library = importlib.import_module("ctranslate2")
        pieces = importlib.import_module("sentencepiece")
        self._pieces = pieces.SentencePieceProcessor(model_file=options.pieces)
        config = json.loads((Path(options.folder) / "config.json").read_text(encoding="utf-8"))
        self._source_end = [] if config["add_source_eos"] else [config["eos_token"]]
        self._parallel: bool | None = None
        self._translator: Any = None
        self._how: dict[str, Any] = {}
        self.versions = version_of("ctranslate2")

    def prepare(self, beam: int, setting: Setting) -> None:
        """Load the model for a layout of threads unless it is there."""
        parallel, threads = setting["parallel"], self._options.threads
        if parallel != self._parallel:
            self._parallel, self._translator = parallel, None
            self._translator = self._library.Translator(
                self._options.folder,
                device="cpu",
                compute_type=self._options.compute_type,
                inter_threads=threads if parallel else 1,
                intra_threads=1 if parallel else threads,
            )
        self._how = {
            "beam_size": beam,
            "length_penalty": 1.0,
            "max_batch_size": setting["max_batch_size"],
            "batch_type": setting["batch_type"],
        }

    def translate(self, lines: Sequence[str]) -> list[str]:
        """Translate; the library sorts by length and cuts into batches itself."""
        sources = [pieces + self._source_end for pieces in self._pieces.encode(list(lines), out_type=str)]
        results = self._translator.translate_batch(sources, **self._how)
        output: list[str] = self._pieces.decode([result.hypotheses[0] for result in results])
        return output


class Marian:
    """Marian through pymarian. Setting: `mini_batch`, `maxi_batch`, `workspace` (megabytes a thread)."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._library = importlib.import_module("pymarian")
        self._made: tuple[int, dict[str, Any]] | None = None
        self._translator: Any = None
        self.versions = version_of("pymarian")

    def prepare(self, beam: int, setting: Setting) -> None:
        """Make the translator of a beam and batch size unless it is there: both are options of its constructor."""
        wanted = beam, dict(setting)
        if wanted == self._made:
            return
        self._made, self._translator = wanted, None
        folder = Path(self._options.folder)
        vocabulary = str(folder / "vocab.spm")
        self._translator = self._library.Translator(
            models=str(folder / "model.npz"),
            vocabs=[vocabulary, vocabulary],
            cpu_threads=self._options.threads,
            beam_size=beam,
            normalize=1.0,
            maxi_batch_sort="src",
            quiet="",
            **({"skip_cost": ""} if beam == 1 else {}),  # greedy search needs no softmax
            **setting,
        )

    def translate(self, lines: Sequence[str]) -> list[str]:
        """Translate; it sorts `maxi_batch` batches by length itself."""
        output: list[str] = self._translator.translate(list(lines))
        return output


class JoeyNMT:
    """JoeyNMT by the interface that it offers to torch.hub. Setting: `batch_size`, sentences.

    It translates in the order of the lines; they are sorted by length for it, which is much faster.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        importlib.import_module("torch").set_num_threads(options.threads)
        hub = importlib.import_module("joeynmt.hub_interface")
        model, dataset, arguments = hub._from_pretrained(options.folder)
        self._translator = hub.TranslatorHubInterface(model, dataset, arguments)
        self._beam, self._batch_size = 1, 1
        self.versions = version_of("joeynmt", "torch")

    def prepare(self, beam: int, setting: Setting) -> None:
        """Note beam and batch size."""
        self._beam, self._batch_size = beam, setting["batch_size"]

    def translate(self, lines: Sequence[str]) -> list[str]:
        """Translate batches of similar length."""
        order = sorted(range(len(lines)), key=lambda index: -len(lines[index]))
        output = [""] * len(lines)
        for start in range(0, len(order), self._batch_size):
            batch = order[start : start + self._batch_size]
            found = self._translator.translate(
                [lines[index] for index in batch], beam_size=self._beam, beam_alpha=1.0, n_best=1, generate_unk=False
            )
            for index, text in zip(batch, found, strict=True):
                output[index] = text
        return output


ENGINES: dict[str, type[Ours] | type[CTranslate2] | type[Marian] | type[JoeyNMT]] = {
    "ours-torch": Ours,
    "ours-ctranslate2": Ours,
    "ctranslate2": CTranslate2,
    "marian": Marian,
    "joeynmt": JoeyNMT,
}


def peak_kb() -> int:
    """Return the most resident memory that this process has had, in kilobytes."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


def answer(engine: Engine, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a request."""
    lines: list[str] = request["lines"]
    try:
        engine.prepare(request["beam"], request["setting"])
        started = time.perf_counter()
        output = engine.translate(lines)
        seconds = time.perf_counter() - started
    except Exception as error:  # any engine's: the benchmark goes on without it
        return {"error": f"{type(error).__name__}: {error}"}
    if len(output) != len(lines):
        return {"error": f"{len(lines)} lines went in, {len(output)} came out"}
    return {"output": output, "seconds": seconds, "peak_kb": peak_kb()}


def main() -> None:
    """Load the model and answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=list(ENGINES))
    parser.add_argument("folder")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compute-type", default="float32")
    parser.add_argument("--pieces")
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    os.dup2(2, 1)  # whatever an engine prints goes to standard error
    engine: Engine = ENGINES[options.engine](options)
    print(json.dumps({"ready": True, "versions": engine.versions}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(engine, json.loads(line)), ensure_ascii=False), file=answers, flush=True)


if __name__ == "__main__":
    main()
