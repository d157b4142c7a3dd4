"""The training loop where reading from the device is put off, as on a GPU: the same training, read late."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nmt_cli.config import Seq2SeqConfig, TrainingConfig, TransformerConfig
from nmt_cli.errors import DivergedError, Interrupted
from nmt_cli.models.dropout import RandomSource
from nmt_cli.models.interface import Seq2Seq
from nmt_cli.runs.build import build_model
from nmt_cli.runs.folder import RunFolder
from nmt_cli.text.batching import BatchSampler, make_batch
from nmt_cli.text.examples import Examples
from nmt_cli.training import loop
from nmt_cli.training.checkpoint import Progress, TrainingState, read_training_state
from nmt_cli.training.loop import Trainer, TrainingHooks, UpdateReport, batch_loss, build_optimizer
from nmt_cli.training.loss import TokenLoss
from nmt_cli.training.read_ahead import ReadAhead

CPU = torch.device("cpu")
MODELS: dict[str, Seq2SeqConfig | TransformerConfig] = {
    "seq2seq": Seq2SeqConfig(type="seq2seq", embedding_size=6, hidden_size=6, tie_embeddings="output"),
    "transformer": TransformerConfig(type="transformer", width=6, heads=2, feed_forward=8, encoder_layers=1, decoder_layers=1),
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tensors are tiny here: a second thread would only wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def corpus() -> Examples:
    lengths = np.array([i % 3 + 1 for i in range(14)], dtype=np.int64)
    ids = (np.arange(lengths.sum()) % 5 + 4).astype(np.int32)
    return Examples(ids, lengths.cumsum(), ids[::-1].copy(), lengths.cumsum(), np.arange(14))


class Run:
    """A trainer with what it reports; `late` puts reading off, as on a GPU."""

    def __init__(self, folder: Path, *, late: bool, kind: str = "transformer", signal_at: int = -1, **settings: Any) -> None:
        random = RandomSource(3)
        model = build_model(MODELS[kind], source_size=9, target_size=11, random=random, seed=4)
        config = TrainingConfig(**{"max_updates": 10, "log_every": 4, "save_every": 5, "warmup_updates": 2, **settings})
        sampler = BatchSampler(corpus(), tokens=None, sentences=3, seed=1)  # 5 batches an epoch
        optimizer = build_optimizer(model, config, CPU)
        self.state = TrainingState(model, optimizer, sampler, random, Progress("loss"))
        self.reports: list[UpdateReport] = []
        self.folder = RunFolder(folder)
        hooks = TrainingHooks(
            validate=None,
            on_step=lambda share, left: None,
            on_update=self.reports.append,
            on_validation=lambda report: None,
            stop_signal=lambda: 15 if self.state.progress.update == signal_at else None,
        )
        self.trainer = Trainer(self.state, config, self.folder, device=CPU, precision=torch.float32, hooks=hooks)
        if late:
            self.trainer._reading_is_free = False
            self.state.sampler = ReadAhead(self.state.sampler)

    def figures(self) -> list[str]:
        """Return what was reported but for times, as text, in which NaN equals NaN."""
        return [f"{r.update} {r.epoch} {r.loss} {r.learning_rate} {r.gradient_norm} {r.bad_updates}" for r in self.reports]

    def counts(self) -> dict[str, Any]:
        progress = self.state.progress
        names = ("update", "tokens", "bad_updates", "bad_in_a_row", "window_loss", "window_tokens")
        return {name: getattr(progress, name) for name in names}


def break_losses(monkeypatch: pytest.MonkeyPatch, bad: set[int], run: Run) -> None:
    """Let the loss of the updates `bad` (from 1) be NaN."""

    def broken(*arguments: Any, **options: Any) -> TokenLoss:
        loss = batch_loss(*arguments, **options)
        factor = math.nan if run.state.progress.update + 1 in bad else 1.0
        return TokenLoss(loss.smoothed * factor, loss.plain * factor, loss.correct)

    monkeypatch.setattr(loop, "batch_loss", broken)


@pytest.mark.parametrize("kind", list(MODELS))
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("bad", [set(), {1}, {3, 4, 5}])
def test_reading_late_changes_nothing(
    kind: str, accumulate: int, bad: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [Run(tmp_path / str(late), late=late, kind=kind, accumulate=accumulate) for late in (False, True)]
    for run in runs:
        break_losses(monkeypatch, bad, run)
        assert run.trainer.fit() == "max_updates: 10 reached"
    first, late = runs
    assert [report.update for report in first.reports] == [4, 8]
    assert late.figures() == first.figures()
    assert late.counts() == first.counts()
    assert first.counts()["bad_updates"] == len(bad)
    for found, expected in zip(late.state.model.parameters(), first.state.model.parameters(), strict=True):
        assert torch.equal(found, expected)


def test_what_is_reported_is_the_mean_over_the_updates_since_the_last_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, late=True)
    losses: list[tuple[float, int]] = []

    def noted(model: Seq2Seq, batch: Any, *arguments: Any, **options: Any) -> TokenLoss:
        loss = batch_loss(model, batch, *arguments, **options)
        losses.append((loss.plain.item(), batch.tokens))
        return loss

    monkeypatch.setattr(loop, "batch_loss", noted)
    run.trainer.fit()
    for report, window in zip(run.reports, (losses[:4], losses[4:8]), strict=True):
        assert report.loss == pytest.approx(sum(loss for loss, _ in window) / sum(tokens for _, tokens in window))
    assert run.state.progress.tokens == sum(tokens for _, tokens in losses)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("ends", ["signal", "save"])
def test_a_checkpoint_holds_what_was_trained_on(late: bool, ends: str, tmp_path: Path) -> None:
    run = Run(tmp_path, late=late, signal_at=7 if ends == "signal" else -1)
    with pytest.raises(Interrupted) if ends == "signal" else contextlib.nullcontext():
        run.trainer.fit()
    update = 7 if ends == "signal" else 10
    saved = json.loads((run.folder.checkpoint_path("last") / "training.json").read_text(encoding="utf-8"))
    assert saved["sampler"] == {"epoch": (update - 1) // 5, "position": (update - 1) % 5 + 1}
    assert saved["progress"]["update"] == update
    assert saved["progress"]["tokens"] == run.state.progress.tokens > 0
    assert saved["progress"]["window_tokens"] > 0, "updates 9 and 10, or 5 to 7, are not reported yet"
    again = Run(tmp_path / "again", late=late, max_updates=12)
    read_training_state(again.state, run.folder.checkpoint_path("last"))
    whole = Run(tmp_path / "whole", late=not late, max_updates=12)
    for each in (again, whole):
        each.trainer.fit()
    assert again.figures() == whole.figures()[-len(again.reports) :]
    assert again.counts() == whole.counts()
    for found, expected in zip(again.state.model.parameters(), whole.state.model.parameters(), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize(("late", "stopped_at"), [(False, 5), (True, 8)])
@pytest.mark.fault("PB-16")
def test_divergence_stops_at_once_or_where_it_is_read(
    late: bool, stopped_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, late=late, max_bad_updates=3, save_every=50)
    break_losses(monkeypatch, {3, 4, 5}, run)
    with pytest.raises(DivergedError, match=r"3 updates in a row, up to update 5, had a loss \(nan\)"):
        run.trainer.fit()
    assert run.state.progress.update == stopped_at
    assert not run.folder.checkpoint_folders()


@pytest.mark.fault("PB-16")
def test_divergence_is_read_before_anything_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, late=True, max_bad_updates=3, log_every=50)
    break_losses(monkeypatch, {3, 4, 5}, run)
    with pytest.raises(DivergedError):
        run.trainer.fit()
    assert run.state.progress.update == 5
    assert not run.folder.checkpoint_folders()


# -- nothing waits for the device --------------------------------------------------------------------------------------


class Waiting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes operations whose result the host must know before it can go on."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        """Note and go on."""
        name = function.overloadpacket.__name__
        by_mask = name == "index" and any(part is not None and part.dtype == torch.bool for part in arguments[1])
        if by_mask or name in {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique"}:
            self.found.append(name)
        return function(*arguments, **(options or {}))


def test_what_makes_a_device_wait_is_noticed() -> None:
    numbers = torch.arange(4)
    with Waiting() as waiting:
        float(numbers[0]), bool(numbers[1] > 0), numbers[numbers > 1], numbers.nonzero()
    assert waiting.found == ["_local_scalar_dense", "_local_scalar_dense", "index", "nonzero"]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_an_update_waits_for_nothing(accumulate: int, tmp_path: Path) -> None:
    run = Run(tmp_path, late=True, accumulate=accumulate)
    run.trainer.update(run.trainer.next_group())
    with Waiting() as waiting:
        run.trainer.update(run.trainer.next_group())
    assert waiting.found == []
    assert run.counts()["tokens"] == 0, "not read yet"
    run.trainer.read_outcomes()
    assert run.counts()["tokens"] > 0


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_loss_and_gradients_ask_for_no_value(precision: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors on `meta` have shapes only: whoever asked for a value would be refused."""
    for module in (torch, loop):
        monkeypatch.setattr(module, "autocast", lambda *arguments, **options: contextlib.nullcontext())
    ids = [np.array([4, 5], dtype=np.int32), np.array([6], dtype=np.int32)]
    model = build_model(
        TransformerConfig(
            type="transformer", width=6, heads=2, feed_forward=8, encoder_layers=1, decoder_layers=1, dropout=0.0
        ),
        source_size=9,
        target_size=11,
        random=RandomSource(1),
    ).to("meta")
    loss = batch_loss(model, make_batch(ids, ids, [1, 2]).to(torch.device("meta")), 0.1, precision=precision)
    loss.smoothed.backward()  # type: ignore[no-untyped-call]
    gradients: list[Tensor | None] = [parameter.grad for parameter in model.parameters()]
    assert all(gradient is not None and gradient.is_meta for gradient in gradients)
