"""Checkpoints of training: which score is better, and going on exactly from what was written."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from nmt_cli.config import EarlyStoppingConfig, Seq2SeqConfig, TrainingConfig, TransformerConfig
from nmt_cli.errors import RunError
from nmt_cli.models.dropout import RandomSource
from nmt_cli.models.interface import Seq2Seq
from nmt_cli.runs.build import build_model
from nmt_cli.text.batching import BatchSampler
from nmt_cli.text.examples import Examples
from nmt_cli.training.adam import FusedAdam
from nmt_cli.training.checkpoint import (
    BETTER_IS_HIGHER,
    STATE_FILE,
    TENSORS_FILE,
    Progress,
    TrainingState,
    read_training_state,
    write_training_state,
)
from nmt_cli.training.loop import batch_loss, build_optimizer

pytestmark = pytest.mark.usefixtures("_one_thread")


@pytest.fixture(name="_one_thread", scope="module")
def _one_thread_fixture() -> Iterator[None]:
    """Tensors are tiny here: a second thread would only wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# -- which score is better (PB-13) -------------------------------------------------------------------------------------

DIRECTIONS = {"loss": "down", "perplexity": "down", "accuracy": "up", "bleu": "up", "chrf": "up"}


@pytest.mark.fault("PB-13")
def test_every_metric_that_can_be_chosen_has_a_direction() -> None:
    assert set(get_args(EarlyStoppingConfig.model_fields["metric"].annotation)) == set(BETTER_IS_HIGHER) == set(DIRECTIONS)


@pytest.mark.parametrize(("metric", "direction"), DIRECTIONS.items())
@pytest.mark.fault("PB-13")
def test_the_best_of_a_list_of_scores(metric: str, direction: str) -> None:
    scores = [4.0, 3.0, 3.5, 2.0, 5.0, 2.5, 5.0]
    progress = Progress(metric)
    best: list[str | None] = []
    for update, score in enumerate(scores):
        progress.enter(f"update-{update}", score, 1)
        best.append(progress.best())
    expected = [0, 1, 1, 3, 3, 3, 3] if direction == "down" else [0, 0, 0, 0, 4, 4, 4]  # an equal score later is no better
    assert best == [f"update-{update}" for update in expected]


@pytest.mark.parametrize(("metric", "direction"), DIRECTIONS.items())
@pytest.mark.fault("PB-13")
def test_the_k_best_are_kept_and_the_best_is_among_them(metric: str, direction: str) -> None:
    scores = [4.0, 3.0, math.nan, 3.5, 2.0, 5.0, math.inf, 2.5]
    progress = Progress(metric)
    entered = [progress.enter(f"update-{update}", score, 3) for update, score in enumerate(scores)]
    kept = [1, 4, 7] if direction == "down" else [0, 3, 5]
    assert sorted(progress.kept) == [f"update-{update}" for update in kept]
    assert progress.best() == ("update-4" if direction == "down" else "update-5")
    assert entered == [True, True, False, True, direction == "down", direction == "up", False, direction == "down"]
    progress.enter("update-8", 100.0 if direction == "up" else 0.0, 1)
    assert sorted(progress.kept) == ["update-8"], "a smaller `keep` holds from the next score on"


@pytest.mark.fault("PB-13")
def test_patience_counts_validations_in_a_row_and_min_delta_belongs_to_it_alone() -> None:
    progress = Progress("bleu")
    counted = []
    for update, score in enumerate([10.0, 10.4, 10.6, math.nan, 12.0]):
        progress.enter(f"update-{update}", score, 1)
        progress.count_patience(score, 0.5)
        counted.append(progress.validations_without_improvement)
    assert counted == [0, 1, 0, 1, 0]
    progress.enter("update-5", 12.1, 1)
    assert progress.best() == "update-5", "the best is the best, however small the difference"


@pytest.mark.parametrize("metric", DIRECTIONS)
@pytest.mark.fault("PB-13")
def test_not_a_number_is_never_better_and_a_number_is_better_than_nothing(metric: str) -> None:
    progress = Progress(metric)
    assert progress.is_better(1.0, None)
    assert not progress.is_better(math.nan, None)
    assert not progress.is_better(math.nan, 1.0)
    assert not progress.is_better(1.0, 1.0)


@pytest.mark.parametrize(
    ("metric", "score", "better"),
    [("loss", 1.75, False), ("loss", 1.5, False), ("loss", 1.25, True), ("bleu", 2.5, False), ("bleu", 2.75, True)],
)
def test_an_improvement_must_be_larger_than_min_delta(metric: str, score: float, better: bool) -> None:
    assert Progress(metric).is_better(score, 2.0, 0.5) is better


# -- going on exactly --------------------------------------------------------------------------------------------------

MODELS: dict[str, Seq2SeqConfig | TransformerConfig] = {
    "seq2seq": Seq2SeqConfig(
        type="seq2seq", embedding_size=6, hidden_size=6, tie_embeddings="output", attention_dropout=0.25, encoder_layers=2
    ),
    "transformer": TransformerConfig(
        type="transformer", width=6, heads=2, feed_forward=8, encoder_layers=1, decoder_layers=1, attention_dropout=0.25
    ),
}


def corpus() -> Examples:
    lengths = np.array([i % 3 + 1 for i in range(14)], dtype=np.int64)
    ids = (np.arange(lengths.sum()) % 5 + 4).astype(np.int32)
    return Examples(ids, lengths.cumsum(), ids[::-1].copy(), lengths.cumsum(), np.arange(14))


def new_state(kind: str, seed: int) -> TrainingState:
    random = RandomSource(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build_model(MODELS[kind], source_size=9, target_size=11, random=random)
    settings = TrainingConfig(max_updates=9, weight_decay=0.01, optimizer="adamw")
    optimizer = build_optimizer(model, settings, torch.device("cpu"))
    sampler = BatchSampler(corpus(), tokens=None, sentences=3, seed=1)  # 5 batches an epoch
    return TrainingState(model, optimizer, sampler, random, Progress("bleu"))


def train(state: TrainingState, updates: int) -> list[float]:
    assert isinstance(state.model, Seq2Seq)
    state.model.train()
    losses = []
    for _ in range(updates):
        batch = state.sampler.next_batch()
        loss = batch_loss(state.model, batch, 0.1)
        state.optimizer.zero_grad()
        (loss.smoothed / batch.tokens).backward()  # type: ignore[no-untyped-call]
        state.optimizer.step()
        state.progress.update += 1
        losses.append(loss.smoothed.item())
    return losses


def optimizer_tensors(state: TrainingState) -> dict[str, torch.Tensor]:
    return {
        f"{name} {kind}": value
        for name, parameter in state.model.named_parameters()
        for kind, value in state.optimizer.state[parameter].items()
    }


def assert_equal_tensors(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("kind", list(MODELS))
@pytest.mark.parametrize("updates", [3, 5, 7])  # inside, at the end of, and after the first epoch
@pytest.mark.fault("PB-12")
def test_a_restored_training_goes_on_bit_for_bit(kind: str, updates: int, tmp_path: Path) -> None:
    first = new_state(kind, seed=3)
    train(first, updates)
    first.progress.score_to_beat, first.progress.kept = 1.5, {"update-00000002": 1.5}
    first.progress.history.append({"update": 2, "bleu": 1.5})
    write_training_state(first, tmp_path)

    again = new_state(kind, seed=8)  # other weights, another dropout generator
    train(again, 2)
    read_training_state(again, tmp_path)
    assert_equal_tensors(dict(again.model.named_parameters()), dict(first.model.named_parameters()))
    assert_equal_tensors(optimizer_tensors(again), optimizer_tensors(first))
    assert (again.sampler.epoch, again.sampler.position) == (first.sampler.epoch, first.sampler.position)
    assert again.random.state() == first.random.state()
    assert again.progress == first.progress

    assert train(again, 6) == train(first, 6)
    assert_equal_tensors(dict(again.model.named_parameters()), dict(first.model.named_parameters()))
    assert_equal_tensors(optimizer_tensors(again), optimizer_tensors(first))


def test_dropout_takes_part_in_the_test_above() -> None:
    first, second = new_state("transformer", seed=3), new_state("transformer", seed=3)
    assert train(first, 2) == train(second, 2)
    second.random.restore(RandomSource(4).state())
    assert train(first, 1) != train(second, 1)


def test_a_checkpoint_before_the_first_update_is_restored(tmp_path: Path) -> None:
    first, again = new_state("seq2seq", seed=3), new_state("seq2seq", seed=8)
    write_training_state(first, tmp_path)
    train(again, 1)
    read_training_state(again, tmp_path)
    assert not any(again.optimizer.state.values())
    assert train(again, 3) == train(first, 3)


def test_settings_of_the_optimizer_are_those_of_the_config(tmp_path: Path) -> None:
    first, again = new_state("seq2seq", seed=3), new_state("seq2seq", seed=8)
    train(first, 1)
    for group in first.optimizer.param_groups:
        group["lr"] = 7.0
    write_training_state(first, tmp_path)
    read_training_state(again, tmp_path)
    assert [group["lr"] for group in again.optimizer.param_groups] == [1e-3, 1e-3]
    assert [group["weight_decay"] for group in again.optimizer.param_groups] == [0.01, 0.0]


@pytest.mark.parametrize("first_is_torchs", [True, False])
@pytest.mark.parametrize("kind", ["adam", "adamw"])
@pytest.mark.fault("PB-12")
def test_training_goes_on_bit_for_bit_with_the_other_optimizer(kind: str, first_is_torchs: bool, tmp_path: Path) -> None:
    states = [new_state("transformer", seed=3) for _ in range(2)]
    for state, torchs in zip(states, (first_is_torchs, not first_is_torchs), strict=True):
        state.optimizer = torchs_optimizer(state, kind) if torchs else own_optimizer(state, kind)
    first, again = states
    train(first, 3)
    write_training_state(first, tmp_path)
    train(again, 1)
    read_training_state(again, tmp_path)
    assert_equal_tensors(optimizer_tensors(again), optimizer_tensors(first))
    assert train(again, 4) == train(first, 4)
    assert_equal_tensors(dict(again.model.named_parameters()), dict(first.model.named_parameters()))
    assert_equal_tensors(optimizer_tensors(again), optimizer_tensors(first))


def own_optimizer(state: TrainingState, kind: str) -> FusedAdam:
    settings = TrainingConfig(max_updates=9, weight_decay=0.01, optimizer="adamw" if kind == "adamw" else "adam")
    optimizer = build_optimizer(state.model, settings, torch.device("cpu"))
    assert isinstance(optimizer, FusedAdam)
    return optimizer


def torchs_optimizer(state: TrainingState, kind: str) -> torch.optim.Optimizer:
    own = own_optimizer(state, kind)
    build = torch.optim.AdamW if kind == "adamw" else torch.optim.Adam
    return build(own.param_groups, betas=own.betas, eps=own.epsilon, fused=True)


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_without_the_kernels_torchs_optimizer_is_built_and_restored(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FusedAdam, "runs_on", lambda device: False)
    states = [new_state("transformer", seed=seed) for seed in (3, 8)]
    settings = TrainingConfig(max_updates=9, weight_decay=0.01, optimizer="adamw" if kind == "adamw" else "adam")
    for state in states:
        state.optimizer = build_optimizer(state.model, settings, torch.device("cpu"))
        assert type(state.optimizer) is {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind]
    first, again = states
    train(first, 3)
    write_training_state(first, tmp_path)
    read_training_state(again, tmp_path)
    assert train(again, 4) == train(first, 4)
    assert_equal_tensors(optimizer_tensors(again), optimizer_tensors(first))


@pytest.mark.parametrize(("change", "message"), [("shape", "expected"), ("name", "nobody")])
def test_optimizer_tensors_that_fit_no_parameter_are_refused(change: str, message: str, tmp_path: Path) -> None:
    state = new_state("seq2seq", seed=3)
    train(state, 1)
    write_training_state(state, tmp_path)
    tensors = load_file(tmp_path / TENSORS_FILE)
    key = next(key for key in tensors if key.endswith("/exp_avg"))
    tensors["nobody/exp_avg" if change == "name" else key] = torch.zeros(2, 1, 1)
    save_file(tensors, tmp_path / TENSORS_FILE)
    with pytest.raises(RunError, match=f"damaged: .*{message}"):
        read_training_state(state, tmp_path)


def test_nothing_but_tensors_and_plain_values_is_written(tmp_path: Path) -> None:
    state = new_state("transformer", seed=3)
    train(state, 1)
    write_training_state(state, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.safetensors", "training.json", "training.safetensors"]
    plain = json.loads((tmp_path / STATE_FILE).read_text(encoding="utf-8"))
    assert plain["sampler"] == {"epoch": 0, "position": 1}
    assert plain["progress"]["update"] == 1
    kinds = {key.rpartition("/")[2] for key in load_file(tmp_path / TENSORS_FILE)}
    assert kinds == {"step", "exp_avg", "exp_avg_sq"}  # Adam's own names


@pytest.mark.parametrize("name", [STATE_FILE, TENSORS_FILE])
@pytest.mark.parametrize("damage", ["cut", "missing", "text", "list"])
def test_a_damaged_training_state_is_refused(name: str, damage: str, tmp_path: Path) -> None:
    state = new_state("seq2seq", seed=3)
    train(state, 1)
    write_training_state(state, tmp_path)
    path = tmp_path / name
    if damage == "cut":
        os.truncate(path, path.stat().st_size // 2)
    elif damage == "missing":
        path.unlink()
    else:
        path.write_text("x" if damage == "text" else "[1]", encoding="utf-8")
    with pytest.raises(RunError, match="the training state of this checkpoint is damaged"):
        read_training_state(state, tmp_path)


@pytest.mark.parametrize("key", ["sampler", "random", "progress"])
def test_a_training_state_that_lacks_a_part_is_refused(key: str, tmp_path: Path) -> None:
    state = new_state("seq2seq", seed=3)
    write_training_state(state, tmp_path)
    plain = json.loads((tmp_path / STATE_FILE).read_text(encoding="utf-8"))
    del plain[key]
    (tmp_path / STATE_FILE).write_text(json.dumps(plain), encoding="utf-8")
    with pytest.raises(RunError, match=f"damaged: .*{key}"):
        read_training_state(state, tmp_path)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    write_training_state(new_state("seq2seq", seed=3), tmp_path)
    with pytest.raises(RunError, match="do not fit the model of this run's config"):
        read_training_state(new_state("transformer", seed=3), tmp_path)
