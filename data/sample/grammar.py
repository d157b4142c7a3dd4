"""The grammar of the sample corpus: all sentence patterns, and the generator of sentence pairs from them.

A pattern is a named function that fills a frame with lemmas of the lexicon; `generate` runs the patterns in turn, each
with random numbers of its own, and returns distinct pairs with the pattern and the lemmas that each pair shows.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import patterns_actions
import patterns_linked
import patterns_speech
import patterns_states
import patterns_verbs
from lexicon import Lexicon
from morphology import english_sentence
from phrases import Maker
from texts import RetryError, Sentence

Pattern = Callable[[Maker], Sentence]
PATTERNS: dict[str, Pattern] = {
    pattern.__name__: pattern
    for module in (patterns_actions, patterns_states, patterns_speech, patterns_verbs, patterns_linked)
    for pattern in module.PATTERNS
}
SHORTEST, LONGEST = 3, 14
TRIES = 400


@dataclass(frozen=True)
class Pair:
    """An English sentence, its French one, the pattern and the lemmas in it (without the possessives)."""

    en: str
    fr: str
    pattern: str
    lemmas: tuple[str, ...]


def seeded(*parts: object) -> random.Random:
    """A random generator that depends on the parts only, the same for each Python version."""
    digest = hashlib.sha256("/".join(str(part) for part in parts).encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))


def tokens(text: str) -> list[str]:
    """The words of a text in lower case, split at punctuation and after apostrophes."""
    return re.findall(r"[^\s,.!?:;']+'?", text.lower())


def key(english: str) -> str:
    """What tells one English sentence from another: its words, without case and punctuation."""
    return " ".join(tokens(english))


def _attempt(maker: Maker, name: str, ignored: frozenset[str]) -> Pair | None:
    """One sentence of a pattern, or None when the choices did not work out."""
    maker.start()
    try:
        sentence = PATTERNS[name](maker)
    except RetryError:
        return None
    en = english_sentence(sentence.text.en, sentence.end)
    fr = maker.french.finish(sentence.text.fr, sentence.end)
    lengths = [len(text.rstrip(" .!?").split()) for text in (en, fr)]
    if min(lengths) < SHORTEST or max(lengths) > LONGEST:
        return None
    lemmas = tuple(lemma for lemma in dict.fromkeys(maker.used) if lemma not in ignored)
    return Pair(en, fr, name, lemmas)


def generate(lexicon: Lexicon, per_pattern: int) -> list[Pair]:
    """Distinct pairs, at most `per_pattern` of each pattern, in an order that is always the same."""
    ignored = frozenset(item.id for item in lexicon.items["possessives"])
    made: dict[str, Pair] = {}
    counts: Counter[str] = Counter()
    for name in PATTERNS:
        source = seeded("grammar", name)
        maker = Maker(lexicon, source.random, counts)
        wanted = per_pattern
        for _ in range(per_pattern * TRIES):
            if not wanted:
                break
            pair = _attempt(maker, name, ignored)
            if pair is None:
                continue
            known = made.setdefault(key(pair.en), pair)
            if known is pair:
                wanted -= 1
                counts.update(pair.lemmas)
            elif known.fr != pair.fr:
                raise ValueError(f"two translations of {pair.en!r}: {known.fr!r} ({known.pattern}), {pair.fr!r}")
    return list(made.values())
