"""What `benchmarks/gpu_check.py` measures in its own process: agreement with the CPU, waiting, speed and memory."""

from __future__ import annotations

import itertools
import re
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nmt_cli.config import Config, Seq2SeqConfig, TransformerConfig
from nmt_cli.models.dropout import RandomSource
from nmt_cli.runs.build import build_model
from nmt_cli.runs.folder import RunFolder
from nmt_cli.text.batching import Batch, BatchSampler, batch_of
from nmt_cli.text.examples import Examples
from nmt_cli.training.checkpoint import Progress, TrainingState
from nmt_cli.training.loop import Trainer, TrainingHooks, batch_loss, build_optimizer

BF16_PEAKS = {
    r"A100": 312e12,
    r"H100 80GB HBM3": 989e12,
    r"H200$": 989e12,
    r"L4$": 121e12,
    r"RTX 4090$": 165e12,
}
"""Part of a card's name -> bf16 operations a second of its data sheet, without sparsity."""

LENGTHS = (10, 45)


@dataclass(frozen=True)
class Finding:
    """What a check found: whether all is well, and the figures in words and as numbers."""

    ok: bool
    text: str
    figures: dict[str, float]


# -- made-up work ------------------------------------------------------------------------------------------------------


def made_up_examples(pairs: int, vocabulary: int) -> Examples:
    """Return pairs of 10 to 44 tokens a side, end marks not counted, with made-up ids."""
    draw = np.random.default_rng(1)
    source, target = (draw.integers(*LENGTHS, pairs) for _ in range(2))
    target = np.clip(target, source - 5, source + 5)
    ids = [draw.integers(4, vocabulary, lengths.sum()).astype(np.int32) for lengths in (source, target)]
    numbers = np.arange(pairs, dtype=np.int64)
    return Examples(ids[0], source.cumsum(), ids[1], target.cumsum(), numbers)


def trainer_of(config: Config, examples: Examples, vocabulary: int, device: torch.device, precision: torch.dtype) -> Trainer:
    """Return a trainer of a new model. It writes nothing, for nobody tells it to save."""
    training, random = config.training, RandomSource(1)
    model = build_model(config.model, source_size=vocabulary, target_size=vocabulary, random=random, seed=1).to(device)
    sampler = BatchSampler(examples, tokens=training.batch_tokens, sentences=None, seed=1)
    state = TrainingState(model.train(), build_optimizer(model, training, device), sampler, random, Progress("loss"))
    hooks = TrainingHooks(
        validate=None,
        on_step=lambda share, seconds: None,
        on_update=lambda report: None,
        on_validation=lambda report: None,
        stop_signal=lambda: None,
    )
    folder = RunFolder(Path(tempfile.gettempdir()) / "nothing-is-written-here")
    return Trainer(state, training, folder, device=device, precision=precision, hooks=hooks)


# -- numbers -----------------------------------------------------------------------------------------------------------


def use_full_float32() -> None:
    """Let float32 products be computed in float32, not in the shorter TF32 of newer cards."""
    torch.set_float32_matmul_precision("highest")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer names exist; these keep old and new settings in step
        torch.backends.cudnn.allow_tf32 = False


def loss_and_gradients(
    model: Seq2SeqConfig | TransformerConfig, batch: Batch, vocabulary: int, device: torch.device, precision: torch.dtype
) -> tuple[float, list[Tensor]]:
    """Return loss and gradients per target token of a new model, the same one on every device, on the CPU in float32."""
    built = (
        build_model(model, source_size=vocabulary, target_size=vocabulary, random=RandomSource(1), seed=1).to(device).train()
    )
    loss = batch_loss(built, batch.to(device), 0.1, precision=precision).smoothed / batch.tokens
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item(), [parameter.grad.float().cpu() for parameter in built.parameters() if parameter.grad is not None]


def compare(found: tuple[float, list[Tensor]], expected: tuple[float, list[Tensor]], *, most: float) -> Finding:
    """Compare loss and gradients.

    The difference of a parameter's gradients is taken relative to their norm, or to a hundredth of the norm of all gradients
    where theirs is smaller: some should be zero and are rounding errors.

    Args:
        found: Loss and gradients.
        expected: What they should be.
        most: Largest relative difference that is well.
    """
    loss = abs(found[0] - expected[0]) / abs(expected[0])
    least = float(torch.stack([gradient.norm() for gradient in expected[1]]).norm()) / 100
    pairs = zip(found[1], expected[1], strict=True)
    relative = [float((one - other).norm()) / max(float(other.norm()), least) for one, other in pairs]
    worst = float(np.max(relative))  # NaN where one is
    ok = loss <= most and worst <= most
    text = f"loss differs by {loss:.1e}, gradients by {worst:.1e} at most; {most:.0e} allowed"
    return Finding(ok, text, {"loss": loss, "gradients": worst, "allowed": most})


def check_float32(config: Config, vocabulary: int, device: torch.device) -> Finding:
    """Compare one batch in float32 with the CPU's."""
    use_full_float32()
    batch = batch_of(made_up_examples(64, vocabulary), range(64))
    cpu = loss_and_gradients(config.model, batch, vocabulary, torch.device("cpu"), torch.float32)
    return compare(loss_and_gradients(config.model, batch, vocabulary, device, torch.float32), cpu, most=1e-3)


def check_bf16(config: Config, vocabulary: int, device: torch.device) -> Finding:
    """Compare one batch in bf16 with float32 on the same device, loosely: bf16 keeps two to three digits."""
    use_full_float32()
    batch = batch_of(made_up_examples(64, vocabulary), range(64))
    exact, short = (
        loss_and_gradients(config.model, batch, vocabulary, device, precision) for precision in (torch.float32, torch.bfloat16)
    )
    return compare(short, exact, most=0.1)


# -- waiting -----------------------------------------------------------------------------------------------------------


def check_waiting(config: Config, vocabulary: int, device: torch.device, precision: torch.dtype) -> Finding:
    """Train a few updates while torch refuses every operation that makes the host wait for the GPU."""
    trainer = trainer_of(config, made_up_examples(2000, vocabulary), vocabulary, device, precision)
    for _ in range(2):
        trainer.update(trainer.next_group())
    trainer.read_outcomes()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            trainer.update(trainer.next_group())
    except RuntimeError as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "nmt_cli" in frame.filename]
        where = f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}: {frames[-1].line}"
        return Finding(False, f"{str(error).splitlines()[0]} in {where}", {})
    finally:
        torch.cuda.set_sync_debug_mode("default")
    trainer.read_outcomes()
    return Finding(trainer.state.progress.bad_updates == 0, "3 updates without waiting", {"updates": 3})


# -- speed -------------------------------------------------------------------------------------------------------------


def wait_for(device: torch.device) -> None:
    """Return when the device has done all it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def matmul_speed(device: torch.device, size: int, repeats: int = 20) -> float:
    """Return operations a second of a square bf16 matrix product."""
    one, other = (torch.randn(size, size, device=device).to(torch.bfloat16) for _ in range(2))
    for _ in range(3):
        one @ other
    wait_for(device)
    started = time.perf_counter()
    for _ in range(repeats):
        one @ other
    wait_for(device)
    return repeats * 2 * size**3 / (time.perf_counter() - started)


def peak_of(name: str) -> float | None:
    """Return the bf16 operations a second of a card's data sheet, or None where it is not in our table."""
    return next((peak for pattern, peak in BF16_PEAKS.items() if re.search(pattern, name)), None)


def device_name(device: torch.device) -> str:
    """Return the card's name, or `cpu`."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def check_matmul(device: torch.device, size: int) -> Finding:
    """Measure a large bf16 matrix product beside the data sheet."""
    speed, peak = matmul_speed(device, size), peak_of(device_name(device))
    text = f"{device_name(device)}: {speed / 1e12:,.1f} TFLOP/s, "
    if peak is None:
        return Finding(True, f"{text}not in our table of data sheets", {"flop_per_second": speed})
    figures = {"flop_per_second": speed, "data_sheet": peak}
    return Finding(True, f"{text}{speed / peak:.0%} of the {peak / 1e12:,.0f} of its data sheet", figures)


def model_flop(model: TransformerConfig, vocabulary: int, batch: Batch) -> float:
    """Return the operations of one training step that the model itself needs, for the real tokens of a batch.

    Six for each weight and token that it is applied to (a multiplication and an addition, once forward and twice backward),
    and the two products of each attention likewise. Padding, dropout, norms and the optimizer are not counted; of causal
    attention the whole square is.
    """
    source, target = (visible.sum(dim=1).double() for visible in (batch.source_visible, batch.target_visible))
    width, feed_forward = model.width, 2 * model.width * model.feed_forward
    square = width**2
    encoder = model.encoder_layers * (4 * square + feed_forward)
    decoder = model.decoder_layers * (6 * square + feed_forward) + vocabulary * width
    cross = model.decoder_layers * 2 * square  # keys and values of the source
    weights = float(source.sum()) * (encoder + cross) + float(target.sum()) * decoder
    pairs = model.encoder_layers * source.square().sum() + model.decoder_layers * (target.square() + target * source).sum()
    return 6 * weights + 12 * width * float(pairs)


@dataclass(frozen=True)
class Speed:
    """Target tokens and operations of the model a second, over so many updates."""

    tokens: float
    flop: float
    updates: int


def measure_speed(trainer: Trainer, model: TransformerConfig, vocabulary: int, seconds: float) -> Speed:
    """Train for some seconds after three updates to warm up."""
    for _ in range(3):
        trainer.update(trainer.next_group())
    trainer.read_outcomes()
    before, flop, started = trainer.state.progress.tokens, 0.0, time.perf_counter()
    for update in itertools.count(1):
        group = trainer.next_group()
        flop += sum(model_flop(model, vocabulary, batch) for batch in group)
        trainer.update(group)
        if update % 5 == 0:
            trainer.read_outcomes()
            if (elapsed := time.perf_counter() - started) >= seconds:
                break
    return Speed((trainer.state.progress.tokens - before) / elapsed, flop / elapsed, update)


def check_speed(
    config: Config, vocabulary: int, device: torch.device, precision: torch.dtype, *, seconds: float, matmul: int
) -> Finding:
    """Train on made-up ids, and measure target tokens a second, the share of the peak, and memory.

    Args:
        config: Model, a Transformer, and training.
        vocabulary: Number of made-up words.
        device: Where.
        precision: Of products.
        seconds: How long.
        matmul: Rows and columns of the matrix product that is measured, beside the data sheet, as a peak.
    """
    assert isinstance(config.model, TransformerConfig)
    pairs = 20 * max(1, (config.training.batch_tokens or 0) // LENGTHS[0])
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    trainer = trainer_of(config, made_up_examples(pairs, vocabulary), vocabulary, device, precision)
    speed = measure_speed(trainer, config.model, vocabulary, seconds)
    figures = {"tokens_per_second": speed.tokens, "flop_per_second": speed.flop, "updates": float(speed.updates)}
    text = f"{speed.tokens:,.0f} target tokens/s in {str(precision).removeprefix('torch.')}, {speed.flop / 1e12:,.2f} TFLOP/s"
    if device.type == "cuda":
        figures["peak_memory_bytes"] = float(torch.cuda.max_memory_allocated(device))
        text += f", {figures['peak_memory_bytes'] / 2**30:.1f} GiB at most"
    peaks = {"data_sheet": peak_of(device_name(device)), "measured_product": matmul_speed(device, matmul)}
    for name, peak in peaks.items():
        if peak is not None:
            figures[f"share_of_{name}"] = speed.flop / peak
            text += f", {speed.flop / peak:.1%} of the {name.replace('_', ' ')}"
    return Finding(trainer.state.progress.bad_updates == 0, text, figures)
