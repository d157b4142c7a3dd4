r"""Reading lines and aligned pairs: line ends, encodings, gzip, alignment, and errors that name their place."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest

from nmt_cli.errors import DataError
from nmt_cli.text.parallel import Pair, decode_lines, describe_file, read_lines, read_pairs, stream_pairs

# docs/faults.md PB-01: what `str.splitlines()` and text-mode files also take for line ends; here all of them are text
SEPARATORS = ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r"]


def written(path: Path, content: str | bytes) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


# -- lines -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", SEPARATORS, ids=lambda s: f"U+{ord(s):04X}")
@pytest.mark.fault("PB-01")
def test_only_a_line_feed_ends_a_line(separator: str, tmp_path: Path) -> None:
    path = written(tmp_path / "in.txt", f"one\ntwo{separator}half\nthree\n")
    assert read_lines(path) == ["one", f"two{separator}half", "three"]


@pytest.mark.parametrize("separator", SEPARATORS, ids=lambda s: f"U+{ord(s):04X}")
@pytest.mark.fault("PB-01")
def test_a_separator_inside_a_pair_shifts_nothing(separator: str, tmp_path: Path) -> None:
    source = written(tmp_path / "a.en", f"one\ntwo{separator}half\nthree\n")
    target = written(tmp_path / "a.fr", "un\ndeux\ntrois\n")
    table = written(tmp_path / "a.tsv", f"one\tun\ntwo{separator}half\tdeux\nthree\ttrois\n")
    expected = [("one", "un"), (f"two{separator}half", "deux"), ("three", "trois")]
    for files in ([source, target], [table]):
        assert [(pair.source, pair.target) for pair in read_pairs([files])] == expected


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\nb", ["a", "b"]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"a\r\n\r\nb\r\n", ["a", "", "b"]),
        (b"a\r\r\nb\n", ["a\r", "b"]),  # one carriage return belongs to the line end, not two
        (b"\r\na\n", ["", "a"]),
        (b" a \n\t\n", [" a ", "\t"]),
        (b"\xef\xbb\xbfa\nb\n", ["a", "b"]),
        (b"\xef\xbb\xbf\r\nb\n", ["", "b"]),
        (b"a\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),  # a byte-order mark is one at the start of a file only
        (b"a\x00b\n", ["a\x00b"]),
        ("œuf 😀\n".encode(), ["œuf 😀"]),
    ],
)
def test_line_ends_and_byte_order_marks(content: bytes, lines: list[str], tmp_path: Path) -> None:
    assert read_lines(written(tmp_path / "in.txt", content)) == lines


def test_a_chunk_further_on_keeps_its_line_numbers_and_its_first_character() -> None:
    assert list(decode_lines([b"\xef\xbb\xbfx\n"], "standard input", first=7)) == ["\ufeffx"]
    with pytest.raises(DataError, match=r"^standard input:8: .* byte 1 is 0xff"):
        list(decode_lines([b"ok\n", b"\xff\n"], "standard input", first=7))


# -- encodings ---------------------------------------------------------------------------------------------------------


@pytest.mark.fault("PB-03")
def test_invalid_utf8_names_file_line_and_byte(tmp_path: Path) -> None:
    path = written(tmp_path / "src.txt", b"ok\ncaf\xe9 noir\n")
    with pytest.raises(DataError) as caught:
        read_lines(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert "byte 4 is 0xe9" in str(caught.value)  # c a f are bytes 1 to 3


def test_the_byte_is_counted_in_the_line_as_it_is_in_the_file(tmp_path: Path) -> None:
    # three bytes of byte-order mark, then `a`: the bad byte is the fifth
    with pytest.raises(DataError, match="byte 5 is 0xe9"):
        read_lines(written(tmp_path / "src.txt", b"\xef\xbb\xbfa\xe9\n"))


@pytest.mark.parametrize("bad", [b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80", b"\x80"])
def test_every_kind_of_invalid_utf8_is_refused(bad: bytes, tmp_path: Path) -> None:
    # cut short, surrogate, overlong, beyond U+10FFFF, continuation byte alone
    path = written(tmp_path / "src.txt", b"a " + bad + b"\n")
    with pytest.raises(DataError, match=rf"src\.txt:1: .*byte 3 is 0x{bad[0]:02x}"):
        read_lines(path)


def test_invalid_utf8_can_be_replaced_and_loses_no_line() -> None:
    warnings: list[str] = []
    lines = list(decode_lines([b"ok\n", b"caf\xe9 noir\r\n", b"fin"], "in.txt", on_invalid=warnings.append))
    assert lines == ["ok", "caf\ufffd noir", "fin"]
    assert len(warnings) == 1
    assert warnings[0].startswith("in.txt:2: ")
    assert "replaced" in warnings[0]


# -- gzip --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.txt.gz", "a.txt", "a"])
def test_gzip_is_known_by_its_content(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / name, gzip.compress("\ufeffun\r\ndeux\n".encode()))
    assert read_lines(path) == ["un", "deux"]


def test_a_plain_file_called_gz_is_read_as_it_is(tmp_path: Path) -> None:
    assert read_lines(written(tmp_path / "a.gz", "un\n")) == ["un"]


def test_gzip_in_two_members_is_one_file(tmp_path: Path) -> None:
    assert read_lines(written(tmp_path / "a.gz", gzip.compress(b"un\nde") + gzip.compress(b"ux\n"))) == ["un", "deux"]


def damaged_gzip() -> list[bytes]:
    whole = gzip.compress(b"a line of text\n" * 50)
    wrong_checksum = whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:]
    return [whole[:-12], whole[:2], wrong_checksum, whole[:12] + b"\xff" * 20 + whole[32:]]


@pytest.mark.parametrize("content", damaged_gzip(), ids=["cut", "magic only", "checksum", "overwritten"])
def test_damaged_gzip_is_a_message_with_its_path(content: bytes, tmp_path: Path) -> None:
    path = written(tmp_path / "a.gz", content)
    with pytest.raises(DataError, match=r"a\.gz: .*damaged"):
        read_lines(path)
    with pytest.raises(DataError, match=r"a\.gz: .*damaged"):
        describe_file(path)


# -- pairs -------------------------------------------------------------------------------------------------------------


def test_two_files_give_pairs_with_their_place(tmp_path: Path) -> None:
    source = written(tmp_path / "a.en", "one\n\nthree")
    target = written(tmp_path / "a.fr", gzip.compress(b"un\ndeux\ntrois\n"))
    assert read_pairs([[source, target]]) == [
        Pair("one", "un", source, 1),
        Pair("", "deux", source, 2),
        Pair("three", "trois", source, 3),
    ]


@pytest.mark.parametrize(("source_lines", "target_lines"), [(6, 5), (5, 6), (0, 1)])
@pytest.mark.fault("PB-02")
def test_files_of_different_length_are_refused(source_lines: int, target_lines: int, tmp_path: Path) -> None:
    source = written(tmp_path / "a.en", "x\n" * source_lines)
    target = written(tmp_path / "a.fr", "y\n" * target_lines)
    with pytest.raises(DataError) as caught:
        read_pairs([[source, target]])
    message = str(caught.value)
    assert f"{source} has {source_lines} " in message
    assert f"{target} has {target_lines};" in message


def test_a_tsv_has_two_columns_and_may_have_a_third(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tsv", "one\tun\r\ntwo\tdeux\tCC-BY\r\n\tvide\n")
    assert read_pairs([[path]]) == [Pair("one", "un", path, 1), Pair("two", "deux", path, 2), Pair("", "vide", path, 3)]


@pytest.mark.parametrize(("line", "found"), [("one", "1 column:"), ("", "1 column:"), ("a\tb\tc\td", "4 columns:")])
def test_a_tsv_line_with_other_columns_is_refused(line: str, found: str, tmp_path: Path) -> None:
    path = written(tmp_path / "a.tsv", f"one\tun\n{line}\nthree\ttrois\n")
    with pytest.raises(DataError) as caught:
        read_pairs([[path]])
    assert str(caught.value).startswith(f"{path}:2: ")
    assert found in str(caught.value)


def test_sets_follow_one_another_and_count_their_own_lines(tmp_path: Path) -> None:
    table = written(tmp_path / "a.tsv", "1\tun\n2\tdeux\n")
    source, target = written(tmp_path / "b.en", "3\n4\n5\n"), written(tmp_path / "b.fr", "trois\nquatre\ncinq\n")
    pairs = read_pairs([[table], [source, target]])
    assert [pair.source for pair in pairs] == ["1", "2", "3", "4", "5"]
    assert [(pair.file, pair.line) for pair in pairs] == [(table, 1), (table, 2), (source, 1), (source, 2), (source, 3)]


@pytest.mark.parametrize(("limit", "sources"), [(1, "1"), (2, "12"), (3, "123"), (5, "12345"), (9, "12345"), (None, "12345")])
def test_max_pairs_counts_over_all_sets(limit: int | None, sources: str, tmp_path: Path) -> None:
    first = written(tmp_path / "a.tsv", "1\tun\n2\tdeux\n")
    second = written(tmp_path / "b.tsv", "3\ttrois\n4\tquatre\n5\tcinq\n")
    assert "".join(pair.source for pair in read_pairs([[first], [second]], max_pairs=limit)) == sources


def test_what_comes_after_max_pairs_need_not_be_sound(tmp_path: Path) -> None:
    table = written(tmp_path / "a.tsv", b"1\tun\n2\tdeux\nno columns\n\xff\tx\n")
    source, target = written(tmp_path / "a.en", b"3\n4\n\xff\n5\n"), written(tmp_path / "a.fr", b"trois\nquatre\n\xff\n")
    assert "".join(pair.source for pair in read_pairs([[table]], max_pairs=2)) == "12"
    assert "".join(pair.source for pair in read_pairs([[source, target], [table]], max_pairs=2)) == "34"
    for files in ([table], [source, target]):
        with pytest.raises(DataError, match=r":3: expected"):
            read_pairs([files], max_pairs=3)
    short = written(tmp_path / "b.fr", "trois\n")
    longer = written(tmp_path / "b.en", "3\n" * 5)
    with pytest.raises(DataError, match=r"b\.en has 5 and .*b\.fr has 1;"):
        read_pairs([[longer, short]], max_pairs=2)


def test_a_missing_file_and_a_folder_are_messages(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.tsv: cannot read this file: No such file"):
        read_pairs([[str(tmp_path / "none.tsv")]])
    with pytest.raises(DataError, match="cannot read this file: Is a directory"):
        describe_file(tmp_path)


def test_describe_file_gives_the_hash_of_the_bytes_and_the_lines_of_the_text(tmp_path: Path) -> None:
    text = "un\u2028x\r\ndeux\ntrois".encode()  # three lines, the last without its end
    packed = gzip.compress(text)
    for name, content in (("a.txt", text), ("a.gz", packed)):
        record = describe_file(written(tmp_path / name, content))
        assert record.path == str(tmp_path / name)
        assert record.sha256 == hashlib.sha256(content).hexdigest()
        assert record.lines == 3


def test_pairs_come_in_chunks_with_their_place(tmp_path: Path) -> None:
    table = written(tmp_path / "a.tsv", "1\tun\n2\tdeux\n3\ttrois\n")
    source, target = written(tmp_path / "b.en", "4\n5\n"), written(tmp_path / "b.fr", "quatre\ncinq\n")
    chunks = list(stream_pairs([[table], [source, target]], size=2))
    assert [(chunk.sources, chunk.file, chunk.first_line) for chunk in chunks] == [
        (["1", "2"], table, 1),
        (["3"], table, 3),
        (["4", "5"], source, 1),
    ]
    assert [len(chunk) for chunk in stream_pairs([[table], [source, target]], size=2, max_pairs=4)] == [2, 1, 1]
    unlike = [[written(tmp_path / "c.en", "x\n" * 5), written(tmp_path / "c.fr", "y\n" * 7)]]
    with pytest.raises(DataError, match=r"c\.en has 5 and .*c\.fr has 7;"):
        list(stream_pairs(unlike, size=2))


@pytest.mark.parametrize("side", [0, 1])
def test_the_damaged_one_of_two_files_is_named(side: int, tmp_path: Path) -> None:
    contents = [gzip.compress(b"a line\n" * 50), gzip.compress(b"une ligne\n" * 50)]
    contents[side] = contents[side][:-12]
    paths = [written(tmp_path / name, content) for name, content in zip(("a.en", "a.fr"), contents, strict=True)]
    with pytest.raises(DataError, match=rf"{paths[side]}: this gzip file is damaged"):
        read_pairs([paths])
