"""Checks that text comes back whole from each tokenizer: every line of both sides of the corpora named.

    python benchmarks/roundtrip.py CORPUS [CORPUS …]

A corpus is a .tsv path, or a source and a target path joined by a comma. Each tokenizer is learned from the very lines, so that
none of them has an unknown token. What is promised is the text with every run of Unicode white space as one plain space, and,
for characters and pieces, with a literal `▁` as a space. Prints a table, and leaves with 1 where a line comes back otherwise.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from nmt_cli.text.parallel import read_pairs
from nmt_cli.text.tokenizers import SPACE_SIGN, Tokenizer, train_tokenizer
from nmt_cli.text.vocab import SPECIALS

TOKENIZERS: dict[str, Callable[[list[str]], Tokenizer]] = {
    "word": lambda lines: train_tokenizer("word", lines),
    "word, lower-case": lambda lines: train_tokenizer("word", lines, lowercase=True),
    "char": lambda lines: train_tokenizer("char", lines),
    "bpe": lambda lines: train_tokenizer("sentencepiece", lines, model_type="bpe"),
    "unigram": lambda lines: train_tokenizer("sentencepiece", lines, model_type="unigram"),
}


def promised(line: str, kind: str) -> str:
    """Return the text that must come back."""
    if not kind.startswith("word"):
        line = line.replace(SPACE_SIGN, " ")
    line = " ".join(line.split())
    return line.lower() if "lower-case" in kind else line


def main() -> int:
    """Check and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="+")
    wrong = 0
    for corpus in parser.parse_args().corpus:
        pairs = read_pairs([corpus.split(",")])
        for side, lines in (("source", [pair.source for pair in pairs]), ("target", [pair.target for pair in pairs])):
            for kind, learn in TOKENIZERS.items():
                tokenizer = learn(lines)
                bad = [line for line in lines if tokenizer.decode(tokenizer.encode(line)) != promised(line, kind)]
                white = [
                    t for t in tokenizer.vocabulary.tokens(range(len(SPECIALS), len(tokenizer.vocabulary))) if not t.strip()
                ]
                wrong += len(bad) + len(white)
                sys.stdout.write(
                    f"{corpus}  {side}  {kind}: {len(lines):,} lines, {len(tokenizer.vocabulary):,} entries, {len(bad)} lines "
                    f"differ, {len(white)} entries are empty or white\n"
                )
                for line in bad[:3]:
                    sys.stdout.write(f"  {line!r}\n  {tokenizer.decode(tokenizer.encode(line))!r}\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
