"""Options of search: what stands for what was not given, and what does not go together."""

from __future__ import annotations

from typing import Any

import pytest

from nmt_cli.cli.options import SearchOptions, sampling_of
from nmt_cli.config import DecodingConfig
from nmt_cli.decoding.engine import Sampling, SearchSettings
from nmt_cli.decoding.translator import TranslatorSettings
from nmt_cli.errors import ConfigError

CONFIG = DecodingConfig.model_validate(
    {
        "beam_size": 3,
        "length_penalty": 0.6,
        "length_penalty_kind": "gnmt",
        "stopping": "exact",
        "max_length": 40,
        "max_source_length": 50,
        "batch_tokens": 600,
    }
)


def test_the_config_stands_for_what_is_not_given() -> None:
    search = SearchSettings(3, 0.6, 40, length_penalty_kind="gnmt", stopping="exact")
    assert SearchOptions().settings(CONFIG) == TranslatorSettings(search, batch_tokens=600, max_source_length=50)


def test_what_is_given_wins() -> None:
    options = SearchOptions(
        beam=7,
        length_penalty=0.0,
        length_penalty_kind="length",
        stopping="beam-full",
        min_length=2,
        max_length=9,
        no_repeat_ngram=3,
        repetition_penalty=1.5,
        max_source_length=11,
        long_lines="error",
        batch_tokens=70,
        batch_sentences=8,
        unknown=True,
    )
    search = SearchSettings(
        beam_size=7,
        length_penalty=0.0,
        max_length=9,
        unknown=True,
        length_penalty_kind="length",
        stopping="beam-full",
        min_length=2,
        no_repeat_ngram=3,
        repetition_penalty=1.5,
    )
    assert options.settings(CONFIG) == TranslatorSettings(search, 70, 8, 11, "error")


def test_samples_are_as_many_as_the_best_few() -> None:
    sampling = Sampling(seed=4)
    for n_best in (1, 6):
        search = SearchOptions(sampling=sampling, n_best=n_best).settings(CONFIG).search
        assert (search.beam_size, search.sampling) == (n_best, sampling)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_best": 4}, "--n-best 4 needs a beam of that size or more, but it is 3; add --beam"),
        ({"n_best": 4, "beam": 2}, "but it is 2"),
        ({"n_best": 2, "long_lines": "split"}, "--n-best does not go with --long-lines split"),
        ({"n_best": 2, "long_lines": "split", "sampling": Sampling()}, "--n-best does not go with --long-lines split"),
        ({"beam": 1, "sampling": Sampling()}, "--beam searches and --sample draws"),
        ({"min_length": 40}, "--min-length 40 leaves no room below --max-length 40"),
        ({"min_length": 5, "max_length": 5}, "--min-length 5 leaves no room below --max-length 5"),
        ({"min_length": 6, "max_length": 5}, "--min-length 6 leaves no room below --max-length 5"),
    ],
)
def test_what_does_not_go_together(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SearchOptions(**given).settings(CONFIG)


@pytest.mark.parametrize(
    "given",
    [
        {"n_best": 3},
        {"n_best": 4, "beam": 4},
        {"n_best": 2, "long_lines": "cut"},
        {"long_lines": "split"},
        {"long_lines": "split", "sampling": Sampling()},
        {"min_length": 4, "max_length": 5},
        {"min_length": 39},
    ],
)
def test_what_goes_together(given: dict[str, Any]) -> None:
    SearchOptions(**given).settings(CONFIG)


def test_any_shortest_length_goes_without_a_longest() -> None:
    settings = SearchOptions(min_length=500).settings(DecodingConfig())
    assert (settings.search.min_length, settings.search.max_length) == (500, None)


NOTHING: dict[str, Any] = {"temperature": None, "top_k": None, "top_p": None, "seed": None}


def test_how_to_draw() -> None:
    assert sampling_of(False, **NOTHING) is None
    assert sampling_of(True, **NOTHING) == Sampling(temperature=1.0, top_k=0, top_p=1.0, seed=1)
    assert sampling_of(True, temperature=0.5, top_k=4, top_p=0.9, seed=0) == Sampling(0.5, 4, 0.9, 0)
    assert sampling_of(True, **{**NOTHING, "seed": 9}) == Sampling(seed=9)


@pytest.mark.parametrize(("name", "value"), [("temperature", 1.0), ("top_k", 3), ("top_p", 0.0), ("seed", 0)])
def test_how_to_draw_is_said_only_where_something_is_drawn(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"--{name.replace('_', '-')} says how to draw .* add --sample"):
        sampling_of(False, **{**NOTHING, name: value})
