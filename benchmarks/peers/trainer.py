"""One training of another engine, for `benchmarks/train.py`: it goes on until it is killed.

    python benchmarks/peers/trainer.py joeynmt CONFIG.yaml
    python benchmarks/peers/trainer.py marian OPTION …
    python benchmarks/peers/trainer.py d2l recurrent|transformer PAIRS.tsv

It writes {"tokens": N} on a line after each update, N the real target tokens of that update with their end marks; Marian writes
its own log instead. It runs in the interpreter of the engine that it drives, which need not have anything of this project.
What the engines do beside training costs them nothing here: JoeyNMT writes no statistics for TensorBoard, the book draws no
curve.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from pathlib import Path
from typing import Any

BOOK_PAIRS = 600  # the book reads one more
BOOK_STEPS = 10


def tell(tokens: int) -> None:
    """Write the line of an update."""
    print(json.dumps({"tokens": tokens}), flush=True)


def train_joeynmt(config: str) -> None:
    """Train with JoeyNMT's own command; a line is written where it would log an update."""
    training = importlib.import_module("joeynmt.training")

    def log_scores(manager: Any, epoch: int, seconds: float, start_tokens: int, *others: Any) -> None:
        tell(manager.stats.total_tokens - start_tokens)

    training.TrainManager._log_scores = log_scores
    sys.argv = ["joeynmt", "train", config, "--skip-test"]
    importlib.import_module("joeynmt.__main__").main()


def train_marian(options: list[str]) -> None:
    """Train with Marian's own trainer."""
    importlib.import_module("pymarian").Trainer(" ".join(options)).train()


# -- the d2l book ------------------------------------------------------------------------------------------------------


def book() -> Any:
    """Return the book's package. It asks for torchvision, which only other chapters use."""
    for name in ("torchvision", "torchvision.transforms"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["torchvision"].__dict__["transforms"] = sys.modules["torchvision.transforms"]
    return importlib.import_module("d2l.torch")


def recurrent_decoder(d2l: Any, torch: Any, vocabulary: int) -> Any:
    """Return the decoder of the book's section on Bahdanau attention, which its package lacks, with the same operations."""
    nn = torch.nn

    class Decoder(d2l.AttentionDecoder):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.attention = d2l.AdditiveAttention(32, 32, 32, 0.1)
            self.embedding = nn.Embedding(vocabulary, 32)
            self.rnn = nn.GRU(32 + 32, 32, 2, dropout=0.1)
            self.dense = nn.Linear(32, vocabulary)

        def init_state(self, encoded: Any, lengths: Any, *others: Any) -> Any:
            outputs, hidden = encoded
            return outputs.permute(1, 0, 2), hidden, lengths

        def forward(self, ids: Any, state: Any) -> Any:
            memory, hidden, lengths = state
            outputs = []
            for step in self.embedding(ids).permute(1, 0, 2):  # (B, T) -> T x (B, E)
                context = self.attention(hidden[-1].unsqueeze(1), memory, memory, lengths)  # (B, 1, D)
                joined = torch.cat((context, step.unsqueeze(1)), dim=-1)
                output, hidden = self.rnn(joined.permute(1, 0, 2), hidden)
                outputs.append(output)
            logits = self.dense(torch.cat(outputs, dim=0))  # (T, B, V)
            return logits.permute(1, 0, 2), (memory, hidden, lengths)

    return Decoder()


def transformer_decoder(d2l: Any, torch: Any, vocabulary: int) -> Any:
    """Return the decoder of the book's section on the Transformer, which its package lacks, with the same operations."""
    nn = torch.nn

    class Layer(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.self_attention = d2l.MultiHeadAttention(32, 32, 32, 32, 4, 0.1)
            self.self_norm = d2l.AddNorm([32], 0.1)
            self.cross_attention = d2l.MultiHeadAttention(32, 32, 32, 32, 4, 0.1)
            self.cross_norm = d2l.AddNorm([32], 0.1)
            self.feed_forward = d2l.PositionWiseFFN(32, 64, 32)
            self.feed_forward_norm = d2l.AddNorm([32], 0.1)

        def forward(self, x: Any, memory: Any, lengths: Any) -> Any:
            rows, steps, _ = x.shape
            seen = torch.arange(1, steps + 1, device=x.device).repeat(rows, 1)  # (B, T): what each query may see
            x = self.self_norm(x, self.self_attention(x, x, x, seen))
            x = self.cross_norm(x, self.cross_attention(x, memory, memory, lengths))
            return self.feed_forward_norm(x, self.feed_forward(x))

    class Decoder(d2l.AttentionDecoder):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(vocabulary, 32)
            self.positions = d2l.PositionalEncoding(32, 0.1)
            self.layers = nn.ModuleList(Layer() for _ in range(2))
            self.dense = nn.Linear(32, vocabulary)

        def init_state(self, encoded: Any, lengths: Any, *others: Any) -> Any:
            return encoded, lengths

        def forward(self, ids: Any, state: Any) -> Any:
            x = self.positions(self.embedding(ids) * 32**0.5)
            for layer in self.layers:
                x = layer(x, *state)
            return self.dense(x), state

    return Decoder()


def train_d2l(kind: str, pairs: str) -> None:
    """Train with the book's own loop, at its sizes."""
    d2l, torch = book(), importlib.import_module("torch")
    d2l.read_data_nmt = lambda: Path(pairs).read_text(encoding="utf-8")

    class Accumulator(d2l.Accumulator):  # type: ignore[misc,name-defined]
        def add(self, *values: Any) -> None:  # the book's loop calls it at the end of each update
            super().add(*values)
            tell(int(values[1]))

    d2l.Accumulator = Accumulator
    d2l.Animator = lambda **_: types.SimpleNamespace(add=lambda x, y: None)
    batches, source, target = d2l.load_data_nmt(64, BOOK_STEPS, BOOK_PAIRS)
    if kind == "recurrent":
        encoder = d2l.Seq2SeqEncoder(len(source), 32, 32, 2, 0.1)
        decoder = recurrent_decoder(d2l, torch, len(target))
    else:
        encoder = d2l.TransformerEncoder(len(source), 32, 32, 32, 32, [32], 32, 64, 4, 2, 0.1)
        decoder = transformer_decoder(d2l, torch, len(target))
    net = d2l.EncoderDecoder(encoder, decoder)
    d2l.train_seq2seq(net, batches, 0.005, sys.maxsize, target, torch.device("cpu"))


def main() -> None:
    """Train until killed."""
    engine, *rest = sys.argv[1:]
    if engine == "joeynmt":
        train_joeynmt(*rest)
    elif engine == "marian":
        train_marian(rest)
    elif engine == "d2l":
        train_d2l(*rest)
    else:
        sys.exit(f"expected joeynmt, marian or d2l, but is {engine!r}; see the first lines of {__file__}")


if __name__ == "__main__":
    main()
