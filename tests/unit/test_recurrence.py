"""Loops with a backward pass of their own (models/recurrence.py), and products whose matrix gets its gradient at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nmt_cli.config import Seq2SeqConfig
from nmt_cli.models.dropout import RandomSource
from nmt_cli.models.recurrence import CELLS, Factors, Layer, Reading, write
from nmt_cli.models.repeated import RepeatedProduct
from nmt_cli.models.seq2seq import Order, read_packed, read_padded
from nmt_cli.runs.build import build_model

KINDS = pytest.mark.parametrize("cell", ["gru", "lstm"])


def normal(*shape: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


@KINDS
@pytest.mark.parametrize("directions", [1, 2])
def test_gradients_of_reading_equal_differences(cell: str, directions: int) -> None:
    arithmetic, counts = CELLS[cell], [4, 3, 3, 1]
    gates = 3 * arithmetic.gates
    inputs = normal(directions, sum(counts), gates), normal(directions, gates, 3), normal(directions, gates)

    def loop(*tensors: Tensor) -> tuple[Tensor, ...]:
        states: tuple[Tensor, ...] = Reading.apply(arithmetic, counts, *tensors)  # type: ignore[no-untyped-call]
        return states

    assert torch.autograd.gradcheck(loop, inputs)


@KINDS
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("dropping", [False, True])
def test_gradients_of_writing_equal_differences(cell: str, layers: int, *, dropping: bool) -> None:
    """Two sentences of four and three tokens, and one without any."""
    arithmetic, (steps, rows, source, width, score) = CELLS[cell], (3, 3, 4, 2, 5)
    gates = width * arithmetic.gates
    hidden = torch.arange(source) >= torch.tensor([[4], [3], [0]])
    factors = Factors()
    if dropping:
        factors = Factors(normal(steps, rows, source).detach(), normal(layers - 1, steps, rows, width).detach())
    inputs = [
        normal(steps, rows, gates),
        normal(arithmetic.parts, layers, rows, width),
        normal(score),
        normal(rows, source, score),
        normal(rows, source, gates, seed=2),
    ]
    for index in range(layers):
        inputs += [normal(gates + (score if index == layers - 1 else 0), width, seed=index), normal(gates, seed=index)]
        inputs += [normal(gates, width, seed=10 + index), normal(gates, seed=10 + index)] if index else []

    def loop(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        weights = list(tensors[5:])
        made = [Layer(*weights[:2]), *(Layer(*weights[at : at + 4]) for at in range(2, len(weights), 4))]
        given, state, score_weight, prepared, source_gates = tensors[:5]
        states, last = write(arithmetic, made, given, state, score_weight, prepared, source_gates, hidden, factors)
        return states, last

    assert torch.autograd.gradcheck(loop, inputs)


@KINDS
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one-way", "two-way"])
def test_reading_equals_torchs_own_layers(cell: str, *, bidirectional: bool) -> None:
    torch.manual_seed(3)
    kind = {"gru": nn.GRU, "lstm": nn.LSTM}[cell]
    layer = kind(5, 7, batch_first=True, bidirectional=bidirectional).double()
    x, lengths = normal(4, 6, 5), torch.tensor([2, 6, 1, 4])
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    results = []
    for states, final in (layer(packed), read_packed(layer, packed, Order.of(packed, lengths))):
        padded, _ = pad_packed_sequence(states, batch_first=True, total_length=6)
        finals = final if isinstance(final, tuple) else (final,)
        total = (padded * padded.sin()).sum() + sum((part**2).sum() for part in finals)
        results.append((padded, *finals, *torch.autograd.grad(total, [x, *layer.parameters()], retain_graph=True)))
    assert len(results[0]) == len(results[1])
    for theirs, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("bidirectional", [False, True], ids=["one-way", "two-way"])
def test_reading_without_packing_equals_torchs_own_layers(*, bidirectional: bool) -> None:
    torch.manual_seed(3)
    layer = nn.GRU(5, 7, batch_first=True, bidirectional=bidirectional).double()
    x, lengths = normal(4, 6, 5), torch.tensor([2, 6, 1, 4])
    packed, theirs = layer(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    expected = pad_packed_sequence(packed, batch_first=True, total_length=6)[0], theirs
    states, (final,) = read_padded(layer, x, lengths)
    results = [
        (padded, last, *torch.autograd.grad((padded * padded.sin()).sum() + (last**2).sum(), [x, *layer.parameters()]))
        for padded, last in (expected, (states, final))
    ]
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(other, one)


@KINDS
@pytest.mark.parametrize("layers", [1, 2])
def test_the_decoders_loop_equals_its_steps(cell: str, layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for weights, the decoder goes step by step through autograd."""
    calls: list[str] = []
    monkeypatch.setattr("nmt_cli.models.seq2seq.write", _counted(write, calls))
    sizes: dict[str, Any] = {"cell": cell, "embedding_size": 5, "hidden_size": 6, "attention_size": 7, "dropout": 0.0}
    sizes |= {"encoder_layers": layers, "decoder_layers": layers}
    config = Seq2SeqConfig(type="seq2seq", embedding_dropout=0.0, output_dropout=0.0, **sizes)
    model = build_model(config, source_size=13, target_size=11, random=RandomSource(1)).double().train()
    generator = torch.Generator().manual_seed(4)
    source, target = (torch.randint(4, 11, shape, generator=generator) for shape in ((3, 5), (3, 4)))
    visible = torch.arange(5) < torch.tensor([[5], [2], [4]])
    above = torch.randn(3, 4, 6, generator=generator, dtype=torch.float64)
    results, counted = [], []
    for want_weights in (False, True):
        hidden = model(source, visible, target, want_weights=want_weights).hidden
        parameters = [parameter for name, parameter in model.named_parameters() if "output" not in name]
        results.append((hidden, *torch.autograd.grad((hidden * above).sum(), parameters)))
        counted.append(len(calls))
    assert counted == [1, 1]
    for whole, steps in zip(*results, strict=True):
        torch.testing.assert_close(whole, steps)


@KINDS
def test_the_decoder_goes_on_from_where_it_was(cell: str) -> None:
    """Token by token, and all at once, with gradients."""
    config = Seq2SeqConfig(type="seq2seq", cell=cell, embedding_size=5, hidden_size=6, decoder_layers=2)  # type: ignore[arg-type]
    model = build_model(config, source_size=13, target_size=11, random=RandomSource(1)).double().eval()
    source, target = torch.tensor([[4, 5, 6, 7], [8, 9, 3, 0]]), torch.tensor([[2, 4, 5], [2, 7, 8]])
    start = model.decoder.start(model.encoder(source, source > 0))
    whole, _ = model.decoder(target, start)
    state, steps = start, []
    for column in torch.split(target, 1, dim=1):
        output, state = model.decoder(column, state)
        steps.append(output.hidden)
    torch.testing.assert_close(torch.cat(steps, dim=1), whole.hidden)
    last = [parameter for name, parameter in model.named_parameters() if "cells" in name]
    for one, other in zip(
        *(torch.autograd.grad(x[:, -1].sum(), last) for x in (torch.cat(steps, dim=1), whole.hidden)), strict=True
    ):
        torch.testing.assert_close(one, other)


def _counted(function: Callable[..., tuple[Tensor, Tensor]], calls: list[str]) -> Callable[..., tuple[Tensor, Tensor]]:
    def counting(*arguments: object) -> tuple[Tensor, Tensor]:
        calls.append("called")
        return function(*arguments)

    return counting


def test_dropout_reaches_attention_and_the_layers_between() -> None:
    """Each of both alone changes what the decoder says; without them it says the same again."""
    for dropped in ({}, {"attention_dropout": 0.5}, {"dropout": 0.5}):
        sizes: dict[str, Any] = {"dropout": 0.0, "embedding_size": 5, "hidden_size": 6, "decoder_layers": 2, **dropped}
        config = Seq2SeqConfig(type="seq2seq", embedding_dropout=0.0, output_dropout=0.0, **sizes)
        model = build_model(config, source_size=13, target_size=11, random=RandomSource(1)).train()
        source, visible = torch.tensor([[4, 5, 6, 7]]), torch.ones(1, 4, dtype=torch.bool)
        one, other = (model(source, visible, torch.tensor([[2, 4, 5]])).hidden for _ in range(2))
        assert torch.equal(one, other) == (not dropped)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_a_repeated_product_has_the_gradients_of_single_ones(batch: tuple[int, ...], *, with_bias: bool, turned: bool) -> None:
    """Steps of several sizes, one of which depends on another."""
    weight = normal(*batch, 7, 5) if turned else normal(*batch, 5, 7)
    bias, inputs = normal(7) if with_bias else None, [normal(*batch, count, 5) for count in (4, 2, 1)]
    results = []
    for repeated in (True, False):
        matrix = weight.mT if turned else weight
        product = RepeatedProduct(matrix, bias) if repeated else _plain(matrix, bias)
        outputs = [product(x) for x in inputs]
        outputs.append(product(outputs[0][..., :5].tanh()))
        wanted = [weight, *inputs, *([bias] if bias is not None else [])]
        results.append(torch.autograd.grad(sum((y * y.sin()).sum() for y in outputs), wanted))  # type: ignore[arg-type]
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


def _plain(matrix: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    return lambda x: x @ matrix if bias is None else x @ matrix + bias


def test_a_repeated_product_that_is_not_used_gives_no_gradient() -> None:
    matrix, x = normal(5, 7), normal(2, 5)
    product, other = RepeatedProduct(matrix), RepeatedProduct(matrix)
    product(x)
    (gradient,) = torch.autograd.grad(other(x).sum(), matrix)
    torch.testing.assert_close(gradient, x.sum(dim=0)[:, None].expand(5, 7))
