"""The arithmetic of the training benchmark: what the floor counts, what logs say, how results are put together."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from benchmarks.floor import Counter, Fastest, Lengths, Product, Products, matrices, still_running
from benchmarks.train import Window, rows_of, update_of
from benchmarks.train_cases import Goal
from benchmarks.train_tables import table
from nmt_cli.config import Seq2SeqConfig, TransformerConfig


def first(name: str, ways: Sequence[Products]) -> Products:
    return ways[0]


def last(name: str, ways: Sequence[Products]) -> Products:
    return ways[-1]


def flops(products: Products) -> int:
    return sum(product.flops for product in products)


@pytest.mark.parametrize("choose", [first, last])
def test_transformer_arithmetic(choose) -> None:  # type: ignore[no-untyped-def]
    """Width 8, 2 heads, feed-forward 12, 1+1 layers, 20 words; two sentences of 3 source and 2 target tokens each."""
    config = TransformerConfig(
        type="transformer", width=8, heads=2, feed_forward=12, encoder_layers=1, decoder_layers=1, tie_embeddings="all"
    )
    found = Counter(choose).products(config, Lengths((3, 3), (2, 2)), 20)
    encoder = 6 * (4 * 8 * 8 + 2 * 8 * 12) + 2 * (2 * 3 * 3 * 8)  # 6 tokens; 2 sentences, scores and contexts
    target_side = 4 * (4 * 8 * 8 + 2 * 8 * 8 + 2 * 8 * 12 + 8 * 20)  # self-attention, query and output of cross, words
    decoder = target_side + 6 * 2 * 8 * 8 + 2 * (2 * 2 * 2 * 8) + 2 * (2 * 2 * 3 * 8)
    assert flops(found) == 3 * 2 * (encoder + decoder)  # forward and two gradients, a multiplication and an addition each


@pytest.mark.parametrize("choose", [first, last])
def test_recurrent_arithmetic(choose) -> None:  # type: ignore[no-untyped-def]
    """Embedding 5, width 6, encoder 4 in each direction, attention 7, 20 words; sources of 3 and 3, targets of 2 and 1."""
    config = Seq2SeqConfig(
        type="seq2seq", embedding_size=5, hidden_size=6, encoder_hidden_size=4, attention_size=7, attention="additive"
    )
    found = Counter(choose).products(config, Lengths((3, 3), (2, 1)), 20)
    encoder = 2 * 6 * (5 + 4) * 12  # two directions, 6 tokens, three gates of 4
    each_target = (5 + 8 + 6) * 18 + 6 * 7 + 6 * 20  # embedding, context and state into gates; query; words
    bridge, keys = 2 * 8 * 6, 6 * 8 * 7
    context = 3 * 3 * 8  # 3 targets look at 3 positions of width 8
    gradient_of_memory = round(2 * (2 * 3 + 1 * 3) / (2 * 2 * 3)) * 2 * 3 * 8  # whole matrices of the padded shape
    assert flops(found) == 2 * (3 * (encoder + 3 * each_target + bridge + keys) + 2 * context + gradient_of_memory)


def test_recurrent_floor_refuses_other_attention() -> None:
    config = Seq2SeqConfig(type="seq2seq", embedding_size=4, hidden_size=4, attention="dot")
    with pytest.raises(ValueError, match=r"additive attention only, but model\.attention is dot"):
        Counter(first).products(config, Lengths((3,), (2,)), 20)


def test_products_are_computed() -> None:
    left, right = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    batched = Product(left, right, torch.empty(2, 3, 5))
    batched.run()
    assert torch.equal(batched.out, left @ right)
    assert batched.flops == 2 * 2 * 3 * 4 * 5
    single = Product(left[0], right[0], torch.empty(3, 5))
    single.run()
    torch.testing.assert_close(single.out, left[0] @ right[0])
    assert single.flops == 2 * 3 * 4 * 5


def test_fastest_way_is_kept() -> None:
    def square(size: int) -> Products:
        return [Product(torch.ones(size, size), torch.ones(size, size), torch.empty(size, size))]

    fastest, slow, quick = Fastest(), square(600), square(4)
    assert fastest("first", [slow, quick]) is quick
    assert fastest("first", [quick, slow]) is slow  # decided before, by place
    assert fastest.chosen == {"first": 1}


def test_lengths_of_steps_and_matrices() -> None:
    assert still_running([3, 1, 2]) == [3, 2, 1]
    assert matrices([2, 4], [3, 3], 8) == (12, 4, 3)  # 8 heads x (6 + 12) numbers in matrices of 12, not 16 of them


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"tokens": 12}\n', (12, 0)),
        ('{"tokens": 12, "flops": 34}\n', (12, 34)),
        (
            "[2026-01-01 00:00:00] Ep. 1 : Up. 7 : Sen. 814 : Cost 9.1 * 2,245 @ 1,122 after 15,301 : Time 1.2s : 1 words/s\n",
            (2245, 0),
        ),
        ("[2026-01-01 00:00:00] Training started\n", None),
    ],
)
def test_update_of(line: str, expected: tuple[int, int] | None) -> None:
    assert update_of(line) == expected


def test_ratios_are_taken_round_by_round() -> None:
    windows = {
        "ours": [Window(100, 1, 1.0), Window(300, 2, 1.0), Window(250, 2, 1.0)],
        "Marian": [Window(50, 1, 1.0), Window(100, 1, 1.0), Window(200, 2, 1.0)],
        "floor": [Window(200, 2, 1.0, flops=10**9), Window(400, 4, 1.0, flops=3 * 10**9), Window(500, 4, 1.0, flops=10**9)],
    }
    ours, marian, floor = rows_of(windows, dict.fromkeys(windows, 2048), {"Marian": Goal(1.5, 2.5), "floor": Goal(0.6, 0.8)})
    assert "ours_by_this" not in ours
    assert ours["tokens_per_second"] == {"median": 250, "min": 100, "max": 300}
    assert ours["tokens_per_update"] == 130
    assert ours["peak_mb"] == 2
    assert marian["ours_by_this"] == {"median": 2.0, "min": 1.25, "max": 3.0}
    assert marian["goal"] == {"least": 1.5, "wanted": 2.5, "reached": True, "wanted_reached": False}
    assert floor["ours_by_this"]["median"] == 0.5
    assert not floor["goal"]["reached"]
    assert floor["gflop_per_update"] == 0.5
    assert floor["gflop_per_second"] == pytest.approx(5 / 3)
    lines = table({"title": "A size", "rows": [ours, marian, floor]})
    expected = "| Marian | 100 (50 to 200) | 88 | 4 | 2 | 2.00 (1.25 to 3.00) | at least 1.5: reached, wanted 2.5: missed |"
    assert expected in lines
    assert any("Marian has not the same number of tokens" in line for line in lines)
