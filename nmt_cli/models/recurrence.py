"""Whole loops of recurrent layers for training, with a backward pass of their own.

Autograd would keep a graph of every step, take the gradient of each weight matrix step by step, and copy gates again and again.
Here each loop writes what its backward needs into one tensor for all steps, so that every weight gradient is one product.

Reference: Cho et al. 2014 (GRU, in the form of `torch.nn.GRU`); Hochreiter, Schmidhuber 1997 (LSTM); Bahdanau, Cho,
Bengio 2015 (attention).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Cell(ABC):
    """The arithmetic of a cell after the products, one step forward and one step back.

    Every tensor has the width of a state last, gates have several times that; what comes before is the same everywhere.
    """

    gates: int
    """Gates: a vector of them is so many states wide."""
    parts: int
    """Kinds of state: hidden, and the LSTM's cell."""
    kept: int
    """What a step leaves for its way back, in widths of a state."""

    @abstractmethod
    def forward(
        self, given: Tensor, recurrent: Tensor, before: Sequence[Tensor], after: Sequence[Tensor], kept: Tensor
    ) -> None:
        """Write the state after a step, and into `kept` what `backward` needs.

        Args:
            given: The input's part of the gates, biases included.
            recurrent: The same of the hidden state before.
            before: The state before.
            after: Where the state after goes.
            kept: Room for what is needed on the way back.
        """

    @abstractmethod
    def backward(
        self,
        above: Sequence[Tensor],
        before: Sequence[Tensor],
        after: Sequence[Tensor],
        kept: Tensor,
        *,
        given: Tensor,
        recurrent: Tensor,
    ) -> list[Tensor]:
        """Write the gradients of both parts of the gates; return those of the state before that do not go through `recurrent`.

        Args:
            above: Gradients of the state after.
            before: The state before.
            after: The state after.
            kept: What `forward` left.
            given: Where the gradient of the input's part goes.
            recurrent: Where the gradient of the hidden state's part goes.
        """


class GruCell(Cell):
    """h' = (1 - z) n + z h with n = tanh(x_n + r h_n), r and z sigmoids of sums; gates in the order r, z, n."""

    gates, parts, kept = 3, 1, 4

    def forward(
        self, given: Tensor, recurrent: Tensor, before: Sequence[Tensor], after: Sequence[Tensor], kept: Tensor
    ) -> None:
        """Write the state after a step; kept are r, z, n and h_n."""
        width = before[0].shape[-1]
        reset, update, new, hidden_new = kept.chunk(4, dim=-1)
        torch.add(given[..., : 2 * width], recurrent[..., : 2 * width], out=kept[..., : 2 * width]).sigmoid_()
        hidden_new.copy_(recurrent[..., 2 * width :])
        torch.addcmul(given[..., 2 * width :], reset, hidden_new, out=new)
        new.tanh_()
        torch.lerp(new, before[0], update, out=after[0])

    def backward(
        self,
        above: Sequence[Tensor],
        before: Sequence[Tensor],
        after: Sequence[Tensor],
        kept: Tensor,
        *,
        given: Tensor,
        recurrent: Tensor,
    ) -> list[Tensor]:
        """Write the gradients of both parts of the gates."""
        width = before[0].shape[-1]
        reset, update, new, hidden_new = kept.chunk(4, dim=-1)
        to_reset, to_update, to_new = given.chunk(3, dim=-1)
        through = above[0] * update
        torch.sub(above[0], through, out=to_new)  # above (1 - z)
        torch.addcmul(to_new, to_new * new, new, value=-1, out=to_new)  # … (1 - n²)
        torch.sub(before[0], new, out=to_update)
        to_update.mul_(through).addcmul_(to_update, update, value=-1)  # above (h - n) z (1 - z)
        torch.mul(torch.mul(to_new, reset, out=recurrent[..., 2 * width :]), hidden_new, out=to_reset)
        to_reset.addcmul_(to_reset, reset, value=-1)  # … h_n r (1 - r)
        recurrent[..., : 2 * width] = given[..., : 2 * width]
        return [through]


class LstmCell(Cell):
    """c' = f c + i g, h' = o tanh(c'), with i, f, o sigmoids and g a tanh of sums; gates in the order i, f, g, o."""

    gates, parts, kept = 4, 2, 5

    def forward(
        self, given: Tensor, recurrent: Tensor, before: Sequence[Tensor], after: Sequence[Tensor], kept: Tensor
    ) -> None:
        """Write the state after a step; kept are i, f, g, o and tanh(c')."""
        width = before[0].shape[-1]
        enter, forget, new, out, tanh_cell = kept.chunk(5, dim=-1)
        torch.add(given, recurrent, out=kept[..., : 4 * width])
        kept[..., : 2 * width].sigmoid_()
        new.tanh_()
        out.sigmoid_()
        torch.mul(forget, before[1], out=after[1])
        after[1].addcmul_(enter, new)
        torch.tanh(after[1], out=tanh_cell)
        torch.mul(out, tanh_cell, out=after[0])

    def backward(
        self,
        above: Sequence[Tensor],
        before: Sequence[Tensor],
        after: Sequence[Tensor],
        kept: Tensor,
        *,
        given: Tensor,
        recurrent: Tensor,
    ) -> list[Tensor]:
        """Write the gradients of both parts of the gates; they are the same."""
        enter, forget, new, out, tanh_cell = kept.chunk(5, dim=-1)
        to_enter, to_forget, to_new, to_out = given.chunk(4, dim=-1)
        of_cell = above[0] * out
        of_cell.addcmul_(of_cell * tanh_cell, tanh_cell, value=-1).add_(above[1])  # … (1 - tanh²) + what comes from later
        torch.mul(above[0], tanh_cell, out=to_out)
        torch.mul(of_cell, new, out=to_enter)
        torch.mul(of_cell, before[1], out=to_forget)
        torch.mul(of_cell, enter, out=to_new)
        to_new.addcmul_(to_new * new, new, value=-1)
        for gradient, gate in ((to_enter, enter), (to_forget, forget), (to_out, out)):
            gradient.mul_(gate).addcmul_(gradient, gate, value=-1)
        recurrent.copy_(given)
        return [torch.zeros_like(above[0]), of_cell.mul_(forget)]


CELLS: Mapping[str, Cell] = {"gru": GruCell(), "lstm": LstmCell()}
"""Name in the config -> arithmetic."""


def _cut(tensors: Sequence[Tensor], counts: list[int]) -> list[tuple[Tensor, ...]]:
    """Return for each step the views of its tokens; tensors are `(directions, N, …)`."""
    return list(zip(*(torch.split(tensor, counts, dim=1) for tensor in tensors), strict=True))


class Reading(torch.autograd.Function):
    """A layer's loop over packed sentences, both directions side by side.

    `apply(cell, counts, gates, weight, bias)`: counts are the sentences at each step, never more than at the step before; gates
    `(directions, N, gates x H)` are the input's part, N tokens step after step; weight `(directions, gates x H, H)` and bias
    `(directions, gates x H)` make the hidden state's part. Returns hidden (and cell) of all tokens, `(directions, N, H)` each.
    The first state is zero.
    """

    @staticmethod
    def forward(ctx: Any, cell: Cell, counts: list[int], gates: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        """Go from the first step to the last."""
        directions, tokens, _ = gates.shape
        width = weight.shape[2]
        states = tuple(gates.new_empty(directions, tokens, width) for _ in range(cell.parts))
        kept = gates.new_empty(directions, tokens, cell.kept * width)
        before: Sequence[Tensor] = [gates.new_zeros(directions, counts[0], width)] * cell.parts
        for count, after, (given, room) in zip(counts, _cut(states, counts), _cut((gates, kept), counts), strict=True):
            before = [part[:, :count] for part in before]
            cell.forward(given, torch.baddbmm(bias.unsqueeze(1), before[0], weight.mT), before, after, room)
            before = after
        ctx.save_for_backward(weight, kept, *states)
        ctx.cell, ctx.counts = cell, counts
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        """Go back from the last step to the first."""
        weight, kept, *states = ctx.saved_tensors
        cell, counts = ctx.cell, ctx.counts
        directions, tokens, width = states[0].shape
        of_gates = kept.new_empty(directions, tokens, cell.gates * width)
        of_recurrent = torch.empty_like(of_gates)
        hidden_before = torch.empty_like(states[0])
        later: list[Tensor] = []  # gradients from the steps after, of the sentences that had them
        reached, wanted = _cut(states, counts), _cut(above, counts)
        whole = (kept, of_gates, of_recurrent, hidden_before)
        for step, (room, given, recurrent, hidden) in reversed(list(enumerate(_cut(whole, counts)))):
            gradients = [part.clone() for part in wanted[step]]
            for gradient, more in zip(gradients, later, strict=bool(later)):
                gradient[:, : more.shape[1]] += more
            if step:
                before = [part[:, : counts[step]] for part in reached[step - 1]]
            else:
                before = [torch.zeros_like(part) for part in reached[0]]
            hidden.copy_(before[0])
            later = cell.backward(gradients, before, reached[step], room, given=given, recurrent=recurrent)
            later[0].baddbmm_(recurrent, weight)
        of_weight = of_recurrent.mT @ hidden_before
        return None, None, of_gates, of_weight, of_recurrent.sum(dim=1)


@dataclass(frozen=True)
class Layer:
    """Weights of a decoder layer.

    Args:
        recurrent: `(gates x H, H)`, from the hidden state before; in the top layer followed by `(A, H)`, the attention's query.
        recurrent_bias: `(gates x H,)`.
        input: `(gates x H, H)`, from the layer below; None in the first one, whose part is given.
        input_bias: `(gates x H,)`, or None as there.
    """

    recurrent: Tensor
    recurrent_bias: Tensor
    input: Tensor | None = None
    input_bias: Tensor | None = None


@dataclass(frozen=True)
class Factors:
    """What dropout multiplies by: attention weights `(T, B, S)`, the input of the upper layers `(layers - 1, T, B, H)`."""

    weights: Tensor | None = None
    inputs: Tensor | None = None


def write(
    cell: Cell,
    layers: Sequence[Layer],
    gates: Tensor,
    state: Tensor,
    score: Tensor,
    prepared: Tensor,
    source_gates: Tensor,
    hidden: Tensor,
    factors: Factors,
) -> tuple[Tensor, Tensor]:
    """Go through a decoder's loop: at each step additive attention, asked by the top layer's state before, then the cells.

    Args:
        cell: The arithmetic of all layers.
        layers: Their weights, the first one first.
        gates: `(T, B, gates x H)`, the input token's part of the first layer's gates.
        state: The first hidden (and cell), `(parts, layers, B, H)`.
        score: `(A,)`, w_v.
        prepared: `(B, S, A)`, the keys.
        source_gates: `(B, S, gates x H)`, what the first layer's gates take of each source position.
        hidden: `(B, S)` bool, True where there is no token.
        factors: Of dropout.

    Returns:
        The hidden states of the top layer, `(T, B, H)`, and the last hidden (and cell), `(parts, layers, B, H)`.
    """
    weights = [part for layer in layers for part in (layer.recurrent, layer.recurrent_bias, layer.input, layer.input_bias)]
    dropped = (factors.weights, factors.inputs)
    reached: tuple[Tensor, Tensor] = _Writing.apply(
        cell, gates, state, score, prepared, source_gates, hidden, *dropped, *weights
    )  # type: ignore[no-untyped-call]
    return reached


def _layers_of(parts: Sequence[Tensor | None]) -> list[Layer]:
    return [Layer(*parts[start : start + 4]) for start in range(0, len(parts), 4)]  # type: ignore[arg-type]


def _steps_of(states: Tensor) -> list[list[tuple[Tensor, ...]]]:
    """Return views of `(parts, layers, T + 1, B, H)`: for each layer and step hidden (and cell)."""
    return [list(zip(*(part.unbind() for part in layer.unbind()), strict=True)) for layer in states.unbind(dim=1)]


class _Writing(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        cell: Cell,
        gates: Tensor,
        state: Tensor,
        score: Tensor,
        prepared: Tensor,
        source_gates: Tensor,
        hidden: Tensor,
        weight_factors: Tensor | None,
        input_factors: Tensor | None,
        *parts: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        layers = _layers_of(parts)
        steps, rows, gate_width = gates.shape
        top, width = len(layers) - 1, state.shape[3]
        states = gates.new_empty(cell.parts, len(layers), steps + 1, rows, width)
        states[:, :, 0] = state
        inputs = gates.new_empty(top, steps, rows, width)  # of the upper layers
        kept = gates.new_empty(len(layers), steps, rows, cell.kept * width)
        reached, kept_steps = _steps_of(states), [layer.unbind() for layer in kept]
        features: list[Tensor] = []
        weights = gates.new_empty(steps, rows, prepared.shape[1])
        top_bias = torch.cat((layers[top].recurrent_bias, score.new_zeros(len(score))))
        for step in range(steps):
            products = [
                torch.addmm(top_bias if index == top else layer.recurrent_bias, reached[index][step][0], layer.recurrent.T)
                for index, layer in enumerate(layers)
            ]
            query = products[top][:, gate_width:]
            features.append((prepared + query.unsqueeze(1)).tanh_())  # (B, S, A)
            scores = torch.matmul(features[step], score).masked_fill_(hidden, torch.finfo(gates.dtype).min)
            torch.softmax(scores, dim=1, out=weights[step])
            weights[step].masked_fill_(hidden, 0.0)  # a sentence without a token
            weighing = weights[step] if weight_factors is None else weights[step] * weight_factors[step]
            given = torch.bmm(weighing.unsqueeze(1), source_gates).squeeze(1).add_(gates[step])
            for index, layer in enumerate(layers):
                if layer.input is not None and layer.input_bias is not None:
                    below = reached[index - 1][step + 1][0]
                    scale = 1.0 if input_factors is None else input_factors[index - 1, step]
                    torch.mul(below, scale, out=inputs[index - 1, step])
                    given = torch.addmm(layer.input_bias, inputs[index - 1, step], layer.input.T)
                before, after = reached[index][step : step + 2]
                cell.forward(given, products[index][:, :gate_width], before, after, kept_steps[index][step])
        made = (inputs, kept, states, weights, *features)
        ctx.save_for_backward(score, source_gates, weight_factors, input_factors, *parts, *made)
        ctx.cell, ctx.parts = cell, len(parts)
        return states[0, top, 1:], states[:, :, steps].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor, of_last: Tensor) -> tuple[Tensor | None, ...]:
        score, source_gates, weight_factors, input_factors, *saved = ctx.saved_tensors
        cell, layers = ctx.cell, _layers_of(saved[: ctx.parts])
        inputs, kept, states, weights, *features = saved[ctx.parts :]
        steps, rows, width = above.shape
        top, gate_width = len(layers) - 1, cell.gates * width
        reached, kept_steps = _steps_of(states), [layer.unbind() for layer in kept]
        of_gates = kept.new_empty(len(layers), steps, rows, gate_width)
        of_gates_steps = [layer.unbind() for layer in of_gates]
        of_products = [kept.new_empty(steps, rows, len(layer.recurrent)) for layer in layers]
        slopes = torch.zeros_like(features[0])  # summed over steps, score by score: times w_v the gradient of the keys
        of_score = torch.zeros_like(score)
        later = [[part.clone() for part in layer] for layer in of_last.unbind(dim=1)]
        one = weights.new_ones(())
        for step in reversed(range(steps)):
            later[top][0] += above[step]
            for index in reversed(range(len(layers))):
                before, after = reached[index][step : step + 2]
                gradients, recurrent = of_gates_steps[index][step], of_products[index][step, :, :gate_width]
                later[index] = cell.backward(
                    later[index], before, after, kept_steps[index][step], given=gradients, recurrent=recurrent
                )
                if (weight := layers[index].input) is not None:
                    of_input = torch.mm(gradients, weight)
                    later[index - 1][0] += of_input if input_factors is None else of_input * input_factors[index - 1, step]
            of_weights = torch.bmm(of_gates_steps[0][step].unsqueeze(1), source_gates.mT)  # (B, 1, S)
            if weight_factors is not None:
                of_weights *= weight_factors[step].unsqueeze(1)
            of_scores = torch.ops.aten._softmax_backward_data(of_weights, weights[step].unsqueeze(1), -1, weights.dtype)
            slope = torch.addcmul(one, features[step], features[step], value=-1)  # of tanh
            torch.mul(torch.bmm(of_scores, slope).squeeze(1), score, out=of_products[top][step, :, gate_width:])
            slopes.addcmul_(of_scores.mT, slope)
            of_score.addmv_(features[step].flatten(0, 1).T, of_scores.flatten())
            for index, layer in enumerate(layers):
                later[index][0].addmm_(of_products[index][step], layer.recurrent)
        weighing = weights if weight_factors is None else weights * weight_factors
        of_source = torch.bmm(weighing.permute(1, 2, 0), of_gates[0].transpose(0, 1))
        of_state = torch.stack([torch.stack(parts) for parts in zip(*later, strict=True)])
        of_layers: list[Tensor | None] = []
        for index, of_product in enumerate(of_products):
            of_layers.append(of_product.flatten(0, 1).T @ states[0, index, :-1].flatten(0, 1))
            of_layers.append(of_product[..., :gate_width].sum(dim=(0, 1)))
            of_layers.append(of_gates[index].flatten(0, 1).T @ inputs[index - 1].flatten(0, 1) if index else None)
            of_layers.append(of_gates[index].sum(dim=(0, 1)) if index else None)
        return None, of_gates[0], of_state, of_score, slopes.mul_(score), of_source, None, None, None, *of_layers
