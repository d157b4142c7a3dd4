"""From a config to everything that training needs: corpora, tokenizers, examples and a new model."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from nmt_cli.cli.console import table_text
from nmt_cli.cli.info import describe_model
from nmt_cli.config import Config, Corpus
from nmt_cli.config_file import dump_config
from nmt_cli.devices import describe_device
from nmt_cli.errors import ConfigError, DataError
from nmt_cli.models.dropout import RandomSource
from nmt_cli.models.interface import Seq2Seq, count_parameters
from nmt_cli.runs.build import build_model
from nmt_cli.text.batching import BatchSampler
from nmt_cli.text.examples import CorpusFigures, Examples, encode_examples
from nmt_cli.text.parallel import FileRecord, Pair, describe_file, read_pairs
from nmt_cli.text.tokenizers import Tokenizer, train_tokenizer


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
    source, target = tokenizers or make_tokenizers(config, pairs)
    seed = config.training.seed
    random = RandomSource(seed)
    sizes = len(source.vocabulary), len(target.vocabulary)
    model = build_model(config.model, source_size=sizes[0], target_size=sizes[1], random=random, seed=seed).to(device)
    examples, figures = encode_examples(
        pairs,
        source,
        target,
        max_length=longest_allowed(config, model),
        max_ratio=config.data.max_ratio,
        drop_identical=config.data.drop_identical,
        drop_duplicates=config.data.drop_duplicates,
    )
    return Prepared(config, corpora, (source, target), examples, figures, model, random, device, precision)


def make_tokenizers(config: Config, pairs: list[Pair]) -> tuple[Tokenizer, Tokenizer]:
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

    def learn(lines: list[str], spacing_lines: list[str]) -> Tokenizer:
        return train_tokenizer(
            settings.type,
            lines,
            lowercase=settings.lowercase,
            space_before=settings.space_before,
            space_after=settings.space_after,
            min_frequency=settings.min_frequency,
            max_size=settings.vocab_size,
            model_type=settings.model_type,
            normalization=settings.normalization,
            spacing_lines=spacing_lines,
        )

    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    if settings.shared:
        shared = learn(sources + targets, targets)
        return shared, shared
    return learn(sources, sources), learn(targets, targets)


def make_sampler(prepared: Prepared) -> BatchSampler:
    """Return the training batches, split anew in each epoch where the config asks for subword sampling."""
    config, (source, target) = prepared.config, prepared.tokenizers
    seed, strength, resample = config.training.seed, config.tokenizer.sampling, None
    if strength is not None:
        from nmt_cli.text.pieces import PieceTokenizer
        from nmt_cli.text.sampling import PieceSampling

        assert isinstance(source, PieceTokenizer)
        assert isinstance(target, PieceTokenizer)
        resample = PieceSampling(
            prepared.corpora.pairs["train"],
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


def dry_run_text(prepared: Prepared) -> str:
    """Return the effective config, corpus figures, model size and the first batch."""
    config, model = prepared.config.training, prepared.model
    sampler = make_sampler(prepared)
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
