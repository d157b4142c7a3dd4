"""Training speed of each model on made-up sentences: target tokens a second, median and spread of several rounds.

    python benchmarks/train.py [--rounds 5] [--updates 20]

The models take turns inside one run, so that a busy machine disturbs them alike. Absolute figures mean little on a shared
machine; compare inside one run.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch

from nmt_cli.config import Seq2SeqConfig, TrainingConfig, TransformerConfig
from nmt_cli.devices import prepare_device
from nmt_cli.models.dropout import RandomSource
from nmt_cli.models.interface import Seq2Seq, count_parameters
from nmt_cli.runs.build import build_model
from nmt_cli.text.batching import BatchSampler
from nmt_cli.text.examples import Examples
from nmt_cli.training.loop import batch_loss, build_optimizer

VOCABULARY, SENTENCES = 8000, 2000
MODELS: dict[str, Seq2SeqConfig | TransformerConfig] = {
    "seq2seq (two-way GRU, 256/512)": Seq2SeqConfig(type="seq2seq", embedding_size=256, hidden_size=512),
    "transformer (3+3, width 256)": TransformerConfig(
        type="transformer", width=256, heads=4, feed_forward=1024, encoder_layers=3, decoder_layers=3, dropout=0.2
    ),
}


def made_up_examples(random: np.random.Generator) -> Examples:
    """Return pairs of about 15 source and 17 target tokens with made-up ids."""
    source_lengths = random.integers(9, 22, SENTENCES)
    target_lengths = source_lengths + random.integers(0, 5, SENTENCES)
    return Examples(
        random.integers(4, VOCABULARY, source_lengths.sum()).astype(np.int32),
        source_lengths.cumsum(),
        random.integers(4, VOCABULARY, target_lengths.sum()).astype(np.int32),
        target_lengths.cumsum(),
        np.arange(SENTENCES, dtype=np.int64),
        np.arange(SENTENCES, dtype=np.int64),
    )


def tokens_per_second(
    model: Seq2Seq, optimizer: torch.optim.Optimizer, sampler: BatchSampler, smoothing: float, updates: int
) -> float:
    """Return real target tokens a second over some updates: forward, backward and optimizer step."""
    tokens, started = 0, time.perf_counter()
    for _ in range(updates):
        batch = sampler.next_batch()
        batch_loss(model, batch, smoothing).smoothed.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        tokens += batch.tokens
    return tokens / (time.perf_counter() - started)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=20)
    arguments = parser.parse_args()
    device = torch.device("cpu")
    prepare_device(device)
    examples = made_up_examples(np.random.default_rng(1))
    training = TrainingConfig(batch_tokens=2400, max_updates=1)
    ready = {}
    for name, config in MODELS.items():
        model = build_model(config, source_size=VOCABULARY, target_size=VOCABULARY, random=RandomSource(1)).train()
        sampler = BatchSampler(examples, tokens=training.batch_tokens, sentences=None, seed=1)
        ready[name] = model, build_optimizer(model, training, device), sampler
        tokens_per_second(*ready[name], training.label_smoothing, 3)  # warm up
    speeds: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(arguments.rounds):
        for name, parts in ready.items():
            speeds[name].append(tokens_per_second(*parts, training.label_smoothing, arguments.updates))
    for name, found in speeds.items():
        middle, low, high = statistics.median(found), min(found), max(found)
        size = count_parameters(ready[name][0])
        print(f"{name:32} {size:>12,} parameters  {middle:>7,.0f} target tokens/s  ({low:,.0f} to {high:,.0f})")


if __name__ == "__main__":
    main()
