"""Pictures of a run, drawn from its numbers."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

DOTS_PER_INCH = 110
LARGEST_SIDE = 12_000
"""Pixels: pictures of very long sentences become coarser instead of larger."""


def draw_curves(events: Sequence[dict[str, Any]], title: str) -> bytes:
    """Return a PNG of the training: losses, validation scores and learning rate against updates.

    Args:
        events: The objects of `metrics.jsonl`.
        title: Name of the run.
    """
    updates = [event for event in events if event["event"] == "update"]
    validations = [event for event in events if event["event"] == "validation"]
    scores = [name for name in ("bleu", "chrf") if any(name in event for event in validations)]
    figure = Figure(figsize=(7, 7.5 if scores else 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    rows = figure.subplots(3 if scores else 2, 1, sharex=True, height_ratios=[3, 2, 1.3] if scores else [3, 1.3])
    loss, rate = rows[0], rows[-1]
    _line(loss, updates, "loss", "training")
    _line(loss, validations, "loss", "validation", marker="o")
    loss.set_ylabel("cross-entropy\n(nats per target token)")
    loss.set_title(title)
    if loss.lines:
        loss.legend()
    for name in scores:
        _line(rows[1], validations, name, {"bleu": "BLEU", "chrf": "chrF"}[name], marker="o")
    if scores:
        rows[1].set_ylabel("validation score")
        rows[1].legend()
    _line(rate, updates, "learning_rate", "learning rate")
    rate.set_ylabel("learning rate")
    rate.set_ylim(bottom=0)
    rate.set_xlabel("updates")
    for axes in rows:
        axes.grid(alpha=0.3)
    return to_png(figure)


def _line(axes: Axes, events: Sequence[dict[str, Any]], key: str, label: str, marker: str = "") -> None:
    """Add the line of one number; events without it (or with null, as NaN is written) are left out."""
    points = [(event["update"], event[key]) for event in events if event.get(key) is not None]
    if points:
        axes.plot(*zip(*points, strict=True), label=label, marker=marker, markersize=3.5)


def heat_maps(
    grid: Sequence[Sequence[NDArray[np.float32]]],
    *,
    row_tokens: Sequence[str] = (),
    column_tokens: Sequence[str] = (),
    titles: Sequence[str] = (),
    row_titles: Sequence[str] = (),
    title: str = "",
    x_label: str = "Keys",
    y_label: str = "Queries",
    limits: tuple[float, float] = (0.0, 1.0),
    colours: str = "Reds",
) -> Figure:
    """Return a grid of matrices, rows by layer and columns by head, on one colour scale with one colour bar.

    Args:
        grid: Matrices `(queries, keys)` of one shape, by layer and head.
        row_tokens: Names of the queries, down the y axis; none: numbers.
        column_tokens: Names of the keys, along the x axis; none: numbers.
        titles: Above each panel, row by row; none: its head.
        row_titles: Beside each row of panels; none: its layer, where there are several rows and no `titles`.
        title: Above the grid.
        x_label: Below the bottom row.
        y_label: Beside the first column.
        limits: Values of the ends of the colour scale.
        colours: Name of the colour map.
    """
    rows, columns = len(grid), len(grid[0])
    if rows > 1 and not titles and not row_titles:
        row_titles = [f"Layer {layer + 1}" for layer in range(rows)]
    queries, keys = grid[0][0].shape
    across, down = (0.19 if tokens else 0.075 for tokens in (column_tokens, row_tokens))  # inches a cell: names need room
    size = max(1.9, across * keys), max(1.7, down * queries)
    margins = 1.6 if row_tokens else 0.9, 1.9 if column_tokens else 1.2
    figure = Figure(figsize=(columns * size[0] + margins[0] + 0.8, rows * size[1] + margins[1]), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    image = None
    for layer, matrices in enumerate(grid):
        for head, matrix in enumerate(matrices):
            panel = axes[layer][head]
            image = panel.imshow(matrix, cmap=colours, vmin=limits[0], vmax=limits[1], aspect="auto", interpolation="nearest")
            panel.set_title(titles[layer * columns + head] if titles else f"Head {head + 1}", fontsize=9)
            panel.tick_params(axis="x", labelrotation=90 if column_tokens else 0)
            panel.tick_params(labelsize=8)
            if layer == rows - 1:
                panel.set_xlabel(x_label, fontsize=9)
            if head == 0:
                panel.set_ylabel(f"{row_titles[layer]}\n{y_label}" if row_titles else y_label, fontsize=9)
    axes[0][0].xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes[0][0].yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    if column_tokens:
        axes[0][0].set_xticks(range(len(column_tokens)), [_plain(token) for token in column_tokens])
    if row_tokens:
        axes[0][0].set_yticks(range(len(row_tokens)), [_plain(token) for token in row_tokens])
    if title:
        figure.suptitle(title, fontsize=11)
    if image is not None:
        figure.colorbar(image, ax=axes, shrink=0.7)
    return figure


def to_svg(figure: Figure) -> bytes:
    """Return a figure as SVG whose text stays text; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "nmt"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def to_png(figure: Figure) -> bytes:
    """Return a figure as PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=min(DOTS_PER_INCH, LARGEST_SIDE / max(figure.get_size_inches())))
    return buffer.getvalue()


def _plain(token: str) -> str:
    """Return a token in which no sign begins mathematical text."""
    return token.replace("$", r"\$")
