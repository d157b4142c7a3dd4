"""The parts that models are built from, each with its shapes, and layer norm beside batch norm."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nmt_cli.attention.masking import visible_from_lengths
from nmt_cli.attention.multihead import MultiHeadAttention
from nmt_cli.attention.positional import SinusoidalPositions
from nmt_cli.config import Seq2SeqConfig, TransformerConfig
from nmt_cli.inspection.demos.outcome import Outcome, plain, prose, table
from nmt_cli.inspection.plots import heat_maps
from nmt_cli.models.dropout import RandomSource
from nmt_cli.models.interface import Seq2Seq, count_parameters
from nmt_cli.models.transformer import FeedForward, Residual
from nmt_cli.runs.build import build_model

RECURRENT = Seq2SeqConfig(
    type="seq2seq", embedding_size=8, hidden_size=16, encoder_layers=2, decoder_layers=2, bidirectional=False, bridge="copy"
)
TRANSFORMER = TransformerConfig(
    type="transformer", width=24, heads=8, feed_forward=48, encoder_layers=2, decoder_layers=2, norm="post"
)


@torch.inference_mode()
def transformer_blocks(seed: int) -> Outcome:
    """Build, run and draw."""
    torch_generator = torch.Generator().manual_seed(seed)
    shapes: dict[str, list[int]] = {}
    facts = {**_attention(torch_generator, shapes), **_layers(shapes), **_recurrent(seed, shapes), **_stacks(seed, shapes)}
    x = torch.tensor([[1.0, 2.0], [2.0, 3.0]])
    layer, batch = nn.LayerNorm(2)(x), nn.BatchNorm1d(2).train()(x)
    figure = heat_maps(
        [[(x - 2).numpy(), layer.numpy(), batch.numpy()]],
        titles=["x - 2", "layer norm: along rows", "batch norm: along columns"],
        x_label="features",
        y_label="examples",
        limits=(-1.0, 1.0),
        colours="Blues",
    )
    text = "\n".join(
        [
            table(("part", "shape"), [(name, " x ".join(map(str, shape))) for name, shape in shapes.items()]),
            "",
            table(("fact", "value"), [(name, str(value)) for name, value in facts.items()]),
            "",
            "Layer norm beside batch norm (in training) of [[1, 2], [2, 3]]:",
            f"layer norm {plain(layer, 4)}: each example by itself",
            f"batch norm {plain(batch, 4)}: each feature over the batch",
            prose("Look at: transformer-blocks-norms.png. Only layer norm does not depend on what else is in the batch."),
        ]
    )
    numbers = {"shapes": shapes, "facts": facts, "norms": {"x": plain(x), "layer": plain(layer), "batch": plain(batch)}}
    return Outcome(text, numbers, {"norms": figure})


def _attention(generator: torch.Generator, shapes: dict[str, list[int]]) -> dict[str, Any]:
    """Multi-head attention over other positions and over its own; order matters only with positions."""
    attention = MultiHeadAttention(100, 5, dropout=nn.Identity()).eval()
    queries, keys = torch.ones(2, 4, 100), torch.ones(2, 6, 100)
    context, weights = attention(
        queries, attention.project(keys), visible_from_lengths(torch.tensor([3, 2]), 6), want_weights=True
    )
    shapes["multi-head attention: queries 2 x 4 x 100, keys 2 x 6 x 100"] = list(context.shape)
    shapes["  its weights (5 heads)"] = list(weights.shape)
    x = torch.randn(2, 4, 100, generator=generator)
    order = torch.tensor([2, 0, 3, 1])

    def self_attention(inputs: Tensor) -> Tensor:
        attended: Tensor = attention(inputs, attention.project(inputs))[0]
        return attended

    shapes["self-attention of 2 x 4 x 100"] = list(self_attention(x).shape)
    place = SinusoidalPositions(100)
    without = (self_attention(x)[:, order] - self_attention(x[:, order])).abs().max()
    with_positions = (self_attention(place(x))[:, order] - self_attention(place(x[:, order]))).abs().max()
    return {
        "parameters of multi-head attention": count_parameters(attention),
        "self-attention of shuffled words, shuffled back, differs by": f"{float(without):.1e}",
        "the same with positions added": f"{float(with_positions):.2f}",
    }


def _layers(shapes: dict[str, list[int]]) -> dict[str, Any]:
    """Feed-forward at each position, and a residual connection with layer norm."""
    forward = FeedForward(4, 4, dropout=nn.Identity(), output_width=8)
    out = forward(torch.ones(2, 3, 4))
    shapes["position-wise feed-forward of 2 x 3 x 4"] = list(out.shape)
    residual = Residual(4, pre_norm=False, dropout=nn.Identity())
    added = residual(torch.ones(2, 3, 4), torch.ones_like)
    shapes["residual connection and layer norm of 2 x 3 x 4"] = list(added.shape)
    return {
        "equal positions give equal outputs": bool((out == out[:1, :1]).all()),
        "layer norm of ones + ones, largest": float(added.abs().max()),
    }


def _recurrent(seed: int, shapes: dict[str, list[int]]) -> dict[str, Any]:
    """The recurrent model: memory, states, attention, logits; padding changes nothing."""
    model = build_model(RECURRENT, source_size=10, target_size=10, random=RandomSource(seed), seed=seed).eval()
    ids, visible = torch.full((4, 7), 5), torch.ones(4, 7, dtype=torch.bool)
    output = model(ids, visible, ids, want_weights=True)
    shapes["seq2seq encoder of 4 x 7 ids: memory"] = list(model.encoder(ids, visible).memory.shape)
    shapes["seq2seq decoder: logits"] = list(model.decoder.project(output.hidden).shape)
    shapes["  its attention"] = list(output.weights["cross.0"].shape)
    padded = nn.functional.pad(ids, (0, 3))
    with_padding = model(padded, nn.functional.pad(visible, (0, 3)), ids)
    return {
        "seq2seq: three columns of padding change hidden by": f"{float((with_padding.hidden - output.hidden).abs().max()):.1e}"
    }


def _stacks(seed: int, shapes: dict[str, list[int]]) -> dict[str, Any]:
    """The Transformer's stacks; step by step is the same as at once."""
    model = build_model(TRANSFORMER, source_size=200, target_size=200, random=RandomSource(seed), seed=seed).eval()
    ids, visible = torch.ones(2, 100, dtype=torch.int64), visible_from_lengths(torch.tensor([3, 2]), 100)
    shapes["Transformer encoder of 2 x 100 ids"] = list(model.encoder(ids, visible).memory.shape)
    hidden = model(ids, visible, ids).hidden
    shapes["Transformer decoder of 2 x 100 ids"] = list(hidden.shape)
    return {"Transformer decoder: steps with cache differ from one pass by": f"{_largest_gap(model, ids, visible, hidden):.1e}"}


def _largest_gap(model: Seq2Seq, ids: Tensor, visible: Tensor, hidden: Tensor) -> float:
    state = model.decoder.start(model.encoder(ids, visible))
    gap = 0.0
    for step in range(20):
        output, state = model.decoder(ids[:, step : step + 1], state)
        gap = max(gap, float((output.hidden[:, 0] - hidden[:, step]).abs().max()))
    return gap
