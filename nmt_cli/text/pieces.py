"""Subword pieces: BPE and unigram models of sentencepiece.

Reference: Sennrich, Haddow, Birch 2016 (BPE); Kudo 2018 (unigram, sampling); Kudo, Richardson 2018 (sentencepiece).
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar, Self

import sentencepiece

from nmt_cli.errors import DataError, RunError
from nmt_cli.text.parallel import read_bytes
from nmt_cli.text.vocab import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary

DEFAULT_VOCABULARY = 8000
TOO_LARGE = re.compile(r"(?:<=|smaller than|less than or equal to) *(\d+)")


@dataclass(frozen=True)
class PieceSettings:
    """What is done to a line before the model sees it.

    Args:
        lowercase: Lower-case the text first.
    """

    lowercase: bool = False


class PieceTokenizer:
    """Pieces of a sentencepiece model, under our ids: the special tokens first, then the model's pieces in its order.

    All Unicode white space is read as a plain space, and a literal `▁` (U+2581) as a space too. The strings of control
    symbols in a text are split like any other text.

    Args:
        model: A serialised sentencepiece model.
        settings: What is done before.
        origin: Where the model comes from, for messages.

    Raises:
        RunError: `model` is no sentencepiece model.
    """

    kind: ClassVar[str] = "sentencepiece"

    def __init__(self, model: bytes, settings: PieceSettings, *, origin: str = "these bytes") -> None:
        self._model, self._settings = model, settings
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            raise RunError(f"{origin}: expected a sentencepiece model, but it cannot be read as one: {error}") from None
        size = self._processor.vocab_size()
        normal = [i for i in range(size) if self._is_text(i)]
        self.vocabulary = Vocabulary((*SPECIALS, *(self._processor.IdToPiece(i) for i in normal)))
        self._theirs = [self._processor.unk_id()] * len(SPECIALS) + normal  # our id -> theirs
        self._ours = [UNK] * size  # their id -> ours
        for ours, theirs in enumerate(normal, start=len(SPECIALS)):
            self._ours[theirs] = ours

    def __reduce__(self) -> tuple[type[Self], tuple[bytes, PieceSettings]]:
        return type(self), (self._model, self._settings)  # so that another process can be handed it

    def _is_text(self, theirs: int) -> bool:
        """Return whether a piece of the model is text: no control symbol, neither in its own eyes nor by its name in ours."""
        control = self._processor.IsControl(theirs) or self._processor.IsUnknown(theirs)
        return not control and self._processor.IdToPiece(theirs) not in SPECIALS

    @classmethod
    def train(
        cls, lines: Iterable[str], *, model_type: str, vocabulary_size: int, normalization: str, settings: PieceSettings
    ) -> Self:
        """Learn pieces from raw lines.

        Args:
            lines: Raw lines.
            model_type: `bpe` or `unigram`.
            vocabulary_size: Upper limit of entries, special tokens included; a small corpus gives fewer.
            normalization: A rule of sentencepiece: `identity`, `nfkc`, `nmt_nfkc`, `nfkc_cf`, `nmt_nfkc_cf`.
            settings: What is done to each line first.

        Raises:
            DataError: The lines hold no text.
        """
        prepared = [text for line in lines if (text := _prepare(line, settings))]
        if not prepared:
            raise DataError("expected text to learn pieces from, but all lines are blank")
        size = vocabulary_size
        while True:
            try:
                return cls(_train(prepared, model_type, size, normalization), settings)
            except RuntimeError as error:
                found = TOO_LARGE.search(str(error))
                smaller = int(found[1]) if found else 0
                if not len(SPECIALS) < smaller < size:
                    raise DataError(f"sentencepiece cannot learn {size} pieces from this text: {error}") from None
                size = smaller  # the largest size that this corpus can fill

    @classmethod
    def from_file(cls, path: str, settings: PieceSettings) -> Self:
        """Take a sentencepiece model that was made elsewhere.

        Raises:
            DataError: The file cannot be read, or is no such model.
        """
        try:
            return cls(read_bytes(path), settings, origin=path)
        except (RunError, DataError) as error:
            raise DataError(f"tokenizer.model_file: {error}") from None

    @property
    def is_unigram(self) -> bool:
        """Whether this is a unigram model: the only type that can rank the splits of a text."""
        try:
            self._processor.NBestEncodeAsPieces("a", 2)
        except RuntimeError:
            return False
        return True

    @property
    def can_sample(self) -> bool:
        """Whether the model can split a text in several ways: BPE and unigram models can."""
        try:
            self._processor.EncodeAsIds("a", enable_sampling=True, alpha=0.1, nbest_size=-1)
        except RuntimeError:
            return False
        return True

    def words(self, line: str) -> list[str]:
        """Return the words of a raw line; no piece reaches from one into the next (unless a model brought along has such)."""
        return _prepare(line, self._settings).split()

    def best_splits(self, line: str, count: int) -> list[list[str]]:
        """Return the pieces of the `count` most probable splits of a line, best first (unigram models only)."""
        splits: list[list[str]] = self._processor.NBestEncodeAsPieces(_prepare(line, self._settings), count)
        return splits

    def scores(self) -> dict[str, float]:
        """Return piece -> score: its log-probability in a unigram model, the lower the later it was merged in a BPE model."""
        pieces = self.vocabulary.tokens(range(len(SPECIALS), len(self.vocabulary)))
        return {piece: self._processor.GetScore(self._processor.PieceToId(piece)) for piece in pieces}

    def split(self, line: str) -> list[str]:
        """Return the pieces of a raw line."""
        pieces: list[str] = self._processor.EncodeAsPieces(_prepare(line, self._settings))
        return pieces

    def encode(self, line: str) -> list[int]:
        """Return the ids of a raw line."""
        return [self._ours[i] for i in self._processor.EncodeAsIds(_prepare(line, self._settings))]

    def encode_lines(self, lines: Sequence[str], *, threads: int = 1) -> list[list[int]]:
        """Return the ids of each line, found on `threads` cores."""
        prepared = [_prepare(line, self._settings) for line in lines]
        ours = self._ours
        return [[ours[i] for i in ids] for ids in self._processor.encode(prepared, out_type=int, num_threads=threads)]

    def decode(self, ids: Sequence[int], *, prefix: Sequence[str] = ()) -> str:
        """Return the text of ids in one line; special ids but for unknown are left out, `prefix` stands for the first ones."""
        theirs = [self._theirs[i] for i in ids[len(prefix) :] if i not in {PAD, BOS, EOS}]
        text: str = (
            self._processor.DecodePieces([*prefix, *map(self._processor.IdToPiece, theirs)])
            if prefix
            else self._processor.DecodeIds(theirs)
        )
        return " ".join(text.split())  # a model brought along may have a piece that is a line end

    def settings(self) -> dict[str, object]:
        """Return the settings as plain values."""
        return asdict(self._settings)

    def stored(self) -> tuple[str, bytes]:
        """Return the suffix and the content of the file that holds the model."""
        return ".model", self._model


def _prepare(line: str, settings: PieceSettings) -> str:
    line = " ".join(line.split())
    return line.lower() if settings.lowercase else line


def _train(lines: Sequence[str], model_type: str, size: int, normalization: str) -> bytes:
    """Return a serialised model of exactly `size` entries for BPE, at most as many for unigram."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type=model_type,
        vocab_size=size,
        hard_vocab_limit=model_type == "bpe",
        character_coverage=1.0,
        normalization_rule_name=normalization,
        max_sentence_length=1 << 20,
        shuffle_input_sentence=False,
        pad_id=PAD,
        unk_id=UNK,
        bos_id=BOS,
        eos_id=EOS,
        pad_piece=SPECIALS[PAD],
        unk_piece=SPECIALS[UNK],
        bos_piece=SPECIALS[BOS],
        eos_piece=SPECIALS[EOS],
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()
