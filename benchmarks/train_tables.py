"""The results of `benchmarks/train.py` as Markdown tables.

    python benchmarks/train_tables.py OUT/train.json

prints them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

SAME_TOKENS = 0.05  # how much the tokens of an update may differ from ours
NOTES = """\
What differs from ours:

- JoeyNMT's decoder is fed with the attention's output, which a further layer makes from state and context (width 512, with
  tanh), and scores words from that; it draws batches without sorting by length, so more of them is padding.
- Marian's recurrent decoder takes two cells a step with the attention between them, whose inner width is that of both
  directions (1,024, ours 512); it scores words from a further layer of the embedding's width (256, tied; ours from the state,
  512). By its source a target token needs 6.6 million multiplications where ours needs 7.1, and a source token 3.4 million
  where ours needs 2.9. Its dropout in cells is one mask for all steps.
- The d2l book's loops pad all sentences to 10 steps; the curve that they draw every 10 epochs is left out.
- The floor multiplies random numbers that lie in caches better than those of a real step.
"""


def cell(values: dict[str, float], digits: int = 0) -> str:
    """Return median and spread as text."""
    return f"{values['median']:,.{digits}f} ({values['min']:,.{digits}f} to {values['max']:,.{digits}f})"


def verdict(row: dict[str, Any]) -> str:
    """Return which goal there is, and whether it is reached."""
    goal = row.get("goal")
    if goal is None:
        return ""
    wanted = f", wanted {goal['wanted']:g}: {'reached' if goal['wanted_reached'] else 'missed'}"
    return f"at least {goal['least']:g}: {'reached' if goal['reached'] else 'missed'}" + (
        wanted if goal["wanted"] > goal["least"] else ""
    )


def table(found: dict[str, Any]) -> list[str]:
    """Return the lines of a size."""
    rows = found["rows"]
    ours = next((row["tokens_per_update"] for row in rows if row["engine"] == "ours"), None)
    text = [
        f"\n## {found['title']}\n",
        "| engine | target tokens/s | tokens an update | updates | peak MB | ours / this | goal |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in rows:
        ratio = cell(row["ours_by_this"], 2) if "ours_by_this" in row else ""
        text.append(
            f"| {row['engine']} | {cell(row['tokens_per_second'])} | {row['tokens_per_update']:,.0f} | {row['updates']:,} "
            f"| {row['peak_mb']:,.0f} | {ratio} | {verdict(row)} |"
        )
    for row in rows:
        if "gflop_per_update" in row:
            text.append(
                f"\nThe floor is {row['gflop_per_update']:,.1f} GFLOP an update, at {row['gflop_per_second']:,.1f} GFLOP/s; "
                "ours / floor is the share of it that we reach."
            )
        elif ours and abs(row["tokens_per_update"] / ours - 1) > SAME_TOKENS:
            text.append(f"\n{row['engine']} has not the same number of tokens an update as ours within {SAME_TOKENS:.0%}.")
    return text


def markdown(results: dict[str, Any]) -> str:
    """Return the results as tables."""
    text = [
        f"Real target tokens, end marks included; {results['threads']} threads, float32; {results['rounds']} rounds in turn, "
        f"of {results['seconds']:g} s for each engine: median (least to greatest). Versions: "
        f"{', '.join(f'{name} {version}' for name, version in results['versions'].items())}."
    ]
    for found in results["sizes"].values():
        text += table(found)
    text += [f"\nLeft out: {name}: {why}" for name, why in results["left_out"].items()]
    return "\n".join([*text, "", NOTES])


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    print(markdown(json.loads(parser.parse_args().results.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
