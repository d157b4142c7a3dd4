"""What every search does at a step: steps of models and ensembles, constraints, the best few of many, drawing at random."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt_cli.decoding.beam import search
from nmt_cli.decoding.engine import Sampling, SearchSettings
from nmt_cli.decoding.search import BLOCK, Constraints, Draws, Steps, best_continuations
from nmt_cli.models.interface import Seq2Seq
from nmt_cli.text.vocab import BOS, EOS, PAD, UNK
from tests.unit.table_model import VOCABULARY, TableDecoder, TableEncoder, encoded, run_search, table

CPU = torch.device("cpu")


def normal(*shape: int, seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def table_model() -> Seq2Seq:
    return Seq2Seq(TableEncoder(), TableDecoder())


# -- steps -------------------------------------------------------------------------------------------------------------


def test_tokens_that_no_translation_contains_have_no_probability() -> None:
    steps = Steps([table_model()], [encoded([4, 6])])
    found = steps.log_probabilities(steps.advance(torch.tensor([BOS, BOS])), slice(None))
    Constraints(SearchSettings(), [(), ()], CPU).apply(found, 1, torch.empty(2, 0), [0, 1])
    assert found.shape == (2, VOCABULARY)
    assert torch.isneginf(found[:, [PAD, UNK, BOS]]).all()
    torch.testing.assert_close(found[:, EOS:], torch.tensor([table(4, ())[EOS:], table(6, ())[EOS:]]))


def test_an_ensemble_averages_probabilities() -> None:
    models = [table_model()] * 3
    steps = Steps(models, [encoded([4, 6]), encoded([1, 2]), encoded([9, 8])])
    found = steps.log_probabilities(steps.advance(torch.tensor([BOS, BOS])), slice(None))
    expected = [np.exp([table(n, ()) for n in numbers]).mean(axis=0) for numbers in ((4, 1, 9), (6, 2, 8))]
    np.testing.assert_allclose(found.exp(), np.stack(expected), rtol=1e-5)


def test_an_ensemble_of_one_model_with_itself_is_that_model() -> None:
    settings, limits = SearchSettings(3), [7, 9, 5]
    alone = run_search([1, 2, 3], limits, settings)
    twice = search([table_model()] * 2, [encoded([1, 2, 3])] * 2, limits, settings)
    for one, other in zip(alone, twice, strict=True):
        assert [h.tokens for h in one] == [h.tokens for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-5)


def test_an_ensemble_searches_over_the_mean() -> None:
    """Greedy search of two tables equals a plain loop over their mean."""
    [[found]] = search([table_model()] * 2, [encoded([5]), encoded([7])], [6], SearchSettings(1))
    tokens: list[int] = []
    total = 0.0
    while len(tokens) < 6:
        mean = np.log((np.exp(table(5, tuple(tokens))) + np.exp(table(7, tuple(tokens)))) / 2)
        word = max(range(EOS, VOCABULARY), key=lambda token: mean[token])
        total += mean[word]
        if word == EOS:
            break
        tokens.append(word)
    assert found.tokens == tuple(tokens)
    assert found.log_probability == pytest.approx(total, abs=1e-5)


def test_repetition_penalty_by_hand() -> None:
    """Logits of tokens that are there already: divided where positive, multiplied where negative (Keskar et al. 2019)."""
    steps = Steps([table_model()], [encoded([4])])
    plain = torch.tensor([table(4, ())])
    found = steps.log_probabilities(steps.advance(torch.tensor([BOS])), slice(None), (torch.tensor([[5, 7, 5]]), 1.5))
    expected = plain.clone()
    for token in (5, 7):
        expected[0, token] *= 1.5 if expected[0, token] < 0 else 1 / 1.5
    torch.testing.assert_close(found, expected.log_softmax(dim=1))


def test_repetition_penalty_leads_to_other_words() -> None:
    often = [h[0].tokens for h in run_search(range(1, 13), [12] * 12, SearchSettings(2, min_length=12))]
    rarely = [
        h[0].tokens for h in run_search(range(1, 13), [12] * 12, SearchSettings(2, min_length=12, repetition_penalty=3.0))
    ]
    assert sum(len(set(tokens)) for tokens in rarely) > sum(len(set(tokens)) for tokens in often)


# -- constraints -------------------------------------------------------------------------------------------------------


def allowed(settings: SearchSettings, tokens: list[list[int]], prefixes: list[tuple[int, ...]] | None = None) -> list[set[int]]:
    """Return which of ten tokens may follow each row of tokens, one row a sentence."""
    logits = torch.zeros(len(tokens), 10)
    constraints = Constraints(settings, prefixes or [()] * len(tokens), CPU)
    constraints.apply(logits, len(tokens[0]) + 1, torch.tensor(tokens).view(len(tokens), -1), range(len(tokens)))
    assert set(logits.flatten().tolist()) <= {0.0, -math.inf}
    return [set(row.isfinite().nonzero()[:, 0].tolist()) for row in logits]


ALL = set(range(EOS, 10))


def test_what_may_follow() -> None:
    assert allowed(SearchSettings(), [[4, 5]]) == [ALL]
    assert allowed(SearchSettings(unknown=True), [[4, 5]]) == [ALL | {UNK}]
    assert allowed(SearchSettings(min_length=3), [[4, 5], [6, 6]]) == [ALL - {EOS}] * 2
    assert allowed(SearchSettings(min_length=2), [[4, 5]]) == [ALL]


def test_no_repeated_ngrams() -> None:
    tokens = [[4, 5, 6, 4, 5], [5, 5, 5, 5, 5], [4, 5, 6, 7, 8]]
    assert allowed(SearchSettings(no_repeat_ngram=1), tokens) == [ALL - {4, 5, 6}, ALL - {5}, {EOS, 9}]
    assert allowed(SearchSettings(no_repeat_ngram=2), tokens) == [ALL - {6}, ALL - {5}, ALL]
    assert allowed(SearchSettings(no_repeat_ngram=3), tokens) == [ALL - {6}, ALL - {5}, ALL]
    assert allowed(SearchSettings(no_repeat_ngram=4), tokens) == [ALL, ALL - {5}, ALL]
    assert allowed(SearchSettings(no_repeat_ngram=9), tokens) == [ALL] * 3


def test_a_prefix_is_forced_token_by_token() -> None:
    prefixes: list[tuple[int, ...]] = [(7, 8, UNK), (), (5,)]
    assert allowed(SearchSettings(min_length=1), [[], [], []], prefixes) == [{7}, ALL - {EOS}, {5}]
    assert allowed(SearchSettings(), [[7, 8], [4, 4], [5, 4]], prefixes) == [{UNK}, ALL, ALL]
    assert allowed(SearchSettings(), [[7, 8, 1], [4, 4, 4], [5, 4, 4]], prefixes) == [ALL] * 3


# -- the best continuations --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [3, 40, 2 * BLOCK, 13 * BLOCK, 13 * BLOCK + 1, 40 * BLOCK - 1])
@pytest.mark.parametrize("count", [1, 2, 6, 13])
@pytest.mark.parametrize("rows", [1, 3])
def test_the_best_continuations_are_those_of_a_sort(size: int, count: int, rows: int) -> None:
    scores, totals = normal(5 * rows, size, seed=size + count), normal(5, rows, seed=rows)
    scores[2] = -torch.inf
    scores[rows, 1:] = -torch.inf
    totals[4, rows - 1] = -torch.inf
    sums, beams, words = best_continuations(scores, totals, count)
    count = min(count, rows * size)
    assert sums.shape == beams.shape == words.shape == (5, count)
    expected, where = (scores + totals.view(-1, 1)).view(5, -1).sort(dim=1, descending=True)
    torch.testing.assert_close(sums, expected[:, :count])
    finite = sums.isfinite()
    assert torch.equal((beams * size + words)[finite], where[:, :count][finite])  # no two sums tie
    assert (beams < rows).all()
    assert (words < size).all()


# -- drawing -----------------------------------------------------------------------------------------------------------

PROBABILITIES = [0.4, 0.25, 0.2, 0.1, 0.05]


def drawn(sampling: Sampling, *, times: int = 4000) -> dict[int, float]:
    """Return how often each of five tokens is drawn."""
    logits = torch.tensor(PROBABILITIES).log().repeat(times, 1) + 3.0
    tokens = Draws(sampling, range(times), 1, 1).draw(logits, 1, range(times))
    return {token: count / times for token, count in Counter(tokens.tolist()).items()}


def shares(probabilities: list[float]) -> dict[int, float]:
    return {token: value / sum(probabilities) for token, value in enumerate(probabilities) if value}


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), PROBABILITIES),
        (Sampling(top_k=2), [0.4, 0.25, 0, 0, 0]),
        (Sampling(top_k=9), PROBABILITIES),
        (Sampling(top_p=0.6), [0.4, 0.25, 0, 0, 0]),  # the fewest that have 0.6 together
        (Sampling(top_p=0.66), [0.4, 0.25, 0.2, 0, 0]),
        (Sampling(top_p=0.01), [1.0, 0, 0, 0, 0]),
        (Sampling(temperature=0.5), [p**2 for p in PROBABILITIES]),
        (Sampling(temperature=2.0, top_k=3), [p**0.5 for p in PROBABILITIES[:3]]),
    ],
)
def test_tokens_are_drawn_as_often_as_their_probability_says(sampling: Sampling, expected: list[float]) -> None:
    found = drawn(sampling)
    assert set(found) == set(shares(expected))
    for token, share in shares(expected).items():
        assert found[token] == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 4000) + 1e-9)  # four deviations


def test_the_last_token_that_may_come_is_the_last_that_is_drawn() -> None:
    draws = Draws(Sampling(), [0], 1, 1)
    draws._numbers[:] = 1.0  # rounding may come as near as this
    assert draws.draw(torch.tensor([[0.0, 1.0, -math.inf, 2.0, -math.inf]]), 1, [0]).tolist() == [3]


def test_samples_depend_on_seed_line_and_number_only() -> None:
    sentences, limits = [1, 2, 3, 4, 5], [9, 4, 7, 6, 8]
    settings = SearchSettings(3, sampling=Sampling(seed=7))
    together = run_search(sentences, limits, settings, lines=[11, 12, 13, 14, 15])
    for i in range(5):
        assert run_search([sentences[i]], [limits[i]], settings, lines=[11 + i]) == [together[i]]
    turned = run_search(sentences[::-1], limits[::-1], settings, lines=[15, 14, 13, 12, 11])
    assert turned == together[::-1]
    assert run_search(sentences, limits, settings, lines=[1, 2, 3, 4, 5]) != together
    other = SearchSettings(3, sampling=Sampling(seed=8))
    assert run_search(sentences, limits, other, lines=[11, 12, 13, 14, 15]) != together
    assert all(len(hypotheses) == 3 for hypotheses in together)
    assert any(len({h.tokens for h in hypotheses}) > 1 for hypotheses in together)


def test_sampling_draws_whole_translations_as_often_as_the_model_says() -> None:
    """Translations of one token or none: their shares are products of the table's probabilities, specials left out."""
    lines = range(3000)
    found = run_search([4] * 3000, [9] * 3000, SearchSettings(1, sampling=Sampling()), lines=lines)
    first = np.exp(table(4, ()))
    first[[PAD, UNK, BOS]] = 0
    counts = Counter(hypotheses[0].tokens for hypotheses in found)
    empty = first[EOS] / first.sum()
    assert counts[()] / 3000 == pytest.approx(empty, abs=4 * math.sqrt(empty / 3000))
    for word in range(EOS + 1, VOCABULARY):
        after = np.exp(table(4, (word,)))
        after[[PAD, UNK, BOS]] = 0
        share = first[word] / first.sum() * after[EOS] / after.sum()
        assert counts[word,] / 3000 == pytest.approx(share, abs=4 * math.sqrt(share / 3000))


def test_a_low_temperature_is_greedy_search() -> None:
    cold = run_search(range(1, 8), [9] * 7, SearchSettings(1, sampling=Sampling(temperature=1e-4)))
    assert [h[0].tokens for h in cold] == [h[0].tokens for h in run_search(range(1, 8), [9] * 7, SearchSettings(1))]
