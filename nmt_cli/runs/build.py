"""Model kind in the config -> the model itself."""

from __future__ import annotations

import torch
from torch import nn

from nmt_cli.attention.positional import LearnedPositions, SinusoidalPositions
from nmt_cli.attention.scoring import SCORES, Attention
from nmt_cli.config import Seq2SeqConfig, TransformerConfig
from nmt_cli.models.dropout import RandomSource, dropout
from nmt_cli.models.interface import Seq2Seq, initialise
from nmt_cli.models.seq2seq import Bridge, RecurrentDecoder, RecurrentEncoder
from nmt_cli.models.transformer import Embedder, TransformerDecoder, TransformerEncoder, TransformerParts


def build_model(
    config: Seq2SeqConfig | TransformerConfig, *, source_size: int, target_size: int, random: RandomSource, seed: int = 0
) -> Seq2Seq:
    """Return a new model with initial weights.

    Args:
        config: The model section.
        source_size: Real size of the source vocabulary.
        target_size: Real size of the target vocabulary.
        random: Where dropout takes its randomness from.
        seed: Seed of the weights.
    """
    if isinstance(config, Seq2SeqConfig):
        model = _recurrent(config, source_size, target_size, random)
    else:
        model = _transformer(config, source_size, target_size, random)
    initialise(model, torch.Generator().manual_seed(seed))
    return model


def _embeddings(tie: str, width: int, source_size: int, target_size: int) -> tuple[nn.Embedding, nn.Embedding]:
    target = nn.Embedding(target_size, width)
    return (target if tie == "all" else nn.Embedding(source_size, width)), target


def _output(tie: str, target: nn.Embedding, width: int) -> nn.Linear:
    output = nn.Linear(width, target.num_embeddings)
    if tie != "none":
        output.weight = target.weight
    return output


def _recurrent(config: Seq2SeqConfig, source_size: int, target_size: int, random: RandomSource) -> Seq2Seq:
    source, target = _embeddings(config.tie_embeddings, config.embedding_size, source_size, target_size)
    between, embedding_dropout = dropout(config.dropout, random), dropout(config.embedding_dropout, random)
    encoder = RecurrentEncoder(
        source,
        cell=config.cell,
        hidden_size=config.encoder_width,
        layers=config.encoder_layers,
        bidirectional=config.bidirectional,
        embedding_dropout=embedding_dropout,
        dropout=between,
    )
    score = SCORES[config.attention](config.hidden_size, config.memory_width, config.attention_size or config.hidden_size)
    decoder = RecurrentDecoder(
        target,
        Attention(score, dropout(config.attention_dropout, random)),
        Bridge(
            config.bridge,
            config.memory_width,
            config.hidden_size,
            layers=config.decoder_layers,
            parts=2 if config.cell == "lstm" else 1,
        ),
        _output(config.tie_embeddings, target, config.hidden_size),
        cell=config.cell,
        memory_width=config.memory_width,
        hidden_size=config.hidden_size,
        layers=config.decoder_layers,
        embedding_dropout=embedding_dropout,
        dropout=between,
        output_dropout=dropout(config.output_dropout, random),
    )
    return Seq2Seq(encoder, decoder)


def _transformer(config: TransformerConfig, source_size: int, target_size: int, random: RandomSource) -> Seq2Seq:
    parts = TransformerParts(
        width=config.width,
        heads=config.heads,
        feed_forward=config.feed_forward,
        pre_norm=config.norm == "pre",
        attention_bias=config.attention_bias,
        dropout=dropout(config.dropout, random),
        attention_dropout=dropout(config.attention_dropout, random),
        activation_dropout=dropout(config.activation_dropout, random),
    )
    rate = config.dropout if config.embedding_dropout is None else config.embedding_dropout
    source, target = _embeddings(config.tie_embeddings, config.width, source_size, target_size)

    def embedder(embedding: nn.Embedding) -> Embedder:
        if config.positions == "learned":
            return Embedder(
                embedding, LearnedPositions(config.width, max_positions=config.max_positions), dropout(rate, random)
            )
        return Embedder(embedding, SinusoidalPositions(config.width, base=config.position_base), dropout(rate, random))

    output = _output(config.tie_embeddings, target, config.width)
    return Seq2Seq(
        TransformerEncoder(embedder(source), parts, config.encoder_layers),
        TransformerDecoder(embedder(target), parts, config.decoder_layers, output),
        max_positions=config.max_positions if config.positions == "learned" else None,
    )
