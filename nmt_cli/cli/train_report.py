"""What `nmt train` reports at its end: scores and translations of every test set."""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from nmt_cli import __version__
from nmt_cli.cli.console import Messages, advance, progress_bar
from nmt_cli.cli.evaluate import scores_table, translate_split
from nmt_cli.cli.info import describe_model
from nmt_cli.cli.loading import make_translator
from nmt_cli.cli.options import SearchOptions
from nmt_cli.config import Config
from nmt_cli.devices import describe_device
from nmt_cli.evaluation.report import Report
from nmt_cli.evaluation.scores import Score, score_corpus
from nmt_cli.runs.folder import RunFolder, write_atomically

EXAMPLES = 10


def report_tests(folder: RunFolder, config: Config, messages: Messages, device: torch.device) -> None:
    """Translate every test set with the best checkpoint and write its report and translations."""
    if not config.data.tests:
        return
    options = SearchOptions(device=str(device))
    total = sum(len(folder.split(split)[0]) for split in config.data.tests)
    with progress_bar(total, unit=" lines", description="test sets") as bar:
        translator = make_translator(folder, options, warn=messages.warn, on_progress=advance(bar))
        for split in config.data.tests:
            started = time.monotonic()
            sources, translations, references = translate_split(translator, folder, split)
            seconds = time.monotonic() - started
            scores = tuple(
                score_corpus(metric, translations, references, target=config.data.target)
                for metric in config.evaluation.metrics
            )
            step = max(1, len(sources) // EXAMPLES)
            picked = [(sources[i], translations[i], references[i]) for i in range(0, len(sources), step)][:EXAMPLES]
            details = report_details(folder, config, split, device, len(sources) / max(seconds, 1e-9))
            report = Report(config.name, split, scores, len(sources), details, tuple(picked))
            write_atomically(folder.path / "reports" / f"{split}.json", report.to_json())
            write_atomically(folder.path / "reports" / f"{split}.md", report.to_markdown())
            write_atomically(folder.path / "reports" / f"{split}.hypotheses.txt", "".join(f"{line}\n" for line in translations))


def report_details(folder: RunFolder, config: Config, split: str, device: torch.device, speed: float) -> dict[str, Any]:
    """Return the facts that make a score quotable."""
    manifest, index = folder.manifest(), folder.index()
    best = index.names["best"]
    return {
        "model": describe_model(config),
        "checkpoint": {"name": best, **index.checkpoints[best].sha256},
        "decoding": config.decoding.model_dump(mode="json"),
        "corpus": {record["path"]: record["sha256"] for record in manifest["corpora"][split]},
        "seed": config.training.seed,
        **provenance(device),
        "sentences_per_second": speed,
    }


def provenance(device: torch.device) -> dict[str, Any]:
    """Return the versions, the commit and the device that a number came from."""
    return {
        "versions": {
            "nmt": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "numpy", "sacrebleu", "safetensors")},
        },
        "git_commit": git_commit(),
        "device": describe_device(device),
    }


def git_commit() -> str | None:
    """Return the commit that nmt itself runs from, or None where it does not run from a checkout of its own."""
    here = Path(__file__)
    for command in (["git", "ls-files", "--error-unmatch", here.name], ["git", "rev-parse", "HEAD"]):
        try:
            found = subprocess.run(command, cwd=here.parent, capture_output=True, text=True, timeout=5, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
    return found.stdout.strip() or None


def finished_text(folder: RunFolder) -> str:
    """Return the scores of every test set and ten translations, as `nmt train` prints them at its end."""
    config = folder.config()
    results: dict[str, list[Score]] = {}
    examples: list[dict[str, str]] = []
    for split in config.data.tests:
        report = folder.read_json(f"reports/{split}.json")
        results[split] = [Score(name, value["score"], value["signature"]) for name, value in report["scores"].items()]
        examples = examples or report["examples"]
    lines = [f"run folder: {folder.path}"]
    if results:
        lines += ["", *(example_text(example) for example in examples), "", scores_table(results)]
    return "\n".join(lines)


def example_text(example: Mapping[str, str]) -> str:
    """Return source, translation, and the reference where it differs, a line each."""
    lines = [f"  {example['source']}", f"    -> {example['translation']}"]
    if example["reference"] != example["translation"]:
        lines.append(f"    == {example['reference']}")
    return "\n".join(lines)
