"""Subword pieces: sizes, round trips, control strings, and models brought along (docs/faults.md PB-06, PB-07)."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from nmt_cli.errors import DataError, RunError
from nmt_cli.text.pieces import PieceSettings, PieceTokenizer
from nmt_cli.text.tokenizers import load_tokenizer, tokenizer_files, train_tokenizer
from nmt_cli.text.vocab import SPECIALS, UNK

LINES = [
    line.split("\t")[1]
    for line in (Path(__file__).parents[1] / "fixtures" / "tiny.tsv").read_text(encoding="utf-8").splitlines()
]
KINDS = ["bpe", "unigram"]


def learn(model_type: str, size: int = 60, lines: list[str] | None = None, **options: str) -> PieceTokenizer:
    options = {"normalization": "identity", **options}
    return PieceTokenizer.train(
        lines or LINES, model_type=model_type, vocabulary_size=size, settings=PieceSettings(), **options
    )


@pytest.mark.parametrize("model_type", KINDS)
@pytest.mark.fault("PB-06")
def test_the_size_is_an_upper_limit(model_type: str) -> None:
    assert len(learn(model_type, 60).vocabulary) == 60
    largest = len(learn(model_type, 8000).vocabulary)
    assert 40 < largest < 300
    assert len(learn(model_type, largest).vocabulary) == largest, "the size that was found is a size that works"


@pytest.mark.parametrize("model_type", KINDS)
def test_lines_go_there_and_back(model_type: str) -> None:
    tokenizer = learn(model_type)
    for line in LINES:
        ids = tokenizer.encode(line)
        assert tokenizer.decode(ids) == line
        assert min(ids) >= len(SPECIALS)
        assert tokenizer.vocabulary.tokens(ids) == tokenizer.split(line)


@pytest.mark.parametrize("model_type", KINDS)
@pytest.mark.parametrize("space", ["\u00a0", "\u202f", "\u3000", "\u2028", "\x0b", "\x85", "\t", " \r "])
def test_every_unicode_space_is_a_plain_space(model_type: str, space: str) -> None:
    tokenizer = learn(model_type)
    assert tokenizer.encode(f"{space}Venez{space}ici !{space}") == tokenizer.encode("Venez ici !")
    assert tokenizer.encode(space) == []


@pytest.mark.parametrize("model_type", KINDS)
@pytest.mark.fault("PB-07")
def test_control_strings_are_text(model_type: str) -> None:
    line = "press </s> to stop <pad> <unk> now <bos> <eos> <s> @@ kilo"
    tokenizer = learn(model_type, 200, [*LINES, line, line, line])
    ids = tokenizer.encode(line)
    assert tokenizer.decode(ids) == line, "with its characters known, the text comes back whole"
    assert not {0, 2, 3} & set(ids)
    unknown = learn(model_type).encode("<pad>")
    assert set(unknown) - {UNK} or unknown == [UNK] * len(unknown)
    assert not {0, 2, 3} & set(unknown)


def test_unknown_characters_are_unknown() -> None:
    tokenizer = learn("bpe")
    assert UNK in tokenizer.encode("Ω")
    assert "Ω" not in tokenizer.decode(tokenizer.encode("Ω"))


def test_the_sign_of_a_space_is_read_as_a_space() -> None:
    tokenizer = learn("bpe")
    assert tokenizer.decode(tokenizer.encode("Venez▁ici")) == "Venez ici"


def test_settings_are_kept_with_the_model(tmp_path: Path) -> None:
    tokenizer = train_tokenizer("sentencepiece", LINES, lowercase=True, max_size=50, model_type="unigram", normalization="nfkc")
    for name, content in tokenizer_files(tokenizer, "shared").items():
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    loaded = load_tokenizer(tmp_path, "shared")
    for line in [*LINES, "ﬁn ½ ÇA"]:
        assert loaded.encode(line) == tokenizer.encode(line)
    assert loaded.encode("LE CHAT") == loaded.encode("le chat")
    assert len(loaded.vocabulary) == 50


def test_a_damaged_model_is_refused(tmp_path: Path) -> None:
    files = tokenizer_files(train_tokenizer("sentencepiece", LINES, max_size=50), "source")
    (tmp_path / "source.json").write_text(str(files["source.json"]), encoding="utf-8")
    (tmp_path / "source.model").write_bytes(b"no model")
    with pytest.raises(RunError, match="sentencepiece model"):
        load_tokenizer(tmp_path, "source")


def test_text_of_blank_lines_is_refused() -> None:
    with pytest.raises(DataError, match="all lines are blank"):
        learn("bpe", lines=["", " \u2028 "])


def foreign(**options: Any) -> PieceTokenizer:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(sentence_iterator=iter(LINES), model_writer=model, minloglevel=2, **options)
    return PieceTokenizer(model.getvalue(), PieceSettings())


@pytest.mark.fault("PB-07")
def test_no_piece_of_a_foreign_model_breaks_a_line_or_passes_for_a_control_symbol() -> None:
    fallback = foreign(vocab_size=320, byte_fallback=True, model_type="bpe")
    newline = fallback.vocabulary.ids(["<0x0A>"])[0]
    assert newline > UNK
    some = fallback.encode("Venez")
    assert fallback.decode([newline, *some, newline, newline, *some]) == "Venez Venez"
    named = foreign(vocab_size=60, user_defined_symbols=["<pad>", "<eos>", "@@"], model_type="bpe")
    assert [named.vocabulary.tokens(range(len(named.vocabulary))).count(name) for name in SPECIALS] == [1] * len(SPECIALS)
    assert not {0, 2, 3} & set(named.encode("<pad> kilo <eos> <bos>"))
    assert "@@" in named.split("a @@ b")


def test_a_foreign_model_keeps_our_ids() -> None:
    """A model of somebody else has its control symbols elsewhere; ours stay 0 to 3, and its pieces follow in order."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(LINES), model_writer=model, model_type="bpe", vocab_size=60, minloglevel=2
    )  # its defaults: <unk> 0, <s> 1, </s> 2, no padding
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ours = PieceTokenizer(model.getvalue(), PieceSettings())
    assert len(ours.vocabulary) == 61
    for line in LINES:
        assert ours.split(line) == theirs.EncodeAsPieces(line)
        assert ours.encode(line) == [i + 1 for i in theirs.EncodeAsIds(line)]
        assert ours.decode(ours.encode(line)) == line


@pytest.mark.parametrize("model_type", KINDS)
def test_a_prefix_stands_in_the_text_as_it_was_given(model_type: str) -> None:
    tokenizer = learn(model_type)
    prefix = tokenizer.split("Le Ж")
    ids = tokenizer.encode("Le Ж")
    assert UNK in ids
    assert len(prefix) == len(ids)
    assert tokenizer.decode([*ids, *tokenizer.encode("chat")], prefix=prefix) == "Le Ж chat"
    assert tokenizer.decode(ids, prefix=prefix) == "Le Ж"
