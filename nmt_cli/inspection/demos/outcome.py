"""What a demonstration gives."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor


@dataclass(frozen=True)
class Outcome:
    """Everything that one demonstration shows.

    Args:
        text: What to look at, for the terminal.
        numbers: The numbers behind the pictures, as plain values for JSON.
        pictures: File stem -> figure.
    """

    text: str
    numbers: dict[str, Any]
    pictures: dict[str, Figure] = field(default_factory=dict)


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of so many inches that can be drawn without a screen."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plain(values: Tensor, digits: int = 6) -> Any:
    """Return a tensor as nested lists of rounded numbers."""

    def rounded(value: Any) -> Any:
        return [rounded(item) for item in value] if isinstance(value, list) else round(value, digits)

    return rounded(values.detach().tolist())


def prose(*sentences: str) -> str:
    """Return sentences as one paragraph of lines of at most 80 characters."""
    return textwrap.fill(" ".join(sentences), 80, break_on_hyphens=False)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of plain text; the first column is aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) if index == 0 else cell.rjust(width) for index, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(row, widths, strict=True)) for row in (header, *rows))
    ]
    return "\n".join(line.rstrip() for line in lines)
