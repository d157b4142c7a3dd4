"""Subword sampling: other pieces of the same text, and the same ones for the same (seed, epoch, batch)."""

from __future__ import annotations

import io
import math
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from nmt_cli.text.batching import Batch, BatchSampler
from nmt_cli.text.examples import Examples, encode_examples
from nmt_cli.text.parallel import Pair
from nmt_cli.text.pieces import PieceSettings, PieceTokenizer
from nmt_cli.text.sampling import NBEST, MergeDropout, NBestSampling, PieceSampling
from nmt_cli.text.vocab import SPECIALS

ROOT = Path(__file__).parents[2]
FIXTURE = ROOT / "tests" / "fixtures" / "tiny.tsv"
PAIRS = [
    Pair(line.split("\t")[0], line.split("\t")[1], "tiny.tsv", number)
    for number, line in enumerate(["\t", *FIXTURE.read_text(encoding="utf-8").splitlines()], start=1)
]
"""The first pair is empty, so that it is dropped and examples and pairs count apart."""
TEXTS = [(pair.source, pair.target) for pair in PAIRS[1:]]
"""Source and target of each example."""
ALL = list(range(len(PAIRS) - 1))


def made(
    model_type: str = "bpe", *, strength: float = 0.3, longest: int = 200, seed: int = 7
) -> tuple[PieceSampling, Examples, PieceTokenizer, PieceTokenizer]:
    source, target = (
        PieceTokenizer.train(
            lines, model_type=model_type, vocabulary_size=size, normalization="identity", settings=PieceSettings()
        )
        for lines, size in (([pair.source for pair in PAIRS], 70), ([pair.target for pair in PAIRS], 90))
    )
    examples, _ = encode_examples(PAIRS, source, target)
    sampling = PieceSampling(TEXTS, examples, source, target, strength=strength, longest=longest, seed=(seed, 0))
    return sampling, examples, source, target


def plain(sides: tuple[list[np.ndarray], list[np.ndarray]]) -> list[list[list[int]]]:
    return [[ids.tolist() for ids in side] for side in sides]


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_sampled_pieces_are_others_of_the_same_text(model_type: str) -> None:
    sampling, examples, source, target = made(model_type)
    sources, targets = sampling(0, 0, ALL)
    assert len(sources) == len(targets) == len(examples) == len(PAIRS) - 1
    for index, pair in enumerate(PAIRS[1:]):
        assert source.decode(sources[index].tolist()) == " ".join(pair.source.split())
        assert target.decode(targets[index].tolist()) == " ".join(pair.target.split())
        assert sources[index].dtype == np.int32
        assert min(sources[index]) >= len(SPECIALS)
    changed = sum(not np.array_equal(sources[i], examples.source(i)) for i in ALL)
    assert changed > len(ALL) / 2


def test_the_outcome_follows_from_seed_epoch_and_batch_alone() -> None:
    first, second = made()[0], made()[0]
    wanted = plain(first(2, 5, ALL))
    assert plain(second(2, 4, ALL)) != wanted
    assert plain(second(1, 5, ALL)) != wanted
    assert plain(made(seed=8)[0](2, 5, ALL)) != wanted
    assert plain(second(2, 5, ALL)) == wanted, "whatever was drawn in between"


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_another_process_draws_the_same(model_type: str) -> None:
    """The samplers of sentencepiece do not, whatever seed they are given."""
    code = (
        "from tests.unit.test_sampling import ALL, made, plain; import sys; "
        f"sys.stdout.write(str(plain(made({model_type!r})[0](2, 5, ALL))))"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert found == str(plain(made(model_type)[0](2, 5, ALL)))


def naive_dropout(text: str, scores: dict[str, float], strength: float, source: random.Random) -> list[str]:
    """BPE-dropout as the paper's algorithm 1 says it, without any shortcut."""
    symbols = list(text)
    while True:
        places = [i for i in range(len(symbols) - 1) if symbols[i] + symbols[i + 1] in scores]
        places = [i for i in places if source.random() >= strength]
        if not places:
            return symbols
        best = max(places, key=lambda i: (scores[symbols[i] + symbols[i + 1]], -i))
        symbols[best : best + 2] = [symbols[best] + symbols[best + 1]]


def test_dropout_has_the_distribution_of_the_paper() -> None:
    """Frequencies of every split of a word, ours beside the plain algorithm's."""
    tokenizer, draws = made()[3], 4000
    word = max((word for pair in PAIRS for word in pair.target.split()), key=lambda w: len("▁" + w) - len(tokenizer.split(w)))
    sampler, generator = MergeDropout(tokenizer, 0.3), random.Random(1)
    ours = Counter(tuple(sampler.sample(word, generator)) for _ in range(draws))
    scores = tokenizer.scores()
    plainly = Counter(tuple(tokenizer.vocabulary.ids(naive_dropout(f"▁{word}", scores, 0.3, generator))) for _ in range(draws))
    assert len(ours) >= 4
    for split in ours | plainly:
        assert abs(ours[split] - plainly[split]) < 5 * (plainly[split] + 10) ** 0.5, split


def test_unigram_splits_come_in_proportion_to_their_probability_to_a_power() -> None:
    tokenizer, draws, strength = made("unigram")[3], 6000, 0.5
    word = max((word for pair in PAIRS for word in pair.target.split()), key=len)
    sampler, generator, scores = NBestSampling(tokenizer, strength), random.Random(1), tokenizer.scores()
    found = Counter(tuple(sampler.sample(word, generator)) for _ in range(draws))
    weights = {
        tuple(tokenizer.vocabulary.ids(pieces)): math.exp(strength * sum(scores[piece] for piece in pieces))
        for pieces in tokenizer.best_splits(word, NBEST)
    }
    assert set(found) <= set(weights)
    assert len(weights) > 5
    for split, weight in weights.items():
        expected = draws * weight / sum(weights.values())
        assert abs(found[split] - expected) < 5 * (expected + 1) ** 0.5, split


def test_what_is_not_made_of_known_pieces_keeps_its_usual_ids() -> None:
    """Unknown characters, and models whose pieces reach over spaces."""
    tokenizer = made()[3]
    sampler = MergeDropout(tokenizer, 0.9)
    assert {tuple(sampler.sample("Ω", random.Random(seed))) for seed in range(9)} == {tuple(tokenizer.encode("Ω"))}
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(["a b a b"] * 9), model_writer=model, vocab_size=10, model_type="bpe", minloglevel=2,
        split_by_whitespace=False,
    )  # fmt: skip
    wide = PieceTokenizer(model.getvalue(), PieceSettings())
    assert any("▁" in piece[1:] for piece in wide.split("a b a b"))
    pairs = [Pair("a b a b", "a b", "x", 1)]
    examples, _ = encode_examples(pairs, wide, wide)
    sampling = PieceSampling([("a b a b", "a b")], examples, wide, wide, strength=0.9, longest=50, seed=(1,))
    assert plain(sampling(0, 0, [0]))[0] == [wide.encode("a b a b")]


def test_a_small_strength_changes_little() -> None:
    sampling, examples, *_ = made(strength=1e-6)
    sources, targets = sampling(0, 0, ALL)
    assert all(np.array_equal(sources[i], examples.source(i)) for i in ALL)
    assert all(np.array_equal(targets[i], examples.target(i)) for i in ALL)


def test_merges_are_left_out_at_the_rate_that_was_asked_for() -> None:
    """With every merge left out but a millionth, a line falls into its characters."""
    sampling, *_ = made(strength=1 - 1e-6)
    sources, _ = sampling(0, 0, ALL)
    for ids, pair in zip(sources, PAIRS[1:], strict=True):
        assert len(ids) == len("▁" + " ".join(pair.source.split()))


def test_a_side_that_would_be_too_long_keeps_its_usual_pieces() -> None:
    usual = made()[1]
    longest = int(max(usual.source_lengths.max(), usual.target_lengths.max()))
    sampling, examples, *_ = made(strength=0.9, longest=longest)
    sources, targets = sampling(0, 0, ALL)
    assert max(len(ids) + 1 for ids in [*sources, *targets]) <= longest
    kept = [i for i in ALL if np.array_equal(targets[i], examples.target(i))]
    assert 0 < len(kept) < len(ALL)


def test_batches_hold_the_same_pairs_with_and_without_sampling() -> None:
    sampling, examples, *_ = made()

    def epoch(resample: PieceSampling | None, start: int = 0) -> list[Batch]:
        sampler = BatchSampler(examples, tokens=None, sentences=3, seed=4, resample=resample)
        sampler.move_to(1, start)
        return [sampler.next_batch() for _ in range(sampler.batches_per_epoch - start)]

    usual, sampled = epoch(None), epoch(sampling)
    assert [batch.lines for batch in usual] == [batch.lines for batch in sampled]
    assert sum(batch.tokens for batch in sampled) > sum(batch.tokens for batch in usual)
    for batch, again in zip(sampled[2:], epoch(sampling, 2), strict=True):
        assert batch.target_out.equal(again.target_out), "taken up in the middle, it goes on as it would have"
        assert batch.tokens == int(batch.target_visible.sum())
