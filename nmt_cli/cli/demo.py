"""`nmt demo`: the systems that translation models are made of, each to be seen in numbers and pictures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch

from nmt_cli.cli.console import Messages, print_data
from nmt_cli.errors import ConfigError, nearest
from nmt_cli.inspection.demos.complexity import complexity
from nmt_cli.inspection.demos.kernel_regression import kernel_regression
from nmt_cli.inspection.demos.masked_softmax import masked_softmax_demo
from nmt_cli.inspection.demos.outcome import Outcome
from nmt_cli.inspection.demos.positions import positions
from nmt_cli.inspection.demos.scores import scores
from nmt_cli.inspection.demos.transformer_blocks import transformer_blocks
from nmt_cli.inspection.plots import to_png
from nmt_cli.runs.folder import write_atomically

DEMOS: dict[str, Callable[[int], Outcome]] = {
    "kernel-regression": kernel_regression,
    "masked-softmax": masked_softmax_demo,
    "scores": scores,
    "positions": positions,
    "transformer-blocks": transformer_blocks,
    "complexity": complexity,
}


def run_demo(name: str, out: Path, seed: int) -> None:
    """Run a demonstration; write `NAME.json` and its pictures into `out`, and print what to look at.

    Raises:
        ConfigError: The name is unknown.
    """
    if name not in DEMOS:
        raise ConfigError(f"unknown demo {name!r}{nearest(name, DEMOS) or '.'} Known: {', '.join(DEMOS)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # of the weights that layers draw for themselves
        outcome = DEMOS[name](seed)
    numbers = json.dumps({"demo": name, "seed": seed, **outcome.numbers}, indent=1, allow_nan=False)
    write_atomically(out / f"{name}.json", f"{numbers}\n")
    for stem, figure in outcome.pictures.items():
        write_atomically(out / f"{name}-{stem}.png", to_png(figure))
    print_data(outcome.text)
    Messages().info(f"{out}: {name}.json, {', '.join(f'{name}-{stem}.png' for stem in outcome.pictures)}")
