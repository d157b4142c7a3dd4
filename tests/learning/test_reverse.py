"""Both models learn to turn a sentence round: attention, training, search and text work together, or this fails."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.integration.conftest import nmt

MODELS = {
    "seq2seq": "{type: seq2seq, embedding_size: 24, hidden_size: 48, embedding_dropout: 0.0, output_dropout: 0.0}",
    "transformer": "{type: transformer, width: 48, heads: 4, feed_forward: 96, encoder_layers: 2, decoder_layers: 2}",
}


def write_corpus(path: Path, sentences: list[list[str]]) -> None:
    path.write_text("".join(f"{' '.join(s)}\t{' '.join(reversed(s))}\n" for s in sentences), encoding="utf-8")


@pytest.mark.parametrize("model", sorted(MODELS))
def test_unseen_sentences_are_reversed(model: str, tmp_path: Path) -> None:
    draw = random.Random(3)
    sentences = [[draw.choice("abcdefgh") for _ in range(draw.randint(2, 7))] for _ in range(1300)]
    unique = [list(s) for s in dict.fromkeys(map(tuple, sentences))]
    write_corpus(tmp_path / "test.tsv", unique[:50])
    write_corpus(tmp_path / "train.tsv", unique[50:])
    config = tmp_path / "reverse.yaml"
    config.write_text(
        "data: {source: x, target: y, train: train.tsv, tests: {test: test.tsv}}\n"
        f"model: {MODELS[model]}\n"
        "training: {batch_sentences: 64, learning_rate: 0.003, schedule: linear, warmup_updates: 50, label_smoothing: 0.0,\n"
        "  max_updates: 600, validate_every: 600, save_every: 600}\n"
        "decoding: {beam_size: 2}\n",
        encoding="utf-8",
    )
    done = nmt("train", config, "--run-dir", tmp_path / "run")
    assert done.code == 0, done.err
    translated = (tmp_path / "run" / "reports" / "test.hypotheses.txt").read_text(encoding="utf-8").splitlines()
    right = sum(line.split() == s[::-1] for line, s in zip(translated, unique[:50], strict=True))
    assert right >= 45, f"{right} of 50 right"
