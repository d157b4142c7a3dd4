"""Attention as data and pictures (docs/attention.md rows 1 and 18, docs/faults.md PB-23)."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from nmt_cli.config import Seq2SeqConfig, TransformerConfig
from nmt_cli.inspection.dumps import AttentionRecord
from nmt_cli.inspection.maps import AttentionMap, forced_maps
from nmt_cli.inspection.plots import heat_maps, to_png
from nmt_cli.models.dropout import RandomSource
from nmt_cli.models.interface import Seq2Seq
from nmt_cli.runs.build import build_model

CONFIGS: dict[str, Seq2SeqConfig | TransformerConfig] = {
    "seq2seq": Seq2SeqConfig(type="seq2seq", embedding_size=6, hidden_size=8),
    "transformer": TransformerConfig(
        type="transformer", width=8, heads=4, feed_forward=10, encoder_layers=2, decoder_layers=3, positions="learned"
    ),
}
SOURCE, SOURCE_TOKENS = [5, 6, 7], ("a", "b", "c", "<eos>")
TARGET, TARGET_TOKENS = [8, 4, 9, 6, 3], ("v", "w", "x", "y", "<eos>")


def model(kind: str) -> Seq2Seq:
    torch.manual_seed(3)
    return build_model(CONFIGS[kind], source_size=11, target_size=13, random=RandomSource(1), seed=4).eval()


def maps(kind: str, target: list[int] = TARGET, tokens: tuple[str, ...] = TARGET_TOKENS) -> list[AttentionMap]:
    cpu = torch.device("cpu")
    return forced_maps(model(kind), SOURCE, target, source_tokens=SOURCE_TOKENS, target_tokens=tokens, device=cpu)


@pytest.mark.fault("PB-23")
def test_every_layer_and_head_of_a_transformer() -> None:
    found = maps("transformer")
    assert [(one.kind, one.layer) for one in found] == [
        ("encoder", 0),
        ("encoder", 1),
        ("decoder", 0),
        ("decoder", 1),
        ("decoder", 2),
        ("cross", 0),
        ("cross", 1),
        ("cross", 2),
    ]
    shapes = {"encoder": (4, 4, 4), "decoder": (4, 5, 5), "cross": (4, 5, 4)}
    for one in found:
        assert one.weights.shape == shapes[one.kind]
        assert one.weights.shape[1:] == (len(one.row_tokens), len(one.column_tokens))
        np.testing.assert_allclose(one.weights.sum(axis=-1), 1, atol=1e-5)
        if one.kind == "decoder":
            assert one.row_tokens == ("v", "w", "x", "y", "<eos>")
            assert one.column_tokens == ("<bos>", "v", "w", "x", "y")
            np.testing.assert_array_equal(one.weights[:, 0], [[1, 0, 0, 0, 0]] * 4)
            np.testing.assert_array_equal(np.triu(one.weights, k=1), np.zeros_like(one.weights))


@pytest.mark.fault("PB-23")
def test_the_one_map_of_a_recurrent_model() -> None:
    (found,) = maps("seq2seq")
    assert (found.kind, found.layer, found.weights.shape) == ("cross", 0, (1, 5, 4))
    np.testing.assert_allclose(found.weights.sum(axis=-1), 1, atol=1e-5)


@pytest.mark.parametrize("kind", sorted(CONFIGS))
@pytest.mark.fault("PB-23")
def test_rows_are_those_of_stepwise_decoding(kind: str) -> None:
    """What a beam search looked at, step by step, is what the forced pass gives."""
    seq2seq = model(kind)
    with torch.inference_mode():
        encoded = seq2seq.encoder(torch.tensor([[*SOURCE, 3]]), torch.ones(1, 4, dtype=torch.bool))
        state = seq2seq.decoder.start(encoded)
        rows = []
        for token in [2, *TARGET[:-1]]:
            output, state = seq2seq.decoder(torch.tensor([[token]]), state, want_weights=True)
            rows.append(output.weights["cross.0"][0, :, 0].numpy())
    forced = next(one for one in maps(kind) if one.kind == "cross")
    np.testing.assert_allclose(forced.weights, np.stack(rows, axis=1), atol=1e-5)


@pytest.mark.fault("PB-23")
def test_a_translation_cut_at_the_limit_has_as_many_rows_as_tokens() -> None:
    found = maps("transformer", TARGET[:-1], TARGET_TOKENS[:-1])
    decoder = next(one for one in found if one.kind == "decoder")
    assert decoder.row_tokens == ("v", "w", "x", "y")
    assert decoder.column_tokens == ("<bos>", "v", "w", "x")
    assert decoder.weights.shape == (4, 4, 4)


def record(kind: str) -> AttentionRecord:
    return AttentionRecord(
        7,
        "a b c",
        "v w x y",
        "update-00000009",
        source_tokens=SOURCE_TOKENS,
        target_tokens=TARGET_TOKENS,
        ended="eos",
        score=-1.25,
        maps=maps(kind),
    )


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_json_holds_one_map_for_each_head(kind: str) -> None:
    line = record(kind).to_json()
    assert line.count("\n") == 1
    found = json.loads(line)
    assert (found["version"], found["line"], found["ended"], found["score"]) == (1, 7, "eos", -1.25)
    assert len(found["maps"]) == (1 if kind == "seq2seq" else 8 * 4)
    for one in found["maps"]:
        assert len(one["weights"]) == len(one["row_tokens"])
        assert {len(row) for row in one["weights"]} == {len(one["column_tokens"])}
        assert all(abs(sum(row) - 1) < 1e-4 for row in one["weights"])
    assert [one["head"] for one in found["maps"]] == [0, 1, 2, 3] * (len(found["maps"]) // 4) or kind == "seq2seq"


def test_an_empty_record() -> None:
    found = json.loads(AttentionRecord(2, "  ", "", "update-1").to_json())
    assert (found["source_tokens"], found["target_tokens"], found["maps"], found["ended"]) == ([], [], [], None)
    assert AttentionRecord(2, "  ", "", "update-1").to_png() == {}


def test_npz_goes_there_and_back_without_pickle() -> None:
    with np.load(io.BytesIO(record("transformer").to_npz()), allow_pickle=False) as found:
        assert found["source_tokens"].tolist() == list(SOURCE_TOKENS)
        assert found["target_tokens"].tolist() == list(TARGET_TOKENS)
        assert found["cross.2"].shape == (4, 5, 4)
        np.testing.assert_array_equal(found["encoder.1"], maps("transformer")[1].weights)


# -- row 1: heat maps --------------------------------------------------------------------------------------------------


def test_the_identity_draws_a_diagonal() -> None:
    figure = heat_maps([[np.eye(10, dtype=np.float32)]])
    (image,) = figure.axes[0].images
    np.testing.assert_array_equal(image.get_array(), np.eye(10))
    assert (image.get_clim(), image.get_cmap().name) == ((0.0, 1.0), "Reds")
    picture = imread(io.BytesIO(to_png(figure)))[:, :, :3]
    figure.canvas.draw()
    box = figure.axes[0].get_window_extent().transformed(figure.dpi_scale_trans.inverted())
    left, bottom, right, top = (round(inches * 110) for inches in (box.x0, box.y0, box.x1, box.y1))
    panel = picture[picture.shape[0] - top : picture.shape[0] - bottom, left:right]
    height, width = panel.shape[:2]
    dark = [
        [panel[int((row + 0.5) * height / 10), int((column + 0.5) * width / 10)].mean() < 0.5 for column in range(10)]
        for row in range(10)
    ]
    np.testing.assert_array_equal(np.array(dark), np.eye(10, dtype=bool))


def test_a_grid_keeps_the_order_of_layers_and_heads() -> None:
    grid = [[np.full((3, 5), (4 * layer + head) / 10, dtype=np.float32) for head in range(4)] for layer in range(2)]
    figure = heat_maps(grid, row_tokens=("x", "$y", "é'"), column_tokens=("a", "b", "c", "d", "e"), x_label="K", y_label="Q")
    panels, bar = figure.axes[:8], figure.axes[8:]
    assert [float(np.asarray(panel.images[0].get_array())[0, 0]) for panel in panels] == pytest.approx(
        [n / 10 for n in range(8)]
    )
    assert [panel.get_title() for panel in panels] == ["Head 1", "Head 2", "Head 3", "Head 4"] * 2
    assert [panel.get_xlabel() for panel in panels] == [""] * 4 + ["K"] * 4
    assert [panel.get_ylabel() for panel in panels] == ["Layer 1\nQ", "", "", "", "Layer 2\nQ", "", "", ""]
    assert len(bar) == 1, "one colour bar for the whole grid"
    assert len({panel.images[0].get_clim() for panel in panels}) == 1
    assert [label.get_text() for label in panels[4].get_yticklabels()] == ["x", r"\$y", "é'"]
    assert [label.get_text() for label in panels[4].get_xticklabels()] == ["a", "b", "c", "d", "e"]
