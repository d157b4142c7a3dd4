"""The matrix products of training, alone: no step can be faster than these. Runs until it is killed.

    python benchmarks/floor.py small DATA

SIZE is one of `benchmarks/train_cases.py`, DATA a folder as `benchmarks/train.py` lays it out. It goes through the batches that
our training draws, and writes {"tokens": N, "flops": M} on a line after each, N its real target tokens.

What is computed, forward and backward, into memory that is there already:

- each linear layer: y = x W, then the gradients of x and of W, with as many rows as there are real tokens;
- the output layer in blocks of as many rows as are fastest here, and products with one factor in common side by side or as one,
  whichever is faster here;
- attention of the Transformer: all scores and contexts and their gradients. Matrices have the padded shape of the batch, but
  there are only so many of them as have the arithmetic of the real tokens. Causal attention counts in full;
- recurrent layers: what does not depend on the step before (input products, weight gradients) once for all steps, the rest step
  by step, with as many rows as there are sentences still running. The score of additive attention multiplies by one vector
  only, which is no matrix product and is left out.

Everything else of a step (dropout, norms, softmax, additions, optimizer, drawing batches) takes no time here.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))  # to be found when started as a file

from benchmarks.train_cases import config_of, sampler_of
from nmt_cli.config import Seq2SeqConfig, TransformerConfig
from nmt_cli.devices import prepare_device
from nmt_cli.text.batching import Batch

BATCHES = 40
BLOCK_ROWS = (128, 256, 512, 1024)
TRIALS = 5


@dataclass(frozen=True)
class Lengths:
    """Real tokens of each sentence of a batch, end marks included: of the source, and of the target."""

    source: tuple[int, ...]
    target: tuple[int, ...]

    @classmethod
    def of(cls, batch: Batch) -> Lengths:
        """Return those of a batch."""
        return cls(tuple(batch.source_visible.sum(dim=1).tolist()), tuple(batch.target_visible.sum(dim=1).tolist()))


@dataclass(frozen=True)
class Product:
    """`torch.mm` or `torch.bmm` of two factors into `out`."""

    left: Tensor
    right: Tensor
    out: Tensor

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.left.numel() * self.right.shape[-1]

    def run(self) -> None:
        """Compute it."""
        (torch.mm if self.left.dim() == 2 else torch.bmm)(self.left, self.right, out=self.out)


Products = list[Product]


class Memory:
    """Random numbers to multiply, and room for what comes out. Activations share theirs; weights have their own."""

    def __init__(self) -> None:
        self._rooms: dict[str, Tensor] = {}
        self._weights: dict[tuple[str, int, int], Tensor] = {}

    def room(self, name: str, *shape: int) -> Tensor:
        """Return the beginning of the memory `name` in a shape; it grows as it must."""
        size = torch.Size(shape).numel()
        if name not in self._rooms or self._rooms[name].numel() < size:
            self._rooms[name] = torch.randn(size) * 0.1
        return self._rooms[name][:size].view(shape)

    def weight(self, name: str, outputs: int, inputs: int) -> Tensor:
        """Return the weight `name`, `(outputs, inputs)`; a gradient is one too."""
        key = name, outputs, inputs
        if key not in self._weights:
            self._weights[key] = torch.randn(outputs, inputs) * 0.1
        return self._weights[key]


class Counter:
    """Collects the products of batches of one model.

    Args:
        choose: Returns the fastest of several ways to compute the same.
    """

    def __init__(self, choose: Callable[[str, Sequence[Products]], Products]) -> None:
        self.memory = Memory()
        self._choose = choose

    # -- parts of models: each returns its products, forward and backward ------------------------------------------------

    def forward(self, name: str, rows: int, inputs: int, outputs: int) -> Products:
        """Return y = x W."""
        x, y = self.memory.room("x", rows, inputs), self.memory.room("y", rows, outputs)
        return [Product(x, self.memory.weight(name, outputs, inputs).T, y)]

    def input_gradient(self, name: str, rows: int, inputs: int, outputs: int) -> Products:
        """Return the gradient of x."""
        x, y = self.memory.room("dx", rows, inputs), self.memory.room("dy", rows, outputs)
        return [Product(y, self.memory.weight(name, outputs, inputs), x)]

    def weight_gradient(self, name: str, rows: int, inputs: int, outputs: int) -> Products:
        """Return the gradient of W."""
        x, y = self.memory.room("x", rows, inputs), self.memory.room("dy", rows, outputs)
        return [Product(y.T, x, self.memory.weight(f"gradient of {name}", outputs, inputs))]

    def linear(self, name: str, rows: int, inputs: int, outputs: int) -> Products:
        """Return all three of a linear layer."""
        sizes = name, rows, inputs, outputs
        return self.forward(*sizes) + self.input_gradient(*sizes) + self.weight_gradient(*sizes)

    def linears(self, name: str, count: int, rows: int, inputs: int, outputs: int) -> Products:
        """Return those of `count` linear layers of the same input: side by side, or as one."""
        apart = [product for index in range(count) for product in self.linear(f"{name} {index}", rows, inputs, outputs)]
        return self._choose(f"{count} layers of {name.split()[-1]}", [apart, self.linear(name, rows, inputs, count * outputs)])

    def output(self, rows: int, inputs: int, vocabulary: int) -> Products:
        """Return those of the output layer, in blocks of rows."""
        ways = []
        for block in BLOCK_ROWS:
            blocks = [min(block, rows - start) for start in range(0, rows, block)]
            ways.append([product for size in blocks for product in self.linear("output", size, inputs, vocabulary)])
        return self._choose("output layer", ways)

    def batched(self, count: int, rows: int, inner: int, columns: int) -> Products:
        """Return A B of `count` matrices `(rows, inner)` and `(inner, columns)`, and the gradients of A and B."""
        left, left_gradient = (self.memory.room(name, count, rows, inner) for name in ("a", "da"))
        right, right_gradient = (self.memory.room(name, count, inner, columns) for name in ("b", "db"))
        out, gradient = (self.memory.room(name, count, rows, columns) for name in ("c", "dc"))
        return [
            Product(left, right, out),
            Product(gradient, right.transpose(1, 2), left_gradient),
            Product(left.transpose(1, 2), gradient, right_gradient),
        ]

    def attention(self, heads: int, queries: Sequence[int], keys: Sequence[int], width: int) -> Products:
        """Return scores and contexts of all heads, given the lengths of each sentence."""
        count, rows, columns = matrices(queries, keys, heads)
        return self.batched(count, rows, width // heads, columns) + self.batched(count, rows, columns, width // heads)

    # -- the Transformer -------------------------------------------------------------------------------------------------

    def self_attention(self, name: str, config: TransformerConfig, lengths: Sequence[int]) -> Products:
        """Return those of self-attention."""
        rows, width = sum(lengths), config.width
        projections = self.linears(f"{name} projections", 3, rows, width, width)
        attention = self.attention(config.heads, lengths, lengths, width)
        return projections + attention + self.linear(f"{name} output", rows, width, width)

    def cross_attention(self, name: str, config: TransformerConfig, lengths: Lengths) -> Products:
        """Return those of attention to the source."""
        sources, targets, width = sum(lengths.source), sum(lengths.target), config.width
        projections = self.linear(f"{name} query", targets, width, width)
        projections += self.linears(f"{name} keys-and-values", 2, sources, width, width)
        attention = self.attention(config.heads, lengths.target, lengths.source, width)
        return projections + attention + self.linear(f"{name} output", targets, width, width)

    def feed_forward(self, name: str, config: TransformerConfig, rows: int) -> Products:
        """Return those of a feed-forward layer."""
        width, hidden = config.width, config.feed_forward
        return self.linear(f"{name} inner", rows, width, hidden) + self.linear(f"{name} outer", rows, hidden, width)

    def transformer(self, config: TransformerConfig, lengths: Lengths, vocabulary: int) -> Products:
        """Return all products of a Transformer."""
        found: Products = []
        for layer in range(config.encoder_layers):
            name = f"encoder {layer}"
            found += self.self_attention(name, config, lengths.source)
            found += self.feed_forward(name, config, sum(lengths.source))
        for layer in range(config.decoder_layers):
            name = f"decoder {layer}"
            found += self.self_attention(f"{name} self", config, lengths.target)
            found += self.cross_attention(f"{name} cross", config, lengths)
            found += self.feed_forward(name, config, sum(lengths.target))
        return found + self.output(sum(lengths.target), config.width, vocabulary)

    # -- the recurrent model ---------------------------------------------------------------------------------------------

    def stepwise(self, name: str, running: Sequence[int], inputs: int, outputs: int) -> Products:
        """Return those of a layer whose input comes step by step; the weight gradient is taken once."""
        found: Products = []
        for rows in running:
            found += self.forward(name, rows, inputs, outputs) + self.input_gradient(name, rows, inputs, outputs)
        return found + self.weight_gradient(name, sum(running), inputs, outputs)

    def recurrent_encoder(self, config: Seq2SeqConfig, lengths: Sequence[int]) -> Products:
        """Return those of the encoder."""
        found: Products = []
        hidden, directions = config.encoder_width, 2 if config.bidirectional else 1
        gates = gates_of(config) * hidden
        for layer in range(config.encoder_layers):
            inputs = config.memory_width if layer else config.embedding_size
            found += self.linears(f"encoder {layer} input", directions, sum(lengths), inputs, gates)
            for direction in range(directions):
                found += self.stepwise(f"encoder {layer} {direction} state", still_running(lengths), hidden, gates)
        return found

    def recurrent_decoder(self, config: Seq2SeqConfig, lengths: Lengths) -> Products:
        """Return those of the decoder, attention included."""
        sources, targets, running = sum(lengths.source), sum(lengths.target), still_running(lengths.target)
        hidden, memory = config.hidden_size, config.memory_width
        attended = config.attention_size or hidden
        gates = gates_of(config) * hidden
        found = self.linear("keys", sources, memory, attended) + self.linear("embedding", targets, config.embedding_size, gates)
        states = config.decoder_layers * (2 if config.cell == "lstm" else 1)
        if config.bridge == "dense":
            for index in range(states):
                found += self.linear(f"bridge {index}", len(lengths.source), memory, hidden)
        top = config.decoder_layers - 1
        query = self.stepwise("query", running, hidden, attended)
        state = self.stepwise(f"decoder {top} state", running, hidden, gates)
        both = self.stepwise("query and state", running, hidden, gates + attended)  # the same state is read by both
        found += self._choose("query and state", [query + state, both])
        for layer in range(config.decoder_layers):
            if layer:
                found += self.stepwise(f"decoder {layer} input", running, hidden, gates)
            if layer != top:
                found += self.stepwise(f"decoder {layer} state", running, hidden, gates)
        found += self.stepwise("context", running, memory, gates)
        for count in running:  # the longest targets go on
            longest = sorted(range(len(lengths.target)), key=lambda index: -lengths.target[index])[:count]
            sentences, _, columns = matrices([1] * count, [lengths.source[index] for index in longest], 1)
            found += self.batched(sentences, 1, columns, memory)[:2]
        sentences, rows, columns = matrices(lengths.target, lengths.source, 1)
        return found + self.batched(sentences, rows, columns, memory)[2:]  # the memory's gradient: once for all steps

    def recurrent(self, config: Seq2SeqConfig, lengths: Lengths, vocabulary: int) -> Products:
        """Return all products of the recurrent model.

        Raises:
            ValueError: Its attention is another than additive.
        """
        if config.attention != "additive":
            raise ValueError(f"the floor knows additive attention only, but model.attention is {config.attention}")
        found = self.recurrent_encoder(config, lengths.source) + self.recurrent_decoder(config, lengths)
        return found + self.output(sum(lengths.target), config.hidden_size, vocabulary)

    def products(self, config: TransformerConfig | Seq2SeqConfig, lengths: Lengths, vocabulary: int) -> Products:
        """Return all products of a batch."""
        if isinstance(config, TransformerConfig):
            return self.transformer(config, lengths, vocabulary)
        return self.recurrent(config, lengths, vocabulary)


def gates_of(config: Seq2SeqConfig) -> int:
    """Return how many gates a cell has."""
    return {"gru": 3, "lstm": 4}[config.cell]


def still_running(lengths: Sequence[int]) -> list[int]:
    """Return how many sentences have a token at each step."""
    return [sum(length > step for length in lengths) for step in range(max(lengths))]


def matrices(rows: Sequence[int], columns: Sequence[int], heads: int) -> tuple[int, int, int]:
    """Return how many matrices of the padded shape hold as many numbers as the real ones, and that shape."""
    real = sum(a * b for a, b in zip(rows, columns, strict=True))
    padded = max(rows) * max(columns)
    return max(1, round(heads * real / padded)), max(rows), max(columns)


class Fastest:
    """Tries several ways to compute the same, and remembers by name which was the fastest."""

    def __init__(self) -> None:
        self.chosen: dict[str, int] = {}

    def __call__(self, name: str, ways: Sequence[Products]) -> Products:
        """Return the fastest of the ways; the first call with a name decides for all."""
        if name not in self.chosen:
            best = [min(seconds(way) for _ in range(TRIALS)) for way in ways]
            self.chosen[name] = best.index(min(best))
        return ways[self.chosen[name]]


def seconds(products: Products) -> float:
    """Return how long products take."""
    started = time.perf_counter()
    for product in products:
        product.run()
    return time.perf_counter() - started


def main() -> None:
    """Go through the batches until killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size")
    parser.add_argument("data", type=Path)
    options = parser.parse_args()
    config = config_of(options.size, options.data)
    sampler, (_, vocabulary) = sampler_of(config)
    drawn = [sampler.next_batch() for _ in range(BATCHES)]
    prepare_device(torch.device("cpu"))
    fastest = Fastest()
    counter = Counter(fastest)
    ready = [(batch.tokens, counter.products(config.model, Lengths.of(batch), vocabulary)) for batch in drawn]
    print(f"ways chosen: {fastest.chosen}, output layer in blocks of {BLOCK_ROWS}", flush=True)
    lines = [json.dumps({"tokens": tokens, "flops": sum(product.flops for product in found)}) for tokens, found in ready]
    while True:
        for (_, found), line in zip(ready, lines, strict=True):
            seconds(found)
            print(line, flush=True)


if __name__ == "__main__":
    main()
