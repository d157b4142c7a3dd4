"""The results of `benchmarks/decode.py` as Markdown tables.

    python benchmarks/decode_tables.py OUT/decode.json [--out OUT/decode.md]

Prints them, and writes them with `--out`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def short(setting: dict[str, Any]) -> str:
    """Return a setting as a short text."""
    return " ".join(f"{key.replace('_', ' ')} {value}" for key, value in setting.items())


def cell(values: dict[str, float], digits: int = 0) -> str:
    """Return median and spread as text."""
    return f"{values['median']:,.{digits}f} ({values['min']:,.{digits}f} to {values['max']:,.{digits}f})"


def markdown(results: dict[str, Any]) -> str:
    """Return the results as tables."""
    text = [
        f"{results['sentences']:,} lines; {results['threads']} threads; {results['rounds']} rounds in turn: median (least to "
        f"greatest). Versions: {', '.join(f'{name} {version}' for name, version in results['versions'].items())}."
    ]
    for group, found in results["groups"].items():
        text += [
            f"\n## {group.capitalize()}\n",
            "| engine | beam | pieces/s | words/s | sentences/s | pieces | words | BLEU | peak MB | batch |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
        for row in found["rows"]:
            speeds = " | ".join(cell(row[f"{unit}_per_second"]) for unit in ("pieces", "words", "sentences"))
            text.append(
                f"| {row['engine']} | {row['beam']} | {speeds} | {row['pieces']:,} | {row['words']:,} | {row['bleu']:.1f} "
                f"| {row['peak_mb']:,.0f} | {short(row['setting'])} |"
            )
        text += ["\n| ours / other | beam | ratio | goal | |", "|---|---|---|---|---|"]
        for row in found["ratios"]:
            verdict = "reached" if row["reached"] else "not reached"
            text.append(
                f"| {row['ours']} / {row['other']} | {row['beam']} | {cell(row, 2)} | at least {row['goal']:g} | {verdict} |"
            )
    text += [f"\nLeft out: {name}: {why}" for name, why in results["left_out"].items()]
    return "\n".join(text) + "\n"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    text = markdown(json.loads(options.results.read_text(encoding="utf-8")))
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    print(f"\n{text}")


if __name__ == "__main__":
    main()
