"""Trains the models of other engines that `benchmarks/decode.py` is measured against, each for some minutes on the CPU.

    python benchmarks/peers/train_peers.py WORK --run RUN --recurrent RUN \
        --joeynmt-python JOEYNMT/bin/python --marian-python MARIAN/bin/python --minutes 20

WORK is a folder outside the repository; each model comes into a folder of its own there. The data is Multi30k, laid out by
`nmt fetch multi30k`. The sizes and the pieces are those of our runs, so that all engines compute the same; without `--run`
pieces are learned from the training text and the sizes are 3+3 layers of width 256, or a GRU of 256/512. What differs:

- Marian's encoder has states as wide as its decoder's, in each direction, and its decoder two cells a step;
- JoeyNMT draws batches without sorting by length; `--sentences` of them have about as many tokens as Marian's batches;
- neither knows a limit in minutes: both are told to stop, and keep what they have learned by then;
- in so few minutes on two cores JoeyNMT learns little: `transplant.py` gives its Transformer the weights of ours.

The two environments: `pip install torch==2.13.0 joeynmt==2.3.0 sentencepiece==0.2.0 importlib_metadata subword-nmt` in one,
`pip install pymarian==1.12.42` in the other.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece
import yaml

from nmt_cli.config import Seq2SeqConfig, TransformerConfig
from nmt_cli.runs.folder import RunFolder
from nmt_cli.text.parallel import read_lines
from nmt_cli.text.tokenizers import train_tokenizer

CORPUS = Path(__file__).parents[2] / "data" / "corpora" / "multi30k"
SPECIALS = ("<unk>", "<pad>", "<bos>", "<eos>")  # in the order that JoeyNMT gives them numbers
GRACE_SECONDS = 300
TRANSFORMER = TransformerConfig(
    type="transformer", width=256, heads=4, feed_forward=1024, encoder_layers=3, decoder_layers=3, dropout=0.2
)
RECURRENT = Seq2SeqConfig(type="seq2seq", embedding_size=256, hidden_size=512, encoder_hidden_size=512)


@dataclass(frozen=True)
class Plan:
    """What is trained, and how.

    Args:
        work: Folder of data and models.
        transformer: Sizes of the Transformers.
        recurrent: Sizes of the recurrent models.
        tokens: Target tokens of a batch, for Marian.
        sentences: Sentences of a batch, for JoeyNMT.
        threads: Threads of each training.
        log_every: Updates between two lines of the log.
        marian_cost: Marian's `--cost-type`; with `ce-sum` its log counts target tokens.
    """

    work: Path
    transformer: TransformerConfig
    recurrent: Seq2SeqConfig
    tokens: int
    sentences: int
    threads: int
    log_every: int = 50
    marian_cost: str = "ce-mean-words"


# -- data --------------------------------------------------------------------------------------------------------------


def plain(lines: Iterable[str]) -> list[str]:
    """Return lines with plain single spaces: JoeyNMT also cuts lines at rare separators."""
    return [" ".join(line.split()) for line in lines]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def prepare_data(data: Path, pieces: Path | None) -> None:
    """Write plain text, the sentencepiece model and a list of its pieces into `data`."""
    data.mkdir(parents=True, exist_ok=True)
    for split in ("train", "val"):
        sides = [plain(read_lines(CORPUS / f"{split}.{language}.gz")) for language in ("en", "fr")]
        pairs = [pair for pair in zip(*sides, strict=True) if all(pair)]
        write_lines(data / f"{split}.en", (source for source, _ in pairs))
        write_lines(data / f"{split}.fr", (target for _, target in pairs))
    model = data / "vocab.spm"
    if pieces:
        shutil.copyfile(pieces, model)
    elif not model.exists():
        text = [line for language in ("en", "fr") for line in read_lines(data / f"train.{language}")]
        content = train_tokenizer("sentencepiece", text, max_size=8000).stored()[1]
        assert isinstance(content, bytes)
        model.write_bytes(content)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    names = [processor.IdToPiece(number) for number in range(processor.vocab_size())]
    write_lines(data / "vocab.txt", [*SPECIALS, *(name for name in names if name not in SPECIALS)])


# -- JoeyNMT -----------------------------------------------------------------------------------------------------------


def joeynmt_transformer(sizes: TransformerConfig) -> dict[str, Any]:
    """Return the `model` section of a Transformer."""
    side: dict[str, Any] = {
        "type": "transformer",
        "num_heads": sizes.heads,
        "embeddings": {"embedding_dim": sizes.width, "scale": True, "dropout": sizes.dropout},
        "hidden_size": sizes.width,
        "ff_size": sizes.feed_forward,
        "dropout": sizes.dropout,
        "layer_norm": sizes.norm,
        "activation": "relu",
    }
    return {
        "initializer": "xavier_uniform",
        "embed_initializer": "xavier_uniform",
        "embed_init_gain": 1.0,
        "init_gain": 1.0,
        "bias_initializer": "zeros",
        "tied_embeddings": True,
        "tied_softmax": True,
        "encoder": {**side, "num_layers": sizes.encoder_layers},
        "decoder": {**side, "num_layers": sizes.decoder_layers},
    }


def joeynmt_recurrent(sizes: Seq2SeqConfig) -> dict[str, Any]:
    """Return the `model` section of a recurrent model with Bahdanau attention."""
    side: dict[str, Any] = {
        "type": "recurrent",
        "rnn_type": sizes.cell,
        "embeddings": {"embedding_dim": sizes.embedding_size, "scale": False, "dropout": sizes.embedding_dropout},
        "dropout": sizes.dropout,
    }
    encoder = {
        **side,
        "hidden_size": sizes.encoder_width,
        "num_layers": sizes.encoder_layers,
        "bidirectional": sizes.bidirectional,
    }
    decoder = {
        **side,
        "hidden_size": sizes.hidden_size,
        "num_layers": sizes.decoder_layers,
        "hidden_dropout": sizes.output_dropout,
        "init_hidden": "bridge",
        "input_feeding": True,
        "attention": "bahdanau",
    }
    return {
        "initializer": "xavier_uniform",
        "embed_initializer": "normal",
        "embed_init_weight": 0.1,
        "bias_initializer": "zeros",
        "init_rnn_orthogonal": True,
        "lstm_forget_gate": 0.0,
        "tied_embeddings": True,
        "tied_softmax": False,  # it can tie them only where both have the same width
        "encoder": encoder,
        "decoder": decoder,
    }


def joeynmt_config(plan: Plan, name: str, model: dict[str, Any], rate: float) -> dict[str, Any]:
    """Return a whole config; steps are counted, so nothing but the stop from outside ends it."""
    data = plan.work / "data"

    def side(language: str) -> dict[str, Any]:
        return {
            "lang": language,
            "max_length": 100,
            "lowercase": False,
            "normalize": False,
            "level": "bpe",
            "voc_file": str(data / "vocab.txt"),
            "tokenizer_type": "sentencepiece",
            "tokenizer_cfg": {"model_file": str(data / "vocab.spm"), "pretokenizer": "none"},
        }

    specials: dict[str, Any] = {}
    for number, symbol in enumerate(SPECIALS):
        name_of_it = symbol.strip("<>")
        specials |= {f"{name_of_it}_id": number, f"{name_of_it}_token": symbol}
    return {
        "name": name,
        "joeynmt_version": "2.3.0",
        "model_dir": str(plan.work / name),
        "use_cuda": False,
        "fp16": False,
        "random_seed": 42,
        "data": {
            "train": str(data / "train"),
            "dev": str(data / "val"),
            "dataset_type": "plain",
            "src": side("en"),
            "trg": side("fr"),
            "special_symbols": specials,
        },
        "testing": {"load_model": "latest.ckpt", "batch_size": 64, "batch_type": "sentence", "beam_size": 1},
        "training": {
            "optimizer": "adamw",
            "adam_betas": [0.9, 0.98],
            "normalization": "tokens",
            "label_smoothing": 0.1,
            "scheduling": "warmupinversesquareroot",
            "learning_rate": rate,
            "learning_rate_min": 1e-8,
            "learning_rate_warmup": 200,
            "clip_grad_norm": 1.0,
            "batch_size": plan.sentences,
            "batch_type": "sentence",
            "epochs": 1_000_000,
            "logging_freq": plan.log_every,
            "validation_freq": 1_000_000_000,
            "overwrite": True,
        },
        "model": model,
    }


def joeynmt_command(python: str, plan: Plan, name: str, kind: str) -> list[str]:
    """Return what trains a JoeyNMT model."""
    transformer = kind == "transformer"
    model = joeynmt_transformer(plan.transformer) if transformer else joeynmt_recurrent(plan.recurrent)
    path = plan.work / f"{name}.yaml"
    config = joeynmt_config(plan, name, model, 2e-3 if transformer else 1e-3)
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return [python, "-m", "joeynmt", "train", str(path), "--skip-test"]


# -- Marian ------------------------------------------------------------------------------------------------------------


def marian_transformer(sizes: TransformerConfig) -> list[str]:
    """Return the options of a Transformer; `n`, `d` and `a` stand for norm, dropout and addition."""
    pre = ["--transformer-preprocess", "n", "--transformer-postprocess", "da", "--transformer-postprocess-top", "n"]
    return [
        *("--type", "transformer"),
        *("--dim-emb", str(sizes.width)),
        *("--transformer-heads", str(sizes.heads)),
        *("--transformer-dim-ffn", str(sizes.feed_forward)),
        *("--transformer-ffn-activation", "relu"),
        *("--enc-depth", str(sizes.encoder_layers)),
        *("--dec-depth", str(sizes.decoder_layers)),
        *(pre if sizes.norm == "pre" else ["--transformer-postprocess", "dan"]),
        *("--transformer-postprocess-emb", "d"),
        *("--transformer-dropout", str(sizes.dropout)),
        *("--learn-rate", "2e-3"),
    ]


def marian_recurrent(sizes: Seq2SeqConfig) -> list[str]:
    """Return the options of a recurrent model."""
    return [
        *("--type", "s2s"),
        *("--dim-emb", str(sizes.embedding_size)),
        *("--dim-rnn", str(sizes.hidden_size)),
        *("--enc-type", "bidirectional"),
        *("--enc-cell", sizes.cell),
        *("--dec-cell", sizes.cell),
        *("--enc-depth", str(sizes.encoder_layers)),
        *("--dec-depth", str(sizes.decoder_layers)),
        *("--dropout-rnn", str(sizes.dropout)),
        *("--learn-rate", "1e-3"),
    ]


def marian_command(python: str, plan: Plan, name: str, kind: str) -> list[str]:
    """Return what trains a Marian model."""
    folder, data = plan.work / name, plan.work / "data"
    folder.mkdir(exist_ok=True)
    shutil.copyfile(data / "vocab.spm", folder / "vocab.spm")
    vocabulary = str(folder / "vocab.spm")
    return [
        *(python, "-m", "pymarian", "train"),
        *(marian_transformer(plan.transformer) if kind == "transformer" else marian_recurrent(plan.recurrent)),
        "--tied-embeddings-all",
        *("--model", str(folder / "model.npz")),
        *("--train-sets", str(data / "train.en"), str(data / "train.fr")),
        *("--vocabs", vocabulary, vocabulary),
        *("--max-length", "100"),
        *("--cpu-threads", str(plan.threads)),
        "--sync-sgd",
        *("--mini-batch-words", str(max(1, plan.tokens // plan.threads))),  # of each thread
        *("--mini-batch-round-up", "false"),
        *("--maxi-batch", "100"),
        *("--workspace", "1024"),
        *("--cost-type", plan.marian_cost),
        *("--label-smoothing", "0.1"),
        *("--optimizer-params", "0.9", "0.98", "1e-9"),
        *("--clip-norm", "1"),
        *("--lr-warmup", "200"),
        *("--lr-decay-inv-sqrt", "200"),
        *("--seed", "1"),
        *("--shuffle-in-ram", "--overwrite", "--no-reload"),
        *("--save-freq", "1000000u"),
        *("--disp-freq", f"{plan.log_every}u"),
    ]


# -- all together ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peer:
    """An engine to train a model with.

    Args:
        command: Returns what trains, given interpreter, plan, name and kind of model.
        begins: What its log says when the training begins.
        stop: Signal that ends it.
        result: File that must come out.
    """

    command: Callable[[str, Plan, str, str], list[str]]
    begins: str
    stop: signal.Signals
    result: str


PEERS = {
    "joeynmt": Peer(joeynmt_command, "EPOCH 1", signal.SIGINT, "latest.ckpt"),
    "marian": Peer(marian_command, "Training started", signal.SIGTERM, "model.npz"),
}


def _hear_interrupts() -> None:
    """Undo what a shell does to whatever it starts in the background: such a process ignores interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def train(peer: Peer, command: list[str], *, seconds: float, threads: int, log: Path) -> float:
    """Run a training, stop it some seconds after it has begun, and return how long it took, saving included."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with log.open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(
            command, stdout=stream, stderr=subprocess.STDOUT, env=environment, preexec_fn=_hear_interrupts
        )
        while process.poll() is None and peer.begins not in log.read_text(encoding="utf-8", errors="replace"):
            time.sleep(0.2)
        started = time.perf_counter()
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(peer.stop)
            try:
                process.wait(timeout=GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    return time.perf_counter() - started


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--run", type=Path, help="our Transformer: its sizes, and its pieces")
    parser.add_argument("--recurrent", type=Path, help="our recurrent model: its sizes")
    parser.add_argument("--joeynmt-python", help="interpreter that has JoeyNMT; without it JoeyNMT is left out")
    parser.add_argument("--marian-python", help="interpreter that has pymarian; without it Marian is left out")
    parser.add_argument("--kinds", nargs="+", choices=["transformer", "recurrent"], default=["transformer", "recurrent"])
    parser.add_argument("--minutes", type=float, default=20.0, help="of each model")
    parser.add_argument("--tokens", type=int, default=2200, help="target tokens of a batch of Marian")
    parser.add_argument("--sentences", type=int, default=136, help="sentences of a batch of JoeyNMT")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def sizes_of(run: Path | None) -> Any:
    """Return the `model` section of a run's config."""
    return RunFolder.open(run).config().model if run else None


def main() -> None:
    """Train one model after the other."""
    options = arguments()
    work = options.work.resolve()
    run = options.run or options.recurrent
    prepare_data(work / "data", run / "tokenizer" / "shared.model" if run else None)
    sizes = sizes_of(options.run) or TRANSFORMER, sizes_of(options.recurrent) or RECURRENT
    plan = Plan(work, *sizes, options.tokens, options.sentences, options.threads)
    missing = []
    for name in [f"{peer}-{kind}" for kind in options.kinds for peer in PEERS]:
        label, _, kind = name.partition("-")
        peer, python, log = PEERS[label], getattr(options, f"{label}_python"), work / f"{name}.log"
        if not python:
            continue
        result = work / name / peer.result
        result.unlink(missing_ok=True)
        print(f"{name}: {options.minutes:g} minutes, log in {log}", flush=True)
        command = peer.command(python, plan, name, kind)
        taken = train(peer, command, seconds=60 * options.minutes, threads=plan.threads, log=log)
        print(f"{name}: {'done' if result.exists() else 'FAILED'} after {taken:.0f} s", flush=True)
        missing += [] if result.exists() else [name]
    sys.exit(f"no model came out: {', '.join(missing)}" if missing else 0)


if __name__ == "__main__":
    main()
