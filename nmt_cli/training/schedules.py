"""Learning-rate schedules: pure functions from the update's number (from 1) to a factor of the peak rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

Schedule = Callable[[int], float]


def constant(*, warmup: int) -> Schedule:
    """Linear warm-up to 1 over `warmup` updates, then 1."""
    return lambda update: min(1.0, update / warmup) if warmup else 1.0


def inverse_sqrt(*, warmup: int) -> Schedule:
    """Linear warm-up to 1, then √(warmup / update); without warm-up √(1 / update)."""
    return lambda update: min(update / max(1, warmup), math.sqrt(max(1, warmup) / update))


def noam(*, warmup: int) -> Schedule:
    """The paper's min(update^-0.5, update x warmup^-1.5), scaled so that its peak, at `warmup`, is 1.

    Reference: Vaswani et al. 2017, equation 3; the constant D^-0.5 is taken into `learning_rate`.
    """
    return lambda update: math.sqrt(warmup) * min(update**-0.5, update * warmup**-1.5)


def after_warmup(update: int, progress: float, warmup: int) -> float:
    """Return which share of the way from the end of warm-up to the end of training is done, 0 to 1.

    Args:
        update: The update's number, beyond `warmup`.
        progress: Share of the whole training that is done; so far it grew evenly with updates.
        warmup: Updates of warm-up.
    """
    start = warmup * progress / update
    return min(1.0, (progress - start) / (1 - start)) if start < 1 else 1.0


def cosine(*, warmup: int, final: float) -> Callable[[int, float], float]:
    """Linear warm-up to 1, then half a cosine wave down to `final` when the second argument, progress, reaches 1.

    Reference: Loshchilov, Hutter 2017, equation 5, without restarts.
    """

    def factor(update: int, progress: float) -> float:
        if update <= warmup:
            return update / warmup
        return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * after_warmup(update, progress, warmup)))

    return factor


def linear(*, warmup: int, final: float) -> Callable[[int, float], float]:
    """Linear warm-up to 1, then a straight line down to `final` when the second argument, progress, reaches 1."""

    def factor(update: int, progress: float) -> float:
        if update <= warmup:
            return update / warmup
        return 1 - (1 - final) * after_warmup(update, progress, warmup)

    return factor


def build_schedule(name: str, *, warmup: int, final: float) -> Callable[[int, float], float]:
    """Return the named schedule as a function of update and progress (0 to 1 of the training limit)."""
    by_update: Mapping[str, Callable[..., Schedule]] = {
        "constant": constant,
        "inverse_sqrt": inverse_sqrt,
        "noam": noam,
    }
    if name in by_update:
        schedule = by_update[name](warmup=warmup)
        return lambda update, progress: schedule(update)
    return {"cosine": cosine, "linear": linear}[name](warmup=warmup, final=final)
