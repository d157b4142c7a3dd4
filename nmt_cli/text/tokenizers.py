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
from nmt_cli.text.parallel import read_bytes, read_lines
from nmt_cli.text.vocab import SPECIALS, UNK, Vocabulary

SPACE_SIGN = "▁"  # U+2581


class Tokenizer(Protocol):
    """What every kind of tokenizer does. Ids hold no begin or end mark."""

    kind: ClassVar[str]
    vocabulary: Vocabulary

    def split(self, line: str) -> list[str]:
        """Return the tokens of a raw line; none for a blank line."""

    def encode(self, line: str) -> list[int]:
        """Return the ids of a raw line; `UNK` for unknown tokens."""

    def encode_lines(self, lines: Sequence[str], *, threads: int = 1) -> list[list[int]]:
        """Return what `encode` gives for each line, on `threads` cores where the kind can use them."""
        return [self.encode(line) for line in lines]

    def decode(self, ids: Sequence[int], *, prefix: Sequence[str] = ()) -> str:
        """Return the plain text of ids. Special ids other than unknown are left out; `prefix` stands for the first of them."""

    def settings(self) -> dict[str, object]:
        """Return what, beside the stored file, makes this tokenizer again."""

    def stored(self) -> tuple[str, str | bytes]:
        """Return the suffix and the content of the file that holds the vocabulary."""


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


class WordTokenizer(Tokenizer):
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
        spacing_lines: Sequence[str] | None = None,
    ) -> Self:
        """Learn vocabulary and spacing from raw lines; the spacing from `spacing_lines` where these are given."""
        counts: Counter[str] = Counter()
        before: Counter[tuple[str, bool]] = Counter()
        after: Counter[tuple[str, bool]] = Counter()
        for line in lines:
            counts.update(split_words(line, settings))
            if spacing_lines is None:
                _count_spacing(line, settings, before, after)
        for line in spacing_lines or ():
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

    def decode(self, ids: Sequence[int], *, prefix: Sequence[str] = ()) -> str:
        """Return the words of ids with single spaces, and with marks written as the training text mostly did."""
        return self.join([*prefix, *self.vocabulary.tokens(i for i in ids[len(prefix) :] if i == UNK or i >= len(SPECIALS))])

    def join(self, words: Iterable[str]) -> str:
        """Return words as text, as `decode` does."""
        text = ""
        joined = True
        for token in words:
            text += token if joined or token[0] in self._settings.joined_before else f" {token}"
            joined = token[-1] in self._settings.joined_after
        return text

    def settings(self) -> dict[str, object]:
        """Return the settings as plain values."""
        return asdict(self._settings)

    def stored(self) -> tuple[str, str]:
        """Return the suffix and the content of the vocabulary file: one token a line."""
        return ".vocab", self.vocabulary.to_text()


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
class CharTokenizer(Tokenizer):
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

    def decode(self, ids: Sequence[int], *, prefix: Sequence[str] = ()) -> str:
        """Return the text of ids."""
        tokens = [*prefix, *self.vocabulary.tokens(i for i in ids[len(prefix) :] if i == UNK or i >= len(SPECIALS))]
        return " ".join("".join(tokens).replace(SPACE_SIGN, " ").split())

    def settings(self) -> dict[str, object]:
        """Return the settings as plain values."""
        return asdict(self._settings)

    def stored(self) -> tuple[str, str]:
        """Return the suffix and the content of the vocabulary file: one token a line."""
        return ".vocab", self.vocabulary.to_text()


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
    model_type: str = "bpe",
    normalization: str = "identity",
    spacing_lines: Sequence[str] | None = None,
) -> Tokenizer:
    """Learn a tokenizer from raw lines. What a kind has no use for is ignored here and refused by the config.

    Args:
        kind: `word`, `char` or `sentencepiece`.
        lines: Raw lines.
        lowercase: Lower-case the text first.
        space_before: Words: see `WordSettings`.
        space_after: Words: see `WordSettings`.
        min_frequency: Words and characters seen less often are unknown.
        max_size: Upper limit of entries, special tokens included; None: no limit (8,000 pieces).
        model_type: Pieces: `bpe` or `unigram`.
        normalization: Pieces: a rule of sentencepiece.
        spacing_lines: Words: lines that show how marks are written, where not all of `lines` do; for a vocabulary that both
            sides share, the target side.
    """
    if kind == "sentencepiece":
        from nmt_cli.text.pieces import DEFAULT_VOCABULARY, PieceSettings, PieceTokenizer

        return PieceTokenizer.train(
            lines,
            model_type=model_type,
            vocabulary_size=max_size or DEFAULT_VOCABULARY,
            normalization=normalization,
            settings=PieceSettings(lowercase),
        )
    if kind == CharTokenizer.kind:
        chars = CharSettings(lowercase)
        return CharTokenizer.train(lines, settings=chars, min_frequency=min_frequency, max_size=max_size)
    words = WordSettings(lowercase, space_before, space_after)
    return WordTokenizer.train(
        lines, settings=words, min_frequency=min_frequency, max_size=max_size, spacing_lines=spacing_lines
    )


def tokenizer_files(tokenizer: Tokenizer, stem: str) -> dict[str, str | bytes]:
    """Return file name -> content of the files that `load_tokenizer` reads."""
    settings = json.dumps({"type": tokenizer.kind, **tokenizer.settings()}, ensure_ascii=False, indent=2)
    suffix, content = tokenizer.stored()
    return {f"{stem}.json": f"{settings}\n", f"{stem}{suffix}": content}


def load_tokenizer(folder: Path, stem: str) -> Tokenizer:
    """Read a tokenizer from the files that `tokenizer_files` gave.

    Raises:
        RunError: A file is damaged or of an unknown kind.
        DataError: A file is missing.
    """
    path = folder / f"{stem}.json"
    try:
        settings = json.loads("\n".join(read_lines(path)))
        kind = settings.pop("type")
        if kind == "sentencepiece":
            from nmt_cli.text.pieces import PieceSettings, PieceTokenizer

            model = folder / f"{stem}.model"
            return PieceTokenizer(read_bytes(model), PieceSettings(**settings), origin=str(model))
        if kind == "char":
            chars = CharSettings(**settings)
            return CharTokenizer(_load_vocabulary(folder, stem), chars)
        if kind == "word":
            words = WordSettings(**settings)
            return WordTokenizer(_load_vocabulary(folder, stem), words)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunError(f"{path}: expected the settings of a tokenizer, but it is damaged: {error}") from None
    raise RunError(f"{path}: expected a tokenizer of type word, char or sentencepiece, but it is {kind!r}; update nmt")


def _load_vocabulary(folder: Path, stem: str) -> Vocabulary:
    path = folder / f"{stem}.vocab"
    return Vocabulary.from_lines(read_lines(path), path)
