"""Training text on disk: the same ids as in memory, made once, and never half."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import json
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nmt_cli.text.store
from nmt_cli.errors import DataError, ResourceError, RunError
from nmt_cli.text import encoding
from nmt_cli.text.examples import Encoded, Examples, Filters, encode_examples, encode_pairs
from nmt_cli.text.parallel import FileRecord, Pair, describe_file, read_pairs
from nmt_cli.text.sampling import PieceSampling
from nmt_cli.text.store import SIZES, Store, TrainingText, learn_tokenizers
from nmt_cli.text.store_files import MANIFEST
from nmt_cli.text.tokenizers import Tokenizer, tokenizer_files, train_tokenizer

WORDS = ["le", "la", "un", "une", "chat", "chien", "maison", "rouge", "dort", "l'eau", "d'or", "été", "▁", "<unk>", "犬"]
STRICT = Filters(max_length=9, max_ratio=2, drop_identical=True, drop_duplicates=True)
FILTERS = [Filters(), STRICT, Filters(drop_empty=False), Filters(drop_empty=False, drop_duplicates=True)]


@pytest.fixture(name="files")
def _files(tmp_path: Path) -> list[list[str]]:
    """Two files and a table: 500 pairs with blank sides, repeated pairs, and pairs whose sides are the same."""
    draw = random.Random(1)

    def line() -> str:
        return " ".join(draw.choices(WORDS, k=draw.randrange(12)))

    pairs = [(line(), line()) for _ in range(400)]
    pairs += [(f" {source}", target) for source, target in draw.sample(pairs, 60)]
    pairs += [(source, source) for source, _ in draw.sample(pairs, 40)]
    draw.shuffle(pairs)
    source, target, table = tmp_path / "a.en", tmp_path / "a.fr.gz", tmp_path / "b.tsv"
    source.write_text("".join(f"{pair[0]}\n" for pair in pairs[:300]), encoding="utf-8")
    target.write_bytes(gzip.compress("".join(f"{pair[1]}\r\n" for pair in pairs[:300]).encode()))
    table.write_text("".join(f"{pair[0]}\t{pair[1]}\n" for pair in pairs[300:]), encoding="utf-8")
    return [[str(source), str(target)], [str(table)]]


@pytest.fixture(name="text")
def _text(files: list[list[str]]) -> TrainingText:
    return TrainingText.describe(files, max_pairs=None)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nmt_cli.text.store, "CHUNK_LINES", 64)


def learned(kind: str, files: list[list[str]]) -> tuple[Tokenizer, Tokenizer]:
    pairs = read_pairs(files)
    size = 60 if kind == "sentencepiece" else None
    return (
        train_tokenizer(kind, [pair.source for pair in pairs], max_size=size),
        train_tokenizer(kind, [pair.target for pair in pairs], max_size=size, lowercase=True),
    )


def kept(pairs: list[Pair], tokenizers: tuple[Tokenizer, Tokenizer], filters: Filters) -> list[int]:
    """Return which of the pairs the filters let through."""
    numbered = [replace(pair, line=place) for place, pair in enumerate(pairs)]
    places: list[int] = encode_examples(numbered, *tokenizers, **asdict(filters))[0].lines.tolist()
    return places


def assert_same(found: Examples, expected: Examples) -> None:
    assert len(found) == len(expected)
    for index in range(len(expected)):
        assert found.source(index).tolist() == expected.source(index).tolist()
        assert found.target(index).tolist() == expected.target(index).tolist()
        assert found.source(index).dtype == np.int32
    for name in ("source_lengths", "target_lengths", "lines"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist()


@pytest.fixture(name="encoded_pairs")
def _encoded_pairs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of pairs in each chunk that is tokenised."""
    counts: list[int] = []

    def counted(sources: list[str], *arguments: Any, **named: Any) -> Encoded:
        counts.append(len(sources))
        return encode_pairs(sources, *arguments, **named)

    monkeypatch.setattr(encoding, "encode_pairs", counted)
    return counts


# -- what is in it -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("kind", ["word", "char", "sentencepiece"])
def test_a_store_holds_what_is_encoded_in_memory(
    kind: str, filters: Filters, files: list[list[str]], text: TrainingText, tmp_path: Path
) -> None:
    pairs, tokenizers = read_pairs(files), learned(kind, files)
    filters = replace(filters, max_length=filters.max_length and 40) if kind == "char" else filters
    stored = Store(tmp_path / "s").examples(text, tokenizers, filters, keep_text=True)
    rules = {name: value for name, value in vars(filters).items() if name != "rules"}
    expected, figures = encode_examples(pairs, *tokenizers, **rules)
    assert_same(stored.examples, expected)
    assert stored.figures == figures
    assert list(stored.figures.dropped) == list(figures.dropped), "in the same order"
    assert filters is not STRICT or len(figures.dropped) == 5
    assert stored.pairs is not None
    for index, place in enumerate(kept(pairs, tokenizers, filters)):
        assert stored.pairs[index] == (pairs[place].source, pairs[place].target)


def test_processes_give_what_this_one_gives(
    files: list[list[str]], text: TrainingText, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizers = learned("sentencepiece", files)
    told: list[str] = []
    done: list[int] = []
    here = Store(tmp_path / "here").examples(text, tokenizers, STRICT, on_progress=done.append)
    assert sum(done) == len(text) == 500
    monkeypatch.setattr(nmt_cli.text.store, "LARGE_CORPUS", 10)
    there = Store(tmp_path / "there", processes=2, on_message=told.append).examples(text, tokenizers, STRICT)
    assert_same(there.examples, here.examples)
    assert there.figures == here.figures
    assert told == ["tokenising 500 pairs in 2 processes"]
    for name in os.listdir(tmp_path / "here"):
        for file in (tmp_path / "here" / name).iterdir():
            assert file.read_bytes() == (tmp_path / "there" / name / file.name).read_bytes()


@pytest.mark.parametrize("limit", [1, 299, 300, 301, 10_000])
def test_max_pairs(limit: int, files: list[list[str]], tmp_path: Path) -> None:
    text, tokenizers = TrainingText.describe(files, max_pairs=limit), learned("word", files)
    assert len(text) == min(500, limit)
    stored = Store(tmp_path / "s").examples(text, tokenizers, Filters(drop_empty=False))
    assert_same(stored.examples, encode_examples(read_pairs(files, max_pairs=limit), *tokenizers, drop_empty=False)[0])


def test_ids_take_two_bytes_until_the_vocabulary_is_too_large(
    files: list[list[str]], text: TrainingText, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizers = learned("word", files)
    narrow = Store(tmp_path / "a").examples(text, tokenizers, Filters())
    monkeypatch.setattr("nmt_cli.text.store_files.NARROW_SIZE", 10)
    wide = Store(tmp_path / "b").examples(text, tokenizers, Filters())
    assert [str(stored.examples.source_ids.dtype) for stored in (narrow, wide)] == ["uint16", "int32"]
    assert_same(narrow.examples, wide.examples)


def test_examples_that_are_taken_into_memory_are_the_same(
    files: list[list[str]], text: TrainingText, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt_cli.text.examples.TAKEN_AT_ONCE", 7)
    examples = Store(tmp_path / "s").examples(text, learned("word", files), Filters()).examples
    for indices in (np.arange(len(examples)), np.array([0]), np.array([1, 5, 6, 7, 50, len(examples) - 1])):
        taken = examples.take(indices)
        for place, index in enumerate(indices.tolist()):
            assert taken.source(place).tolist() == examples.source(index).tolist()
            assert taken.target(place).tolist() == examples.target(index).tolist()
        assert taken.lines.tolist() == examples.lines[indices].tolist()
        lengths = examples.lengths_of(indices)
        assert lengths[0].tolist() == taken.source_lengths.tolist() == examples.source_lengths[indices].tolist()
        assert lengths[1].tolist() == taken.target_lengths.tolist()


def test_sampling_reads_the_text_of_a_store(files: list[list[str]], text: TrainingText, tmp_path: Path) -> None:
    source, target = learned("sentencepiece", files)
    stored = Store(tmp_path / "s").examples(text, (source, target), STRICT, keep_text=True)
    assert stored.pairs is not None
    pairs = read_pairs(files)
    lines = [(pairs[i].source, pairs[i].target) for i in kept(pairs, (source, target), STRICT)]
    found, expected = (
        PieceSampling(each, stored.examples, source, target, strength=0.5, longest=50, seed=(1,))(0, 3, [5, 0, 9])  # type: ignore[arg-type]
        for each in (stored.pairs, lines)
    )
    assert [[ids.tolist() for ids in side] for side in found] == [[ids.tolist() for ids in side] for side in expected]


# -- found again -------------------------------------------------------------------------------------------------------


def test_the_second_time_nothing_is_tokenised(
    files: list[list[str]], text: TrainingText, tmp_path: Path, encoded_pairs: list[int]
) -> None:
    tokenizers = learned("word", files)
    first = Store(tmp_path / "s").examples(text, tokenizers, STRICT)
    assert sum(encoded_pairs) == 500
    second = Store(tmp_path / "s").examples(text, tokenizers, STRICT)
    assert sum(encoded_pairs) == 500
    assert_same(second.examples, first.examples)
    assert second.figures == first.figures


def test_whatever_ids_depend_on_makes_another_store(
    files: list[list[str]], text: TrainingText, tmp_path: Path, encoded_pairs: list[int]
) -> None:
    tokenizers = learned("word", files)
    changed = tmp_path / "changed.tsv"
    changed.write_text(Path(files[1][0]).read_text(encoding="utf-8").replace("rouge", "rose"), encoding="utf-8")
    variants: list[tuple[TrainingText, tuple[Tokenizer, Tokenizer], Filters, bool]] = [
        (text, tokenizers, Filters(), False),
        (text, tokenizers, Filters(), True),
        *((text, tokenizers, filters, False) for filters in (STRICT, Filters(max_length=9), Filters(drop_empty=False))),
        (text, learned("char", files), Filters(), False),
        (text, (tokenizers[1], tokenizers[0]), Filters(), False),
        (text, (tokenizers[0], train_tokenizer("word", ["le chat"])), Filters(), False),
        (TrainingText.describe(files, max_pairs=400), tokenizers, Filters(), False),
        (TrainingText.describe(files[::-1], max_pairs=None), tokenizers, Filters(), False),
        (TrainingText.describe([files[0], [str(changed)]], max_pairs=None), tokenizers, Filters(), False),
    ]
    for count, (corpus, sides, filters, keep_text) in enumerate(variants, start=1):
        encoded_pairs.clear()
        Store(tmp_path / "s").examples(corpus, sides, filters, keep_text=keep_text)
        assert sum(encoded_pairs) == len(corpus)
        assert len(list((tmp_path / "s").iterdir())) == count
    moved = tmp_path / "moved.tsv"
    moved.write_bytes(Path(files[1][0]).read_bytes())
    encoded_pairs.clear()
    Store(tmp_path / "s").examples(TrainingText.describe([files[0], [str(moved)]], max_pairs=None), tokenizers, Filters())
    assert not encoded_pairs, "only what is in the files counts, not where they are"


def damage(folder: Path, what: str) -> None:
    if what == "cut short":
        os.truncate(folder / "target.ids", 10)
    elif what == "missing":
        (folder / "lines").unlink()
    elif what == "no JSON":
        (folder / SIZES).write_text("{", encoding="utf-8")
    else:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        manifest["figures"] = {name: None for name in ("pairs",)}
        (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
        sizes = json.loads((folder / SIZES).read_text(encoding="utf-8"))
        (folder / SIZES).write_text(json.dumps({**sizes, MANIFEST: (folder / MANIFEST).stat().st_size}), encoding="utf-8")


@pytest.mark.parametrize("what", ["cut short", "missing", "no JSON", "figures"])
def test_a_damaged_store_is_made_again_and_this_is_told(
    what: str, files: list[list[str]], text: TrainingText, tmp_path: Path, encoded_pairs: list[int]
) -> None:
    tokenizers, told = learned("word", files), list[str]()
    first = Store(tmp_path / "s").examples(text, tokenizers, Filters())
    expected = first.examples.take(np.arange(len(first.examples)))
    (folder,) = (tmp_path / "s").iterdir()
    damage(folder, what)
    again = Store(tmp_path / "s", on_message=told.append).examples(text, tokenizers, Filters())
    assert_same(again.examples, expected)
    assert sum(encoded_pairs) == 1000
    (line,) = told
    assert str(folder) in line
    assert "damaged" in line
    assert "made again" in line
    told.clear()
    Store(tmp_path / "s", on_message=told.append).examples(text, tokenizers, Filters())
    assert (sum(encoded_pairs), told) == (1000, [])


# -- stopped half-way --------------------------------------------------------------------------------------------------

WRITER = """
import sys, time
from pathlib import Path
from nmt_cli.text.examples import Filters
from nmt_cli.text.store import Store, TrainingText
from nmt_cli.text.tokenizers import train_tokenizer
import nmt_cli.text.store as module

def main():
    root, path, processes = sys.argv[1:]
    module.LARGE_CORPUS = 1
    text = TrainingText.describe([[path]], max_pairs=None)
    words = train_tokenizer("word", ["le chat dort"])
    def slowly(count):
        print(count, flush=True)
        time.sleep(60)
    Store(Path(root), processes=int(processes)).examples(text, (words, words), Filters(), on_progress=slowly)

if __name__ == "__main__":
    main()
"""


@pytest.fixture(name="halfway")
def _halfway(tmp_path: Path) -> Iterator[Callable[[int], tuple[subprocess.Popen[str], str]]]:
    """Start a process that writes a store and stands still in its middle; return it and its corpus."""
    script, corpus = tmp_path / "writer.py", tmp_path / "long.tsv"
    script.write_text(WRITER, encoding="utf-8")
    corpus.write_text("le chat\tdort le chat\n" * 50_000, encoding="utf-8")
    started: list[subprocess.Popen[str]] = []

    def start(processes: int) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, str(script), str(tmp_path / "s"), str(corpus), str(processes)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout is not None
        assert int(started[-1].stdout.readline()) > 0
        return started[-1], str(corpus)

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def children_of(process: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(status.read_text(encoding="utf-8").rpartition(")")[2].split()[1]) == process:
                found.append(int(status.parent.name))
        except (OSError, ValueError):
            continue
    return found


@pytest.mark.parametrize("processes", [1, 2])
def test_a_writer_that_is_killed_leaves_nothing_that_is_in_the_way(
    processes: int, halfway: Callable[[int], tuple[subprocess.Popen[str], str]], tmp_path: Path
) -> None:
    writer, corpus = halfway(processes)
    children = children_of(writer.pid)
    assert len(children) >= (processes if processes > 1 else 0)
    writer.send_signal(signal.SIGKILL)
    assert writer.wait() == -signal.SIGKILL
    assert list((tmp_path / "s").glob(".*.part")), "it was in the middle"
    text, words = TrainingText.describe([[corpus]], max_pairs=None), train_tokenizer("word", ["le chat dort"])
    told: list[str] = []
    stored = Store(tmp_path / "s", on_message=told.append).examples(text, (words, words), Filters())
    assert len(stored.examples) == stored.figures.pairs == 50_000
    assert told == []
    assert [path.name.startswith(".") for path in (tmp_path / "s").iterdir()] == [False]
    for _ in range(100):
        if not any(Path(f"/proc/{child}").exists() for child in children):
            break
        time.sleep(0.1)
    assert not [child for child in children if Path(f"/proc/{child}").exists()], "its processes end with it"


def test_leftovers_of_another_text_are_removed_too_unless_it_is_being_written(
    files: list[list[str]],
    text: TrainingText,
    halfway: Callable[[int], tuple[subprocess.Popen[str], str]],
    tmp_path: Path,
) -> None:
    writer, _ = halfway(1)
    tokenizers = learned("word", files)
    Store(tmp_path / "s").examples(text, tokenizers, Filters())
    assert len(list((tmp_path / "s").glob(".*.part"))) == 1, "its writer is at work"
    writer.kill()
    writer.wait()
    Store(tmp_path / "s").examples(text, tokenizers, STRICT)
    assert not list((tmp_path / "s").glob(".*"))


def test_leftovers_are_removed_where_all_is_there_already(files: list[list[str]], text: TrainingText, tmp_path: Path) -> None:
    tokenizers, root = learned("word", files), tmp_path / "s"
    Store(root).examples(text, tokenizers, Filters())
    (whole,) = root.iterdir()
    (root / ".one.part").mkdir()
    (root / ".one.part" / "lines").write_text("", encoding="utf-8")
    for name in (".one.lock", ".two.lock", ".files.json.7.part", ".three.lock"):
        (root / name).write_text("", encoding="utf-8")
    with open(root / ".three.lock", "a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        Store(root).examples(text, tokenizers, Filters())
        assert set(root.iterdir()) == {whole, root / ".three.lock"}, "what is being made stays"
    Store(root).examples(text, tokenizers, Filters())
    assert set(root.iterdir()) == {whole}


def test_two_processes_do_the_work_once(halfway: Callable[[int], tuple[subprocess.Popen[str], str]], tmp_path: Path) -> None:
    writer, corpus = halfway(1)
    words = train_tokenizer("word", ["le chat dort"])

    def stop_the_other(line: str) -> None:
        assert "another process is making this; waiting for it" in line
        writer.kill()

    text = TrainingText.describe([[corpus]], max_pairs=None)
    stored = Store(tmp_path / "s", on_message=stop_the_other).examples(text, (words, words), Filters())
    assert writer.wait() == -signal.SIGKILL, "who waits goes on when the other one has ended"
    assert len(stored.examples) == 50_000


def test_a_process_that_is_killed_is_a_message(
    files: list[list[str]], text: TrainingText, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nmt_cli.text.store, "LARGE_CORPUS", 1)

    def kill_one(_: int) -> None:
        for child in multiprocessing.active_children():
            child.kill()

    tokenizers = learned("word", files)
    with pytest.raises(ResourceError, match="a process that tokenises was killed, most likely because memory ran out"):
        Store(tmp_path / "s", processes=2).examples(text, tokenizers, Filters(), on_progress=kill_one)
    assert not (tmp_path / "s").exists()


# -- errors ------------------------------------------------------------------------------------------------------------


def test_errors_are_those_of_reading_and_nothing_is_left(files: list[list[str]], tmp_path: Path) -> None:
    tokenizers = learned("word", files)
    cases = {
        b"a\tb\n\xff\tb\n": r"bad\.tsv:2: expected UTF-8 text",
        b"a\tb\nonly one\n": r"bad\.tsv:2: expected source<TAB>target",
        b"\t\na\t \n": r"bad\.tsv: expected sentence pairs, but none is left \(2 dropped: a side without a token\)",
    }
    for content, message in cases.items():
        (tmp_path / "bad.tsv").write_bytes(content)
        text = TrainingText.describe([[str(tmp_path / "bad.tsv")]], max_pairs=None)
        with pytest.raises(DataError, match=message):
            Store(tmp_path / "s").examples(text, tokenizers, Filters())
        assert not (tmp_path / "s").exists()
    (tmp_path / "bad.tsv").write_bytes(b"")
    with pytest.raises(DataError, match=r"bad\.tsv: expected sentence pairs for train, but there is none"):
        TrainingText.describe([[str(tmp_path / "bad.tsv")]], max_pairs=None)


def test_files_of_different_length_are_refused_before_any_work(files: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "short.fr").write_text("un\n", encoding="utf-8")
    unlike = [files[0][0], str(tmp_path / "short.fr")]
    with pytest.raises(DataError, match=r"a\.en has 300 and .*short\.fr has 1;"):
        TrainingText.describe([files[1], unlike], max_pairs=None)
    assert len(TrainingText.describe([files[1], unlike], max_pairs=200)) == 200, "what is not read need not fit"


def changes(path: Path, how: str) -> None:
    """Change a table of 5 lines while somebody reads it."""
    if how == "grown":
        with open(path, "a", encoding="utf-8") as stream:
            stream.write("x y\tz\n" * 200)
    elif how == "cut short":
        path.write_text("un\tdeux\n", encoding="utf-8")
    elif how == "other words":
        path.write_text(path.read_text(encoding="utf-8").replace("un", "le"), encoding="utf-8")
    elif how == "replaced":
        content, times = path.read_text(encoding="utf-8"), os.stat(path)
        (path.parent / "new").write_text(content.replace("un", "le"), encoding="utf-8")
        os.replace(path.parent / "new", path)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    else:
        path.unlink()


@pytest.mark.parametrize("filters", [Filters(), Filters(drop_duplicates=True)])
@pytest.mark.parametrize("how", ["grown", "cut short", "other words", "replaced", "removed"])
def test_a_corpus_that_changes_before_it_is_read_is_not_kept(how: str, filters: Filters, tmp_path: Path) -> None:
    table, words = tmp_path / "a.tsv", train_tokenizer("word", ["un deux"])
    table.write_text("un\tdeux\n" * 5, encoding="utf-8")
    text = TrainingText.describe([[str(table)]], max_pairs=None)
    time.sleep(0.02)  # a tick of the clock of files
    changes(table, how)
    expected = r"a\.tsv: cannot read" if how == "removed" else r"a\.tsv: changed while it was read; run again"
    with pytest.raises(DataError, match=expected):
        Store(tmp_path / "s").examples(text, (words, words), filters)
    with pytest.raises(DataError, match=expected):
        Store(tmp_path / "s").tokenizers(text, partial(train_tokenizer, "word"), {}, shared=True)
    assert not (tmp_path / "s").exists()


def test_what_grows_beyond_max_pairs_while_it_is_read_is_not_kept_either(tmp_path: Path) -> None:
    table, words = tmp_path / "a.tsv", train_tokenizer("word", ["un deux"])
    table.write_text("un\tdeux\n" * 200, encoding="utf-8")
    text = TrainingText.describe([[str(table)]], max_pairs=150)
    with pytest.raises(DataError, match="changed while it was read; run again"):
        Store(tmp_path / "s").examples(text, (words, words), Filters(), on_progress=lambda _: changes(table, "grown"))
    assert not (tmp_path / "s").exists()


@contextlib.contextmanager
def limited(kind: int, limit: int) -> Iterator[None]:
    """Set a limit of this process meanwhile."""
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


@pytest.mark.parametrize("more", [0, 3])
def test_a_store_that_cannot_be_read_just_now_is_neither_damaged_nor_removed(
    more: int, files: list[list[str]], text: TrainingText, tmp_path: Path, encoded_pairs: list[int]
) -> None:
    tokenizers, told = learned("word", files), list[str]()
    store = Store(tmp_path / "s", on_message=told.append)
    first = store.examples(text, tokenizers, Filters())
    (folder,) = (tmp_path / "s").iterdir()
    unused = os.dup(0)
    os.close(unused)
    with (
        limited(resource.RLIMIT_NOFILE, unused + more),
        pytest.raises(RunError, match=rf"{folder}: cannot read what was kept here: Too many open files; .* run again"),
    ):
        store.examples(text, tokenizers, Filters())
    assert_same(store.examples(text, tokenizers, Filters()).examples, first.examples)
    assert (sum(encoded_pairs), told) == (500, [])


@pytest.mark.parametrize("filters", [Filters(), Filters(drop_duplicates=True)])
def test_a_full_disk_is_a_message_and_nothing_is_left(
    filters: Filters, files: list[list[str]], text: TrainingText, tmp_path: Path
) -> None:
    tokenizers = learned("word", files)
    with limited(resource.RLIMIT_FSIZE, 200), pytest.raises(ResourceError, match="cannot write: no space left"):
        Store(tmp_path / "s").examples(text, tokenizers, filters)
    assert not (tmp_path / "s").exists()


def test_what_fails_beside_writing_does_not_pass_for_it(files: list[list[str]], text: TrainingText, tmp_path: Path) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with pytest.raises(OSError, match="Cannot allocate memory"):
        Store(tmp_path / "s").examples(text, learned("word", files), Filters(), on_progress=fail)
    assert not (tmp_path / "s").exists()


# -- tokenizers --------------------------------------------------------------------------------------------------------


def content_of(tokenizers: tuple[Tokenizer, ...]) -> list[dict[str, str | bytes]]:
    return [tokenizer_files(tokenizer, "x") for tokenizer in tokenizers]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", ["word", "char", "sentencepiece"])
def test_tokenizers_are_those_of_all_lines(
    kind: str, shared: bool, files: list[list[str]], text: TrainingText, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = read_pairs(files)
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    learn = partial(train_tokenizer, kind, max_size=50, space_before="'" if kind == "word" else "")
    expected = (
        (learn(sources + targets, spacing_lines=targets),)
        if shared
        else (learn(sources, spacing_lines=sources), learn(targets, spacing_lines=targets))
    )
    found = Store(tmp_path / "s").tokenizers(text, learn, {"kind": kind}, shared=shared)
    assert content_of(found) == content_of((expected[0], expected[-1]))
    assert (found[0] is found[1]) == shared
    monkeypatch.setattr(nmt_cli.text.store, "learn_tokenizers", None)  # nothing is learned again
    again = Store(tmp_path / "s").tokenizers(text, learn, {"kind": kind}, shared=shared)
    assert content_of(again) == content_of(found)
    with pytest.raises(TypeError, match="not callable"):
        Store(tmp_path / "s").tokenizers(text, learn, {"kind": kind, "max_size": 40}, shared=shared)


@pytest.mark.parametrize(("shared", "step"), [(True, 4), (False, 2)])
def test_of_a_large_text_every_so_many_lines_are_learned_from(
    shared: bool, step: int, files: list[list[str]], text: TrainingText, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nmt_cli.text.store, "TRAINING_LINES", 250)
    pairs = read_pairs(files)
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    expected = [(sources + targets)[::step]] if shared else [sources[::step], targets[::step]]
    seen: list[list[str]] = []

    def learn(lines: list[str], *, spacing_lines: list[str]) -> Tokenizer:
        seen.append(lines)
        return train_tokenizer("word", lines)

    learn_tokenizers(text, learn, shared=shared)
    assert seen == expected
    assert max(map(len, seen)) <= 250


def test_a_large_text_is_learned_from_in_another_process(
    files: list[list[str]], text: TrainingText, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = partial(train_tokenizer, "sentencepiece", max_size=50)
    here = Store(tmp_path / "a").tokenizers(text, learn, {}, shared=False)
    monkeypatch.setattr(nmt_cli.text.store, "LARGE_CORPUS", 1)
    there = Store(tmp_path / "b").tokenizers(text, learn, {}, shared=False)
    assert content_of(there) == content_of(here)


def test_processes_import_no_torch(tmp_path: Path) -> None:
    command = "import sys, nmt_cli.text.store, nmt_cli.text.encoding; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# -- hashes of files ---------------------------------------------------------------------------------------------------


def test_a_large_file_is_hashed_once_until_it_changes(
    files: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, store, read = files[1][0], Store(tmp_path / "s"), list[str]()

    def counted(path: str) -> FileRecord:
        read.append(path)
        return describe_file(path)

    monkeypatch.setattr(nmt_cli.text.store, "describe_file", counted)
    store.describe(path)
    store.describe(path)
    assert len(read) == 2, "a small file is always read"
    monkeypatch.setattr(nmt_cli.text.store, "LARGE_FILE", 1)
    store.describe(path)
    store.describe(path)
    assert len(read) == 4, "and so is one that was changed a moment ago"
    monkeypatch.setattr(nmt_cli.text.store, "SETTLED_SECONDS", -1)
    expected = store.describe(path)
    assert (store.describe(path), len(read)) == (expected, 5)
    assert expected == describe_file(path)
    time.sleep(0.02)  # a tick of the clock of files
    times = os.stat(path)
    content = Path(path).read_text(encoding="utf-8")
    Path(path).write_text(content.replace("le", "la"), encoding="utf-8")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # as `rsync --times` and the like do
    assert os.stat(path).st_size == times.st_size
    assert store.describe(path) == describe_file(path) != expected
    (tmp_path / "s" / "files.json").write_text("[]", encoding="utf-8")
    assert store.describe(path) == describe_file(path), "a damaged note is written anew"
    assert list(json.loads((tmp_path / "s" / "files.json").read_text(encoding="utf-8"))) == [path]


def test_hashes_can_be_read_by_others_and_a_full_disk_leaves_no_part_of_them(
    files: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nmt_cli.text.store, "LARGE_FILE", 1)
    monkeypatch.setattr(nmt_cli.text.store, "SETTLED_SECONDS", -1)
    store, path = Store(tmp_path / "s"), files[1][0]
    with limited(resource.RLIMIT_FSIZE, 20):
        assert store.describe(path) == describe_file(path)
    assert list((tmp_path / "s").iterdir()) == []
    mask = os.umask(0o002)
    try:
        store.describe(path)
    finally:
        os.umask(mask)
    (kept,) = (tmp_path / "s").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o664


# -- other stores ------------------------------------------------------------------------------------------------------


def test_what_another_store_holds_is_used_and_nothing_is_written_there(
    files: list[list[str]], text: TrainingText, tmp_path: Path, encoded_pairs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nmt_cli.text.store, "LARGE_FILE", 1)
    monkeypatch.setattr(nmt_cli.text.store, "SETTLED_SECONDS", -1)
    tokenizers, there = learned("word", files), Store(tmp_path / "there")
    first, record = there.examples(text, tokenizers, Filters()), there.describe(files[1][0])
    (tmp_path / "there" / ".killed.part").mkdir()
    before = {each: each.stat().st_mtime_ns for each in (tmp_path / "there").rglob("*")}
    here = Store(tmp_path / "here", others=[tmp_path / "none", tmp_path / "there"])
    assert_same(here.examples(text, tokenizers, Filters()).examples, first.examples)
    monkeypatch.setattr(nmt_cli.text.store, "describe_file", None)  # nothing is read again
    assert here.describe(files[1][0]) == record
    assert (sum(encoded_pairs), (tmp_path / "here").exists()) == (500, False)
    here.examples(text, tokenizers, STRICT)
    assert sum(encoded_pairs) == 1000
    assert len(list((tmp_path / "here").iterdir())) == 1
    (folder,) = (each.parent for each in (tmp_path / "there").glob(f"*/{MANIFEST}"))
    assert {each: each.stat().st_mtime_ns for each in (tmp_path / "there").rglob("*")} == before
    damage(folder, "missing")
    assert_same(here.examples(text, tokenizers, Filters()).examples, encode_examples(read_pairs(files), *tokenizers)[0])
    assert not (folder / "lines").exists()
