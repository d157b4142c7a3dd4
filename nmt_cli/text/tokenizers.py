"""Tokenizers: a raw line to token ids, and ids back to plain text.

Every kind reads all Unicode white space (no-break, narrow and ideographic spaces, line and paragraph separators, tabs, lone
carriage returns, …) as one plain space, in training and in translation alike.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol, Self

from nmt_cli.errors import RunError
from nmt_cli.text.parallel import read_lines
from nmt_cli.text.vocab import SPECIALS, UNK, Vocabulary

SPACE_SIGN = "▁"  # U+2581


class Tokenizer(Protocol):
    """What every kind of tokenizer does. Ids hold no begin or end mark."""

    vocabulary: Vocabulary

    def split(self, line: str) -> list[str]:
        """Return the tokens of a raw line; none for a blank line."""

    def encode(self, line: str) -> list[int]:
        """Return the ids of a raw line; `UNK` for unknown tokens."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the plain text of ids. Special ids other than unknown are left out."""

    def settings(self) -> dict[str, object]:
        """Return what, beside the vocabulary, makes this tokenizer again."""


@dataclass(frozen=True)
class WordSettings:
    """How words are split and put together again.

    Args:
        lowercase: Lower-case the text first.
        space_before: Characters that begin a new token even when written against the word before.
        space_after: Characters after which a new token begins even without a space.
        joined_before: Those of `space_before` that the training text mostly writes against the word before.
        joined_after: Those of `space_after` that the training text mostly writes against the word that follows.
    """

    lowercase: bool = False
    space_before: str = ""
    space_after: str = ""
    joined_before: str = ""
    joined_after: str = ""


class WordTokenizer:
    """Words between spaces, with marks split off as the settings say; decoding writes marks as the training text did."""

    kind: ClassVar[str] = "word"

    def __init__(self, vocabulary: Vocabulary, settings: WordSettings) -> None:
        self.vocabulary = vocabulary
        self._settings = settings

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        *,
        settings: WordSettings,
        min_frequency: int = 1,
        max_size: int | None = None,
    ) -> Self:
        """Learn vocabulary and spacing from raw lines."""
        counts: Counter[str] = Counter()
        before: Counter[tuple[str, bool]] = Counter()
        after: Counter[tuple[str, bool]] = Counter()
        for line in lines:
            counts.update(split_words(line, settings))
            _count_spacing(line, settings, before, after)
        learned = WordSettings(
            settings.lowercase,
            settings.space_before,
            settings.space_after,
            "".join(mark for mark in settings.space_before if before[mark, True] >= before[mark, False]),
            "".join(mark for mark in settings.space_after if after[mark, True] >= after[mark, False]),
        )
        return cls(Vocabulary.build(counts, min_frequency=min_frequency, max_size=max_size), learned)

    def split(self, line: str) -> list[str]:
        """Return the tokens of a raw line."""
        return split_words(line, self._settings)

    def encode(self, line: str) -> list[int]:
        """Return the ids of a raw line."""
        return self.vocabulary.ids(self.split(line))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the words of ids with single spaces, and with marks written as the training text mostly did."""
        text = ""
        joined = True
        for token in self.vocabulary.tokens(i for i in ids if i == UNK or i >= len(SPECIALS)):
            text += token if joined or token[0] in self._settings.joined_before else f" {token}"
            joined = token[-1] in self._settings.joined_after
        return text

    def settings(self) -> dict[str, object]:
        """Return the settings as plain values."""
        return asdict(self._settings)


def split_words(line: str, settings: WordSettings) -> list[str]:
    """Return the words of a line: lower-cased on request, a space put before and after the marks that the settings name."""
    if settings.lowercase:
        line = line.lower()
    if settings.space_before or settings.space_after:
        spaced = []
        for character in line:
            spaced.append(f" {character}" if character in settings.space_before else character)
            if character in settings.space_after:
                spaced.append(" ")
        line = "".join(spaced)
    return line.split()


def _count_spacing(
    line: str, settings: WordSettings, before: Counter[tuple[str, bool]], after: Counter[tuple[str, bool]]
) -> None:
    """Count, for each mark inside a line, how often it is written against its neighbour."""
    line = " ".join(line.split())
    for previous, mark, following in zip(f" {line}", line, f"{line[1:]} ", strict=False):
        if mark in settings.space_before:
            before[mark, not previous.isspace()] += 1
        if mark in settings.space_after:
            after[mark, not following.isspace()] += 1


@dataclass(frozen=True)
class CharSettings:
    """How characters are read.

    Args:
        lowercase: Lower-case the text first.
    """

    lowercase: bool = False


@dataclass
class CharTokenizer:
    """Every character is a token; a space is shown as `▁`, and a `▁` in the text is read as a space."""

    kind: ClassVar[str] = "char"
    vocabulary: Vocabulary
    _settings: CharSettings = field(default_factory=CharSettings)

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        *,
        settings: CharSettings,
        min_frequency: int = 1,
        max_size: int | None = None,
    ) -> Self:
        """Learn the vocabulary from raw lines."""
        counts: Counter[str] = Counter()
        for line in lines:
            counts.update(_characters(line, settings))
        return cls(Vocabulary.build(counts, min_frequency=min_frequency, max_size=max_size), settings)

    def split(self, line: str) -> list[str]:
        """Return the characters of a raw line."""
        return _characters(line, self._settings)

    def encode(self, line: str) -> list[int]:
        """Return the ids of a raw line."""
        return self.vocabulary.ids(self.split(line))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        tokens = self.vocabulary.tokens(i for i in ids if i == UNK or i >= len(SPECIALS))
        return " ".join("".join(tokens).replace(SPACE_SIGN, " ").split())

    def settings(self) -> dict[str, object]:
        """Return the settings as plain values."""
        return asdict(self._settings)


def _characters(line: str, settings: CharSettings) -> list[str]:
    line = line.lower() if settings.lowercase else line
    return list(SPACE_SIGN.join(line.replace(SPACE_SIGN, " ").split()))


def train_tokenizer(
    kind: str,
    lines: Iterable[str],
    *,
    lowercase: bool = False,
    space_before: str = "",
    space_after: str = "",
    min_frequency: int = 1,
    max_size: int | None = None,
) -> Tokenizer:
    """Learn a tokenizer of the named kind (`word` or `char`) from raw lines."""
    if kind == CharTokenizer.kind:
        chars = CharSettings(lowercase)
        return CharTokenizer.train(lines, settings=chars, min_frequency=min_frequency, max_size=max_size)
    words = WordSettings(lowercase, space_before, space_after)
    return WordTokenizer.train(lines, settings=words, min_frequency=min_frequency, max_size=max_size)


def tokenizer_files(tokenizer: Tokenizer, stem: str) -> dict[str, str]:
    """Return file name -> text of the files that `load_tokenizer` reads."""
    kind = "char" if isinstance(tokenizer, CharTokenizer) else "word"
    settings = json.dumps({"type": kind, **tokenizer.settings()}, ensure_ascii=False, indent=2)
    return {f"{stem}.json": f"{settings}\n", f"{stem}.vocab": tokenizer.vocabulary.to_text()}


def load_tokenizer(folder: Path, stem: str) -> Tokenizer:
    """Read a tokenizer from `<stem>.json` and `<stem>.vocab`.

    Raises:
        RunError: A file is damaged or of an unknown kind.
        DataError: A file is missing.
    """
    path = folder / f"{stem}.vocab"
    vocabulary = Vocabulary.from_lines(read_lines(path), path)
    path = folder / f"{stem}.json"
    try:
        settings = json.loads("\n".join(read_lines(path)))
        kind = settings.pop("type")
        if kind == "char":
            return CharTokenizer(vocabulary, CharSettings(**settings))
        if kind == "word":
            return WordTokenizer(vocabulary, WordSettings(**settings))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunError(f"{path}: expected the settings of a tokenizer, but it is damaged: {error}") from None
    raise RunError(f"{path}: expected a tokenizer of type word or char, but it is {kind!r}; a newer version may read it")
