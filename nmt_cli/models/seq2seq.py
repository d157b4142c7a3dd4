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
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nmt_cli.attention.scoring import Attention
from nmt_cli.models.interface import Decoder, DecoderOutput, DecoderState, Encoded, Encoder, split_order

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
        lengths = source_visible.sum(dim=1).clamp(min=1).cpu()  # packing refuses empty sentences; their memory stays hidden
        states = self.embedding_dropout(self.embedding(source_ids))  # (B, S) -> (B, S, E)
        finals: list[LayerState] = []
        for index, layer in enumerate(self.layers):
            if index:
                states = self.dropout(states)
            packed = pack_padded_sequence(states, lengths, batch_first=True, enforce_sorted=False)
            with _full_precision_on_cpu(states):
                packed_states, final = layer(packed)
            states, _ = pad_packed_sequence(packed_states, batch_first=True, total_length=source_ids.shape[1])
            finals.append(tuple(_join_directions(part) for part in (final if isinstance(final, tuple) else (final,))))
        return Encoded(states, source_visible, tuple(torch.stack(parts) for parts in zip(*finals, strict=True)))


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
        self._step = {"gru": gru_step, "lstm": lstm_step}[cell]

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
        embedded = self.embedding_dropout(self.embedding(target_ids))  # (B, T) -> (B, T, E)
        first = cast(nn.GRUCell, self.cells[0])
        from_embedding, from_context = first.weight_ih.tensor_split([embedded.shape[2]], dim=1)
        inputs = functional.linear(embedded, from_embedding, first.bias_ih)  # what does not depend on the step before
        layers = tuple(tuple(part.to(inputs.dtype) for part in layer) for layer in state.layers)  # bfloat16 under autocast
        if state.beams > 1 and state.gates is None:
            state = replace(state, gates=functional.linear(state.memory, from_context))  # (B, S, D) -> (B, S, gates)
        values = state.memory if state.gates is None else state.gates
        hidden, weights = [], []
        for gates in inputs.unbind(dim=1):  # (B, T, gates) -> T x (B, gates)
            query = layers[-1][0].view(-1, state.beams, layers[-1][0].shape[1])  # (B x beams, H) -> (B, beams, H)
            context, row = self.attention(query, state.prepared, values, state.visible)
            context = context.flatten(0, 1)  # (B, beams, D) -> (B x beams, D)
            gates = gates + (functional.linear(context, from_context) if state.gates is None else context)
            layers = self._advance(gates, layers)
            hidden.append(layers[-1][0])
            weights.append(row)
        output = self.output_dropout(torch.stack(hidden, dim=1))  # T x (B, H) -> (B, T, H)
        named = {"cross.0": torch.cat(weights, dim=1).unsqueeze(1)} if want_weights else {}  # T x (B, 1, S) -> (B, 1, T, S)
        return DecoderOutput(output, named), replace(state, layers=layers)

    def _advance(self, gates: Tensor, layers: tuple[LayerState, ...]) -> tuple[LayerState, ...]:
        """Return the layers' states one step on; `gates` is the input part of the first layer's gates."""
        after: list[LayerState] = []
        for index, (module, before) in enumerate(zip(self.cells, layers, strict=True)):
            cell = cast(nn.GRUCell, module)
            if index:
                gates = functional.linear(self.dropout(after[-1][0]), cell.weight_ih, cell.bias_ih)
            after.append(self._step(gates, functional.linear(before[0], cell.weight_hh, cell.bias_hh), before))
        return tuple(after)

    @property
    def output_layer(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of the output layer."""
        return self.output.weight, self.output.bias


def gru_step(from_input: Tensor, from_hidden: Tensor, state: LayerState) -> LayerState:
    """Return the next state of a GRU layer, as `torch.nn.GRUCell` defines it.

    Args:
        from_input: `(B, 3 H)`, the input's part of reset, update and new gates, biases included.
        from_hidden: `(B, 3 H)`, the same of the state before.
        state: `(hidden,)`.
    """
    width = state[0].shape[1]
    reset, update = (from_input[:, : 2 * width] + from_hidden[:, : 2 * width]).sigmoid().chunk(2, dim=1)
    new = torch.tanh(torch.addcmul(from_input[:, 2 * width :], reset, from_hidden[:, 2 * width :]))
    return (torch.lerp(new, state[0], update),)


def lstm_step(from_input: Tensor, from_hidden: Tensor, state: LayerState) -> LayerState:
    """Return the next state of an LSTM layer, as `torch.nn.LSTMCell` defines it; arguments as of `gru_step`, four gates."""
    enter, forget, new, out = (from_input + from_hidden).chunk(4, dim=1)
    cell = forget.sigmoid() * state[1] + enter.sigmoid() * new.tanh()
    return out.sigmoid() * cell.tanh(), cell
