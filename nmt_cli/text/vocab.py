"""Vocabulary: token <-> id, with four special ids that never change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from nmt_cli.errors import RunError

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<bos>", "<eos>")


class Vocabulary:
    """Tokens by id and ids by token. The strings of special tokens in a text are unknown words, never control ids.

    Args:
        tokens: All tokens in the order of their ids, the four specials first.
    """

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = tuple(tokens)
        self._ids = {token: index for index, token in enumerate(self._tokens) if index >= len(SPECIALS)}

    @classmethod
    def build(cls, counts: Counter[str], *, min_frequency: int = 1, max_size: int | None = None) -> Vocabulary:
        """Make a vocabulary of the most frequent tokens, ties in code-point order.

        Args:
            counts: How often each token was seen.
            min_frequency: Tokens seen less often are left out.
            max_size: Upper limit of entries, specials included.
        """
        kept = [token for token, count in counts.items() if count >= min_frequency and token not in SPECIALS]
        kept.sort(key=lambda token: (-counts[token], token))
        room = None if max_size is None else max(0, max_size - len(SPECIALS))
        return cls((*SPECIALS, *kept[:room]))

    def __len__(self) -> int:
        return len(self._tokens)

    def __contains__(self, token: str) -> bool:
        return token in self._ids

    def ids(self, tokens: Iterable[str]) -> list[int]:
        """Return the ids of tokens, `UNK` for those not in the vocabulary."""
        return [self._ids.get(token, UNK) for token in tokens]

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the tokens of ids, specials by their names."""
        return [self._tokens[index] for index in ids]

    def to_text(self) -> str:
        """Return one token per line, in the order of ids."""
        return "".join(f"{token}\n" for token in self._tokens)

    @classmethod
    def from_lines(cls, lines: Sequence[str], path: Path) -> Vocabulary:
        """Return the vocabulary whose lines `to_text` gave; `path` is named in errors."""
        if tuple(lines[: len(SPECIALS)]) != SPECIALS:
            raise RunError(f"{path}:1: expected the lines {', '.join(SPECIALS)} first; this is not one of our vocabularies")
        for number, token in enumerate(lines, start=1):
            if not token.strip():
                raise RunError(f"{path}:{number}: expected a token, but the line is blank; the file is damaged")
        if len(set(lines)) != len(lines):
            doubled = next(token for token, count in Counter(lines).items() if count > 1)
            raise RunError(f"{path}: expected every token once, but {doubled!r} comes twice; the file is damaged")
        return cls(lines)
