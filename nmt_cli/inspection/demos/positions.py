"""Sinusoidal positions: waves of falling frequency, beside the bits of binary numbers."""

from __future__ import annotations

import torch

from nmt_cli.attention.positional import sinusoidal_encoding
from nmt_cli.inspection.demos.outcome import Outcome, new_figure, plain, prose, table
from nmt_cli.inspection.plots import heat_maps

LENGTH, WIDTH = 60, 32
COLUMNS = (6, 7, 8, 9)
BASES = (10000.0, 1000.0)
SHIFT = 5


def rotation_error(encoding: torch.Tensor, base: float, shift: int) -> float:
    """Return how far PE(p + shift) is from PE(p) with each pair of columns turned by shift x its frequency, at most."""
    frequencies = base ** -(torch.arange(0, WIDTH, 2) / WIDTH)
    sine, cosine = (shift * frequencies).sin(), (shift * frequencies).cos()
    before, after = encoding[:-shift].view(-1, WIDTH // 2, 2), encoding[shift:].view(-1, WIDTH // 2, 2)
    turned = torch.stack(
        (cosine * before[..., 0] + sine * before[..., 1], cosine * before[..., 1] - sine * before[..., 0]), dim=-1
    )
    return float((turned - after).abs().max())


def positions(seed: int) -> Outcome:
    """Compute and draw. Nothing here is random; `seed` is not used."""
    encodings = {base: sinusoidal_encoding(LENGTH, WIDTH, base=base) for base in BASES}
    waves = new_figure(9, 5)
    for axes, (base, encoding) in zip(waves.subplots(2, 1, sharex=True), encodings.items(), strict=True):
        for column in COLUMNS:
            axes.plot(encoding[:, column], label=f"column {column}")
        axes.set(ylabel=f"base {base:g}")
        axes.legend(loc="upper right", ncols=4, fontsize=8)
    axes.set(xlabel="position")
    heat = heat_maps(
        [[encoding.numpy() for encoding in encodings.values()]],
        titles=[f"base {base:g}" for base in BASES],
        x_label="column of the encoding",
        y_label="position",
        limits=(-1.0, 1.0),
        colours="Blues",
    )
    bits = torch.tensor([[(number >> place) & 1 for place in (2, 1, 0)] for number in range(8)])
    binary = new_figure(2.6, 4)
    panel = binary.subplots()
    panel.imshow(bits, cmap="Blues", aspect="auto")
    panel.set_xticks(range(3), ["fours", "twos", "ones"])
    panel.set_yticks(range(8), [f"{number} = {number:03b}" for number in range(8)])

    errors = {base: rotation_error(encoding, base, SHIFT) for base, encoding in encodings.items()}
    text = "\n".join(
        [
            f"PE(1) in columns {', '.join(map(str, COLUMNS))} of a width of {WIDTH}:",
            table(
                ("base", *(f"column {column}" for column in COLUMNS)),
                [(f"{base:g}", *(f"{float(e[1, column]):.6f}" for column in COLUMNS)) for base, e in encodings.items()],
            ),
            "",
            prose(
                f"A step of {SHIFT} positions turns each pair of columns by a fixed angle, wherever it starts: the turned",
                f"encoding is off by at most {max(errors.values()):.1e}. So attention can learn to look",
                "so many positions back.",
            ),
            "",
            prose(
                "Look at: positions-waves.png (later columns are slower), positions-encoding.png (all columns) and",
                "positions-binary.png: in a binary number the bits alternate in the same way, the last one fastest,",
                "only without the values in between.",
            ),
        ]
    )
    numbers = {
        "encoding": {f"{base:g}": plain(encoding) for base, encoding in encodings.items()},
        "binary": plain(bits),
        "largest_rotation_error": {f"{base:g}": error for base, error in errors.items()},
    }
    return Outcome(text, numbers, {"waves": waves, "encoding": heat, "binary": binary})
