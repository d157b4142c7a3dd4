"""Attention maps as text: shades of blocks that can be read without colour, at 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size

from nmt_cli.inspection.maps import AttentionMap

SHADES = ((0.8, "█"), (0.6, "▓"), (0.4, "▒"), (0.2, "░"), (0.05, "·"))
"""Least weight of each shade."""
WIDTH = 80
LABEL = 16
TITLES = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "decoder-encoder attention"}


def map_text(one: AttentionMap, head: int) -> str:
    """Return one head's map: a line for each row token, a shade for each column token, numbered; wide maps in several parts.

    Args:
        one: The map.
        head: Index into its heads.
    """
    lines = [f"{TITLES[one.kind]}, layer {one.layer}, head {one.heads[head]}", f"rows look at columns; from {_legend()}"]
    size = 2 if len(one.column_tokens) <= (WIDTH - LABEL - 1) // 2 else 1
    room = (WIDTH - LABEL - 1) // size
    for start in range(0, len(one.column_tokens), room):
        columns = one.column_tokens[start : start + room]
        lines += _header(columns, size)
        for token, row in zip(one.row_tokens, one.weights[head], strict=True):
            cells = "".join(_shade(float(weight)) * size for weight in row[start : start + room])
            lines.append(f"{_fitted(token, LABEL)} {cells}".rstrip())
    return "\n".join(lines)


def _header(columns: Sequence[str], size: int) -> Iterator[str]:
    """Yield the column tokens, read downwards, at most eight characters of each."""
    height = max(min(len(token), 8) for token in columns)
    for depth in range(height):
        letters = (token[depth] if depth < min(len(token), 8) else " " for token in columns)
        cells = "".join(set_cell_size(letter if cell_len(letter) <= size else "?", size) for letter in letters)
        yield f"{'':{LABEL}} {cells}".rstrip()


def _shade(weight: float) -> str:
    return next((shade for least, shade in SHADES if weight >= least), " ")


def _legend() -> str:
    return ", ".join(f"{shade} {least:.0%}" for least, shade in reversed(SHADES))


def _fitted(token: str, width: int) -> str:
    return set_cell_size(token if cell_len(token) <= width else f"{token[: width - 1]}…", width)
