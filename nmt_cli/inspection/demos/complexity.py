"""What self-attention, recurrence and convolution cost, by formula and by the clock.

Reference: Vaswani et al. 2017, table 1.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from nmt_cli.attention.multihead import MultiHeadAttention
from nmt_cli.inspection.demos.outcome import Outcome, new_figure, prose, table

WIDTH, KERNEL = 32, 3
LENGTHS = {
    "self-attention": (128, 256, 512, 1024, 2048),
    "recurrence": (128, 256, 512, 1024, 2048, 4096),
    "convolution": (128, 512, 2048, 8192, 16384, 32768),
}
ROUNDS = 5
FORMULAS = (
    ("self-attention", "n²d, and 4nd² for its projections", "1", "1"),
    ("recurrence", "nd²", "n", "n"),
    ("convolution", f"knd² (k = {KERNEL})", "1", "n / k"),
)


def layers() -> dict[str, Callable[[Tensor], object]]:
    """Return one layer of each kind that takes `(1, n, d)`."""
    attention = MultiHeadAttention(WIDTH, 1, dropout=nn.Identity()).eval()
    recurrent = nn.GRU(WIDTH, WIDTH, batch_first=True).eval()
    convolution = nn.Conv1d(WIDTH, WIDTH, KERNEL, padding=KERNEL // 2).eval()
    return {
        "self-attention": lambda x: attention(x, attention.project(x), want_weights=True),  # the whole n x n map
        "recurrence": recurrent,
        "convolution": lambda x: convolution(x.transpose(1, 2)),
    }


@torch.inference_mode()
def measured(generator: torch.Generator) -> dict[str, list[float]]:
    """Return, for each kind, the least seconds of a pass at each length; the kinds take turns."""
    best = {name: [math.inf] * len(lengths) for name, lengths in LENGTHS.items()}
    inputs = {n: torch.randn(1, n, WIDTH, generator=generator) for lengths in LENGTHS.values() for n in lengths}
    kinds = layers()
    for _ in range(ROUNDS):
        for name, layer in kinds.items():
            for index, length in enumerate(LENGTHS[name]):
                started = time.perf_counter()
                layer(inputs[length])
                best[name][index] = min(best[name][index], time.perf_counter() - started)
    return best


def slope(lengths: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the slope of log time against log length over the last three lengths (least squares)."""
    line = np.polyfit(np.log(lengths[-3:]), np.log(seconds[-3:]), 1)
    return float(line[0])


def complexity(seed: int) -> Outcome:
    """Measure and draw."""
    seconds = measured(torch.Generator().manual_seed(seed))
    slopes = {name: slope(LENGTHS[name], values) for name, values in seconds.items()}
    ranges = {name: [lengths[-3], lengths[-1]] for name, lengths in LENGTHS.items()}
    figure = new_figure(6.5, 4.5)
    axes = figure.subplots()
    for name, values in seconds.items():
        axes.loglog(LENGTHS[name], values, marker="o", label=f"{name} (slope {slopes[name]:.2f})")
    axes.set(xlabel="length n", ylabel="seconds a layer", title=f"One layer of width {WIDTH}")
    axes.grid(alpha=0.3)
    axes.legend()
    shared = sorted(set.intersection(*map(set, LENGTHS.values())))
    times = [
        (
            name,
            *(f"{seconds[name][LENGTHS[name].index(n)] * 1000:.2f}" for n in shared),
            f"{slopes[name]:.2f}",
            f"{low}..{high}",
        )
        for name, (low, high) in ranges.items()
    ]
    text = "\n".join(
        [
            table(("layer", "operations", "sequential steps", "longest path"), FORMULAS),
            "",
            prose(
                f"Measured: milliseconds of one layer of width {WIDTH} at some lengths n, least of {ROUNDS},",
                "and the slope of log time against log n over a range at the long end:",
            ),
            table(("layer", *(f"n = {n}" for n in shared), "slope", "over n"), times),
            "",
            prose(
                "Two readings, both right: self-attention does n² work, so long text is dear to it (the slope nears 2",
                "once n is far above 2d); but it does the work at once and links any two words in one step, where a",
                "recurrence needs n steps one after the other.",
            ),
            "Look at: complexity-time.png.",
        ]
    )
    numbers = {
        "width": WIDTH,
        "kernel": KERNEL,
        "lengths": {name: list(lengths) for name, lengths in LENGTHS.items()},
        "seconds": seconds,
        "slopes": slopes,
        "slope_ranges": ranges,
        "formulas": [
            dict(zip(("layer", "operations", "sequential_steps", "longest_path"), row, strict=True)) for row in FORMULAS
        ],
    }
    return Outcome(text, numbers, {"time": figure})
