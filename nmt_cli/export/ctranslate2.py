"""A Transformer run folder to a CTranslate2 model.

CTranslate2 declares the layers of a Transformer by a specification, whose variables are set here from our layers. All that
`TransformerConfig` says can be expressed in it. Positions are a table: that which was learned, or `SINUSOIDAL_POSITIONS` of our
sine waves, since CTranslate2's own are others (sines first, then cosines, with a base of 10000).

Reference: Klein et al. 2020, "Efficient and High-Quality Neural Machine Translation with OpenNMT".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nmt_cli import __version__
from nmt_cli.attention.multihead import MultiHeadAttention
from nmt_cli.attention.positional import LearnedPositions, SinusoidalPositions, sinusoidal_encoding
from nmt_cli.config import TransformerConfig
from nmt_cli.errors import ConfigError
from nmt_cli.models.dropout import RandomSource
from nmt_cli.models.transformer import (
    DecoderLayer,
    Embedder,
    EncoderLayer,
    FeedForward,
    TransformerDecoder,
    TransformerEncoder,
)
from nmt_cli.runs.build import build_model
from nmt_cli.runs.exported import ExportRecord, import_ctranslate2, write_export
from nmt_cli.runs.folder import RunFolder
from nmt_cli.runs.weights import WEIGHTS_FILE, load_weights
from nmt_cli.text.vocab import BOS, EOS, SPECIALS, UNK, Vocabulary

SINUSOIDAL_POSITIONS = 4096
"""Longest sentence, in tokens with the end mark, of an exported model whose positions are sine waves."""


def export_ctranslate2(folder: RunFolder, out: Path, checkpoint: str) -> ExportRecord:
    """Write the model of a checkpoint as a CTranslate2 model, with what translating needs beside it.

    Weights stay in float32; CTranslate2 can compute in int8 from them when it loads the model.

    Args:
        folder: The run.
        out: Folder for the export; one that is there already is replaced.
        checkpoint: Name or update number.

    Returns:
        What was written.

    Raises:
        ConfigError: CTranslate2 has no such model or is not installed, or something else is at `out`.
        RunError: The run or its checkpoint cannot be used.
    """
    package = import_ctranslate2()
    config = folder.config().model
    if not isinstance(config, TransformerConfig):
        raise ConfigError(
            f"{folder.path}: expected model.type: transformer, the one kind that CTranslate2 can compute, but this run has "
            f"model.type: {config.type}"
        )
    source, target = (tokenizer.vocabulary for tokenizer in folder.tokenizers())
    model = build_model(config, source_size=len(source), target_size=len(target), random=RandomSource(0))
    path = folder.checkpoint_path(checkpoint)
    load_weights(model, folder.verified(path, WEIGHTS_FILE))
    assert isinstance(model.encoder, TransformerEncoder)
    assert isinstance(model.decoder, TransformerDecoder)
    spec = _specification(package, config, model.encoder, model.decoder, source, target)
    written = folder.index().checkpoints[path.name]
    record = ExportRecord(
        engine="ctranslate2",
        checkpoint=path.name,
        update=written.update,
        sha256=written.sha256[WEIGHTS_FILE],
        max_positions=config.max_positions if config.positions == "learned" else SINUSOIDAL_POSITIONS,
        source_vocabulary=len(source),
        target_vocabulary=len(target),
        versions={"nmt": __version__, "ctranslate2": package.__version__},
    )
    write_export(out, folder, record, lambda temporary: spec.save(str(temporary)))
    return record


def _specification(
    package: Any,
    config: TransformerConfig,
    encoder: TransformerEncoder,
    decoder: TransformerDecoder,
    source: Vocabulary,
    target: Vocabulary,
) -> Any:
    """Return CTranslate2's specification of the model, complete and checked; variables of one content are kept once."""
    spec = package.specs.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers), config.heads, pre_norm=config.norm == "pre"
    )
    spec.config.unk_token = SPECIALS[UNK]
    spec.config.bos_token = spec.config.decoder_start_token = SPECIALS[BOS]
    spec.config.eos_token = SPECIALS[EOS]
    spec.config.layer_norm_epsilon = nn.LayerNorm(1).eps
    spec.register_source_vocabulary(source.tokens(range(len(source))))
    spec.register_target_vocabulary(target.tokens(range(len(target))))
    _set_embedder(spec.encoder.embeddings[0], spec.encoder.position_encodings, encoder.embedder)
    _set_embedder(spec.decoder.embeddings, spec.decoder.position_encodings, decoder.embedder)
    _set_linear(spec.decoder.projection, decoder.output)
    for part, stack in ((spec.encoder, encoder), (spec.decoder, decoder)):
        if isinstance(stack.norm, nn.LayerNorm):
            _set_norm(part.layer_norm, stack.norm)
        for layer_spec, layer in zip(part.layer, stack.layers, strict=True):
            _set_layer(layer_spec, layer)
    spec.validate()
    spec.optimize()
    return spec


def _set_embedder(embeddings: Any, positions: Any, embedder: Embedder) -> None:
    """Set the table of tokens, which CTranslate2 multiplies by √D as we do, and that of positions."""
    embeddings.weight = _array(embedder.embedding.weight)
    if isinstance(embedder.positions, LearnedPositions):
        positions.encodings = _array(embedder.positions.table.weight)
    else:
        assert isinstance(embedder.positions, SinusoidalPositions)
        waves = sinusoidal_encoding(SINUSOIDAL_POSITIONS, embedder.positions.width, base=embedder.positions.base)
        positions.encodings = _array(waves)


def _set_layer(spec: Any, layer: nn.Module) -> None:
    """Set one layer of either stack; each norm belongs to the sublayer that it stands before or after."""
    assert isinstance(layer, EncoderLayer | DecoderLayer)
    own = layer.self_attention
    if isinstance(layer, DecoderLayer):
        cross = layer.cross_attention
        _set_attention(spec.attention, cross, [[cross.query_layer], [cross.key_layer, cross.value_layer]])
        _set_norm(spec.attention.layer_norm, layer.cross_residual.norm)
        _set_norm(spec.self_attention.layer_norm, layer.self_residual.norm)
    else:
        _set_norm(spec.self_attention.layer_norm, layer.attention_residual.norm)
    _set_attention(spec.self_attention, own, [[own.query_layer, own.key_layer, own.value_layer]])
    _set_feed_forward(spec.ffn, layer.feed_forward)
    _set_norm(spec.ffn.layer_norm, layer.feed_forward_residual.norm)


def _set_attention(spec: Any, attention: MultiHeadAttention, projections: list[list[nn.Linear]]) -> None:
    """Set the projections, those that read the same vectors as one, and the layer after the heads."""
    for part, joined in zip(spec.linear, [*projections, [attention.output_layer]], strict=True):
        _set_linear(part, *joined)


def _set_feed_forward(spec: Any, feed_forward: FeedForward) -> None:
    _set_linear(spec.linear_0, feed_forward.inner)
    _set_linear(spec.linear_1, feed_forward.outer)


def _set_linear(spec: Any, *layers: nn.Linear) -> None:
    """Set a linear layer, or several of the same input as one with their outputs side by side."""
    spec.weight = _array(torch.cat([layer.weight for layer in layers])) if len(layers) > 1 else _array(layers[0].weight)
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    if biases:
        spec.bias = _array(torch.cat(biases))


def _set_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> Any:
    """Return the numbers of a tensor as CTranslate2 takes them."""
    return tensor.detach().numpy()
