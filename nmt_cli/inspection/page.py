"""Attention records as one HTML page that needs nothing else: no network, no other file."""

from __future__ import annotations

import base64
import html
import json
from functools import cache
from importlib import resources

import numpy as np

from nmt_cli.inspection.dumps import AttentionRecord

LONGEST_NAME = 90


def page_start() -> str:
    """Return what comes before the first record."""
    return _parts()[0]


def page_end() -> str:
    """Return what comes after the last record."""
    return _parts()[1]


def page_record(record: AttentionRecord) -> str:
    """Return one record, as a part of the page: its weights rounded to 1/255, so that a hundred sentences stay small."""
    maps = [
        {
            "kind": one.kind,
            "layer": one.layer,
            "head": head,
            "weights": base64.b64encode(np.rint(weights * 255).astype(np.uint8).tobytes()).decode("ascii"),
        }
        for one in record.maps
        for head, weights in zip(one.heads, one.weights, strict=True)
    ]
    data = {
        "source": record.source,
        "translation": record.translation,
        "source_tokens": record.source_tokens,
        "target_tokens": record.target_tokens,
        "ended": record.ended,
        "score": record.score,
        "forced": record.forced,
        "maps": maps,
    }
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    source = record.source if len(record.source) <= LONGEST_NAME else f"{record.source[: LONGEST_NAME - 1]}…"
    name = html.escape(f"{record.line}: {source}")
    return f'<script type="application/json" class="record" data-name="{name}">{text}</script>\n'


@cache
def _parts() -> tuple[str, str]:
    text = resources.files("nmt_cli.inspection").joinpath("page.html").read_text(encoding="utf-8")
    start, _, end = text.partition("<!-- RECORDS -->\n")
    return start, end
