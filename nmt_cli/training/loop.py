"""The training loop, to be read from top to bottom in `Trainer.fit`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nmt_cli.config import TrainingConfig
from nmt_cli.devices import autocast
from nmt_cli.errors import DivergedError, Interrupted
from nmt_cli.models.interface import Seq2Seq
from nmt_cli.runs.folder import RunFolder
from nmt_cli.text.batching import Batch
from nmt_cli.training.adam import FusedAdam, Optimizer
from nmt_cli.training.checkpoint import TrainingState, write_training_state
from nmt_cli.training.loss import TokenLoss, token_loss
from nmt_cli.training.read_ahead import ReadAhead
from nmt_cli.training.schedules import build_schedule
from nmt_cli.training.step import optimizer_step


@dataclass(frozen=True)
class UpdateReport:
    """What one line of the log says; means and rates are over the updates since the line before.

    Args:
        update: Updates done.
        epoch: Epoch, from 1.
        loss: Cross-entropy in nats per target token, without label smoothing.
        learning_rate: Of the last update.
        gradient_norm: Of the mean gradient per target token before clipping, in the last update.
        tokens_per_second: Real target tokens a second.
        seconds: Training time so far.
        remaining_seconds: Estimated time to the nearest limit.
        fraction: Share of the nearest limit that is done.
        bad_updates: Updates skipped so far because loss or gradient was not finite.
    """

    update: int
    epoch: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float
    seconds: float
    remaining_seconds: float
    fraction: float
    bad_updates: int


@dataclass(frozen=True)
class ValidationReport:
    """Scores of the model after an update, whether they are the best so far, and which metric decides."""

    update: int
    epoch: int
    scores: dict[str, float]
    metric: str
    is_best: bool
    seconds: float


@dataclass(frozen=True)
class TrainingHooks:
    """What the loop is handed: how to validate, and whom to tell.

    Args:
        validate: Model -> scores by metric name, or None where there is no validation set.
        on_step: Called after every update with the share that is done and the remaining seconds.
        on_update: Called every `log_every` updates.
        on_validation: Called after each validation.
        stop_signal: Returns the number of a signal that asks for a stop, or None.
    """

    validate: Callable[[Seq2Seq], dict[str, float]] | None
    on_step: Callable[[float, float], None]
    on_update: Callable[[UpdateReport], None]
    on_validation: Callable[[ValidationReport], None]
    stop_signal: Callable[[], int | None]


@dataclass(frozen=True)
class Outcome:
    """What came of an update, still on the device: `figures` `(2,)` float32, the summed loss and the mean gradient's norm."""

    update: int
    tokens: int
    figures: Tensor


class Trainer:
    """Trains a model to its limits, saving and validating on the way.

    No update waits for a GPU (but an LSTM encoder does, for its lengths). What came of the updates is read when it is to be
    logged, before a validation and before a checkpoint; on a CPU, where reading costs nothing, after each update.

    Args:
        state: Model, optimizer, sampler, generators and progress; a restored one goes on where it stopped. For a GPU its
            sampler is made to read ahead.
        config: The training section.
        folder: Where checkpoints go.
        device: Where the model is.
        precision: float32, or bfloat16 for autocast.
        hooks: Validation and reporting.
        logs: Files appended to during training; their sizes are noted in each checkpoint.
    """

    def __init__(
        self,
        state: TrainingState,
        config: TrainingConfig,
        folder: RunFolder,
        *,
        device: torch.device,
        precision: torch.dtype,
        hooks: TrainingHooks,
        logs: Sequence[Path] = (),
    ) -> None:
        self.state, self.config, self.folder = state, config, folder
        self.device, self.precision, self.hooks, self.logs = device, precision, hooks, logs
        self.model = state.model
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.schedule = build_schedule(config.schedule, warmup=config.warmup_updates, final=config.final_factor)
        self._seconds_before = state.progress.seconds
        self._started = time.monotonic()
        self._window_started, self._tokens_reported = time.monotonic(), state.progress.tokens
        self._last_norm = 0.0
        self._unread: list[Outcome] = []
        self._reading_is_free = device.type == "cpu"
        if device.type == "cuda":
            state.sampler = ReadAhead(state.sampler)
        self._saved_update = state.progress.update if state.progress.update else -1

    def fit(self) -> str:
        """Train until a limit is reached; return which.

        Raises:
            DivergedError: Too many updates in a row had no finite loss or gradient.
            Interrupted: A signal came; everything was saved first.
        """
        progress, config = self.state.progress, self.config
        self.model.train()
        over = self.limit_reached() is not None
        while not over:
            self.update(self.next_group())
            over = self.limit_reached() is not None
            if progress.update % config.log_every == 0:
                self.report_update()
            validation_is_due = progress.update % config.validate_every == 0
            if validation_is_due or over:
                self.validate(counts_for_patience=validation_is_due)
                over = over or self.limit_reached() is not None
            if over or progress.update % config.save_every == 0:
                self.save()
            if (signal_number := self.hooks.stop_signal()) is not None:
                self.save()
                raise Interrupted(
                    f"stopped by a signal after update {progress.update}; everything is saved in {self.folder.path}, and the "
                    "same command goes on from here",
                    signal_number,
                )
        return self.limit_reached() or ""

    # -- one update ----------------------------------------------------------------------------------------------------

    def next_group(self) -> list[Batch]:
        """Return the batches of one update: `accumulate` of them, fewer where the epoch ends."""
        group = [self.state.sampler.next_batch()]
        while len(group) < self.config.accumulate and not self.state.sampler.epoch_is_over:
            group.append(self.state.sampler.next_batch())
        return group

    def update(self, group: Sequence[Batch]) -> None:
        """Take one optimizer step on the mean loss per target token of all batches in `group`, waiting for nothing."""
        progress = self.state.progress
        tokens = sum(batch.tokens for batch in group)
        loss_sum = torch.zeros((), device=self.device)
        for batch in group:
            loss = batch_loss(self.model, batch.to(self.device), self.config.label_smoothing, precision=self.precision)
            loss.smoothed.backward()  # type: ignore[no-untyped-call]
            loss_sum += loss.plain
        progress.update += 1
        rate = self.config.learning_rate * self.schedule(progress.update, self.fraction_done())
        for parameters in self.state.optimizer.param_groups:
            parameters["lr"] = rate
        figures = optimizer_step(self.state.optimizer, loss_sum, tokens, clip_norm=self.config.clip_norm)
        self._unread.append(Outcome(progress.update, tokens, figures))
        if self._reading_is_free:
            self.read_outcomes()
        progress.seconds = self._seconds_before + time.monotonic() - self._started
        self.hooks.on_step(self.fraction_done(), self.remaining_seconds())

    def read_outcomes(self) -> None:
        """Wait for the updates that have not been read yet, and count them: what they learned, or that they were skipped.

        Raises:
            DivergedError: Too many updates in a row had no finite loss or gradient.
        """
        outcomes, self._unread = self._unread, []
        figures = torch.stack([outcome.figures for outcome in outcomes]).tolist() if outcomes else []
        progress = self.state.progress
        for outcome, (loss_sum, norm) in zip(outcomes, figures, strict=True):
            self._last_norm = norm
            if math.isfinite(loss_sum) and math.isfinite(norm):
                progress.bad_in_a_row = 0
                progress.tokens += outcome.tokens
                progress.window_loss += loss_sum
                progress.window_tokens += outcome.tokens
            else:
                self._count_bad_update(outcome.update, norm, loss_sum / outcome.tokens)

    def _count_bad_update(self, update: int, norm: float, loss: float) -> None:
        progress = self.state.progress
        progress.bad_updates += 1
        progress.bad_in_a_row += 1
        if progress.bad_in_a_row >= self.config.max_bad_updates:
            raise DivergedError(
                f"training diverged: {progress.bad_in_a_row} updates in a row, up to update {update}, had a loss "
                f"({loss}) or gradient norm ({norm}) that is not finite; none of them changed the weights. Lower "
                "training.learning_rate, or set training.clip_norm or a longer training.warmup_updates"
            )

    # -- limits --------------------------------------------------------------------------------------------------------

    def limit_reached(self) -> str | None:
        """Return why training is over, or None."""
        progress, config = self.state.progress, self.config
        patience = config.early_stopping.patience
        if config.max_updates is not None and progress.update >= config.max_updates:
            return f"max_updates: {config.max_updates} reached"
        if config.max_epochs is not None and self.epochs_done() >= config.max_epochs:
            return f"max_epochs: {config.max_epochs} reached"
        if config.max_minutes is not None and progress.seconds >= config.max_minutes * 60:
            return f"max_minutes: {config.max_minutes:g} reached"
        if patience is not None and progress.validations_without_improvement >= patience:
            return f"no better {progress.metric} in {patience} validations"
        return None

    def epochs_done(self) -> float:
        """Return the number of passes over the corpus, with its fraction."""
        sampler = self.state.sampler
        return sampler.epoch + sampler.position / sampler.batches_per_epoch

    def fraction_done(self) -> float:
        """Return the share of the nearest limit that is done, 0 to 1."""
        progress, config = self.state.progress, self.config
        shares = [0.0]
        if config.max_updates is not None:
            shares.append(progress.update / config.max_updates)
        if config.max_epochs is not None:
            shares.append(self.epochs_done() / config.max_epochs)
        if config.max_minutes is not None:
            shares.append(progress.seconds / (config.max_minutes * 60))
        return min(1.0, max(shares))

    def remaining_seconds(self) -> float:
        """Return the estimated time to the nearest limit, validations included."""
        done = self.fraction_done()
        return self.state.progress.seconds * (1 - done) / done if done else math.inf

    # -- telling, validating, saving -----------------------------------------------------------------------------------

    def report_update(self) -> None:
        """Report the updates since the last report."""
        self.read_outcomes()
        progress = self.state.progress
        elapsed = max(time.monotonic() - self._window_started, 1e-9)
        self.hooks.on_update(
            UpdateReport(
                update=progress.update,
                epoch=self.state.sampler.epoch + 1,
                loss=progress.window_loss / progress.window_tokens if progress.window_tokens else math.nan,
                learning_rate=self.state.optimizer.param_groups[0]["lr"],
                gradient_norm=self._last_norm,
                tokens_per_second=(progress.tokens - self._tokens_reported) / elapsed,
                seconds=progress.seconds,
                remaining_seconds=self.remaining_seconds(),
                fraction=self.fraction_done(),
                bad_updates=progress.bad_updates,
            )
        )
        progress.window_loss, progress.window_tokens = 0.0, 0
        self._window_started, self._tokens_reported = time.monotonic(), progress.tokens

    def validate(self, *, counts_for_patience: bool) -> None:
        """Score the model; save it when it is among the `keep_best` best.

        Args:
            counts_for_patience: False for the validation that ends a training between two regular ones, so that a run that
                goes on later has the patience of an uninterrupted one.
        """
        self.read_outcomes()
        self._check_weights()
        progress = self.state.progress
        scores: dict[str, float] = {}
        paused = time.monotonic()
        if self.hooks.validate is not None:
            self.model.eval()
            with torch.inference_mode():
                scores = self.hooks.validate(self.model)
            self.model.train()
        self._window_started += time.monotonic() - paused  # tokens a second are those of training alone
        progress.seconds = self._seconds_before + time.monotonic() - self._started
        progress.history.append({"update": progress.update, "epoch": self.state.sampler.epoch + 1, **scores})
        score = scores.get(progress.metric, math.nan)
        name = f"update-{progress.update:08d}"
        entered = progress.enter(name, score, self.config.keep_best)
        if scores and counts_for_patience:
            progress.count_patience(score, self.config.early_stopping.min_delta)
        if scores:
            is_best = entered and progress.best() == name
            epoch = self.state.sampler.epoch + 1
            self.hooks.on_validation(
                ValidationReport(progress.update, epoch, scores, progress.metric, is_best, progress.seconds)
            )
        if entered:
            self.save()

    def save(self) -> None:
        """Write a checkpoint unless this update has one, name it, and remove those that are kept no more."""
        self.read_outcomes()
        progress = self.state.progress
        name = f"update-{progress.update:08d}"
        names = {"best": progress.best() or name, "last": name}
        if self._saved_update != progress.update:
            self._check_weights()
            progress.log_sizes = {path.name: path.stat().st_size if path.exists() else 0 for path in self.logs}
            latest = progress.history[-1] if progress.history else {}
            scores = latest if latest.get("update") == progress.update else {}
            self.folder.write_checkpoint(
                name, progress.update, lambda path: write_training_state(self.state, path), scores, names
            )
            self._saved_update = progress.update
        earlier = [found for found, record in self.folder.index().checkpoints.items() if record.update <= progress.update]
        recent = sorted(earlier)[-self.config.keep_last :]
        self.folder.name_checkpoints(names, keep={*names.values(), *recent, *progress.kept})

    def _check_weights(self) -> None:
        if not all(bool(torch.isfinite(parameter).all()) for parameter in self.parameters):
            raise DivergedError(
                f"the weights at update {self.state.progress.update} are not finite; they were not saved, and the checkpoints "
                "before are as they were. Lower training.learning_rate"
            )


def batch_loss(
    model: Seq2Seq,
    batch: Batch,
    smoothing: float,
    *,
    precision: torch.dtype = torch.float32,
    count_correct: bool = False,
) -> TokenLoss:
    """Return the summed loss of a batch's real target tokens (teacher forcing)."""
    with autocast(batch.source_ids.device, precision):
        output = model(batch.source_ids, batch.source_visible, batch.target_in)
        weight, bias = model.decoder.output_layer
        hidden = output.hidden.flatten(0, 1).index_select(0, batch.target_rows).to(precision)  # (B, T, D) -> (tokens, D)
        targets = batch.target_out.flatten().index_select(0, batch.target_rows)
        return token_loss(hidden, targets, weight, bias, smoothing=smoothing, count_correct=count_correct)


@torch.inference_mode()
def validation_scores(
    model: Seq2Seq, batches: Iterable[Batch], device: torch.device, precision: torch.dtype = torch.float32
) -> dict[str, float]:
    """Return loss (nats per target token, not smoothed), perplexity, and accuracy in percent, all under teacher forcing."""
    loss, correct = torch.zeros((), device=device), torch.zeros((), device=device)
    tokens = 0
    for batch in batches:
        figures: TokenLoss = batch_loss(model, batch.to(device), 0.0, precision=precision, count_correct=True)
        loss, correct, tokens = loss + figures.plain, correct + figures.correct, tokens + batch.tokens
    mean = float(loss) / tokens
    return {"loss": mean, "perplexity": math.exp(min(mean, 700.0)), "accuracy": 100 * float(correct) / tokens}


def build_optimizer(model: Seq2Seq, config: TrainingConfig, device: torch.device) -> Optimizer:
    """Return Adam or AdamW over all parameters; weight decay leaves biases and norms alone.

    Reference: Kingma, Ba 2015; Loshchilov, Hutter 2019.
    """
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    rate, betas, epsilon, decoupled = config.learning_rate, config.adam_betas, config.adam_epsilon, config.optimizer == "adamw"
    if FusedAdam.runs_on(device):
        return FusedAdam(groups, learning_rate=rate, betas=betas, epsilon=epsilon, decoupled=decoupled)
    return (torch.optim.AdamW if decoupled else torch.optim.Adam)(groups, lr=rate, betas=betas, eps=epsilon)
