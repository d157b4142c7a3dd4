"""`nmt translate --alignments` and `--replace-unknown`."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt_cli.runs.folder import RunFolder
from nmt_cli.text.vocab import UNK
from tests.integration.conftest import nmt, write_config

TEXT = "The cat.\n\nI see the dog and the cat and the house, too.\nsee\n"


def test_alignments_are_those_of_attn_dump(run: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(TEXT, encoding="utf-8")
    plain = nmt("translate", run, tmp_path / "in.txt")
    done = nmt("translate", run, tmp_path / "in.txt", "--alignments", tmp_path / "links.txt")
    assert (done.code, done.out) == (0, plain.out), done.err
    links = (tmp_path / "links.txt").read_text(encoding="utf-8")
    assert links.count("\n") == 4
    assert nmt("attn-dump", run, "--input", tmp_path / "in.txt", "--out", tmp_path / "out", "--format", "pharaoh").code == 0
    assert (tmp_path / "out" / "alignment.txt").read_text(encoding="utf-8") == links
    piped = nmt("translate", run, "--alignments", tmp_path / "piped.txt", stdin=TEXT.encode())
    assert (piped.code, piped.out) == (0, plain.out)
    assert (tmp_path / "piped.txt").read_text(encoding="utf-8") == links


@pytest.fixture(scope="module")
def names_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that has learned that names, each of which it saw once, are unknown words on both sides."""
    folder = tmp_path_factory.mktemp("names")
    patterns = [("I see {}.", "Je vois {}."), ("{} is here.", "{} est ici."), ("We like {} too.", "Nous aimons {} aussi.")]
    rows = [(source.format(f"N{i}x"), target.format(f"N{i}x")) for i in range(40) for source, target in [patterns[i % 3]]]
    (folder / "names.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in rows), encoding="utf-8")
    data = f"train: {folder / 'names.tsv'}"
    config = write_config(folder, "seq2seq", data=data, training="max_epochs: 40, validate_every: 999")
    options = ["--set", "tokenizer.min_frequency=2", "--run-dir", str(folder / "run")]
    done = nmt("train", config, *options)
    assert done.code == 0, done.err
    return folder / "run"


def test_unknown_words_are_replaced_by_what_they_attend_to(names_run: Path, tmp_path: Path) -> None:
    text = "I see Zoe.\nMax is here.\n\nWe like Ada too.\nI see Kim.\n"
    plain = nmt("translate", names_run, stdin=text.encode())
    assert "<unk>" not in plain.out
    done = nmt("translate", names_run, "--replace-unknown", "--alignments", tmp_path / "links.txt", stdin=text.encode())
    assert done.code == 0, done.err
    assert done.out.startswith("Je vois Zoe.\n")
    assert done.out.count("\n") == 5
    links = (tmp_path / "links.txt").read_text(encoding="utf-8").splitlines()
    source, target = RunFolder.open(names_run).tokenizers()
    replaced = 0
    for line, translation, linked in zip(text.splitlines(), done.out.splitlines(), links, strict=True):
        asked = {int(link.split("-")[1]): int(link.split("-")[0]) for link in linked.split()}
        for place, word in enumerate(target.split(translation)):
            if target.vocabulary.ids([word]) == [UNK]:
                assert word == source.split(line)[asked[place]]
                replaced += 1
    assert replaced >= 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--alignments", "x", "--long-lines", "split"], "does not go with --long-lines split"),
        (["--replace-unknown", "--long-lines", "split"], "does not go with --long-lines split"),
    ],
)
def test_what_does_not_go_together(run: Path, options: list[str], message: str) -> None:
    done = nmt("translate", run, *options, stdin=b"a\n")
    assert done.code == 2
    assert message in done.err


def test_pieces_are_never_unknown(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    text = config.read_text(encoding="utf-8").splitlines()
    text[1] = "tokenizer: {type: char}"
    config.write_text("\n".join(text), encoding="utf-8")
    assert nmt("train", config, "--run-dir", tmp_path / "run").code == 0
    done = nmt("translate", tmp_path / "run", "--replace-unknown", stdin=b"a\n")
    assert done.code == 2
    assert "--replace-unknown is for runs with word tokens" in done.err
