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

import torch

from nmt_cli import __version__
from nmt_cli.cli.console import Messages, advance, duration, print_data, progress_bar, table_text
from nmt_cli.cli.evaluate import scores_table, translate_split
from nmt_cli.cli.info import describe_model
from nmt_cli.cli.loading import make_translator
from nmt_cli.cli.options import SearchOptions
from nmt_cli.cli.train_hooks import Display, Validation, stop_signals, validations_table
from nmt_cli.config import Config, Corpus
from nmt_cli.config_file import LoadedConfig, differences, dump_config
from nmt_cli.devices import choose_device, choose_precision, describe_device, prepare_device
from nmt_cli.errors import ConfigError, DataError, RunError
from nmt_cli.evaluation.report import Report
from nmt_cli.evaluation.scores import Score, score_corpus
from nmt_cli.inspection.plots import draw_curves
from nmt_cli.models.dropout import RandomSource
from nmt_cli.models.interface import Seq2Seq, count_parameters
from nmt_cli.runs.build import build_model
from nmt_cli.runs.folder import RunFolder, write_atomically
from nmt_cli.text.batching import BatchSampler
from nmt_cli.text.examples import CorpusFigures, Examples, encode_examples
from nmt_cli.text.parallel import FileRecord, Pair, describe_file, read_pairs
from nmt_cli.text.tokenizers import Tokenizer, train_tokenizer
from nmt_cli.training.checkpoint import Progress, TrainingState, read_training_state
from nmt_cli.training.loop import Trainer, build_optimizer

EXAMPLES = 10
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


@dataclass(frozen=True)
class Corpora:
    """All sets of a config, read: pairs and file records by split name (`train`, `valid`, and the tests)."""

    pairs: dict[str, list[Pair]]
    files: dict[str, list[FileRecord]]


@dataclass(frozen=True)
class Prepared:
    """Everything that training needs, ready."""

    config: Config
    corpora: Corpora
    tokenizers: tuple[Tokenizer, Tokenizer]
    examples: Examples
    figures: CorpusFigures
    model: Seq2Seq
    random: RandomSource
    device: torch.device
    precision: torch.dtype


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


# -- preparation -------------------------------------------------------------------------------------------------------


def read_corpora(config: Config) -> Corpora:
    """Read every set of the config. Errors in any file come before any work."""
    sets: dict[str, Corpus] = {"train": config.data.train}
    if config.data.valid is not None:
        sets["valid"] = config.data.valid
    sets.update(config.data.tests)
    paths = {split: [files.paths for files in corpus] for split, corpus in sets.items()}
    pairs = {
        split: read_pairs(files, max_pairs=config.data.max_pairs if split == "train" else None)
        for split, files in paths.items()
    }
    for split, found in pairs.items():
        if not found:
            raise DataError(f"{', '.join(paths[split][0])}: expected sentence pairs for {split}, but there is none")
    records = {split: [describe_file(path) for files in corpus for path in files] for split, corpus in paths.items()}
    return Corpora(pairs, records)


def prepare(
    config: Config,
    corpora: Corpora,
    tokenizers: tuple[Tokenizer, Tokenizer] | None,
    device: torch.device,
    precision: torch.dtype,
) -> Prepared:
    """Return tokenizers (trained here unless given), examples and a new model."""
    pairs = corpora.pairs["train"]
    source, target = tokenizers or train_tokenizers(config, pairs)
    random = RandomSource(config.training.seed)
    torch.manual_seed(config.training.seed)
    model = build_model(config.model, source_size=len(source.vocabulary), target_size=len(target.vocabulary), random=random).to(
        device
    )
    longest = min(config.data.max_length, model.max_positions or config.data.max_length)
    examples, figures = encode_examples(pairs, source, target, max_length=longest)
    return Prepared(config, corpora, (source, target), examples, figures, model, random, device, precision)


def train_tokenizers(config: Config, pairs: list[Pair]) -> tuple[Tokenizer, Tokenizer]:
    """Learn the source and the target tokenizer, or one for both, from the training pairs."""
    settings = config.tokenizer

    def learn(lines: list[str]) -> Tokenizer:
        return train_tokenizer(
            settings.type,
            lines,
            lowercase=settings.lowercase,
            space_before=settings.space_before,
            space_after=settings.space_after,
            min_frequency=settings.min_frequency,
            max_size=settings.vocab_size,
        )

    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    if settings.shared:
        shared = learn(sources + targets)
        return shared, shared
    return learn(sources), learn(targets)


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


# -- reports -----------------------------------------------------------------------------------------------------------


def report_tests(folder: RunFolder, config: Config, messages: Messages, device: str) -> None:
    """Translate every test set with the best checkpoint and write its report and translations."""
    if not config.data.tests:
        return
    options = SearchOptions(device=device)
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
            details = report_details(folder, config, split, len(sources) / max(seconds, 1e-9))
            report = Report(config.name, split, scores, len(sources), details, tuple(picked))
            write_atomically(folder.path / "reports" / f"{split}.json", report.to_json())
            write_atomically(folder.path / "reports" / f"{split}.md", report.to_markdown())
            write_atomically(folder.path / "reports" / f"{split}.hypotheses.txt", "".join(f"{line}\n" for line in translations))


def report_details(folder: RunFolder, config: Config, split: str, speed: float) -> dict[str, Any]:
    """Return the facts that make a score quotable."""
    manifest, index = folder.manifest(), folder.index()
    best = index.names["best"]
    return {
        "model": describe_model(config),
        "checkpoint": {"name": best, **index.checkpoints[best].sha256},
        "decoding": config.decoding.model_dump(mode="json"),
        "corpus": {Path(record["path"]).name: record["sha256"] for record in manifest["corpora"][split]},
        "versions": manifest["versions"],
        "git_commit": manifest["git_commit"],
        "seed": config.training.seed,
        "device": manifest["device"],
        "sentences_per_second": speed,
    }


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


# -- telling -----------------------------------------------------------------------------------------------------------


def corpus_table(prepared: Prepared) -> str:
    """Return what the training corpus holds, as a table."""
    figures, (source, target) = prepared.figures, prepared.tokenizers
    rows = [
        ("pairs", f"{figures.pairs:,}", f"{figures.pairs:,}"),
        ("tokens", f"{figures.source_tokens:,}", f"{figures.target_tokens:,}"),
        ("longest", str(figures.longest_source), str(figures.longest_target)),
        ("vocabulary", f"{len(source.vocabulary):,}", f"{len(target.vocabulary):,}"),
        ("unknown", f"{figures.unknown_source:.1%}", f"{figures.unknown_target:.1%}"),
    ]
    data = prepared.config.data
    text = table_text(("training text", f"source ({data.source})", f"target ({data.target})"), rows)
    return "\n".join([text, *(f"dropped {count:,} pairs: {rule}" for rule, count in figures.dropped.items())])


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


def dry_run_text(prepared: Prepared) -> str:
    """Return the effective config, corpus figures, model size and the first batch."""
    config, model = prepared.config.training, prepared.model
    sampler = BatchSampler(prepared.examples, tokens=config.batch_tokens, sentences=config.batch_sentences, seed=config.seed)
    batch = sampler.next_batch()
    encoder, decoder = count_parameters(model.encoder), count_parameters(model.decoder)
    sizes = f"parameters: {count_parameters(model):,} (encoder {encoder:,}, decoder {decoder:,})"
    source, target = prepared.tokenizers
    return "\n".join(
        [
            dump_config(prepared.config),
            corpus_table(prepared),
            "",
            describe_model(prepared.config),
            sizes if encoder + decoder == count_parameters(model) else f"{sizes}, with shared embeddings",
            f"device: {describe_device(prepared.device)}, {str(prepared.precision).removeprefix('torch.')}",
            f"batches: {sampler.batches_per_epoch:,} an epoch, {config.accumulate} an update",
            "",
            f"first batch: {len(batch.lines)} sentences, source {tuple(batch.source_ids.shape)}, target "
            f"{tuple(batch.target_in.shape)}, {batch.tokens} target tokens",
            f"  source_ids  {' '.join(source.vocabulary.tokens(batch.source_ids[0].tolist()))}",
            f"  target_in   {' '.join(target.vocabulary.tokens(batch.target_in[0].tolist()))}",
            f"  target_out  {' '.join(target.vocabulary.tokens(batch.target_out[0].tolist()))}",
        ]
    )
