"""The recurrent model: GRU or LSTM encoder, GRU or LSTM decoder that looks at the source through attention.

At each step the query is the decoder's top state of the step before; the context, joined with the input embedding, feeds the
decoder. Reference: Bahdanau, Cho, Bengio 2015, section 3 and appendix A.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from nmt_cli.attention.scoring import AdditiveScore, Attention
from nmt_cli.models.dropout import factors_of
from nmt_cli.models.interface import Decoder, DecoderOutput, DecoderState, Encoded, Encoder, split_order
from nmt_cli.models.recurrence import CELLS, Factors, Layer, Reading, write
from nmt_cli.models.repeated import RepeatedProduct

LayerState = tuple[Tensor, ...]
"""`(hidden,)` of a GRU layer, `(hidden, cell)` of an LSTM layer, each `(B, hidden width)`."""


class RecurrentEncoder(Encoder):
    """Layers of GRU or LSTM over the real tokens of each sentence, one-way or two-way.

    Args:
        embedding: Source embedding.
        cell: `gru` or `lstm`.
        hidden_size: Width of one direction.
        layers: Number of layers.
        bidirectional: Read in both directions and join the outputs.
        embedding_dropout: Applied to embedded tokens.
        dropout: Applied between layers.
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        *,
        cell: str,
        hidden_size: int,
        layers: int,
        bidirectional: bool,
        embedding_dropout: nn.Module,
        dropout: nn.Module,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.embedding_dropout = embedding_dropout
        self.dropout = dropout
        kind = {"gru": nn.GRU, "lstm": nn.LSTM}[cell]
        width = hidden_size * (2 if bidirectional else 1)
        self.layers = nn.ModuleList(
            kind(width if index else embedding.embedding_dim, hidden_size, batch_first=True, bidirectional=bidirectional)
            for index in range(layers)
        )

    def forward(self, source_ids: Tensor, source_visible: Tensor, *, want_weights: bool = False) -> Encoded:
        """Encode; padding is not read, and the final state is that of the last real token. There are no weights to give."""
        lengths = source_visible.sum(dim=1).clamp(min=1)  # packing refuses empty sentences; their memory stays hidden
        states = self.embedding_dropout(self.embedding(source_ids))  # (B, S) -> (B, S, E)
        layers = [cast(nn.RNNBase, layer) for layer in self.layers]
        if states.device.type == "cuda" and layers[0].mode == "GRU":  # packing would wait for the lengths
            states, finals = self._read_all_padded(layers, states, lengths)
        else:
            with _full_precision_on_cpu(states):
                states, finals = self._read_all_packed(layers, states, lengths.cpu())
        final = [tuple(_join_directions(part) for part in layer) for layer in finals]
        return Encoded(states, source_visible, tuple(torch.stack(parts) for parts in zip(*final, strict=True)))

    def _read_all_packed(
        self, layers: Sequence[nn.RNNBase], states: Tensor, lengths: Tensor
    ) -> tuple[Tensor, list[LayerState]]:
        """Return the top layer's states `(B, S, D)`, and the final ones of each layer, `(directions, B, H)`."""
        packed = pack_padded_sequence(states, lengths, batch_first=True, enforce_sorted=False)
        # torch's own layers take the gradients of their weights step by step
        order = Order.of(packed, lengths) if torch.is_grad_enabled() and states.device.type == "cpu" else None
        finals: list[LayerState] = []
        for index, layer in enumerate(layers):
            if index:
                packed = packed._replace(data=self.dropout(packed.data))
            packed, final = layer(packed) if order is None else read_packed(layer, packed, order)
            finals.append(final if isinstance(final, tuple) else (final,))
        return pad_packed_sequence(packed, batch_first=True, total_length=states.shape[1])[0], finals

    def _read_all_padded(
        self, layers: Sequence[nn.RNNBase], states: Tensor, lengths: Tensor
    ) -> tuple[Tensor, list[LayerState]]:
        """Do the same without packing, for layers of GRU."""
        finals: list[LayerState] = []
        for index, layer in enumerate(layers):
            states, final = read_padded(layer, self.dropout(states) if index else states, lengths)
            finals.append(final)
        return states, finals


def read_padded(layer: nn.RNNBase, states: Tensor, lengths: Tensor) -> tuple[Tensor, LayerState]:
    """Do what a `torch.nn.GRU` of one layer does with packed sentences, without packing, which needs the lengths at hand.

    Padding comes last, so that it reaches no state of a real token; the backward direction reads each sentence from its end.

    Args:
        layer: One layer of GRU, one-way or two-way.
        states: `(B, S, E)`.
        lengths: Tokens of each sentence, `(B,)` int64, on the same device.

    Returns:
        States `(B, S, directions x H)`, zero at padding, and the final ones, `(directions, B, H)`.
    """
    positions = torch.arange(states.shape[1], device=states.device)
    last = lengths.unsqueeze(1) - 1  # (B, 1)
    mirrored = torch.where(positions <= last, last - positions, positions)  # (B, S)

    def turned(x: Tensor) -> Tensor:
        return x.gather(1, mirrored.unsqueeze(2).expand_as(x))

    read: list[Tensor] = []
    for suffix in ("", "_reverse") if layer.bidirectional else ("",):
        weights = [getattr(layer, f"{name}_l0{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        zero = states.new_zeros(1, len(states), layer.hidden_size)
        inputs = turned(states) if suffix else states
        read.append(torch.gru(inputs, zero, weights, True, 1, 0.0, layer.training, False, True)[0])
    final = torch.stack([x.gather(1, last.unsqueeze(2).expand(-1, 1, x.shape[2])).squeeze(1) for x in read])
    joined = torch.cat([read[0], *(turned(x) for x in read[1:])], dim=2)
    return joined * (positions <= last).unsqueeze(2), (final,)


@dataclass(frozen=True)
class Order:
    """Where the tokens of B packed sentences lie, which are sorted, the longest first. For sentences on a CPU.

    Args:
        counts: Sentences at each step.
        mirrored: For each of the N tokens the one as far from the other end of its sentence, int64 `(N,)`.
        last: The last token of each sentence, in the order before sorting, int64 `(B,)`.
    """

    counts: list[int]
    mirrored: Tensor
    last: Tensor

    @classmethod
    def of(cls, packed: PackedSequence, lengths: Tensor) -> Self:
        """Return the order of a packed sequence of sentences of these lengths."""
        sizes = packed.batch_sizes
        lengths = lengths[packed.sorted_indices]
        starts = sizes.cumsum(dim=0) - sizes  # where the tokens of each step begin
        steps = torch.repeat_interleave(sizes)
        rows = torch.arange(len(steps)) - starts[steps]
        mirrored = starts[lengths[rows] - 1 - steps] + rows
        last = starts[lengths - 1] + torch.arange(len(lengths))
        return cls(sizes.tolist(), mirrored, last[packed.unsorted_indices])


def read_packed(layer: nn.RNNBase, packed: PackedSequence, order: Order) -> tuple[PackedSequence, LayerState]:
    """Do what a `torch.nn.GRU` or `LSTM` of one layer does, with the gradients of its weights in one product each.

    Both directions go side by side: the backward one reads each sentence from its end, so that at each step both have the same
    sentences left.

    Args:
        layer: One layer, one-way or two-way.
        packed: N real tokens, `(N, E)`.
        order: Where these lie.

    Returns:
        States of all tokens, and the final states: hidden (and cell), each `(directions, B, H)`.
    """
    suffixes = ("", "_reverse") if layer.bidirectional else ("",)

    def stacked(name: str) -> Tensor:
        return torch.stack([cast(Tensor, getattr(layer, f"{name}_l0{suffix}")) for suffix in suffixes])

    def turned(data: Tensor) -> Tensor:
        return data.index_select(0, order.mirrored)

    inputs = torch.stack([packed.data, turned(packed.data)]) if layer.bidirectional else packed.data.unsqueeze(0)
    gates = torch.baddbmm(stacked("bias_ih").unsqueeze(1), inputs, stacked("weight_ih").mT)  # (directions, N, gates x H)
    states: tuple[Tensor, ...] = Reading.apply(  # (directions, N, H)
        CELLS[layer.mode.lower()], order.counts, gates, stacked("weight_hh"), stacked("bias_hh")
    )  # type: ignore[no-untyped-call]
    final = tuple(part.index_select(1, order.last) for part in states)
    hidden = states[0]
    data = torch.cat((hidden[0], turned(hidden[1])), dim=1) if layer.bidirectional else hidden[0]
    return packed._replace(data=data), final


def _full_precision_on_cpu(states: Tensor) -> AbstractContextManager[object]:
    """Return a context without autocast on a CPU, whose kernels have no bfloat16 form of every recurrent layer."""
    return torch.autocast("cpu", enabled=False) if states.device.type == "cpu" else nullcontext()


def _join_directions(final: Tensor) -> Tensor:
    """Return `(directions, B, H)` as `(B, directions x H)`."""
    return final.transpose(0, 1).flatten(1)


class Bridge(nn.Module):
    """The decoder's first state from the encoder's final one: as it is, or through a dense layer with tanh for each layer.

    Args:
        kind: `copy` or `dense`.
        encoder_width: Width of the encoder's final state, both directions joined.
        hidden_size: Width of the decoder's state.
        layers: Layers of the decoder; with fewer encoder layers its last one serves those above.
        parts: Kinds of state: 1 for GRU, 2 for LSTM (hidden and cell).
    """

    def __init__(self, kind: str, encoder_width: int, hidden_size: int, *, layers: int, parts: int) -> None:
        super().__init__()
        self.layers = layers
        self.dense = nn.ModuleList(
            nn.ModuleList(nn.Linear(encoder_width, hidden_size) for _ in range(parts))
            for _ in range(layers if kind == "dense" else 0)
        )

    def forward(self, final: Sequence[Tensor]) -> tuple[LayerState, ...]:
        """Return the state of each decoder layer from `(layers, B, D)` per kind of state."""
        taken = [tuple(part[min(layer, len(part) - 1)] for part in final) for layer in range(self.layers)]
        if not self.dense:
            return tuple(taken)
        return tuple(
            tuple(torch.tanh(layer(part)) for layer, part in zip(cast(nn.ModuleList, dense), parts, strict=True))
            for dense, parts in zip(self.dense, taken, strict=True)
        )


@dataclass(frozen=True)
class RecurrentState:
    """State of each decoder layer, and the source side of each sentence, which its `beams` rows share.

    Args:
        layers: `(B x beams, hidden width)` of each layer and kind of state.
        prepared: `(B, S, …)`, the keys, prepared once.
        memory: `(B, S, D)`.
        visible: Bool `(B, S)`.
        beams: Rows of each sentence.
        gates: `(B, S, gates)`, what the first layer's gates take of each source position, where it was projected once for all
            rows and steps: an average of these is what the context's projection would be.
    """

    layers: tuple[LayerState, ...]
    prepared: Tensor
    memory: Tensor
    visible: Tensor
    beams: int = 1
    gates: Tensor | None = None

    def reorder(self, order: Tensor, beams: int | None = None) -> Self:
        """Return the state of the rows `order`."""
        beams = beams or self.beams
        _, sentences = split_order(order, self.beams, beams, len(self.visible))
        layers = tuple(tuple(part.index_select(0, order) for part in layer) for layer in self.layers)
        if sentences is None:
            return replace(self, layers=layers, beams=beams)
        prepared, memory, visible = (part.index_select(0, sentences) for part in (self.prepared, self.memory, self.visible))
        gates = None if self.gates is None else self.gates.index_select(0, sentences)
        return replace(self, layers=layers, prepared=prepared, memory=memory, visible=visible, beams=beams, gates=gates)


class RecurrentDecoder(Decoder):
    """Layers of GRU or LSTM cells fed with the input embedding and the attention's context.

    Args:
        embedding: Target embedding.
        attention: Queries are decoder states, keys and values encoder outputs.
        bridge: Makes the first state.
        cell: `gru` or `lstm`.
        memory_width: Width of encoder outputs.
        hidden_size: Width of the states.
        layers: Number of layers.
        output: Layer from the top state to the vocabulary.
        embedding_dropout: Applied to embedded tokens.
        dropout: Applied between layers.
        output_dropout: Applied to the top state before the output layer.
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        attention: Attention,
        bridge: Bridge,
        output: nn.Linear,
        *,
        cell: str,
        memory_width: int,
        hidden_size: int,
        layers: int,
        embedding_dropout: nn.Module,
        dropout: nn.Module,
        output_dropout: nn.Module,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.attention = attention
        self.bridge = bridge
        self.output = output
        self.embedding_dropout = embedding_dropout
        self.dropout = dropout
        self.output_dropout = output_dropout
        kind = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}[cell]
        self.cells = nn.ModuleList(
            kind(hidden_size if index else embedding.embedding_dim + memory_width, hidden_size) for index in range(layers)
        )
        self._cell, self._step = CELLS[cell], {"gru": gru_step, "lstm": lstm_step}[cell]

    def start(self, encoded: Encoded) -> RecurrentState:
        """Return the state before the first token; keys are projected here, once a sentence."""
        prepared = self.attention.prepare(encoded.memory)
        return RecurrentState(self.bridge(encoded.final), prepared, encoded.memory, encoded.visible)

    def forward(
        self, target_ids: Tensor, state: DecoderState, *, want_weights: bool = False
    ) -> tuple[DecoderOutput, RecurrentState]:
        """Read T tokens, one after the other. Weights: `cross.0` `(B, 1, T, S)`."""
        assert isinstance(state, RecurrentState)
        assert state.beams == 1 or not want_weights
        if torch.is_grad_enabled() and not want_weights and self._has_own_backward(state):
            return self._read_whole(target_ids, state)
        embedded = self.embedding_dropout(self.embedding(target_ids))  # (B, T) -> (B, T, E)
        cells = [cast(nn.GRUCell, cell) for cell in self.cells]
        from_embedding, from_context = cells[0].weight_ih.tensor_split([embedded.shape[2]], dim=1)
        inputs = functional.linear(embedded, from_embedding, cells[0].bias_ih)  # what does not depend on the step before
        layers = tuple(tuple(part.to(inputs.dtype) for part in layer) for layer in state.layers)  # bfloat16 under autocast
        if state.beams > 1 and state.gates is None:
            state = replace(state, gates=functional.linear(state.memory, from_context))  # (B, S, D) -> (B, S, gates)
        query_layer = self.attention.score.query_layer
        project = nn.Identity() if query_layer is None else RepeatedProduct(query_layer.weight.T)
        average = RepeatedProduct(state.memory if state.gates is None else state.gates)
        context_gates = RepeatedProduct(from_context.T) if state.gates is None else nn.Identity()
        hidden_gates = [RepeatedProduct(cell.weight_hh.T, cell.bias_hh) for cell in cells]
        input_gates = [RepeatedProduct(cell.weight_ih.T, cell.bias_ih) for cell in cells[1:]]
        hidden, weights = [], []
        for gates in inputs.unbind(dim=1):  # (B, T, gates) -> T x (B, gates)
            query = project(layers[-1][0])
            query = query.view(-1, state.beams, query.shape[1])  # (B x beams, A) -> (B, beams, A)
            row = self.attention.weigh(query, state.prepared, state.visible)
            context = average(self.attention.dropout(row)).flatten(0, 1)  # (B, beams, D) -> (B x beams, D)
            gates = gates + context_gates(context)
            after: list[LayerState] = []
            for index, before in enumerate(layers):
                if index:
                    gates = input_gates[index - 1](self.dropout(after[-1][0]))
                after.append(self._step(gates, hidden_gates[index](before[0]), before))
            layers = tuple(after)
            hidden.append(layers[-1][0])
            weights.append(row)
        output = self.output_dropout(torch.stack(hidden, dim=1))  # T x (B, H) -> (B, T, H)
        named = {"cross.0": torch.cat(weights, dim=1).unsqueeze(1)} if want_weights else {}  # T x (B, 1, S) -> (B, 1, T, S)
        return DecoderOutput(output, named), replace(state, layers=layers)

    def _has_own_backward(self, state: RecurrentState) -> bool:
        """Return whether `write` does what this decoder does: additive attention, and no autocast."""
        additive = isinstance(self.attention.score, AdditiveScore)
        return additive and state.beams == 1 and not torch.is_autocast_enabled(state.memory.device.type)

    def _read_whole(self, target_ids: Tensor, state: RecurrentState) -> tuple[DecoderOutput, RecurrentState]:
        """Read T tokens at once, with the loop whose backward pass is its own."""
        cells, score = [cast(nn.GRUCell, cell) for cell in self.cells], cast(AdditiveScore, self.attention.score)
        query_weight = score.query_layer.weight
        embedded = self.embedding_dropout(self.embedding(target_ids.T))  # (T, B, E)
        from_embedding, from_context = cells[0].weight_ih.tensor_split([embedded.shape[2]], dim=1)
        first = cells[0] is cells[-1]
        layers = [Layer(torch.cat((cells[0].weight_hh, query_weight)) if first else cells[0].weight_hh, cells[0].bias_hh)]
        for cell in cells[1:]:
            weight = torch.cat((cell.weight_hh, query_weight)) if cell is cells[-1] else cell.weight_hh
            layers.append(Layer(weight, cell.bias_hh, cell.weight_ih, cell.bias_ih))
        steps, (rows, source) = len(embedded), state.visible.shape
        between = embedded.new_empty(len(cells) - 1, steps, rows, cells[0].hidden_size)
        factors = Factors(
            factors_of(self.attention.dropout, embedded.new_empty(steps, rows, source)), factors_of(self.dropout, between)
        )
        hidden, last = write(
            self._cell,
            layers,
            functional.linear(embedded, from_embedding, cells[0].bias_ih),
            torch.stack([torch.stack(parts) for parts in zip(*state.layers, strict=True)]),
            score.value_layer.weight[0],
            state.prepared,
            functional.linear(state.memory, from_context),  # once a sentence: the average of these is that of the contexts
            ~state.visible,
            factors,
        )
        reached = tuple(layer.unbind() for layer in last.unbind(dim=1))
        return DecoderOutput(self.output_dropout(hidden).transpose(0, 1)), replace(state, layers=reached)

    @property
    def output_layer(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of the output layer."""
        return self.output.weight, self.output.bias


def gru_step(from_input: Tensor, from_hidden: Tensor, state: LayerState) -> LayerState:
    """Return the next state of a GRU layer, as `torch.nn.GRUCell` defines it.

    Args:
        from_input: `(…, 3 H)`, the input's part of reset, update and new gates, biases included.
        from_hidden: `(…, 3 H)`, the same of the state before.
        state: `(hidden,)`, each `(…, H)`.
    """
    width = state[0].shape[-1]
    (input_gates, input_new), (hidden_gates, hidden_new) = (
        torch.split(part, [2 * width, width], dim=-1) for part in (from_input, from_hidden)
    )
    reset, update = (input_gates + hidden_gates).sigmoid().chunk(2, dim=-1)
    new = torch.tanh(torch.addcmul(input_new, reset, hidden_new))
    return (torch.lerp(new, state[0], update),)


def lstm_step(from_input: Tensor, from_hidden: Tensor, state: LayerState) -> LayerState:
    """Return the next state of an LSTM layer, as `torch.nn.LSTMCell` defines it; arguments as of `gru_step`, four gates."""
    enter, forget, new, out = (from_input + from_hidden).chunk(4, dim=-1)
    cell = forget.sigmoid() * state[1] + enter.sigmoid() * new.tanh()
    return out.sigmoid() * cell.tanh(), cell
