"""How well attention aligns words: the share of right links on words that are spelt alike in both languages.

    python benchmarks/alignment.py RUN FILE [--lines 1000]

For each line of FILE the run's translation is taken, and each word of at least three letters or digits that stands exactly once
in the source and once in the translation (names, numbers, `orange`). Its link is right when its attention points at the word
spelt alike. Printed for every layer and head of decoder-encoder attention, for means, and for the diagonal, which links a word
to the one at the same relative place.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from nmt_cli import load_run
from nmt_cli.cli.attention import CROSS, AttentionReader
from nmt_cli.inspection.alignment import Groups, hard_alignment, tokens_alone, tokens_by_word
from nmt_cli.text.parallel import read_lines


def spelled(tokens: tuple[str, ...], groups: Groups) -> list[str]:
    """Return the words that the tokens of each group spell, lower-case, without marks around them."""
    words = ("".join(tokens[index] for index in group).lstrip("▁") for group in groups)
    return [word.lower().strip(".,!?;:'\"()-") for word in words]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--lines", type=int, default=1000)
    arguments = parser.parse_args()
    translator = load_run(arguments.run, device="cpu")
    reader = AttentionReader(translator, CROSS)
    grouped = tokens_alone if translator.source.kind == "word" else tokens_by_word
    right: Counter[str] = Counter()
    total = 0
    for record in reader.records(read_lines(arguments.file)[: arguments.lines]):
        source, target = grouped(record.source_tokens), grouped(record.target_tokens)
        sources, targets = spelled(record.source_tokens, source), spelled(record.target_tokens, target)
        pairs = {
            targets.index(word): sources.index(word)
            for word in set(sources) & set(targets)
            if len(word) >= 3 and word.isalnum() and sources.count(word) == targets.count(word) == 1
        }
        if not pairs:
            continue
        total += len(pairs)
        maps = {f"layer {one.layer}, head {head}": one.weights[head] for one in record.maps for head in range(len(one.heads))}
        maps |= {f"layer {one.layer}, mean of heads": one.weights.mean(axis=0) for one in record.maps}
        maps["mean of all"] = np.mean([one.weights.mean(axis=0) for one in record.maps], axis=0)
        for name, weights in maps.items():
            links = dict((place, asked) for asked, place in hard_alignment(weights, source, target))
            right[name] += sum(links[place] == asked for place, asked in pairs.items())
        steps = max(1, len(target) - 1)
        right["diagonal"] += sum(round(place * (len(source) - 1) / steps) == asked for place, asked in pairs.items())
    sys.stdout.write(f"{total} words spelt alike\n")
    for name, count in sorted(right.items(), key=lambda item: -item[1]):
        sys.stdout.write(f"{name:<28} {100 * count / total:5.1f} %\n")


if __name__ == "__main__":
    main()
