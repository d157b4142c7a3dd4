"""`nmt train`: from a config to a run folder with a trained model and its report."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nmt_cli import __version__
from nmt_cli.cli.console import Messages, duration, print_data
from nmt_cli.cli.info import describe_model
from nmt_cli.cli.prepare import Corpora, Prepared, corpus_table, dry_run_text, prepare, read_corpora
from nmt_cli.cli.train_hooks import Display, Validation, stop_signals, validations_table
from nmt_cli.cli.train_report import finished_text, report_tests
from nmt_cli.config_file import LoadedConfig, differences
from nmt_cli.devices import choose_device, choose_precision, describe_device, prepare_device
from nmt_cli.errors import ConfigError, RunError
from nmt_cli.inspection.plots import draw_curves
from nmt_cli.models.interface import count_parameters
from nmt_cli.runs.folder import RunFolder, write_atomically
from nmt_cli.text.batching import BatchSampler
from nmt_cli.text.examples import encode_examples
from nmt_cli.training.checkpoint import Progress, TrainingState, read_training_state
from nmt_cli.training.loop import Trainer, build_optimizer

MANY_UNKNOWN = 0.5
FREE_KEYS = {
    "training.max_updates",
    "training.max_epochs",
    "training.max_minutes",
    "training.log_every",
    "training.keep_best",
    "training.keep_last",
}
"""Keys that may differ when a run is taken up again: limits, logging, and what is kept."""


@dataclass(frozen=True)
class TrainOptions:
    """Options of `nmt train` beside the config."""

    run_dir: Path | None = None
    device: str = "auto"
    dry_run: bool = False
    resume: bool = False
    overwrite: bool = False


def run_train(loaded: LoadedConfig, options: TrainOptions) -> None:
    """Train as the config says; see `nmt train --help`.

    Raises:
        NmtError: With the exit code of its kind; nothing is half-written.
    """
    folder = RunFolder(options.run_dir or Path("runs") / loaded.config.name)
    device = choose_device(options.device)
    precision = choose_precision(loaded.config.training.precision, device)
    prepare_device(device)
    messages = Messages()
    if options.dry_run:
        prepared = prepare(loaded.config, read_corpora(loaded.config), None, device, precision)
        print_data(dry_run_text(prepared))
        return
    if options.resume and not (folder.path / "manifest.json").exists():
        raise RunError(f"{folder.path}: --resume: there is no run here; run without --resume to start one")
    corpora = read_corpora(loaded.config)
    with folder.locked():
        plan = plan_run(folder, loaded, corpora, options)
        if plan == "finished":
            messages.info(
                f"{folder.path}: this run is finished; --resume goes on where limits were raised, --overwrite starts anew"
            )
            print_data(finished_text(folder))
            return
        if plan == "new":
            folder.clear()
        tokenizers = folder.tokenizers() if plan == "go on" else None
        prepared = prepare(loaded.config, corpora, tokenizers, device, precision)
        messages.log = folder.path / "train.log"
        if plan == "new":
            write_run(folder, loaded, prepared)
        else:
            folder.write_config(loaded.config, loaded.requested)
        announce(folder, prepared, messages, options)
        finished = train_model(folder, prepared, messages, go_on=plan == "go on")
        report_tests(folder, prepared.config, messages, options.device)
        folder.write_manifest({**folder.manifest(), "finished": finished})  # last: only a run with its reports is finished
        print_data(finished_text(folder))


# -- the run folder ----------------------------------------------------------------------------------------------------


def plan_run(folder: RunFolder, loaded: LoadedConfig, corpora: Corpora, options: TrainOptions) -> str:
    """Return what the same command again means here: `new`, `go on`, or `finished`.

    Raises:
        ConfigError: The run was made with another config; the differing keys are named.
        RunError: There is nothing to resume.
    """
    if options.overwrite or not (folder.path / "manifest.json").exists():
        return "new"
    RunFolder.open(folder.path)
    manifest = folder.manifest()
    changed = set(differences(folder.requested(), loaded.requested)) - FREE_KEYS
    data_changed = {key for key in changed if key.startswith(("data.train", "data.valid", "data.tests"))}
    if same_files(manifest.get("corpora", {}), corpora):
        changed -= data_changed
    elif not data_changed:
        changed.add("data (the corpus files have changed since)")
    if changed:
        raise ConfigError(
            f"{folder.path}: this run was made with another config; differing: {', '.join(sorted(changed))}. "
            "Use the same config, another --run-dir, or --overwrite"
        )
    if manifest.get("finished") and not options.resume:
        return "finished"
    return "go on" if folder.index().names.get("last") else "new"


def same_files(recorded: Mapping[str, Any], corpora: Corpora) -> bool:
    """Return whether the corpora have the same content, set by set, as those recorded in a manifest."""
    hashes = {split: [record["sha256"] for record in records] for split, records in recorded.items()}
    return hashes == {split: [record.sha256 for record in records] for split, records in corpora.files.items()}


def write_run(folder: RunFolder, loaded: LoadedConfig, prepared: Prepared) -> None:
    """Write what a new run starts with: configs, tokenizers, the sets it is scored on, and last the manifest."""
    folder.write_config(loaded.config, loaded.requested)
    folder.write_tokenizers(*prepared.tokenizers)
    for split, pairs in prepared.corpora.pairs.items():
        if split != "train":
            folder.write_split(split, pairs)
    source, target = prepared.tokenizers
    folder.write_manifest(
        {
            "command": sys.argv,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "versions": {
                "nmt": __version__,
                "python": platform.python_version(),
                **{name: version(name) for name in ("torch", "numpy", "sacrebleu", "safetensors")},
            },
            "git_commit": git_commit(),
            "device": describe_device(prepared.device),
            "precision": str(prepared.precision).removeprefix("torch."),
            "seed": loaded.config.training.seed,
            "parameters": count_parameters(prepared.model),
            "vocabulary": {"source": len(source.vocabulary), "target": len(target.vocabulary)},
            "corpora": {split: [asdict(record) for record in records] for split, records in prepared.corpora.files.items()},
        }
    )


def git_commit() -> str | None:
    """Return the commit that nmt itself runs from, or None outside a checkout."""
    here = Path(__file__).parent
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


# -- training ----------------------------------------------------------------------------------------------------------


def train_model(folder: RunFolder, prepared: Prepared, messages: Messages, *, go_on: bool) -> dict[str, Any]:
    """Train, draw the curves, and return how it ended, for the manifest."""
    config = prepared.config.training
    sampler = BatchSampler(prepared.examples, tokens=config.batch_tokens, sentences=config.batch_sentences, seed=config.seed)
    progress = Progress(metric=config.early_stopping.metric)
    optimizer = build_optimizer(prepared.model, config, prepared.device)
    state = TrainingState(prepared.model, optimizer, sampler, prepared.random, progress)
    metrics, log = folder.path / "metrics.jsonl", folder.path / "train.log"
    if go_on:
        checkpoint = folder.checkpoint_path("last")
        for file in folder.index().checkpoints[checkpoint.name].sha256:
            folder.verified(checkpoint, file)
        read_training_state(state, checkpoint)
        for path in (metrics, log):
            cut_back(path, state.progress.log_sizes.get(path.name))
        messages.info(f"going on after update {state.progress.update:,} ({checkpoint.name})")
    validation = make_validation(prepared, messages)
    display = Display(messages, metrics, validation)
    try:
        with stop_signals() as stop_signal:
            trainer = Trainer(
                state,
                config,
                folder,
                device=prepared.device,
                precision=prepared.precision,
                hooks=display.hooks(stop_signal),
                logs=(metrics, log),
            )
            reason = trainer.fit()
    finally:
        display.close()
        draw_run_curves(folder)
    done = state.progress
    messages.info(f"training is over: {reason}; {done.update:,} updates in {duration(done.seconds)}")
    if any("loss" in row for row in done.history):
        messages.info(validations_table(done.history, done.best_update))
    return {
        "reason": reason,
        "updates": done.update,
        "epochs": trainer.epochs_done(),
        "seconds": done.seconds,
        "target_tokens": done.tokens,
        "bad_updates": done.bad_updates,
        "metric": done.metric,
        "best_score": done.best_score,
        "best_update": done.best_update,
    }


def cut_back(path: Path, size: int | None) -> None:
    """Cut an appended file back to what it was when the checkpoint was written."""
    if path.exists() and size is not None and path.stat().st_size > size:
        with open(path, "r+b") as stream:
            stream.truncate(size)


def make_validation(prepared: Prepared, messages: Messages) -> Validation | None:
    """Return the validation of a run, or None where the config has no validation set."""
    pairs = prepared.corpora.pairs.get("valid")
    if pairs is None:
        return None
    examples, figures = encode_examples(pairs, *prepared.tokenizers, max_length=prepared.model.max_positions, drop_empty=False)
    for rule, count in figures.dropped.items():
        messages.warn(f"validation loss leaves out {count} pairs: {rule}")
    lines = [pair.source for pair in pairs], [pair.target for pair in pairs]
    return Validation(
        prepared.config, examples, lines, prepared.tokenizers, device=prepared.device, precision=prepared.precision
    )


def draw_run_curves(folder: RunFolder) -> None:
    """Draw `curves.png` from `metrics.jsonl`."""
    path = folder.path / "metrics.jsonl"
    if path.exists():
        events = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        write_atomically(folder.path / "curves.png", draw_curves(events, folder.config().name))


# -- telling -----------------------------------------------------------------------------------------------------------


def announce(folder: RunFolder, prepared: Prepared, messages: Messages, options: TrainOptions) -> None:
    """Say what is about to be trained, and warn of what looks wrong."""
    messages.info(corpus_table(prepared))
    figures = prepared.figures
    for side, share in (("source", figures.unknown_source), ("target", figures.unknown_target)):
        if share > MANY_UNKNOWN:
            messages.warn(
                f"{share:.0%} of the {side} training tokens are unknown words; lower tokenizer.min_frequency, raise "
                "tokenizer.vocab_size, or look at the corpus"
            )
    messages.info(f"{describe_model(prepared.config)}; {count_parameters(prepared.model):,} parameters")
    messages.info(f"training on {describe_device(prepared.device)} into {folder.path}")
