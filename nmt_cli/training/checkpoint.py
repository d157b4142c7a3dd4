"""Checkpoints: weights and everything else that training needs to go on exactly.

Weights and optimizer state are safetensors, the rest is JSON; nothing is pickled.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from nmt_cli.errors import RunError
from nmt_cli.models.dropout import RandomSource
from nmt_cli.models.interface import Seq2Seq
from nmt_cli.runs.weights import WEIGHTS_FILE, load_weights, weights_of
from nmt_cli.training.adam import FusedAdam, Optimizer
from nmt_cli.training.read_ahead import Sampler

TENSORS_FILE = "training.safetensors"
STATE_FILE = "training.json"

BETTER_IS_HIGHER: Mapping[str, bool] = {
    "loss": False,
    "perplexity": False,
    "accuracy": True,
    "bleu": True,
    "chrf": True,
}
"""The direction of every metric that can choose the best checkpoint. One table, used everywhere."""


@dataclass
class Progress:
    """Where training stands.

    Args:
        metric: Name of the metric that chooses the best checkpoint.
        update: Updates done.
        seconds: Time spent training, over all sittings.
        tokens: Target tokens trained on.
        kept: The best checkpoints so far: folder name -> score.
        score_to_beat: Score that the next validation must beat by `min_delta`, or patience wears.
        validations_without_improvement: In a row.
        bad_updates: Updates skipped for want of finite numbers, in all.
        bad_in_a_row: The same, since the last good one.
        window_loss: Summed loss since the last line of the log.
        window_tokens: Target tokens since the last line of the log.
        history: Every validation: update, epoch and scores.
        log_sizes: Bytes of each appended file when the checkpoint was written; a resume cuts back to them.
    """

    metric: str
    update: int = 0
    seconds: float = 0.0
    tokens: int = 0
    kept: dict[str, float] = field(default_factory=dict)
    score_to_beat: float | None = None
    validations_without_improvement: int = 0
    bad_updates: int = 0
    bad_in_a_row: int = 0
    window_loss: float = 0.0
    window_tokens: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    log_sizes: dict[str, int] = field(default_factory=dict)

    def is_better(self, score: float, than: float | None, min_delta: float = 0.0) -> bool:
        """Return whether `score` beats `than` by more than `min_delta`, in the metric's direction. NaN and infinity do not."""
        if not math.isfinite(score):
            return False
        if than is None:
            return True
        return score > than + min_delta if BETTER_IS_HIGHER[self.metric] else score < than - min_delta

    def best(self) -> str | None:
        """Return the folder name of the best checkpoint, the earliest of equals; None before the first score."""
        best: str | None = None
        for name in sorted(self.kept):
            if best is None or self.is_better(self.kept[name], self.kept[best]):
                best = name
        return best

    def enter(self, name: str, score: float, keep: int) -> bool:
        """Let a checkpoint compete for the `keep` best places; return whether it got one. Those pushed out leave `kept`."""
        if not math.isfinite(score):
            return False
        self.kept[name] = score
        while len(self.kept) > keep:
            worst = None
            for other in sorted(self.kept, reverse=True):  # of equals the latest leaves
                if worst is None or self.is_better(self.kept[worst], self.kept[other]):
                    worst = other
            del self.kept[str(worst)]
        return name in self.kept

    def count_patience(self, score: float, min_delta: float) -> None:
        """Count a validation without improvement, or start counting anew."""
        if self.is_better(score, self.score_to_beat, min_delta):
            self.score_to_beat, self.validations_without_improvement = score, 0
        else:
            self.validations_without_improvement += 1


@dataclass
class TrainingState:
    """All that changes during training and that a checkpoint must hold."""

    model: Seq2Seq
    optimizer: Optimizer
    sampler: Sampler
    random: RandomSource
    progress: Progress


def write_training_state(state: TrainingState, folder: Path) -> None:
    """Write, in this order: weights, optimizer, sampler position, dropout generator, progress."""
    (folder / WEIGHTS_FILE).write_bytes(save(weights_of(state.model)))
    (folder / TENSORS_FILE).write_bytes(save(_optimizer_tensors(state)))
    plain = {
        "sampler": {"epoch": state.sampler.epoch, "position": state.sampler.position},
        "random": state.random.state(),
        "progress": asdict(state.progress),
    }
    (folder / STATE_FILE).write_text(json.dumps(plain), encoding="utf-8")


def read_training_state(state: TrainingState, folder: Path) -> None:
    """Restore what `write_training_state` wrote, in the same order.

    Raises:
        RunError: A file is damaged or belongs to another model.
    """
    load_weights(state.model, folder / WEIGHTS_FILE)
    try:
        tensors = load_file(folder / TENSORS_FILE)
        plain: dict[str, Any] = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
        _restore_optimizer(state, tensors)
        state.sampler.move_to(plain["sampler"]["epoch"], plain["sampler"]["position"])
        state.random.restore(plain["random"])
        state.progress = Progress(**plain["progress"])
    except (SafetensorError, ValueError, KeyError, TypeError, OSError) as error:
        raise RunError(f"{folder}: the training state of this checkpoint is damaged: {error}") from None


def _optimizer_tensors(state: TrainingState) -> dict[str, Tensor]:
    return {
        f"{name}/{kind}": value.detach().cpu().contiguous()
        for name, parameter in state.model.named_parameters()
        for kind, value in state.optimizer.state.get(parameter, {}).items()
    }


def _restore_optimizer(state: TrainingState, tensors: Mapping[str, Tensor]) -> None:
    """Fill the optimizer's state, each tensor on its parameter's device; torch's own optimizers keep `step` on the CPU."""
    parameters = dict(state.model.named_parameters())
    steps_are_apart = not isinstance(state.optimizer, FusedAdam)
    state.optimizer.state.clear()
    for key, value in tensors.items():
        name, _, kind = key.rpartition("/")
        parameter = parameters[name]
        shape = () if kind == "step" else parameter.shape
        if value.shape != shape:  # the kernel trusts it
            raise ValueError(f"{key} has shape {tuple(value.shape)}, expected {tuple(shape)}")
        device = "cpu" if steps_are_apart and kind == "step" else parameter.device
        state.optimizer.state.setdefault(parameter, {})[kind] = value.to(device)
