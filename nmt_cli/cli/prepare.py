"""From a config to everything that training needs: corpora, tokenizers, examples and a new model."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch

from nmt_cli.cli.console import progress_bar, table_text
from nmt_cli.cli.info import describe_model
from nmt_cli.config import Config, Corpus
from nmt_cli.config_file import dump_config
from nmt_cli.devices import describe_device
from nmt_cli.errors import ConfigError, DataError, RunError
from nmt_cli.models.dropout import RandomSource
from nmt_cli.models.interface import Seq2Seq, count_parameters
from nmt_cli.runs.build import build_model
from nmt_cli.runs.folder import STORE
from nmt_cli.text.batching import BatchSampler
from nmt_cli.text.examples import CorpusFigures, Examples, Filters
from nmt_cli.text.parallel import FileRecord, Pair, describe_file, read_pairs
from nmt_cli.text.store import Store, TrainingText
from nmt_cli.text.store_files import Stored, StoredPairs
from nmt_cli.text.tokenizers import Tokenizer, train_tokenizer


@dataclass(frozen=True)
class Corpora:
    """All sets of a config: the training text as files, the others read; file records by split name (`train`, `valid`, …)."""

    train: TrainingText
    held_out: dict[str, list[Pair]]
    files: dict[str, list[FileRecord]]


@dataclass(frozen=True)
class Prepared:
    """Everything that training needs, ready."""

    config: Config
    corpora: Corpora
    tokenizers: tuple[Tokenizer, Tokenizer]
    stored: Stored
    model: Seq2Seq
    random: RandomSource
    device: torch.device
    precision: torch.dtype

    @property
    def examples(self) -> Examples:
        """The training pairs as ids."""
        return self.stored.examples

    @property
    def figures(self) -> CorpusFigures:
        """What the training corpus holds."""
        return self.stored.figures


def store_folder(run: Path) -> Path:
    """Return where the training text of a run is kept as ids: beside the run, where other runs find it too."""
    return run.absolute().parent / STORE


def open_store(run: Path, on_message: Callable[[str], None]) -> Store:
    """Return the store beside a run, or one inside it where nothing can be written beside it; both are read.

    Args:
        run: The run folder, existing or not.
        on_message: Told what takes long and what was found damaged.

    Raises:
        RunError: Neither can be written.
    """
    beside, inside = store_folder(run), run.absolute() / STORE
    for place, other in ((beside, inside), (inside, beside)):
        if _can_write(place):
            return Store(place, others=[other], on_message=on_message)
    raise RunError(
        f"{run}: expected a run folder that can be written, or made where it is not there, but it cannot; change its "
        "permissions, or choose another --run-dir"
    )


def _can_write(folder: Path) -> bool:
    """Return whether files can be made in a folder, which is made first where it is not there."""
    existing = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def read_corpora(config: Config, store: Store) -> Corpora:
    """Look at the training files, and read every other set of the config.

    Raises:
        DataError: A file cannot be read as it should be, two files differ in length, or a set holds no pair.
    """
    train = TrainingText.describe(
        (files.paths for files in config.data.train), max_pairs=config.data.max_pairs, describe=store.describe
    )
    sets: dict[str, Corpus] = {} if config.data.valid is None else {"valid": config.data.valid}
    sets.update(config.data.tests)
    paths = {split: [files.paths for files in corpus] for split, corpus in sets.items()}
    pairs = {split: read_pairs(files) for split, files in paths.items()}
    for split, found in pairs.items():
        if not found:
            raise DataError(f"{', '.join(paths[split][0])}: expected sentence pairs for {split}, but there is none")
    records = {split: [describe_file(path) for files in corpus for path in files] for split, corpus in paths.items()}
    return Corpora(train, pairs, {"train": [record for files in train.records for record in files], **records})


def prepare(
    config: Config,
    corpora: Corpora,
    tokenizers: tuple[Tokenizer, Tokenizer] | None,
    device: torch.device,
    precision: torch.dtype,
    *,
    store: Store,
) -> Prepared:
    """Return tokenizers (trained here unless given), examples and a new model.

    Args:
        config: The config.
        corpora: Its sets.
        tokenizers: Of a run that goes on, or None.
        device: Where the model goes.
        precision: What it is trained in.
        store: Where the training text is kept as ids.
    """
    source, target = tokenizers or make_tokenizers(config, corpora.train, store)
    seed = config.training.seed
    random = RandomSource(seed)
    sizes = len(source.vocabulary), len(target.vocabulary)
    model = build_model(config.model, source_size=sizes[0], target_size=sizes[1], random=random, seed=seed).to(device)
    filters = Filters(
        max_length=longest_allowed(config, model),
        max_ratio=config.data.max_ratio,
        drop_identical=config.data.drop_identical,
        drop_duplicates=config.data.drop_duplicates,
    )
    keep_text = config.tokenizer.sampling is not None
    with bar_when_needed(len(corpora.train)) as move:
        stored = store.examples(corpora.train, (source, target), filters, keep_text=keep_text, on_progress=move)
    return Prepared(config, corpora, (source, target), stored, model, random, device, precision)


@contextlib.contextmanager
def bar_when_needed(pairs: int) -> Iterator[Callable[[int], None]]:
    """Give a function that is told how many pairs were just tokenised; with the first of them a progress bar appears."""
    with contextlib.ExitStack() as shown:
        bar = None

        def move(count: int) -> None:
            nonlocal bar
            if bar is None:
                bar = shown.enter_context(progress_bar(pairs, unit=" pairs", description="tokenising"))
            bar.update(count)

        yield move


def make_tokenizers(config: Config, text: TrainingText, store: Store) -> tuple[Tokenizer, Tokenizer]:
    """Return the source and the target tokenizer, or one for both: learned from the training pairs, or brought along."""
    settings = config.tokenizer
    if settings.model_file is not None:
        from nmt_cli.text.pieces import PieceSettings, PieceTokenizer

        found = [PieceTokenizer.from_file(path, PieceSettings(settings.lowercase)) for path in settings.model_file.paths]
        for path, tokenizer in zip(settings.model_file.paths, found, strict=True):
            if settings.sampling is not None and not tokenizer.can_sample:
                raise ConfigError(
                    f"tokenizer.sampling: needs a BPE or unigram model, but {path} is of another type; leave sampling out"
                )
        return found[0], found[-1]

    learn = functools.partial(
        train_tokenizer,
        settings.type,
        lowercase=settings.lowercase,
        space_before=settings.space_before,
        space_after=settings.space_after,
        min_frequency=settings.min_frequency,
        max_size=settings.vocab_size,
        model_type=settings.model_type,
        normalization=settings.normalization,
    )
    known = {"kind": settings.type, **learn.keywords}
    if settings.type == "sentencepiece":
        known["sentencepiece"] = version("sentencepiece")  # another version may learn other pieces
    return store.tokenizers(text, learn, known, shared=settings.shared)


def make_sampler(prepared: Prepared) -> BatchSampler:
    """Return the training batches, split anew in each epoch where the config asks for subword sampling."""
    config, (source, target) = prepared.config, prepared.tokenizers
    seed, strength, resample = config.training.seed, config.tokenizer.sampling, None
    if strength is not None:
        from nmt_cli.text.pieces import PieceTokenizer
        from nmt_cli.text.sampling import PieceSampling

        assert isinstance(source, PieceTokenizer)
        assert isinstance(target, PieceTokenizer)
        assert isinstance(prepared.stored.pairs, StoredPairs)
        resample = PieceSampling(
            prepared.stored.pairs,
            prepared.examples,
            source,
            target,
            strength=strength,
            longest=longest_allowed(config, prepared.model),
            seed=(seed, 0),
        )
    sizes = config.training.batch_tokens, config.training.batch_sentences
    return BatchSampler(prepared.examples, tokens=sizes[0], sentences=sizes[1], seed=seed, resample=resample)


def longest_allowed(config: Config, model: Seq2Seq) -> int:
    """Return the most tokens of a side of a training pair, end mark included."""
    return min(config.data.max_length, model.max_positions or config.data.max_length)


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


def dry_run(
    config: Config, run: Path, device: torch.device, precision: torch.dtype, *, on_message: Callable[[str], None]
) -> str:
    """Return what `dry_run_text` gives. What the stores of the run hold is read; what they lack is written elsewhere.

    Args:
        config: The config.
        run: The run folder, existing or not.
        device: Where the model goes.
        precision: What it would be trained in.
        on_message: Told what takes long.
    """
    with tempfile.TemporaryDirectory() as place:
        store = Store(Path(place) / STORE, others=[store_folder(run), run.absolute() / STORE], on_message=on_message)
        return dry_run_text(prepare(config, read_corpora(config, store), None, device, precision, store=store))


def dry_run_text(prepared: Prepared) -> str:
    """Return the effective config, corpus figures, model size and the first batch."""
    config, model = prepared.config.training, prepared.model
    sampler = make_sampler(prepared)
    batch = sampler.next_batch()
    encoder, decoder = count_parameters(model.encoder), count_parameters(model.decoder)
    sizes = f"parameters: {count_parameters(model):,} (encoder {encoder:,}, decoder {decoder:,})"
    source, target = prepared.tokenizers
    about = "about " if sampler.windows > 1 else ""
    return "\n".join(
        [
            dump_config(prepared.config),
            corpus_table(prepared),
            "",
            describe_model(prepared.config),
            sizes if encoder + decoder == count_parameters(model) else f"{sizes}, with shared embeddings",
            f"device: {describe_device(prepared.device)}, {str(prepared.precision).removeprefix('torch.')}",
            f"batches: {about}{sampler.batches_per_epoch:,} an epoch, {config.accumulate} an update",
            "",
            f"first batch: {len(batch.lines)} sentences, source {tuple(batch.source_ids.shape)}, target "
            f"{tuple(batch.target_in.shape)}, {batch.tokens} target tokens",
            f"  source_ids  {' '.join(source.vocabulary.tokens(batch.source_ids[0].tolist()))}",
            f"  target_in   {' '.join(target.vocabulary.tokens(batch.target_in[0].tolist()))}",
            f"  target_out  {' '.join(target.vocabulary.tokens(batch.target_out[0].tolist()))}",
        ]
    )
