"""Word and character tokenizers: rules of splitting, learned spacing, saving and loading."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nmt_cli.errors import DataError, RunError
from nmt_cli.text.parallel import read_lines
from nmt_cli.text.tokenizers import (
    CharTokenizer,
    Tokenizer,
    WordSettings,
    WordTokenizer,
    load_tokenizer,
    split_words,
    tokenizer_files,
    train_tokenizer,
)
from nmt_cli.text.vocab import BOS, EOS, PAD, UNK

# White_Space in Unicode's PropList.txt, without the line feed, and the four separators that Python adds
CODES = (0x09, *range(0x0B, 0x0E), *range(0x1C, 0x21), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B))
SPACES = [chr(code) for code in (*CODES, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)]
BOOK = WordSettings(lowercase=True, space_before=",.!?")


def all_tokens(tokenizer: Tokenizer) -> list[str]:
    return tokenizer.vocabulary.tokens(range(len(tokenizer.vocabulary)))


def saved(tokenizer: Tokenizer, folder: Path, *, crlf: bool = False) -> Path:
    for name, content in tokenizer_files(tokenizer, "source").items():
        data = content.encode() if isinstance(content, str) else content
        (folder / name).write_bytes(data.replace(b"\n", b"\r\n") if crlf else data)
    return folder


# -- words: splitting --------------------------------------------------------------------------------------------------


def book_words(text: str) -> list[str]:
    """Row 16 as the d2l book does it, section 10.5: spaces, lower case, a space before , . ! ? that has none."""
    text = text.replace("\u202f", " ").replace("\xa0", " ").lower()
    spaced = [
        f" {character}" if index and character in ",.!?" and text[index - 1] != " " else character
        for index, character in enumerate(text)
    ]
    return "".join(spaced).split(" ")


@pytest.mark.parametrize(
    "line",
    ["Go.", "Va !", "Va\u202f!", "J'ai perdu.", "Cours\xa0!", "Attendez, ici !", "I lost...", "Who?!", "Il est 3.5, non ?"],
)
def test_words_are_those_of_the_book(line: str) -> None:
    assert split_words(line, BOOK) == book_words(line)


def test_words_without_settings_are_what_stands_between_spaces() -> None:
    assert split_words(" J'ai  perdu, Tom. ", WordSettings()) == ["J'ai", "perdu,", "Tom."]


def test_space_before_and_after() -> None:
    settings = WordSettings(space_before=".!", space_after="'-")
    assert split_words("l'eau vient-il d'ici!.", settings) == ["l'", "eau", "vient-", "il", "d'", "ici", "!", "."]
    both = WordSettings(space_before="'", space_after="'")
    assert split_words("l'eau", both) == ["l", "'", "eau"]


def test_words_seen_once_are_unknown() -> None:
    tokenizer = WordTokenizer.train(["Va !", "va .", "cours !"], settings=BOOK, min_frequency=2)
    assert tokenizer.encode("va") != [UNK]
    assert tokenizer.encode("cours ! va .") == [UNK, *tokenizer.encode("! va"), UNK]


@pytest.mark.parametrize("space", SPACES, ids=lambda s: f"U+{ord(s):04X}")
@pytest.mark.fault("PB-05")
def test_every_unicode_space_separates_words_in_training_and_translation(space: str) -> None:
    plain = ["Tu viens ?", "tu viens"]
    odd = [f"Tu{space}viens{space}?", f"{space}tu{space}{space}viens{space}"]
    trained_plain = train_tokenizer("word", plain, space_before="?")
    trained_odd = train_tokenizer("word", odd, space_before="?")
    assert all_tokens(trained_odd) == all_tokens(trained_plain)
    for line, same in zip(odd, plain, strict=True):
        assert trained_plain.encode(line) == trained_plain.encode(same)
        assert UNK not in trained_plain.encode(line)
    assert trained_plain.encode(space) == []
    assert all(token.strip() == token != "" for token in all_tokens(trained_odd))


@pytest.mark.fault("PB-04")
def test_crlf_files_give_the_same_ids(tmp_path: Path) -> None:
    text = "Va !\nJ'ai perdu.\n\nCours vite\n"
    (tmp_path / "lf").write_bytes(text.encode())
    (tmp_path / "crlf").write_bytes(text.replace("\n", "\r\n").encode())
    lf, crlf = read_lines(tmp_path / "lf"), read_lines(tmp_path / "crlf")
    for kind in ("word", "char"):
        one, two = train_tokenizer(kind, lf), train_tokenizer(kind, crlf)
        assert all_tokens(one) == all_tokens(two)
        assert [one.encode(line) for line in lf] == [two.encode(line) for line in crlf]
        assert not any("\r" in token for token in all_tokens(two))


@pytest.mark.parametrize("kind", ["word", "char"])
@pytest.mark.fault("PB-07")
def test_control_strings_never_become_control_ids(kind: str) -> None:
    line = "press </s> to stop <pad> <unk> <bos> <eos> <s> now"
    tokenizer = train_tokenizer(kind, [line, line])
    ids = tokenizer.encode(line)
    assert not {PAD, BOS, EOS} & set(ids)
    assert len(ids) == len(tokenizer.split(line))
    if kind == "word":
        words = line.split()
        assert [word for word, index in zip(words, ids, strict=True) if index == UNK] == ["<pad>", "<unk>", "<bos>", "<eos>"]
        assert tokenizer.decode(tokenizer.encode("press </s> <s> @@ now")) == "press </s> <s> <unk> now"
    else:
        assert tokenizer.decode(ids) == line


def test_two_at_signs_survive() -> None:
    tokenizer = train_tokenizer("word", ["low@@ er @@ x"])
    assert tokenizer.decode(tokenizer.encode("low@@ er @@ x")) == "low@@ er @@ x"


# -- words: decoding ---------------------------------------------------------------------------------------------------


def test_french_spacing_is_learned_from_the_training_text() -> None:
    lines = ["Va !", "Cours\u202f!", "Il est bon.", "J'ai perdu.", "L'eau, ici !"]
    tokenizer = train_tokenizer("word", lines, space_before=",.!?", space_after="'")
    assert tokenizer.split("J'ai perdu.") == ["J'", "ai", "perdu", "."]
    for line in ("Va !", "J'ai perdu.", "L'eau, ici !", "Il est ici, bon !"):
        assert tokenizer.decode(tokenizer.encode(line)) == line
    assert tokenizer.decode(tokenizer.encode("J'ai perdu .")) == "J'ai perdu."
    assert tokenizer.decode(tokenizer.encode("Va!")) == "Va !"


def test_english_spacing_is_learned_from_the_training_text() -> None:
    tokenizer = train_tokenizer("word", ["Go!", "Run!", "Go, Tom."], space_before=",.!?")
    assert tokenizer.decode(tokenizer.encode("Go !")) == "Go!"
    assert tokenizer.decode(tokenizer.encode("Run , Tom .")) == "Run, Tom."


@pytest.mark.parametrize(("joined", "apart", "text"), [(2, 1, "a! b"), (1, 2, "a ! b")])
def test_the_majority_decides_how_a_mark_is_written(joined: int, apart: int, text: str) -> None:
    tokenizer = train_tokenizer("word", ["a! b"] * joined + ["a ! b"] * apart, space_before="!")
    assert tokenizer.decode(tokenizer.encode("a! b")) == text
    assert tokenizer.decode(tokenizer.encode("a ! b")) == text


@pytest.mark.parametrize(("joined", "apart", "text"), [(2, 1, "d'or"), (1, 2, "d' or")])
def test_the_majority_decides_what_follows_a_mark(joined: int, apart: int, text: str) -> None:
    tokenizer = train_tokenizer("word", ["d'or"] * joined + ["d' or"] * apart, space_after="'")
    assert tokenizer.decode(tokenizer.encode("d'or")) == text
    assert tokenizer.decode(tokenizer.encode("d' or")) == text


def test_decoding_leaves_special_ids_out_and_shows_unknown_words() -> None:
    tokenizer = train_tokenizer("word", ["a b"])
    a, b = tokenizer.encode("a b")
    assert tokenizer.decode([BOS, a, PAD, UNK, b, EOS, PAD]) == "a <unk> b"
    assert tokenizer.decode([]) == ""


def test_lower_case_is_asked_for() -> None:
    cased, lowered = train_tokenizer("word", ["Été été"]), train_tokenizer("word", ["Été été"], lowercase=True)
    assert len(cased.vocabulary) == 6
    assert len(lowered.vocabulary) == 5
    assert lowered.encode("ÉTÉ") == lowered.encode("été") != [UNK]
    assert cased.encode("ÉTÉ") == [UNK]


# -- characters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["", "a", "J'ai perdu !", "l’œuf 😀 e\u0301", "x" * 30])
def test_characters_go_there_and_back(line: str) -> None:
    tokenizer = train_tokenizer("char", [line])
    ids = tokenizer.encode(line)
    assert UNK not in ids
    assert len(ids) == len(line)
    assert tokenizer.decode(ids) == line


@pytest.mark.parametrize("space", SPACES, ids=lambda s: f"U+{ord(s):04X}")
@pytest.mark.fault("PB-05")
def test_characters_read_every_unicode_space_as_one_plain_space(space: str) -> None:
    tokenizer = train_tokenizer("char", [f"{space}a{space}{space}b{space}"])
    assert tokenizer.split(f"{space}a{space}{space}b{space}") == ["a", "▁", "b"]
    assert tokenizer.decode(tokenizer.encode(f"a{space}b")) == "a b"
    assert tokenizer.encode(space) == []
    assert all(token.strip() == token != "" for token in all_tokens(tokenizer))


def test_the_sign_of_a_space_is_read_as_a_space() -> None:
    tokenizer = train_tokenizer("char", ["a b"])
    assert tokenizer.encode("a▁b") == tokenizer.encode("a b")
    assert tokenizer.encode("▁") == []


def test_characters_in_lower_case_with_limits() -> None:
    tokenizer = train_tokenizer("char", ["AAaBbc"], lowercase=True, min_frequency=2, max_size=5)
    assert all_tokens(tokenizer)[4:] == ["a"]  # b was seen twice, but there is room for one
    assert tokenizer.encode("Ab") == [4, UNK]


# -- files -------------------------------------------------------------------------------------------------------------


def examples() -> list[Tokenizer]:
    lines = ["Va !", "J'ai perdu.", 'Un </s> & <pad> œuf \\ "x"', "Tu viens\u202f?"]
    return [
        train_tokenizer("word", lines, lowercase=True, space_before=",.!?", space_after="'"),
        train_tokenizer("word", lines),
        train_tokenizer("char", lines, lowercase=True),
        train_tokenizer("char", lines),
    ]


@pytest.mark.parametrize("crlf", [False, True], ids=["lf", "crlf"])
@pytest.mark.parametrize("number", range(4))
@pytest.mark.fault("PB-04")
def test_a_saved_tokenizer_does_the_same(number: int, crlf: bool, tmp_path: Path) -> None:
    tokenizer = examples()[number]
    again = load_tokenizer(saved(tokenizer, tmp_path, crlf=crlf), "source")
    assert type(again) is type(tokenizer)
    assert again.settings() == tokenizer.settings()
    assert all_tokens(again) == all_tokens(tokenizer)
    for line in ("Va !", "J'AI perdu!", 'œuf "x" <pad> inconnu ?', ""):
        assert again.encode(line) == tokenizer.encode(line)
        assert again.decode(again.encode(line)) == tokenizer.decode(tokenizer.encode(line))


def test_both_kinds_are_told_apart_by_their_file(tmp_path: Path) -> None:
    kinds = [json.loads(tokenizer_files(tokenizer, "shared")["shared.json"])["type"] for tokenizer in examples()]
    assert kinds == ["word", "word", "char", "char"]
    assert isinstance(load_tokenizer(saved(examples()[0], tmp_path), "source"), WordTokenizer)
    assert isinstance(load_tokenizer(saved(examples()[2], tmp_path), "source"), CharTokenizer)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "damaged"),
        ('{"type": "word"', "damaged"),
        ("[1, 2]", "damaged"),
        ('"word"', "damaged"),
        ('{"lowercase": false}', "damaged"),
        ('{"type": "word", "colour": 3}', "damaged.*colour"),
        ('{"type": "morphemes"}', "expected a tokenizer of type word, char or sentencepiece, but it is 'morphemes'"),
    ],
)
def test_damaged_settings_are_refused(content: str, message: str, tmp_path: Path) -> None:
    saved(examples()[0], tmp_path)
    (tmp_path / "source.json").write_text(content, encoding="utf-8")
    with pytest.raises(RunError, match=rf"source\.json: .*{message}"):
        load_tokenizer(tmp_path, "source")


def test_a_damaged_vocabulary_is_refused(tmp_path: Path) -> None:
    saved(examples()[0], tmp_path)
    path = tmp_path / "source.vocab"
    path.write_text("va\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(RunError, match=r"source\.vocab:1: "):
        load_tokenizer(tmp_path, "source")


@pytest.mark.parametrize("name", ["source.json", "source.vocab"])
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    (saved(examples()[0], tmp_path) / name).unlink()
    with pytest.raises(DataError, match=f"{name}: cannot read this file"):
        load_tokenizer(tmp_path, "source")


def test_a_prefix_stands_in_the_text_as_it_was_given() -> None:
    words = train_tokenizer("word", ["Je vois l'eau."], space_before=".", space_after="'")
    assert words.decode([UNK, *words.encode("vois .")], prefix=["Zoé"]) == "Zoé vois."
    assert words.decode([UNK, *words.encode("eau")], prefix=["d'"]) == "d'eau"
    characters = train_tokenizer("char", ["voir"])
    assert characters.decode([UNK, *characters.encode("oi")], prefix=["Z"]) == "Zoi"
