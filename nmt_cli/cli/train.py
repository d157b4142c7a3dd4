"""`nmt train`: from a config to a run folder with a trained model and its report."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nmt_cli.cli.console import Messages, duration, print_data
from nmt_cli.cli.info import describe_model
from nmt_cli.cli.prepare import Corpora, Prepared, corpus_table, dry_run, make_sampler, open_store, prepare, read_corpora
from nmt_cli.cli.train_hooks import Display, Validation, stop_signals, validations_table
from nmt_cli.cli.train_report import finished_text, provenance, report_tests
from nmt_cli.config import Files
from nmt_cli.config_file import LoadedConfig, differences
from nmt_cli.devices import choose_device, choose_precision, describe_device, prepare_device
from nmt_cli.errors import ConfigError, Interrupted, NmtError, RunError
from nmt_cli.models.interface import count_parameters
from nmt_cli.runs.folder import RunFolder, write_atomically
from nmt_cli.text.examples import encode_examples
from nmt_cli.text.parallel import read_bytes
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
    "training.early_stopping.patience",
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
        print_data(dry_run(loaded.config, folder.path, device, precision, on_message=messages.info))
        return
    check_options(folder, options)
    show_only = not options.resume and not options.overwrite
    if show_only and is_finished(folder) and not changed_keys(folder, loaded):
        show_finished(folder, messages)
        return
    store = open_store(folder.path, messages.info)
    corpora = read_corpora(loaded.config, store)
    with folder.locked():
        go_on = not options.overwrite and can_go_on(folder, loaded, corpora)
        if show_only and go_on and is_finished(folder):  # only paths differ: the corpora have moved
            show_finished(folder, messages)
            return
        known = folder.tokenizers() if go_on else None
        prepared = prepare(loaded.config, corpora, known, device, precision, store=store)
        if go_on:
            verify_last(folder)
            note_sitting(folder, loaded, prepared)
        else:
            if folder.exists:
                folder.clear()
            write_run(folder, loaded, prepared)
        messages.log = folder.path / "train.log"
        finished = train_model(folder, prepared, messages, go_on=go_on)
        report_tests(folder, prepared.config, messages, device)
        folder.write_manifest({**folder.manifest(), "finished": finished})  # last: only a run with its reports is finished
        print_data(finished_text(folder))


# -- the run folder ----------------------------------------------------------------------------------------------------


def check_options(folder: RunFolder, options: TrainOptions) -> None:
    """Refuse options that contradict each other or the folder, before any work.

    Raises:
        ConfigError: `--resume` and `--overwrite` together.
        RunError: There is nothing to resume, or the folder holds somebody else's files of our names.
    """
    if options.resume and options.overwrite:
        raise ConfigError("--resume goes on with a run, --overwrite removes it: give one of them")
    if options.resume and not folder.exists:
        raise RunError(f"{folder.path}: --resume: there is no run here; run without --resume to start one")
    folder.refuse_foreign()


def changed_keys(folder: RunFolder, loaded: LoadedConfig) -> set[str]:
    """Return the requested keys that differ from those of the run, but for limits, logging and what is kept."""
    return set(differences(folder.requested(), loaded.requested)) - FREE_KEYS


def is_finished(folder: RunFolder) -> bool:
    """Return whether there is a finished run. Asks no corpus and writes nothing."""
    if not folder.exists or not (folder.path / "requested.yaml").exists():
        return False
    return bool(RunFolder.open(folder.path).manifest().get("finished"))


def show_finished(folder: RunFolder, messages: Messages) -> None:
    """Print the report of a finished run."""
    messages.info(f"{folder.path}: finished; --resume goes on where limits were raised, --overwrite starts anew")
    print_data(finished_text(folder))


def can_go_on(folder: RunFolder, loaded: LoadedConfig, corpora: Corpora) -> bool:
    """Return whether there is a checkpoint to go on from; otherwise the run starts anew.

    Raises:
        ConfigError: The run was made with another config; the differing keys are named.
    """
    if not folder.exists:
        return False
    RunFolder.open(folder.path)
    missing = [name for name in ("requested.yaml", "checkpoints/index.json") if not (folder.path / name).exists()]
    if missing and folder.checkpoint_folders():
        raise RunError(f"{folder.path}: {missing[0]} is missing; the run folder is damaged; --overwrite starts anew")
    if "requested.yaml" in missing:  # stopped while the folder was made
        return False
    changed = changed_keys(folder, loaded)
    data_changed = {key for key in changed if key.startswith(("data.train", "data.valid", "data.tests"))}
    if same_files(folder.manifest().get("corpora", {}), corpora):
        changed -= data_changed
    elif not data_changed:
        changed.add("data (the corpus files have changed since)")
    if loaded.config.tokenizer.model_file is not None:
        changed -= {key for key in changed if key.startswith("tokenizer.model_file")}
        if not same_pieces(folder, loaded.config.tokenizer.model_file):
            changed.add("tokenizer.model_file (another model than the run's)")
    if changed:
        raise ConfigError(
            f"{folder.path}: this run was made with another config; differing: {', '.join(sorted(changed))}. "
            "Use the same config, another --run-dir, or --overwrite"
        )
    return "last" in folder.index().names


def same_files(recorded: Mapping[str, Any], corpora: Corpora) -> bool:
    """Return whether the corpora have the same content, set by set, as those recorded in a manifest."""
    hashes = {split: [record["sha256"] for record in records] for split, records in recorded.items()}
    return hashes == {split: [record.sha256 for record in records] for split, records in corpora.files.items()}


def same_pieces(folder: RunFolder, files: Files) -> bool:
    """Return whether the sentencepiece models that a config brings along are those of the run."""
    brought = [read_bytes(path) for path in files.paths]
    return [tokenizer.stored()[1] for tokenizer in folder.tokenizers()] == [brought[0], brought[-1]]


def write_run(folder: RunFolder, loaded: LoadedConfig, prepared: Prepared) -> None:
    """Write what a new run starts with: the manifest, tokenizers, the sets it is scored on, and last the configs."""
    source, target = prepared.tokenizers
    folder.write_manifest(
        {
            **sitting(prepared),
            "seed": loaded.config.training.seed,
            "parameters": count_parameters(prepared.model),
            "vocabulary": {"source": len(source.vocabulary), "target": len(target.vocabulary)},
            "corpora": {split: [asdict(record) for record in records] for split, records in prepared.corpora.files.items()},
        }
    )
    folder.write_tokenizers(*prepared.tokenizers)
    for split, pairs in prepared.corpora.held_out.items():
        folder.write_split(split, pairs)
    folder.write_config(loaded.config, loaded.requested)


def note_sitting(folder: RunFolder, loaded: LoadedConfig, prepared: Prepared) -> None:
    """Note in the manifest that the run goes on: it is finished no more, and may do so on another machine."""
    manifest = folder.manifest()
    manifest.pop("finished", None)
    folder.write_manifest({**manifest, "resumed": [*manifest.get("resumed", []), sitting(prepared)]})
    folder.write_config(loaded.config, loaded.requested)


def sitting(prepared: Prepared) -> dict[str, Any]:
    """Return what is true of this process: command, time, versions, device."""
    return {
        "command": sys.argv,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **provenance(prepared.device),
        "precision": str(prepared.precision).removeprefix("torch."),
    }


# -- training ----------------------------------------------------------------------------------------------------------


def train_model(folder: RunFolder, prepared: Prepared, messages: Messages, *, go_on: bool) -> dict[str, Any]:
    """Train, draw the curves, and return how it ended, for the manifest."""
    config = prepared.config.training
    sampler = make_sampler(prepared)
    progress = Progress(metric=config.early_stopping.metric)
    optimizer = build_optimizer(prepared.model, config, prepared.device)
    state = TrainingState(prepared.model, optimizer, sampler, prepared.random, progress)
    metrics, log = folder.path / "metrics.jsonl", folder.path / "train.log"
    if go_on:
        restore(folder, state, (metrics, log))
    announce(folder, prepared, messages)
    if go_on:
        messages.info(f"going on after update {state.progress.update:,}")
    display = Display(messages, metrics, make_validation(prepared, messages))
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
            if go_on and (limit := trainer.limit_reached()):
                messages.info(f"nothing left to train: {limit} (raise it to train on); writing the reports")
            reason = trainer.fit()
    except Interrupted:
        with contextlib.suppress(NmtError):  # the picture is not worth another message
            draw_run_curves(folder)
        raise
    finally:
        display.close()
    draw_run_curves(folder)
    done = state.progress
    messages.info(f"training is over: {reason}; {done.update:,} updates in {duration(done.seconds)}")
    best = done.best()
    if best is not None:
        messages.info(validations_table(done.history, int(best.removeprefix("update-"))))
    return {
        "reason": reason,
        "updates": done.update,
        "epochs": trainer.epochs_done(),
        "seconds": done.seconds,
        "target_tokens": done.tokens,
        "bad_updates": done.bad_updates,
        "metric": done.metric,
        "best_checkpoint": best,
        "best_score": None if best is None else done.kept[best],
    }


def verify_last(folder: RunFolder) -> None:
    """Raise a `RunError` when a file of the last checkpoint is damaged, before anything is changed."""
    checkpoint = folder.checkpoint_path("last")
    for file in folder.index().checkpoints[checkpoint.name].sha256:
        folder.verified(checkpoint, file)


def restore(folder: RunFolder, state: TrainingState, logs: tuple[Path, ...]) -> None:
    """Put `state` back to the last checkpoint, and cut the appended files back to what they were then."""
    read_training_state(state, folder.checkpoint_path("last"))
    for path in logs:
        size = state.progress.log_sizes.get(path.name, 0)
        if path.exists() and path.stat().st_size > size:
            with open(path, "r+b") as stream:
                stream.truncate(size)


def make_validation(prepared: Prepared, messages: Messages) -> Validation | None:
    """Return the validation of a run, or None where the config has no validation set."""
    pairs = prepared.corpora.held_out.get("valid")
    if pairs is None:
        return None
    examples, figures = encode_examples(pairs, *prepared.tokenizers, max_length=prepared.model.max_positions, drop_empty=False)
    for rule, count in figures.dropped.items():
        messages.warn(f"validation loss leaves out {count} pairs: {rule}")
    lines = [pair.source for pair in pairs], [pair.target for pair in pairs]
    return Validation(prepared, examples, lines, messages)


def draw_run_curves(folder: RunFolder) -> None:
    """Draw `curves.png` from `metrics.jsonl`."""
    from nmt_cli.inspection.plots import draw_curves  # matplotlib; the first update need not wait for it

    path = folder.path / "metrics.jsonl"
    if path.exists():
        events = []
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # a line that was cut short by a full disk or a kill
                events.append(json.loads(line))
        write_atomically(folder.path / "curves.png", draw_curves(events, folder.config().name))


# -- telling -----------------------------------------------------------------------------------------------------------


def announce(folder: RunFolder, prepared: Prepared, messages: Messages) -> None:
    """Say what is about to be trained, and warn of what looks wrong."""
    messages.info(corpus_table(prepared))
    figures = prepared.figures
    for side, share in (("source", figures.unknown_source), ("target", figures.unknown_target)):
        if share > MANY_UNKNOWN:
            messages.warn(
                f"{share:.0%} of the {side} training tokens are unknown words; lower tokenizer.min_frequency, raise "
                "tokenizer.vocab_size, or look at the corpus"
            )
    asked, sizes = prepared.config.tokenizer.vocab_size, sorted({len(t.vocabulary) for t in prepared.tokenizers})
    if asked is not None and prepared.config.tokenizer.type == "sentencepiece" and sizes != [asked]:
        messages.info(
            f"asked for {asked:,} pieces, got {' and '.join(f'{size:,}' for size in sizes)}: the corpus fills no more"
        )
    messages.info(describe_model(prepared.config))
    size = count_parameters(prepared.model)
    messages.info(f"{size:,} parameters, training on {describe_device(prepared.device)} into {folder.path}")
