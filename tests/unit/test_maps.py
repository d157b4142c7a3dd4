"""Attention as data and pictures (docs/attention.md rows 1 and 18, docs/faults.md PB-23)."""

from __future__ import annotations

import base64
import io
import json
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.image import imread

from nmt_cli.config import Seq2SeqConfig, TransformerConfig
from nmt_cli.errors import ConfigError
from nmt_cli.inspection.alignment import hard_alignment, pharaoh, tokens_alone, tokens_by_word
from nmt_cli.inspection.dumps import AttentionRecord
from nmt_cli.inspection.maps import AttentionMap, ForcedPass, Selection, TokenPair, forced_passes
from nmt_cli.inspection.page import page_end, page_record, page_start
from nmt_cli.inspection.plots import heat_maps, to_png, to_svg
from nmt_cli.inspection.terminal import map_text
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
    return forced(kind, TokenPair(SOURCE, target, SOURCE_TOKENS, tokens))[0].maps


def forced(kind: str, *pairs: TokenPair) -> list[ForcedPass]:
    return forced_passes(model(kind), pairs, torch.device("cpu"))


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


@pytest.mark.parametrize("kind", sorted(CONFIGS))
@pytest.mark.fault("PB-23")
def test_a_pair_gives_the_same_alone_and_beside_longer_ones(kind: str) -> None:
    """No row or column of padding, and no weight on it."""
    pair = TokenPair(SOURCE, TARGET, SOURCE_TOKENS, TARGET_TOKENS)
    longer = TokenPair([4, 5, 6, 7, 8, 9], [5, 6, 7, 8, 9, 10, 3], tuple("abcdefg"), tuple("tuvwxyz"))
    alone, (together, _) = forced(kind, pair)[0], forced(kind, pair, longer)
    assert len(alone.maps) == len(together.maps)
    for one, other in zip(alone.maps, together.maps, strict=True):
        np.testing.assert_allclose(other.weights, one.weights, atol=1e-6)
    assert together.log_probability == pytest.approx(alone.log_probability, abs=1e-5)


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_the_log_probability_is_the_sum_over_the_output(kind: str) -> None:
    seq2seq = model(kind)
    with torch.inference_mode():
        ids, visible = torch.tensor([[*SOURCE, 3]]), torch.ones(1, 4, dtype=torch.bool)
        logits = seq2seq.decoder.project(seq2seq(ids, visible, torch.tensor([[2, *TARGET[:-1]]])).hidden)[0]
    expected = sum(float(logits[step].log_softmax(dim=0)[token]) for step, token in enumerate(TARGET))
    (found,) = forced(kind, TokenPair(SOURCE, TARGET, SOURCE_TOKENS, TARGET_TOKENS))
    assert found.log_probability == pytest.approx(expected, abs=1e-5)


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
    assert AttentionRecord(2, "  ", "", "update-1").pictures() == {}


def test_npz_goes_there_and_back_without_pickle() -> None:
    with np.load(io.BytesIO(record("transformer").to_npz()), allow_pickle=False) as found:
        assert found["source_tokens"].tolist() == list(SOURCE_TOKENS)
        assert found["target_tokens"].tolist() == list(TARGET_TOKENS)
        assert found["cross.2"].shape == (4, 5, 4)
        np.testing.assert_array_equal(found["encoder.1"], maps("transformer")[1].weights)


# -- selections and averages -------------------------------------------------------------------------------------------


def test_a_selection_keeps_the_numbers_of_layers_and_heads() -> None:
    found = Selection(kinds=("cross",), layers=(2, 0), heads=(3, 1)).of(maps("transformer"))
    assert [(one.kind, one.layer, one.heads) for one in found] == [("cross", 2, (3, 1)), ("cross", 0, (3, 1))]
    whole = [one for one in maps("transformer") if one.kind == "cross"]
    np.testing.assert_array_equal(found[0].weights[1], whole[2].weights[1])


def test_averages_are_named_and_are_means() -> None:
    whole = [one for one in maps("transformer") if one.kind == "cross"]
    (heads, _, _) = Selection(kinds=("cross",), average_heads=True).of(maps("transformer"))
    assert (heads.layer, heads.heads, heads.weights.shape) == (0, ("mean",), (1, 5, 4))
    np.testing.assert_allclose(heads.weights[0], whole[0].weights.mean(axis=0), atol=1e-7)
    (layers,) = Selection(kinds=("cross",), average_layers=True).of(maps("transformer"))
    assert (layers.layer, layers.heads) == ("mean", (0, 1, 2, 3))
    np.testing.assert_allclose(layers.weights[2], np.mean([one.weights[2] for one in whole], axis=0), atol=1e-7)
    (both,) = Selection(kinds=("cross",), layers=(0, 2), average_heads=True, average_layers=True).of(maps("transformer"))
    np.testing.assert_allclose(both.weights[0], (whole[0].weights + whole[2].weights).mean(axis=0) / 2, atol=1e-6)
    np.testing.assert_allclose(both.weights.sum(axis=-1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "selection", "message"),
    [
        ("transformer", Selection(kinds=("encoder",), layers=(2,)), "--layer 2: encoder attention has layers 0 to 1"),
        ("transformer", Selection(heads=(0, 4)), "--head 4: encoder attention has heads 0 to 3"),
        ("seq2seq", Selection(heads=(1,)), "--head 1: cross attention has heads 0 only"),
        ("seq2seq", Selection(kinds=("decoder",)), "--kind decoder: this model has only cross attention"),
    ],
)
def test_what_is_not_there_is_named(kind: str, selection: Selection, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        selection.of(maps(kind))


# -- alignments --------------------------------------------------------------------------------------------------------


def test_hard_alignment_by_hand() -> None:
    weights = np.array([[0.1, 0.6, 0.1, 0.2], [0.5, 0.1, 0.2, 0.2], [0.0, 0.2, 0.1, 0.7]], dtype=np.float32)
    source, target = ("a", "b", "c", "<eos>"), ("x", "y", "<eos>")
    links = hard_alignment(weights, tokens_alone(source), tokens_alone(target))
    assert pharaoh(links) == "1-0 0-1", "the end marks take no part"
    cut = hard_alignment(weights, tokens_alone(source), tokens_alone(("x", "y", "z")))
    assert pharaoh(cut) == "1-0 0-1 1-2", "an output that was cut has no end mark"
    assert hard_alignment(weights[2:], tokens_alone(source), tokens_alone(("<eos>",))) == []


def test_words_are_made_of_pieces_and_of_characters() -> None:
    assert tokens_by_word(("▁un", "e", "▁fem", "me", ".", "<eos>")) == [[0, 1], [2, 3, 4]]
    assert tokens_by_word(("i", "l", "▁", "a", "<eos>")) == [[0, 1], [2, 3]]
    assert tokens_by_word(("<eos>",)) == []
    weights = np.array([[0.3, 0.3, 0.4], [0.2, 0.2, 0.6], [0.5, 0.0, 0.5]], dtype=np.float32)
    assert hard_alignment(weights, [[0, 1], [2]], [[0, 1], [2]]) == [(0, 0), (0, 1)], "0.6 + 0.4 against 0.4 + 0.6: the first"
    assert hard_alignment(weights, [[0], [1], [2]], [[0, 1], [2]]) == [(2, 0), (0, 1)]


# -- the page, the terminal, SVG ---------------------------------------------------------------------------------------


def test_the_page_holds_every_map_and_no_way_out_of_a_script() -> None:
    one = record("transformer")
    odd = AttentionRecord(1, "</script><b>&amp; \u2028 'x'", "a", "c", ("<eos>",), ("a",), "limit", -1.0, one.maps)
    page = page_start() + page_record(one) + page_record(odd) + page_end()
    found = re.findall(r'<script type="application/json" class="record" data-name="([^"]*)">(.*?)</script>', page)
    assert [name for name, _ in found] == ["7: a b c", "1: &lt;/script&gt;&lt;b&gt;&amp;amp; \u2028 &#x27;x&#x27;"]
    first, second = (json.loads(text) for _, text in found)
    assert second["source"] == odd.source
    assert [(m["kind"], m["layer"], m["head"]) for m in first["maps"]] == [
        (m.kind, m.layer, head) for m in one.maps for head in m.heads
    ]
    weights = np.frombuffer(base64.b64decode(first["maps"][-1]["weights"]), dtype=np.uint8).reshape(5, 4) / 255
    np.testing.assert_allclose(weights, one.maps[-1].weights[-1], atol=0.5 / 255 + 1e-6)
    assert not re.search(r"(src|href)=|https?:|@import|url\(", page), "nothing is asked of the network"


def test_terminal_text_is_at_most_80_columns_and_reads_without_colour() -> None:
    weights = np.zeros((1, 2, 100), dtype=np.float32)
    weights[0, 0, 0], weights[0, 1, 99], weights[0, 1, 98] = 1, 0.7, 0.1
    columns = (*(f"mot{number}" for number in range(98)), "日本", "très")
    one = AttentionMap("cross", "mean", ("mean",), ("une-longue-étiquette", "日本語"), columns, weights)
    text = map_text(one, 0)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "decoder-encoder attention, layer mean, head mean"
    assert any(line.startswith("une-longue-étiq… █") for line in lines)
    assert any(line.endswith("·▓") for line in lines)
    assert "\x1b" not in text


def test_svg_keeps_accents_and_apostrophes_as_text_and_is_the_same_every_time() -> None:
    def figure() -> Figure:
        rows = [f"été{number}" for number in range(40)]
        return heat_maps([[np.eye(40, dtype=np.float32)]], row_tokens=rows, column_tokens=["l'œuf<&>"] * 40, title="Été")

    content = to_svg(figure())
    assert content == to_svg(figure())
    texts = [node.text for node in ElementTree.fromstring(content).iter("{http://www.w3.org/2000/svg}text")]
    assert {"été0", "été39", "l'œuf<&>", "Été"} <= set(texts)


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
