"""Pictures of a run, drawn from its numbers."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


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
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def _line(axes: Axes, events: Sequence[dict[str, Any]], key: str, label: str, marker: str = "") -> None:
    """Add the line of one number; events without it (or with null, as NaN is written) are left out."""
    points = [(event["update"], event[key]) for event in events if event.get(key) is not None]
    if points:
        axes.plot(*zip(*points, strict=True), label=label, marker=marker, markersize=3.5)
