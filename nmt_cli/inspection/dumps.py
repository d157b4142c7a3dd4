"""Attention records of translated lines, as JSON Lines, NPZ, PNG and SVG files, and as text."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nmt_cli.inspection.maps import KINDS, AttentionMap, Place
from nmt_cli.inspection.plots import heat_maps
from nmt_cli.inspection.terminal import map_text

VERSION = 1
TITLES = {
    "encoder": ("Encoder self-attention", "source (keys)", "source (queries)"),
    "decoder": ("Decoder self-attention", "inputs so far (keys)", "outputs (queries)"),
    "cross": ("Decoder-encoder attention", "source (keys)", "outputs (queries)"),
}


@dataclass(frozen=True)
class AttentionRecord:
    """One input line, its translation, and all attention maps. A blank line has no tokens and no maps.

    Args:
        line: Line number from 1.
        source: The raw line.
        translation: Plain text.
        source_tokens: With the end mark.
        target_tokens: With the end mark where the translation ended with one.
        ended: `eos`, `limit`, or None for a blank line.
        score: Of the hypothesis; None for a blank line.
        checkpoint: Folder name of the checkpoint.
        maps: One for each kind and layer.
        forced: Whether the translation was given, not found.
    """

    line: int
    source: str
    translation: str
    checkpoint: str
    source_tokens: tuple[str, ...] = ()
    target_tokens: tuple[str, ...] = ()
    ended: str | None = None
    score: float | None = None
    maps: Sequence[AttentionMap] = field(default_factory=tuple)
    forced: bool = False

    def to_json(self) -> str:
        """Return the record as one line of JSON, a map for each head."""
        maps: list[dict[str, Any]] = [
            {
                "kind": one.kind,
                "layer": one.layer,
                "head": head,
                "row_tokens": one.row_tokens,
                "column_tokens": one.column_tokens,
                "weights": [[round(float(weight), 6) for weight in row] for row in weights],
            }
            for one in self.maps
            for head, weights in zip(one.heads, one.weights, strict=True)
        ]
        record = {
            "version": VERSION,
            "line": self.line,
            "source": self.source,
            "translation": self.translation,
            "source_tokens": self.source_tokens,
            "target_tokens": self.target_tokens,
            "ended": self.ended,
            "score": self.score,
            "checkpoint": self.checkpoint,
            "forced": self.forced,
            "maps": maps,
        }
        return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"

    def to_npz(self) -> bytes:
        """Return a NumPy archive: `encoder.0` … `(H, rows, columns)` float32, `source_tokens`, `target_tokens`."""
        buffer = io.BytesIO()
        arrays = {f"{one.kind}.{one.layer}": one.weights for one in self.maps}
        tokens = {"source_tokens": np.array(self.source_tokens, dtype=np.str_)}
        tokens["target_tokens"] = np.array(self.target_tokens, dtype=np.str_)
        np.savez_compressed(buffer, **tokens, **arrays)  # type: ignore[arg-type]  # no array is called allow_pickle
        return buffer.getvalue()

    def pictures(self) -> dict[str, Figure]:
        """Return kind -> grid of its maps, rows by layer and columns by head."""
        return {kind: figure for kind in KINDS if (figure := self._picture([m for m in self.maps if m.kind == kind]))}

    def _picture(self, maps: Sequence[AttentionMap]) -> Figure | None:
        if not maps:
            return None
        title, x_label, y_label = TITLES[maps[0].kind]
        return heat_maps(
            [list(one.weights) for one in maps],
            row_tokens=maps[0].row_tokens,
            column_tokens=maps[0].column_tokens,
            titles=[_called("Head", head) for one in maps for head in one.heads],
            row_titles=[_called("Layer", one.layer) for one in maps] if len(maps) > 1 or maps[0].layer == "mean" else (),
            title=title,
            x_label=x_label,
            y_label=y_label,
        )

    def to_text(self) -> str:
        """Return the record for a terminal, every map of it."""
        lines = [f"line {self.line}", f"  source       {self.source}", f"  translation  {self.translation}"]
        maps = [map_text(one, head) for one in self.maps for head in range(len(one.heads))]
        return "\n\n".join(["\n".join(lines), *maps])


def _called(what: str, place: Place) -> str:
    """Return how a picture calls a layer or a head: from 1, as papers do."""
    return f"Mean of {what.lower()}s" if place == "mean" else f"{what} {place + 1}"
