"""Writes the English-French sample corpus: train, valid and test files from the grammar and the phrasebook.

    python data/sample/make.py [--out DIR] [--check]

The files are the same, byte for byte, on every run and every Python version from 3.11 on.  Some (pattern, lemma)
combinations are held out: sentences that use one are kept out of training and validation, and those chosen for the
test are marked `new`.  With --check nothing is written; the exit status is 1 when the files on disk differ.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grammar
from grammar import Pair, key, tokens
from lexicon import Lexicon, load

HERE = Path(__file__).resolve().parent
PER_PATTERN = 300
TRAIN_PER_PATTERN = 196
VALID = {"grammar": 440, "phrasebook": 60}
TEST = {"new": 260, "seen": 140, "phrasebook": 100}
HELD_OUT = 0.075
LARGEST_SHARE = 0.1
LEMMA_FLOOR, PATTERN_FLOOR, FORM_FLOOR = 20, 100, 5
TRAIN_FLOOR = 15_000
FORBIDDEN = ('"', "  ", "\u2019", "\u00a0", "\u202f", "~")


class CorpusError(Exception):
    """The corpus breaks one of its promises."""


@dataclass(frozen=True)
class Line:
    """One line of the phrasebook."""

    en: str
    fr: str


@dataclass(frozen=True)
class Corpus:
    """The splits before they are written: grammar pairs and phrasebook lines."""

    train: tuple[Pair, ...]
    valid: tuple[Pair, ...]
    new: tuple[Pair, ...]
    seen: tuple[Pair, ...]
    phrases: dict[str, tuple[Line, ...]]


def fraction(*parts: str) -> float:
    """A number from 0 to 1 that depends on the parts only."""
    digest = hashlib.sha256("/".join(parts).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def shuffled(rows: Iterable[tuple[str, ...]], purpose: str) -> list[tuple[str, ...]]:
    """The rows in an order that depends on their English text only."""
    return sorted(rows, key=lambda row: (fraction("order", purpose, row[0]), row))


def read_phrasebook(path: Path) -> list[Line]:
    """The phrasebook without lines whose English text was there before."""
    lines: dict[str, Line] = {}
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fields = text.split("\t")
        if len(fields) != 2 or not all(field.strip() == field != "" for field in fields):
            raise CorpusError(f"{path.name}:{number}: not two columns")
        lines.setdefault(key(fields[0]), Line(*fields))
    return list(lines.values())


def split_phrasebook(lines: Sequence[Line]) -> dict[str, tuple[Line, ...]]:
    """The phrasebook's lines by split."""
    order = sorted(lines, key=lambda line: (fraction("phrasebook", line.en), line.en))
    test, valid = TEST["phrasebook"], TEST["phrasebook"] + VALID["phrasebook"]
    return {"test": tuple(order[:test]), "valid": tuple(order[test:valid]), "train": tuple(order[valid:])}


def pairs_of(pair: Pair) -> Iterator[tuple[str, str]]:
    """The (pattern, lemma) combinations of a sentence."""
    return ((pair.pattern, lemma) for lemma in pair.lemmas)


def held_out(pool: Sequence[Pair]) -> set[tuple[str, str]]:
    """The combinations kept out of training: a fixed sample of those that are not the core of their pattern."""
    together = Counter(combination for pair in pool for combination in pairs_of(pair))
    of_lemma = Counter(lemma for pair in pool for lemma in pair.lemmas)
    of_pattern = Counter(pair.pattern for pair in pool)
    return {
        (pattern, lemma)
        for (pattern, lemma), count in together.items()
        if count < LARGEST_SHARE * of_pattern[pattern]
        and of_lemma[lemma] - count >= 3 * LEMMA_FLOOR
        and fraction("held out", pattern, lemma) < HELD_OUT
    }


class Counts:
    """What occurs how often in a training set."""

    def __init__(self, train: Sequence[Pair], phrases: Sequence[Line]) -> None:
        """Count lemmas, combinations, patterns and word forms."""
        self.lemmas = Counter(lemma for pair in train for lemma in pair.lemmas)
        self.combinations = Counter(combination for pair in train for combination in pairs_of(pair))
        self.patterns = Counter(pair.pattern for pair in train)
        french = [pair.fr for pair in train] + [line.fr for line in phrases]
        english = [pair.en for pair in train] + [line.en for line in phrases]
        self.fr = Counter(token for text in french for token in tokens(text))
        self.en = Counter(token for text in english for token in tokens(text))

    def known(self, pair: Pair) -> bool:
        """Whether all word forms of a sentence are frequent enough in training."""
        forms = all(self.fr[token] >= FORM_FLOOR for token in tokens(pair.fr))
        return forms and all(self.en[token] >= FORM_FLOOR for token in tokens(pair.en))

    def is_seen(self, pair: Pair) -> bool:
        """Whether all combinations of a sentence occur in training."""
        return all(self.combinations[combination] for combination in pairs_of(pair))

    def is_new(self, pair: Pair) -> bool:
        """Whether a combination never occurs in training although its lemma often does, in other patterns."""
        return self.patterns[pair.pattern] >= PATTERN_FLOOR and any(
            not self.combinations[pair.pattern, lemma] and self.lemmas[lemma] >= LEMMA_FLOOR for lemma in pair.lemmas
        )


def in_turn(candidates: Sequence[Pair], wanted: int, what: str) -> list[Pair]:
    """So many of the candidates, taken from each pattern in turn."""
    queues: dict[str, list[Pair]] = defaultdict(list)
    for pair in sorted(candidates, key=lambda pair: fraction("choice", pair.en)):
        queues[pair.pattern].append(pair)
    chosen: list[Pair] = []
    depth = 0
    while len(chosen) < wanted:
        layer = [queue[depth] for _, queue in sorted(queues.items()) if depth < len(queue)]
        if not layer:
            raise CorpusError(f"only {len(chosen)} of {wanted} {what} sentences")
        layer.sort(key=lambda pair: fraction("layer", pair.en))
        chosen += layer[: wanted - len(chosen)]
        depth += 1
    return chosen


def build(lexicon: Lexicon, phrasebook: Sequence[Line]) -> Corpus:
    """Generate, hold out, split and check."""
    phrases = split_phrasebook(phrasebook)
    taken = {key(line.en) for line in phrasebook}
    pool = [pair for pair in grammar.generate(lexicon, PER_PATTERN) if key(pair.en) not in taken]
    kept_out = held_out(pool)
    train: list[Pair] = []
    spare: list[Pair] = []
    fresh: list[Pair] = []
    filled: Counter[str] = Counter()
    for pair in pool:
        if any(combination in kept_out for combination in pairs_of(pair)):
            fresh.append(pair)
        elif filled[pair.pattern] < TRAIN_PER_PATTERN:
            filled[pair.pattern] += 1
            train.append(pair)
        else:
            spare.append(pair)
    counts = Counts(train, phrases["train"])
    new = in_turn([p for p in fresh if counts.known(p) and counts.is_new(p)], TEST["new"], "new")
    rest = in_turn(
        [p for p in spare if counts.known(p) and counts.is_seen(p)], TEST["seen"] + VALID["grammar"], "seen or valid"
    )
    rest.sort(key=lambda pair: fraction("test or valid", pair.en))
    seen, valid = rest[: TEST["seen"]], rest[TEST["seen"] :]
    corpus = Corpus(tuple(train), tuple(valid), tuple(new), tuple(seen), phrases)
    verify(corpus, lexicon)
    return corpus


def combinations(corpus: Corpus | None = None) -> dict[str, list[tuple[str, str, tuple[str, ...]]]]:
    """For each split, the English text, the pattern and the lemmas of every grammar sentence."""
    corpus = corpus or build(load(), read_phrasebook(HERE / "phrasebook.tsv"))
    splits = {"train": corpus.train, "valid": corpus.valid, "test": corpus.new + corpus.seen}
    return {split: [(pair.en, pair.pattern, pair.lemmas) for pair in pairs] for split, pairs in splits.items()}


def _verify_frequencies(corpus: Corpus, lexicon: Lexicon, counts: Counts) -> None:
    """Every lemma, pattern and tested word form is frequent enough in training."""
    for lemma in lexicon.lemmas():
        if max(counts.lemmas[lemma], counts.en[lemma.lower()]) < LEMMA_FLOOR:
            raise CorpusError(f"{lemma} occurs {counts.lemmas[lemma]} times in training")
    for pattern in grammar.PATTERNS:
        if counts.patterns[pattern] < PATTERN_FLOOR:
            raise CorpusError(f"{pattern} occurs {counts.patterns[pattern]} times in training")
    for pair in corpus.valid + corpus.new + corpus.seen:
        if not counts.known(pair):
            raise CorpusError(f"a word of {pair.fr!r} is rare in training")


def _verify_novelty(corpus: Corpus, counts: Counts) -> None:
    """The sentences called new are, and the others are not."""
    for pair in corpus.new:
        if not counts.is_new(pair):
            raise CorpusError(f"{pair.en!r} is not new")
    for pair in corpus.seen + corpus.valid:
        if not counts.is_seen(pair):
            raise CorpusError(f"{pair.en!r} has a combination that training lacks")


def _verify_text(en: str, fr: str) -> None:
    """Both texts look as people write them."""
    for text in (en, fr):
        if any(sign in text for sign in FORBIDDEN) or text[-1] not in ".?!" or text[0] != text[0].upper():
            raise CorpusError(f"the form of {text!r}")
    if fr[-1] in "?!" and fr[-2] != " ":
        raise CorpusError(f"no space before the end mark of {fr!r}")
    if en[-1] != fr[-1] or en[-2] == " ":
        raise CorpusError(f"the end marks of {en!r} and {fr!r}")


def verify(corpus: Corpus, lexicon: Lexicon) -> None:
    """Stop unless the corpus keeps all its promises."""
    phrases = corpus.phrases
    pairs = corpus.train + corpus.valid + corpus.new + corpus.seen
    english = [key(pair.en) for pair in pairs] + [key(line.en) for part in phrases.values() for line in part]
    twice = [text for text, count in Counter(english).items() if count > 1]
    if twice:
        raise CorpusError(f"{twice[0]!r} occurs twice")
    for pair in pairs:
        _verify_text(pair.en, pair.fr)
    if len(corpus.train) + len(phrases["train"]) < TRAIN_FLOOR:
        raise CorpusError("training is too small")
    counts = Counts(corpus.train, phrases["train"])
    _verify_frequencies(corpus, lexicon, counts)
    _verify_novelty(corpus, counts)


def files(corpus: Corpus) -> dict[str, str]:
    """The content of every file."""
    phrases = {split: [(line.en, line.fr) for line in lines] for split, lines in corpus.phrases.items()}
    train = [(pair.en, pair.fr) for pair in corpus.train] + phrases["train"]
    valid = [(pair.en, pair.fr) for pair in corpus.valid] + phrases["valid"]
    tested = [(pair, "new") for pair in corpus.new] + [(pair, "seen") for pair in corpus.seen]
    by_grammar = shuffled(
        ((pair.en, pair.fr, f"grammar:{pair.pattern}:{'+'.join(pair.lemmas)}:{kind}") for pair, kind in tested), "test"
    )
    by_phrasebook = shuffled(((en, fr, "phrasebook") for en, fr in phrases["test"]), "test")
    rows = {
        "train.tsv": shuffled(train, "train"),
        "valid.tsv": shuffled(valid, "valid"),
        "test.tsv": shuffled(by_grammar + by_phrasebook, "test"),
        "test-grammar.tsv": by_grammar,
        "test-phrasebook.tsv": by_phrasebook,
    }
    return {name: "".join("\t".join(row) + "\n" for row in content) for name, content in rows.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the files; the exit status."""
    parser = argparse.ArgumentParser(description="Write the English-French sample corpus.")
    parser.add_argument("--out", type=Path, default=HERE, help="the folder to write to (default: the script's own)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the files on disk differ")
    options = parser.parse_args(arguments)
    corpus = build(load(), read_phrasebook(HERE / "phrasebook.tsv"))
    out: Path = options.out
    if not options.check:
        out.mkdir(parents=True, exist_ok=True)
    different = []
    for name, content in files(corpus).items():
        path, data = out / name, content.encode("utf-8")
        if not options.check:
            path.write_bytes(data)
            print(f"{path}: {len(content.splitlines())} pairs")
        elif not path.is_file() or path.read_bytes() != data:
            different.append(name)
    for name in different:
        print(f"{out / name} differs from what make.py writes", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
