"""bfloat16 autocast: the same loss to its precision, finite gradients, and translations, for every kind of model."""

from __future__ import annotations

import pytest
import torch

from nmt_cli.config import Seq2SeqConfig, TransformerConfig
from nmt_cli.decoding.engine import SearchSettings
from nmt_cli.decoding.torch_engine import TorchEngine
from nmt_cli.models.dropout import RandomSource
from nmt_cli.runs.build import build_model
from nmt_cli.text.batching import Batch
from nmt_cli.training.loop import batch_loss

CONFIGS: dict[str, Seq2SeqConfig | TransformerConfig] = {
    "gru-copy": Seq2SeqConfig(type="seq2seq", embedding_size=12, hidden_size=16, bridge="copy"),
    "gru-dense": Seq2SeqConfig(type="seq2seq", embedding_size=12, hidden_size=16, attention="scaled_dot"),
    "lstm": Seq2SeqConfig(
        type="seq2seq", embedding_size=12, hidden_size=16, cell="lstm", attention="general", decoder_layers=2
    ),
    "pre": TransformerConfig(type="transformer", width=16, heads=2, feed_forward=24, encoder_layers=1, decoder_layers=2),
    "post": TransformerConfig(
        type="transformer",
        width=16,
        heads=2,
        feed_forward=24,
        encoder_layers=1,
        decoder_layers=1,
        norm="post",
        attention_dropout=0.1,
    ),
}


def batch() -> Batch:
    draw = torch.Generator().manual_seed(4)
    source, target = (torch.randint(4, 20, size, generator=draw) for size in ((3, 5), (3, 6)))
    source_visible = torch.arange(5) < torch.tensor([5, 3, 2])[:, None]
    target_visible = torch.arange(6) < torch.tensor([6, 4, 2])[:, None]
    rows = target_visible.flatten().nonzero()[:, 0]
    return Batch(source, source_visible, target, target.roll(-1, dims=1), target_visible, rows, 12, (1, 2, 3))


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_bfloat16_gives_the_loss_of_float32(kind: str) -> None:
    torch.manual_seed(2)
    model = build_model(CONFIGS[kind], source_size=20, target_size=21, random=RandomSource(1)).eval()
    exact = batch_loss(model, batch(), 0.1).smoothed.item()
    assert batch_loss(model, batch(), 0.1, precision=torch.bfloat16).smoothed.item() == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_bfloat16_trains_and_translates(kind: str) -> None:
    torch.manual_seed(2)
    model = build_model(CONFIGS[kind], source_size=20, target_size=21, random=RandomSource(1)).train()
    batch_loss(model, batch(), 0.1, precision=torch.bfloat16).smoothed.backward()  # type: ignore[no-untyped-call]
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert len(gradients) == len(list(model.parameters()))
    assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients)
    assert {gradient.dtype for gradient in gradients} == {torch.float32}
    engine = TorchEngine(model, torch.device("cpu"), torch.bfloat16)
    assert all(found[0].score < 0 for found in engine.translate([[5, 6, 7], [8]], SearchSettings(beam_size=3)))
