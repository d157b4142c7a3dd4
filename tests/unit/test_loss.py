"""The block-wise loss against torch's own, and accumulation over batches (docs/faults.md PB-14)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from nmt_cli.config import Seq2SeqConfig, TransformerConfig
from nmt_cli.models.dropout import RandomSource
from nmt_cli.models.interface import Seq2Seq
from nmt_cli.runs.build import build_model
from nmt_cli.text.batching import Batch, batch_of
from nmt_cli.text.examples import Examples
from nmt_cli.training.loop import batch_loss
from nmt_cli.training.loss import BLOCK_ROWS, TokenLoss, token_loss

SIZES = pytest.mark.parametrize(
    ("tokens", "width", "vocabulary"), [(1, 3, 5), (7, 4, 11), (BLOCK_ROWS, 3, 6), (BLOCK_ROWS + 1, 3, 6), (1100, 6, 9)]
)
SMOOTHING = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.35])


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def inputs(tokens: int, width: int, vocabulary: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden, targets, weight, bias."""
    targets = torch.randint(vocabulary, (tokens,), generator=torch.Generator().manual_seed(1))
    return normal(tokens, width, seed=2), targets, normal(vocabulary, width, seed=3), normal(vocabulary, seed=4)


def test_blocks_are_smaller_than_the_largest_size_tested() -> None:
    assert 2 * BLOCK_ROWS < 1100 < 3 * BLOCK_ROWS


@SIZES
@SMOOTHING
@pytest.mark.parametrize("with_bias", [True, False])
def test_equals_torchs_cross_entropy_in_value_and_gradients(
    tokens: int, width: int, vocabulary: int, smoothing: float, with_bias: bool
) -> None:
    hidden, targets, weight, bias = inputs(tokens, width, vocabulary)
    leaves = [part.requires_grad_() for part in ([hidden, weight, bias] if with_bias else [hidden, weight])]
    logits = functional.linear(hidden, weight, bias if with_bias else None)
    expected = functional.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    plain = functional.cross_entropy(logits, targets, reduction="sum")
    loss = token_loss(hidden, targets, weight, bias if with_bias else None, smoothing=smoothing)
    torch.testing.assert_close(loss.smoothed, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(loss.plain, plain.detach(), rtol=1e-5, atol=1e-5)
    assert not loss.plain.requires_grad
    for found, wanted in zip(torch.autograd.grad(loss.smoothed, leaves), torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-4)


@SMOOTHING
def test_gradients_equal_differences_of_a_numpy_twin_in_float64(smoothing: float) -> None:
    """Central differences of the loss written out: -Σ_v q_v log softmax(h W' + b)_v with q the smoothed target."""
    hidden, targets, weight, bias = inputs(5, 3, 7)
    arrays = [part.double().numpy() for part in (hidden, weight, bias)]

    def twin() -> float:
        h, w, b = arrays
        logits = h @ w.T + b
        log_softmax = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        wanted = np.full_like(logits, smoothing / 7)
        wanted[np.arange(5), targets.numpy()] += 1 - smoothing
        return float(-(wanted * log_softmax).sum())

    leaves = [torch.tensor(array, requires_grad=True) for array in arrays]
    loss = token_loss(leaves[0], targets, leaves[1], leaves[2], smoothing=smoothing).smoothed
    assert loss.item() == pytest.approx(twin(), rel=1e-6)
    gradients = torch.autograd.grad(loss, leaves)
    for array, gradient in zip(arrays, gradients, strict=True):
        assert gradient.dtype == torch.float64
        for index in np.ndindex(array.shape):
            kept, step = array[index], 1e-5
            array[index] = kept + step
            above = twin()
            array[index] = kept - step
            below = twin()
            array[index] = kept
            assert gradient[index].item() == pytest.approx((above - below) / (2 * step), abs=2e-6)


def test_the_gradient_is_scaled_by_what_comes_from_above() -> None:
    hidden, targets, weight, bias = (part.requires_grad_() if part.is_floating_point() else part for part in inputs(7, 4, 11))
    leaves = [hidden, weight, bias]
    plain = torch.autograd.grad(token_loss(hidden, targets, weight, bias, smoothing=0.1).smoothed, leaves)
    scaled = torch.autograd.grad(token_loss(hidden, targets, weight, bias, smoothing=0.1).smoothed * -2.5, leaves)
    for found, expected in zip(scaled, plain, strict=True):
        torch.testing.assert_close(found, -2.5 * expected)


def test_gradients_add_up_with_those_of_another_use_of_the_weights() -> None:
    """As with tied embeddings: the weight of the output layer is used elsewhere too."""
    hidden, targets, weight, bias = inputs(7, 4, 11)
    weight.requires_grad_()
    loss = token_loss(hidden, targets, weight, bias, smoothing=0.0).smoothed
    (alone,) = torch.autograd.grad(loss, weight)
    loss = token_loss(hidden, targets, weight, bias, smoothing=0.0).smoothed + (3 * weight).sum()
    (together,) = torch.autograd.grad(loss, weight)
    torch.testing.assert_close(together, alone + 3)


@pytest.mark.parametrize("tokens", [7, 1100])
def test_correct_predictions_are_counted(tokens: int) -> None:
    hidden, targets, weight, bias = inputs(tokens, 4, 11)
    expected = int(((hidden @ weight.T + bias).argmax(dim=1) == targets).sum())
    best = (hidden @ weight.T + bias).argmax(dim=1)

    def count(truth: Tensor) -> float:
        return token_loss(hidden, truth, weight, bias, smoothing=0.1, count_correct=True).correct.item()

    assert count(targets) == expected
    assert count(best) == tokens
    assert count((best + 1) % 11) == 0
    assert token_loss(hidden, best, weight, bias, smoothing=0.1).correct.item() == 0


def test_a_sure_and_right_prediction_costs_nothing_without_smoothing() -> None:
    loss = token_loss(torch.eye(3), torch.arange(3), 200 * torch.eye(3), None, smoothing=0.0)
    assert loss.smoothed.item() == loss.plain.item() == 0.0
    uniform = token_loss(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]), torch.ones(5, 3), None, smoothing=0.2)
    assert uniform.smoothed.item() == pytest.approx(4 * np.log(5), rel=1e-6)


def test_large_logits_stay_finite() -> None:
    hidden = torch.tensor([[1000.0], [-1000.0]], requires_grad=True)
    loss = token_loss(hidden, torch.tensor([1, 1]), torch.tensor([[0.0], [1.0], [2.0]]), None, smoothing=0.1).smoothed
    expected = functional.cross_entropy(
        torch.tensor([[0.0, 1000.0, 2000.0], [0.0, -1000.0, -2000.0]]),
        torch.tensor([1, 1]),
        label_smoothing=0.1,
        reduction="sum",
    )
    torch.testing.assert_close(loss, expected)
    (gradient,) = torch.autograd.grad(loss, hidden)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_validation_makes_no_gradients(mode: Callable[[], AbstractContextManager[None]]) -> None:
    """Without gradients only the logits are multiplied out: 2 N D V operations, where training takes three times as many."""
    hidden, targets, weight, bias = inputs(1100, 4, 11)
    hidden.requires_grad_(), weight.requires_grad_()
    with mode(), FlopCounterMode(display=False) as counter:
        token_loss(hidden, targets, weight, bias, smoothing=0.0)
    assert counter.get_total_flops() == 2 * 1100 * 4 * 11
    with FlopCounterMode(display=False) as counter:
        token_loss(hidden, targets, weight, bias, smoothing=0.0)
    assert counter.get_total_flops() == 3 * 2 * 1100 * 4 * 11


# -- accumulation ------------------------------------------------------------------------------------------------------

SOURCE_SIZE, TARGET_SIZE = 17, 13
SOURCE_LENGTHS, TARGET_LENGTHS = [1, 14, 3, 9, 2, 20, 6, 1], [18, 1, 2, 11, 5, 1, 24, 3]


def examples() -> Examples:
    random = np.random.default_rng(5)

    def flat(lengths: Sequence[int], size: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        return random.integers(4, size, sum(lengths)).astype(np.int32), np.cumsum(lengths).astype(np.int64)

    source, target = flat(SOURCE_LENGTHS, SOURCE_SIZE), flat(TARGET_LENGTHS, TARGET_SIZE)
    return Examples(*source, *target, lines=np.arange(8))


def build(kind: str) -> Seq2Seq:
    torch.manual_seed(6)
    config: Seq2SeqConfig | TransformerConfig
    if kind == "seq2seq":
        off: dict[str, Any] = {"dropout": 0.0, "embedding_dropout": 0.0, "output_dropout": 0.0}
        config = Seq2SeqConfig(type="seq2seq", embedding_size=7, hidden_size=6, **off)
    else:
        config = TransformerConfig(
            type="transformer", width=12, heads=3, feed_forward=14, encoder_layers=1, decoder_layers=1, dropout=0.0
        )
    return build_model(config, source_size=SOURCE_SIZE, target_size=TARGET_SIZE, random=RandomSource(6)).train()


def accumulated(model: Seq2Seq, batches: Sequence[Batch]) -> tuple[list[Tensor], float]:
    """Gradients of the mean loss per target token over all batches, and that loss without smoothing."""
    model.zero_grad()
    losses = [batch_loss(model, batch, 0.1) for batch in batches]
    for loss in losses:
        torch.autograd.backward(loss.smoothed)
    tokens = sum(batch.tokens for batch in batches)
    gradients = [parameter.grad / tokens for parameter in model.parameters() if parameter.grad is not None]
    assert len(gradients) == len(list(model.parameters()))
    return gradients, sum(float(loss.plain) for loss in losses) / tokens


@pytest.mark.parametrize("kind", ["seq2seq", "transformer"])
@pytest.mark.fault("PB-14")
def test_one_batch_of_eight_equals_four_accumulated_batches_of_two(kind: str) -> None:
    """PB-14: pairs of very different length; sum of token losses over all real target tokens."""
    model, pairs = build(kind), examples()
    whole = [batch_of(pairs, list(range(8)))]
    parts = [batch_of(pairs, [i, i + 1]) for i in range(0, 8, 2)]
    assert whole[0].tokens == sum(part.tokens for part in parts) == sum(TARGET_LENGTHS) + 8
    expected, expected_loss = accumulated(model, whole)
    found, loss = accumulated(model, parts)
    assert loss == pytest.approx(expected_loss, abs=1e-6)
    for (name, _), ours, theirs in zip(model.named_parameters(), found, expected, strict=True):
        assert (ours - theirs).abs().max() <= 1e-6, name
    means = [accumulated(model, [part])[0] for part in parts]
    mean_of_means = [torch.stack(gradients).mean(dim=0) for gradients in zip(*means, strict=True)]
    gap = max((ours - theirs).abs().max().item() for ours, theirs in zip(mean_of_means, expected, strict=True))
    assert gap > 1e-3, "the lengths are too alike: a mean of means would pass too"


@pytest.mark.parametrize("kind", ["seq2seq", "transformer"])
def test_batch_loss_counts_real_tokens_only(kind: str) -> None:
    """The same as the sum over sentences one at a time, which have no padding, with torch's own loss."""
    model, pairs = build(kind), examples()
    loss: TokenLoss = batch_loss(model, batch_of(pairs, list(range(8))), 0.1, count_correct=True)
    smoothed = plain = correct = 0.0
    for index in range(8):
        batch = batch_of(pairs, [index])
        assert batch.target_visible.all()
        output = model(batch.source_ids, batch.source_visible, batch.target_in)
        logits, truth = model.decoder.project(output.hidden)[0], batch.target_out[0]
        smoothed += functional.cross_entropy(logits, truth, label_smoothing=0.1, reduction="sum").item()
        plain += functional.cross_entropy(logits, truth, reduction="sum").item()
        correct += int((logits.argmax(dim=1) == truth).sum())
    assert loss.smoothed.item() == pytest.approx(smoothed, rel=1e-5)
    assert loss.plain.item() == pytest.approx(plain, rel=1e-5)
    assert loss.correct.item() == correct
