"""Each learning-rate schedule against its formula (training/schedules.py)."""

from __future__ import annotations

import math

import pytest

from nmt_cli.training.schedules import build_schedule

UPDATES = [1, 2, 3, 5, 8, 9, 10, 11, 40, 1000]


@pytest.mark.parametrize("warmup", [0, 1, 10])
def test_constant(warmup: int) -> None:
    """u / w up to w, then 1."""
    factor = build_schedule("constant", warmup=warmup, final=0.0)
    for update in UPDATES:
        assert factor(update, 0.5) == pytest.approx(update / warmup if update < warmup else 1.0)


@pytest.mark.parametrize("warmup", [0, 1, 10])
def test_inverse_sqrt(warmup: int) -> None:
    """u / w up to w, then √(w / u); no warm-up is a warm-up of one update."""
    factor, reach = build_schedule("inverse_sqrt", warmup=warmup, final=0.0), max(1, warmup)
    for update in UPDATES:
        assert factor(update, 0.5) == pytest.approx(update / reach if update < reach else math.sqrt(reach / update))


@pytest.mark.parametrize("warmup", [1, 10])
def test_noam_is_the_papers_curve_over_its_peak(warmup: int) -> None:
    """Vaswani et al. 2017, equation 3, for width 512."""

    def paper(update: int) -> float:
        return float(512**-0.5 * min(update**-0.5, update * warmup**-1.5))

    factor = build_schedule("noam", warmup=warmup, final=0.0)
    for update in UPDATES:
        assert factor(update, 0.5) == pytest.approx(paper(update) / paper(warmup))


@pytest.mark.parametrize("final", [0.0, 0.2])
def test_cosine_without_warmup(final: float) -> None:
    """Loshchilov and Hutter 2017, equation 5: final + (1 - final) (1 + cos π p) / 2."""
    factor = build_schedule("cosine", warmup=0, final=final)
    for progress in (0.0, 0.1, 0.25, 0.5, 0.9, 1.0):
        assert factor(7, progress) == pytest.approx(final + (1 - final) * (1 + math.cos(math.pi * progress)) / 2)
    assert factor(7, 0.0) == pytest.approx(1.0)
    assert factor(7, 0.5) == pytest.approx((1 + final) / 2)
    assert factor(7, 1.0) == pytest.approx(final)


@pytest.mark.parametrize("final", [0.0, 0.2])
def test_linear_without_warmup(final: float) -> None:
    """(1 - p) + final p."""
    factor = build_schedule("linear", warmup=0, final=final)
    for progress in (0.0, 0.1, 0.25, 0.5, 0.9, 1.0):
        assert factor(7, progress) == pytest.approx((1 - progress) + final * progress)


@pytest.mark.parametrize("name", ["cosine", "linear"])
def test_falling_schedules_do_not_go_below_their_end(name: str) -> None:
    """An epoch limit can be passed by part of an update."""
    factor = build_schedule(name, warmup=0, final=0.1)
    assert factor(7, 1.3) == pytest.approx(0.1)
    curve = [factor(7, progress / 20) for progress in range(21)]
    assert curve == sorted(curve, reverse=True)


@pytest.mark.parametrize("name", ["constant", "inverse_sqrt", "noam", "cosine", "linear"])
def test_warmup_rises_in_a_straight_line(name: str) -> None:
    """Where the warm-up is a vanishing part of the training."""
    factor = build_schedule(name, warmup=10, final=0.0)
    for update in range(1, 11):
        assert factor(update, update * 1e-9) == pytest.approx(update / 10)


@pytest.mark.parametrize("name", ["constant", "inverse_sqrt", "noam", "cosine", "linear"])
@pytest.mark.parametrize("total", [20, 100])
def test_the_peak_is_the_learning_rate_itself_at_the_end_of_the_warmup(name: str, total: int) -> None:
    """docs/guide.md: `learning_rate` is the peak, for every schedule; the fall begins after the warm-up."""
    factor = build_schedule(name, warmup=10, final=0.0)
    curve = [factor(update, update / total) for update in range(1, total + 1)]
    assert max(curve) == pytest.approx(1.0)
    assert curve.index(max(curve)) == 9
