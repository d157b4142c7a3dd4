"""What `benchmarks/train.py` trains: sizes, corpora and goals, and our own training of each as `nmt train` builds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from nmt_cli.config import Config, Seq2SeqConfig, TransformerConfig
from nmt_cli.config_file import load_config
from nmt_cli.devices import prepare_device
from nmt_cli.models.dropout import RandomSource
from nmt_cli.runs.build import build_model
from nmt_cli.runs.folder import RunFolder
from nmt_cli.text.batching import BatchSampler
from nmt_cli.text.examples import encode_examples
from nmt_cli.text.parallel import Pair, read_pairs
from nmt_cli.text.pieces import PieceSettings, PieceTokenizer
from nmt_cli.text.tokenizers import Tokenizer, train_tokenizer
from nmt_cli.training.checkpoint import Progress, TrainingState
from nmt_cli.training.loop import Trainer, TrainingHooks, build_optimizer

ROOT = Path(__file__).parents[1]
BATCH_TOKENS = 2260  # sentences x longest target; about 2,200 of them are real
FLOOR = "floor"


@dataclass(frozen=True)
class Goal:
    """Of our target tokens a second: as many times those of another engine, or as great a share of the floor.

    Args:
        least: What must be.
        wanted: What is hoped for.
    """

    least: float
    wanted: float


@dataclass(frozen=True)
class Case:
    """One model at one size, on one corpus.

    Args:
        title: Heading in the report.
        model: Its sizes.
        book: The d2l book's corpus and batches, or Multi30k.
        goals: Name of another engine -> goal.
    """

    title: str
    model: TransformerConfig | Seq2SeqConfig
    book: bool = False
    goals: Mapping[str, Goal] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """`transformer` or `recurrent`."""
        return "transformer" if isinstance(self.model, TransformerConfig) else "recurrent"


TRANSFORMER_GOALS = {"Marian": Goal(1.8, 2.2), "JoeyNMT": Goal(4, 4.8), FLOOR: Goal(0.65, 0.8)}
RECURRENT_GOALS = {"Marian": Goal(4, 5), "JoeyNMT": Goal(3, 4), FLOOR: Goal(0.6, 0.7)}
BOOK_GOALS = {"d2l": Goal(3, 3)}


def transformer(width: int, heads: int, feed_forward: int, layers: int, dropout: float) -> TransformerConfig:
    """Return a Transformer with one embedding for source, target and output."""
    return TransformerConfig(
        type="transformer",
        width=width,
        heads=heads,
        feed_forward=feed_forward,
        encoder_layers=layers,
        decoder_layers=layers,
        dropout=dropout,
        tie_embeddings="all",
    )


def ready_model(name: str) -> TransformerConfig | Seq2SeqConfig:
    """Return the model of a ready config."""
    return load_config(ROOT / "configs" / f"{name}.yaml").config.model


CASES: Mapping[str, Case] = {
    "small": Case(
        "Transformer 3+3, width 256, 4 heads, feed-forward 1024, dropout 0.2",
        transformer(256, 4, 1024, 3, 0.2),
        goals=TRANSFORMER_GOALS,
    ),
    "tiny": Case(
        "Transformer of configs/multi30k-transformer.yaml: 4+4, width 128, 4 heads, feed-forward 256, dropout 0.3",
        ready_model("multi30k-transformer"),
        goals=TRANSFORMER_GOALS,
    ),
    "base": Case(
        "Transformer 6+6, width 512, 8 heads, feed-forward 2048, dropout 0.1",
        transformer(512, 8, 2048, 6, 0.1),
        goals=TRANSFORMER_GOALS,
    ),
    "recurrent": Case(
        "Recurrent: two-way GRU encoder, embedding 256, width 512, additive attention, dropout 0.2",
        Seq2SeqConfig(type="seq2seq", embedding_size=256, hidden_size=512, encoder_hidden_size=512),
        goals=RECURRENT_GOALS,
    ),
    "d2l-gru": Case(
        "The d2l book's recurrent model: GRU, embedding 32, width 32, 2 layers, dropout 0.1, batches of 64",
        ready_model("tatoeba600-seq2seq"),
        book=True,
        goals=BOOK_GOALS,
    ),
    "d2l-transformer": Case(
        "The d2l book's Transformer: width 32, 2+2, feed-forward 64, 4 heads, dropout 0.1, batches of 64",
        ready_model("tatoeba600-transformer"),
        book=True,
        goals=BOOK_GOALS,
    ),
}


def config_of(name: str, data: Path) -> Config:
    """Return our config of a case.

    Args:
        name: Name of the case.
        data: Folder with `train.en`, `train.fr` and `vocab.spm`, or with `book.tsv` for the book's sizes.
    """
    case, limit = CASES[name], 1_000_000_000
    if case.book:
        overrides = [f"data.train={data / 'book.tsv'}", "data.tests={}", f"training.max_epochs={limit}"]
        return load_config(
            ROOT / "configs" / f"tatoeba600-{'seq2seq' if case.kind == 'recurrent' else case.kind}.yaml", overrides
        ).config
    return Config.model_validate(
        {
            "name": name,
            "data": {
                "source": "en",
                "target": "fr",
                "train": {"source": str(data / "train.en"), "target": str(data / "train.fr")},
                "max_length": 100,
            },
            "tokenizer": {"type": "sentencepiece", "model_file": str(data / "vocab.spm"), "shared": True},
            "model": case.model,
            "training": {"batch_tokens": BATCH_TOKENS, "max_updates": limit, "precision": "float32"},
        }
    )


def tokenizers_of(config: Config, pairs: Sequence[Pair]) -> tuple[Tokenizer, Tokenizer]:
    """Return the tokenizer of each side: that of a sentencepiece file, or words learned from the pairs."""
    settings = config.tokenizer
    if settings.model_file is not None:
        pieces = PieceTokenizer.from_file(settings.model_file.paths[0], PieceSettings(settings.lowercase))
        return pieces, pieces
    source, target = (
        train_tokenizer(
            settings.type,
            lines,
            lowercase=settings.lowercase,
            space_before=settings.space_before,
            min_frequency=settings.min_frequency,
        )
        for lines in ([pair.source for pair in pairs], [pair.target for pair in pairs])
    )
    return source, target


def sampler_of(config: Config) -> tuple[BatchSampler, tuple[int, int]]:
    """Return the batches of a config, and the sizes of both vocabularies."""
    pairs = read_pairs([files.paths for files in config.data.train], max_pairs=config.data.max_pairs)
    source, target = tokenizers_of(config, pairs)
    examples, _ = encode_examples(pairs, source, target, max_length=config.data.max_length)
    training = config.training
    sampler = BatchSampler(examples, tokens=training.batch_tokens, sentences=training.batch_sentences, seed=training.seed)
    return sampler, (len(source.vocabulary), len(target.vocabulary))


def trainer_of(config: Config, folder: Path) -> Trainer:
    """Return a trainer as `nmt train` makes it, in float32 on the CPU; it writes nothing, into `folder` or elsewhere."""
    device, precision = torch.device("cpu"), torch.float32
    prepare_device(device)
    sampler, (source_size, target_size) = sampler_of(config)
    random = RandomSource(config.training.seed)
    model = build_model(config.model, source_size=source_size, target_size=target_size, random=random)
    optimizer = build_optimizer(model, config.training, device)
    state = TrainingState(model, optimizer, sampler, random, Progress(metric="loss"))
    hooks = TrainingHooks(
        validate=None,
        on_step=lambda share, seconds: None,
        on_update=lambda report: None,
        on_validation=lambda report: None,
        stop_signal=lambda: None,
    )
    return Trainer(state, config.training, RunFolder(folder), device=device, precision=precision, hooks=hooks)
