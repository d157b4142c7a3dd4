"""How training grows with its corpus: preparation, memory, start and reading of batches, on made-up text.

    python benchmarks/corpus_size.py FOLDER --out build/corpus_size [--sizes 0.2,2,20] [--prepare 2] [--updates 5]

Sizes are millions of pairs. Each corpus is two text files in FOLDER: a million pairs take about 220 MB, their ids 100 MB. While
preparation is measured (`--prepare`) a second store is there. FOLDER holds one size at a time, so that 20 million pairs need
about 7 GB, 9 GB with `--prepare 20`; `--keep` leaves the files there. Results of earlier calls with the same `--out` are kept,
so that the sizes can be measured one by one.

The text: 30,000 made-up words a side, drawn by Zipf's law (the word of rank r in proportion to 1/r), 5 to 25 words a sentence.
The target has the word of the same rank for each source word, and one place in ten is swapped with its neighbour. All follows
from a fixed seed and the number of pairs.

Measured, each in a process of its own:

prepare      pairs a second from text to a finished store, vocabulary not counted, with one process, whose tokenizer uses all
             cores, and with two, which use one each
train        a real `nmt train` of a tiny Transformer for some updates, from nothing and with the store there: seconds from the
             start of the command to its first update, peak resident memory of that process (VmHWM), and of that what is no
             file (the highest RssAnon that was seen)
batches      seconds from an empty process to the first batch with the store there, importing included; target tokens a second
             of 200 batches of 2,400 tokens, nothing else being done; resident memory afterwards
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

WORDS, SHORTEST, LONGEST, SWAPPED, SEED = 30_000, 5, 25, 0.1, 11
SYLLABLES = [f"{consonant}{vowel}" for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
AT_ONCE = 100_000
BATCHES, BATCH_TOKENS = 200, 2400
CONFIG = """data:
  source: en
  target: fr
  train: {{source: {source}, target: {target}}}
tokenizer: {{type: sentencepiece, vocab_size: 8000, shared: true}}
model: {{type: transformer, width: 16, heads: 2, feed_forward: 32, encoder_layers: 1, decoder_layers: 1}}
training: {{batch_tokens: {tokens}, learning_rate: 1.0e-3, max_updates: {updates}, log_every: 1, validate_every: 100000}}
"""


def lexicon(random: np.random.Generator) -> list[str]:
    """Return made-up words of two to four syllables, all different."""
    words: dict[str, None] = {}
    while len(words) < WORDS:
        words["".join(SYLLABLES[i] for i in random.integers(len(SYLLABLES), size=random.integers(2, 5)))] = None
    return list(words)


def make_corpus(folder: Path, pairs: int) -> tuple[Path, Path]:
    """Write the two files of a corpus unless they are there, and return their paths."""
    paths = folder / f"{pairs}.en", folder / f"{pairs}.fr"
    if all(path.exists() for path in paths):
        return paths
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng([SEED, pairs])
    lexicons = [np.array(lexicon(np.random.default_rng([SEED, side]))) for side in (1, 2)]
    frequencies = 1 / np.arange(1, WORDS + 1)
    sums = frequencies.cumsum() / frequencies.sum()
    temporary = [path.with_suffix(f"{path.suffix}.part") for path in paths]
    with open(temporary[0], "w", encoding="utf-8") as source, open(temporary[1], "w", encoding="utf-8") as target:
        for start in range(0, pairs, AT_ONCE):
            lengths = random.integers(SHORTEST, LONGEST + 1, min(AT_ONCE, pairs - start))
            ranks = np.searchsorted(sums, random.random(lengths.sum()))
            swapped = ranks.copy()
            places = np.flatnonzero(random.random(len(ranks) - 1) < SWAPPED)
            places = places[np.diff(places, prepend=-2) > 1]  # no place is swapped twice
            swapped[places], swapped[places + 1] = ranks[places + 1], ranks[places]
            ends = lengths.cumsum().tolist()
            for stream, words in ((source, lexicons[0][ranks].tolist()), (target, lexicons[1][swapped].tolist())):
                stream.writelines(f"{' '.join(words[a:b])}\n" for a, b in zip([0, *ends], ends, strict=False))
    for path, made in zip(paths, temporary, strict=True):
        made.rename(path)
    return paths


# -- what runs in a process of its own ---------------------------------------------------------------------------------


def memory() -> dict[str, float]:
    """Return peak and present resident memory of this process in MB, and what of it is no file."""
    with open("/proc/self/status", encoding="utf-8") as stream:
        fields = dict(line.split(":", 1) for line in stream)
    return {name: int(fields[name].split()[0]) / 1000 for name in ("VmHWM", "VmRSS", "RssAnon")}


def loaded_config(config: Path) -> Any:
    """Return the config of a file."""
    from nmt_cli.config_file import load_config

    return load_config(config).config


def measure_prepare(config: Path, processes: int) -> dict[str, float]:
    """Tokenise the corpus into a store that is removed again; the vocabulary is there already."""
    from nmt_cli.cli.prepare import longest_allowed, make_tokenizers, read_corpora, store_folder
    from nmt_cli.models.dropout import RandomSource
    from nmt_cli.runs.build import build_model
    from nmt_cli.text import store as module
    from nmt_cli.text.examples import Filters

    settings, place = loaded_config(config), config.parent / "prepare" / ".store"
    kept = module.Store(store_folder(config.parent / "run"))
    text = read_corpora(settings, kept).train
    tokenizers = make_tokenizers(settings, text, kept)
    size = len(tokenizers[0].vocabulary)
    model = build_model(settings.model, source_size=size, target_size=size, random=RandomSource(1))
    module.LARGE_CORPUS = 0  # so that two processes mean two at every size
    started = time.perf_counter()
    module.Store(place, processes=processes).examples(text, tokenizers, Filters(longest_allowed(settings, model)))
    seconds = time.perf_counter() - started
    shutil.rmtree(place.parent)
    return {"seconds": seconds, "pairs_per_second": len(text) / seconds, **memory()}


def measure_batches(config: Path, started: float) -> dict[str, float]:
    """Read batches from the store that a training has left.

    Args:
        config: The config of that training.
        started: When this process was started, by `time.time`.
    """
    import torch

    from nmt_cli.cli.prepare import make_sampler, prepare, read_corpora, store_folder
    from nmt_cli.text.store import Store

    settings, kept = loaded_config(config), Store(store_folder(config.parent / "run"))
    prepared = prepare(settings, read_corpora(settings, kept), None, torch.device("cpu"), torch.float32, store=kept)
    sampler = make_sampler(prepared)
    sampler.next_batch()
    first, clock = time.time() - started, time.perf_counter()
    tokens = sum(sampler.next_batch().tokens for _ in range(BATCHES))
    seconds = time.perf_counter() - clock
    return {"first_batch_seconds": first, "tokens_per_second": tokens / seconds, **memory()}


def measured(kind: str, config: Path, argument: float) -> dict[str, float]:
    """Return what one of the measurements above finds in a new process."""
    command = [sys.executable, __file__, str(config.parent), "--inside", kind, "--argument", repr(argument)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"measuring {kind} failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


# -- what is watched from outside --------------------------------------------------------------------------------------


def measure_train(config: Path) -> dict[str, float]:
    """Run `nmt train`; return seconds to the first update, and peak memory in MB."""
    run = config.parent / "run"
    shutil.rmtree(run, ignore_errors=True)
    started = time.perf_counter()
    command = [sys.executable, "-m", "nmt_cli", "train", str(config), "--run-dir", str(run), "--device", "cpu"]
    found = {"first_update_seconds": 0.0, "VmHWM": 0.0, "RssAnon": 0.0}
    with open(config.parent / "train.err", "w+", encoding="utf-8") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        log = run / "train.log"
        while process.poll() is None:
            with contextlib.suppress(OSError, KeyError):  # it has just ended
                status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
                fields = dict(line.split(":", 1) for line in status.splitlines())
                for name in ("VmHWM", "RssAnon"):
                    found[name] = max(found[name], int(fields[name].split()[0]) / 1000)
            if not found["first_update_seconds"] and log.exists() and " update      1 " in log.read_text(encoding="utf-8"):
                found["first_update_seconds"] = time.perf_counter() - started
            time.sleep(0.05)
        if process.returncode:
            errors.seek(0)
            sys.exit(f"nmt train failed:\n{errors.read()}")
    found["seconds"] = time.perf_counter() - started
    return found


# -- all together ------------------------------------------------------------------------------------------------------


def measure_size(folder: Path, pairs: int, updates: int, processes: Sequence[int]) -> dict[str, Any]:
    """Return all figures of a corpus of so many pairs."""
    files = make_corpus(folder, pairs)
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(source=files[0], target=files[1], tokens=BATCH_TOKENS, updates=updates), encoding="utf-8")
    shutil.rmtree(folder / ".store", ignore_errors=True)
    found: dict[str, Any] = {"pairs": pairs, "train": {"cold": measure_train(config), "stored": measure_train(config)}}
    found["batches"] = measured("batches", config, 0)
    found["prepare"] = {str(count): measured("prepare", config, count) for count in processes}
    found["text_mb"] = sum(path.stat().st_size for path in files) / 1e6
    found["store_mb"] = sum(path.stat().st_size for path in (folder / ".store").rglob("*") if path.is_file()) / 1e6
    return found


def table(results: Sequence[dict[str, Any]]) -> str:
    """Return the figures as a Markdown table."""
    rows = [
        "| million pairs | text, store (MB) | pairs/s, 1 and 2 processes | first update cold, stored (s) | train: peak, of it "
        "anonymous (MB) | first batch (s) | loader tokens/s |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for found in results:
        cold, stored, batches = found["train"]["cold"], found["train"]["stored"], found["batches"]
        speeds = [f"{found['prepare'][key]['pairs_per_second']:,.0f}" for key in ("1", "2") if key in found["prepare"]]
        rows.append(
            f"| {found['pairs'] / 1e6:g} | {found['text_mb']:,.0f}, {found['store_mb']:,.0f} | {', '.join(speeds) or '-'} | "
            f"{cold['first_update_seconds']:.1f}, {stored['first_update_seconds']:.1f} | cold {cold['VmHWM']:,.0f}, "
            f"{cold['RssAnon']:,.0f}; stored {stored['VmHWM']:,.0f}, {stored['RssAnon']:,.0f} | "
            f"{batches['first_batch_seconds']:.1f} | {batches['tokens_per_second']:,.0f} |"
        )
    return "\n".join(rows) + "\n"


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", default="0.2,2,20", help="millions of pairs")
    parser.add_argument("--prepare", default="2", help="sizes of these at which preparation is measured too")
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("build/corpus_size"))
    parser.add_argument("--keep", action="store_true", help="do not remove corpora and stores")
    parser.add_argument("--inside", choices=("prepare", "batches"), help=argparse.SUPPRESS)
    parser.add_argument("--argument", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    started, folder = time.time(), arguments.folder.absolute()
    if arguments.inside:
        config = folder / "config.yaml"
        inside = (
            measure_prepare(config, int(arguments.argument))
            if arguments.inside == "prepare"
            else measure_batches(config, started)
        )
        print(json.dumps(inside))
        return
    path = arguments.out / "corpus_size.json"
    arguments.out.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text(encoding="utf-8"))["sizes"] if path.exists() else {}
    prepared = [float(size) for size in arguments.prepare.split(",") if size]
    for size in map(float, arguments.sizes.split(",")):
        pairs = round(size * 1e6)
        known[str(pairs)] = measure_size(folder, pairs, arguments.updates, (1, 2) if size in prepared else ())
        machine = {"python": platform.python_version(), "machine": platform.machine(), "cores": len(os.sched_getaffinity(0))}
        path.write_text(json.dumps({"machine": machine, "sizes": known}, indent=2) + "\n", encoding="utf-8")
        text = table(sorted(known.values(), key=lambda found: int(found["pairs"])))
        path.with_suffix(".md").write_text(text, encoding="utf-8")
        print(text, flush=True)
        if not arguments.keep:
            for leftover in (folder / ".store", folder / "run", *folder.glob(f"{pairs}.*")):
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()


if __name__ == "__main__":
    main()
