"""Batches and their sampler: contents, budgets, order, and taking a position up again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from nmt_cli.text.batching import Batch, BatchSampler, batch_of, group_by_budget, in_order, make_batch, pad, shuffled_range
from nmt_cli.text.examples import Examples
from nmt_cli.text.vocab import BOS, EOS, PAD


def examples_of(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Examples:
    def flat(sentences: Sequence[Sequence[int]]) -> np.ndarray:
        return np.array([token for sentence in sentences for token in sentence], dtype=np.int32)

    def ends(sentences: Sequence[Sequence[int]]) -> np.ndarray:
        return np.cumsum([len(sentence) for sentence in sentences]).astype(np.int64)

    lines = np.arange(101, 101 + len(sources), dtype=np.int64)
    return Examples(flat(sources), ends(sources), flat(targets), ends(targets), lines)


def corpus(count: int = 37) -> Examples:
    """Pair i has i % 5 + 1 source and i % 7 + 1 target tokens, all of them 4 + i."""
    return examples_of([[4 + i] * (i % 5 + 1) for i in range(count)], [[4 + i] * (i % 7 + 1) for i in range(count)])


def one_epoch(sampler: BatchSampler) -> list[Batch]:
    batches = [sampler.next_batch()]
    while not sampler.epoch_is_over:
        batches.append(sampler.next_batch())
    return batches


def lines_of(batches: Sequence[Batch]) -> list[tuple[int, ...]]:
    return [batch.lines for batch in batches]


# -- one batch ---------------------------------------------------------------------------------------------------------


def test_a_batch_holds_marks_padding_and_masks_where_they_belong() -> None:
    batch = batch_of(examples_of([[4, 5, 6], [7]], [[8], [9, 10]]), [1, 0])
    assert batch.source_ids.tolist() == [[7, EOS, PAD, PAD], [4, 5, 6, EOS]]
    assert batch.source_visible.tolist() == [[True, True, False, False], [True] * 4]
    assert batch.target_in.tolist() == [[BOS, 9, 10], [BOS, 8, PAD]]
    assert batch.target_out.tolist() == [[9, 10, EOS], [8, EOS, PAD]]
    assert batch.target_visible.tolist() == [[True] * 3, [True, True, False]]
    assert batch.tokens == 5
    assert batch.lines == (102, 101)


def test_types_and_shapes_of_a_batch() -> None:
    batch = batch_of(corpus(), [0, 3, 8, 11])  # longest: 4 source and 5 target tokens
    assert batch.source_ids.shape == batch.source_visible.shape == (4, 5)
    assert batch.target_in.shape == batch.target_out.shape == batch.target_visible.shape == (4, 6)
    assert {t.dtype for t in (batch.source_ids, batch.target_in, batch.target_out)} == {torch.int64}
    assert {t.dtype for t in (batch.source_visible, batch.target_visible)} == {torch.bool}
    assert batch.tokens == int(batch.target_visible.sum())


def test_an_empty_source_is_its_end_mark() -> None:
    batch = batch_of(examples_of([[], [4, 5]], [[], [6]]), [0, 1])
    assert batch.source_ids.tolist() == [[EOS, PAD, PAD], [4, 5, EOS]]
    assert batch.target_out.tolist() == [[EOS, PAD], [6, EOS]]
    assert bool(batch.source_visible.any(dim=1).all())


def test_padding_is_on_the_right() -> None:
    ids, visible = pad([[5], [6, 7, 8], []])
    assert ids.tolist() == [[5, PAD, PAD], [6, 7, 8], [PAD, PAD, PAD]]
    assert visible.tolist() == [[True, False, False], [True] * 3, [False] * 3]


def test_a_batch_on_the_cpu_stays_what_it_is() -> None:
    batch = batch_of(corpus(), [2, 1])
    moved = batch.to(torch.device("meta"))
    assert batch.to(torch.device("cpu")) is batch
    tensors = [value for value in vars(moved).values() if isinstance(value, torch.Tensor)]
    assert len(tensors) == 6
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert (moved.tokens, moved.lines) == (batch.tokens, batch.lines)


def test_padding_of_lists_and_arrays_is_that_of_a_loop() -> None:
    draw = np.random.default_rng(5)
    for count in (1, 2, 7):
        arrays = [draw.integers(4, 2**31 - 1, length).astype(np.int32) for length in draw.integers(0, 6, count)]
        longest = max(map(len, arrays))
        for sequences in (arrays, [array.tolist() for array in arrays]):
            ids, visible = pad(sequences)
            assert ids.tolist() == [[*array.tolist(), *[PAD] * (longest - len(array))] for array in arrays]
            assert visible.tolist() == [[column < len(array) for column in range(longest)] for array in arrays]
            assert (ids.dtype, visible.dtype) == (torch.int64, torch.bool)


def test_a_batch_is_that_of_three_paddings() -> None:
    draw = np.random.default_rng(6)
    for count in (1, 3, 8):
        sources, targets = (
            [draw.integers(4, 99, length).astype(np.int32) for length in draw.integers(0, 7, count)] for _ in range(2)
        )
        batch = make_batch(sources, targets, range(5, 5 + count))
        for found, expected in (
            ((batch.source_ids, batch.source_visible), pad([[*source, EOS] for source in sources])),
            ((batch.target_in, batch.target_visible), pad([[BOS, *target] for target in targets])),
            ((batch.target_out, batch.target_visible), pad([[*target, EOS] for target in targets])),
        ):
            assert torch.equal(found[0], expected[0])
            assert torch.equal(found[1], expected[1])
        assert batch.lines == tuple(range(5, 5 + count))


def test_the_rows_of_a_batch_are_its_real_target_tokens() -> None:
    batch = batch_of(corpus(), [0, 3, 8, 11])
    assert batch.target_rows.dtype == torch.int64
    assert len(batch.target_rows) == batch.tokens
    selected = batch.target_out.flatten().index_select(0, batch.target_rows)
    assert torch.equal(selected, batch.target_out[batch.target_visible])
    assert PAD not in selected.tolist()


def test_a_batch_goes_to_a_gpu_through_pinned_memory_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, object]] = []

    def to(tensor: torch.Tensor, device: torch.device, *, non_blocking: bool) -> torch.Tensor:
        calls.append(("to", (device.type, non_blocking)))
        return tensor

    def pin_memory(tensor: torch.Tensor) -> torch.Tensor:
        calls.append(("pin", None))
        return tensor

    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    batch_of(corpus(), [2, 1]).to(torch.device("cuda"))
    assert calls == [("pin", None), ("to", ("cuda", True))] * 6


# -- budgets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "sentences", "groups"),
    [
        (6, None, [[0, 1], [2], [3], [4]]),  # 2x3; 3x3 = 9 would not fit, nor 2x6, nor 2x5
        (12, None, [[0, 1], [2, 3], [4]]),
        (18, None, [[0, 1, 2], [3, 4]]),
        (100, None, [[0, 1, 2, 3, 4]]),
        (1, None, [[0], [1], [2], [3], [4]]),
        (None, 2, [[0, 1], [2, 3], [4]]),
        (None, 5, [[0, 1, 2, 3, 4]]),
    ],
)
def test_groups_by_hand(tokens: int | None, sentences: int | None, groups: list[list[int]]) -> None:
    lengths = np.array([2, 3, 6, 5, 4], dtype=np.int64)
    found = group_by_budget(np.arange(5), lengths, tokens=tokens, sentences=sentences)
    assert [group.tolist() for group in found] == groups


def groups_one_by_one(order: np.ndarray, lengths: np.ndarray, tokens: int | None, sentences: int | None) -> list[np.ndarray]:
    """What `group_by_budget` does, pair by pair."""
    batches, start, longest = [], 0, 0
    for position, index in enumerate(order):
        longest = max(longest, int(lengths[index]))
        count = position - start + 1
        if count > 1 and ((tokens and count * longest > tokens) or (sentences and count > sentences)):
            batches.append(order[start:position])
            start, longest = position, int(lengths[index])
    return [*batches, order[start:]]


@pytest.mark.parametrize("ranked", [True, False])
@pytest.mark.parametrize(
    ("tokens", "sentences"), [(1, None), (30, None), (400, None), (5000, None), (None, 1), (None, 7), (200, 9), (None, None)]
)
@pytest.mark.parametrize("count", [0, 1, 2, 17, 600])
def test_groups_are_those_found_pair_by_pair(count: int, tokens: int | None, sentences: int | None, ranked: bool) -> None:
    random = np.random.default_rng(count)
    lengths = random.geometric(0.1, 700)
    order = random.permutation(700)[:count]
    order = order[np.argsort(lengths[order])] if ranked else order
    found = group_by_budget(order, lengths, tokens=tokens, sentences=sentences)
    expected = groups_one_by_one(order, lengths, tokens, sentences)
    assert [group.tolist() for group in found] == [group.tolist() for group in expected]


@pytest.mark.parametrize("budget", [5, 8, 13, 40, 1000])
def test_the_budget_counts_padding_and_only_one_long_sentence_may_pass_it(budget: int) -> None:
    batches = one_epoch(BatchSampler(corpus(), tokens=budget, sentences=None, seed=3))
    for batch in batches:
        assert batch.target_out.numel() <= budget or len(batch.lines) == 1
    alone = [batch for batch in batches if batch.target_out.numel() > budget]
    assert len(alone) == sum(i % 7 + 2 > budget for i in range(37))


@pytest.mark.parametrize(("size", "count"), [(1, 37), (4, 10), (37, 1), (50, 1)])
def test_batches_of_sentences(size: int, count: int) -> None:
    batches = one_epoch(BatchSampler(corpus(), tokens=None, sentences=size, seed=3))
    assert len(batches) == count
    assert sorted(len(batch.lines) for batch in batches)[1:] == [size] * (count - 1)


# -- the sampler -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "sentences"), [(20, None), (None, 6)])
def test_every_pair_comes_once_an_epoch(tokens: int | None, sentences: int | None) -> None:
    sampler = BatchSampler(corpus(), tokens=tokens, sentences=sentences, seed=5)
    for epoch in range(3):
        batches = one_epoch(sampler)
        assert sampler.epoch == epoch
        assert len(batches) == sampler.batches_per_epoch
        assert sorted(line for batch in batches for line in batch.lines) == list(range(101, 138))


def test_the_order_follows_from_seed_and_epoch_alone() -> None:
    def lines(seed: int, epoch: int) -> list[tuple[int, ...]]:
        sampler = BatchSampler(corpus(), tokens=20, sentences=None, seed=seed)
        sampler.move_to(epoch, 0)
        return lines_of(one_epoch(sampler))

    assert lines(1, 0) == lines(1, 0)
    orders = [lines(seed, epoch) for seed in (1, 2) for epoch in (0, 1, 2)]
    assert len({tuple(order) for order in orders}) == 6
    walked = BatchSampler(corpus(), tokens=20, sentences=None, seed=2)
    assert [lines_of(one_epoch(walked)) for _ in range(3)] == orders[3:]


def test_pairs_of_similar_length_are_together() -> None:
    # 700 pairs are one stretch to be sorted: in a batch of 10 the target lengths differ by 1 at most
    sampler = BatchSampler(corpus(700), tokens=None, sentences=10, seed=1)
    for batch in one_epoch(sampler):
        lengths = batch.target_visible.sum(dim=1)
        assert int(lengths.max() - lengths.min()) <= 1


def test_batches_are_not_given_in_order_of_length() -> None:
    batches = one_epoch(BatchSampler(corpus(140), tokens=None, sentences=10, seed=1))
    widths = [batch.target_out.shape[1] for batch in batches]
    assert widths not in (sorted(widths), sorted(widths, reverse=True))


@pytest.mark.parametrize("steps", [0, 1, 4, 9, 10, 23])
def test_a_position_can_be_taken_up_again(steps: int) -> None:
    first = BatchSampler(corpus(), tokens=None, sentences=4, seed=7)  # 10 batches an epoch
    for _ in range(steps):
        first.next_batch()
    again = BatchSampler(corpus(), tokens=None, sentences=4, seed=7)
    again.move_to(first.epoch, first.position)
    assert again.epoch_is_over == first.epoch_is_over
    expected = [first.next_batch() for _ in range(15)]
    found = [again.next_batch() for _ in range(15)]
    assert lines_of(found) == lines_of(expected)
    assert all(torch.equal(a.target_out, b.target_out) for a, b in zip(found, expected, strict=True))
    assert (again.epoch, again.position) == (first.epoch, first.position)


def test_a_position_can_be_gone_back_to() -> None:
    sampler = BatchSampler(corpus(), tokens=None, sentences=4, seed=7)
    expected = lines_of([sampler.next_batch() for _ in range(12)])
    sampler.move_to(0, 3)
    assert lines_of([sampler.next_batch() for _ in range(9)]) == expected[3:]


# -- windows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64, 65, 1000, 4097])
def test_a_shuffled_range_holds_every_number_once(size: int) -> None:
    orders = [shuffled_range(0, size, size, [seed]).tolist() for seed in (1, 2)]
    assert all(sorted(order) == list(range(size)) for order in orders)
    assert shuffled_range(size // 3, size, size, [1]).tolist() == orders[0][size // 3 :]
    assert size < 60 or orders[0] != orders[1]


def test_a_shuffled_range_is_spread_like_a_random_order() -> None:
    size = 10_000
    order = shuffled_range(0, size, size, [3, 0])
    random = np.random.default_rng(1).permutation(size)
    for found in (order, random):  # both within five standard deviations of what chance gives
        assert abs(np.corrcoef(np.arange(size), found)[0, 1]) < 5 / size**0.5
        assert abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < 5 / size**0.5
        low = np.count_nonzero(found[: size // 2] < size // 2)
        assert abs(low - size / 4) < 5 * (size / 16) ** 0.5


@pytest.mark.parametrize(("tokens", "sentences"), [(20, None), (None, 4)])
@pytest.mark.parametrize("window", [5, 18, 36])
def test_windows_give_every_pair_once_an_epoch(window: int, tokens: int | None, sentences: int | None) -> None:
    sampler = BatchSampler(corpus(), tokens=tokens, sentences=sentences, seed=5, window=window)
    assert sampler.windows == -(-37 // window)
    orders = []
    for epoch in range(3):
        batches: list[Batch] = []
        while not batches or not sampler.epoch_is_over:
            batches.append(sampler.next_batch())
            assert (sampler.epoch, sampler.position) == (epoch, len(batches))
            assert (sampler.position == sampler.batches_per_epoch) == sampler.epoch_is_over
        assert sorted(line for batch in batches for line in batch.lines) == list(range(101, 138))
        assert all(batch.target_out.numel() <= tokens or len(batch.lines) == 1 for batch in batches if tokens)
        for batch in batches:
            for row, line in zip(batch.target_out, batch.lines, strict=True):
                assert row[0] == line - 101 + 4, "ids and line numbers belong together"
        orders.append(lines_of(batches))
    assert orders[0] != orders[1] != orders[2]


@pytest.mark.parametrize("steps", [0, 1, 3, 4, 5, 9, 13, 14, 15, 20, 31])
def test_a_position_in_the_middle_of_windows_can_be_taken_up_again(steps: int) -> None:
    first = BatchSampler(corpus(), tokens=None, sentences=4, seed=7, window=13)  # 3 windows of 4 batches
    for _ in range(steps):
        first.next_batch()
    again = BatchSampler(corpus(), tokens=None, sentences=4, seed=7, window=13)
    again.move_to(first.epoch, first.position)
    assert (again.epoch_is_over, again.batches_per_epoch) == (first.epoch_is_over, first.batches_per_epoch)
    expected = [first.next_batch() for _ in range(17)]
    found = [again.next_batch() for _ in range(17)]
    assert lines_of(found) == lines_of(expected)
    assert all(torch.equal(a.target_out, b.target_out) for a, b in zip(found, expected, strict=True))
    again.move_to(0, 2)
    start = BatchSampler(corpus(), tokens=None, sentences=4, seed=7, window=13)
    assert again.next_batch().lines == [start.next_batch() for _ in range(3)][2].lines


def test_windows_tell_the_resampler_which_pairs_these_are() -> None:
    examples = corpus()

    def resample(epoch: int, batch: int, indices: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        return [examples.source(i) for i in indices.tolist()], [examples.target(i) for i in indices.tolist()]

    for window in (10, 37):
        plain = BatchSampler(examples, tokens=20, sentences=None, seed=5, window=window)
        sampled = BatchSampler(examples, tokens=20, sentences=None, seed=5, window=window, resample=resample)
        for batch, other in zip(one_epoch(plain), one_epoch(sampled), strict=True):
            assert batch.lines == other.lines
            assert torch.equal(batch.source_ids, other.source_ids)
            assert torch.equal(batch.target_out, other.target_out)


def test_one_window_has_this_order() -> None:
    """The order of a corpus in one window; runs are taken up again by it, so it must not change unnoticed."""
    examples, seed, epoch = corpus(3500), 3, 2
    random = np.random.default_rng([seed, epoch])
    shuffled, batches = random.permutation(3500), []
    size = int(25 / examples.target_lengths.mean()) * 500
    assert size < 3500
    for start in range(0, 3500, size):
        ranked: list[int] = []
        for length in range(examples.target_lengths.max() + 1):  # sources grow and shrink in turn
            same = [i for i in shuffled[start : start + size] if examples.target_lengths[i] == length]
            ranked += sorted(same, key=lambda i: examples.source_lengths[i] * (-1) ** length)
        batches += groups_one_by_one(np.array(ranked), examples.target_lengths, 25, None)
    sampler = BatchSampler(examples, tokens=25, sentences=None, seed=seed)
    sampler.move_to(epoch, 0)
    expected = [tuple((batches[i] + 101).tolist()) for i in random.permutation(len(batches))]
    assert lines_of(one_epoch(sampler)) == expected


def test_sources_are_padded_little_where_target_lengths_change() -> None:
    """Twenty pairs of each of two target lengths, sources of 1 to 20 tokens: no batch holds the longest and the shortest."""
    lengths = [(source, target) for target in (6, 7) for source in range(1, 21)]
    examples = examples_of([[4] * source for source, _ in lengths], [[4] * target for _, target in lengths])
    sampler = BatchSampler(examples, tokens=32, sentences=None, seed=1)
    assert all(np.ptp(batch.source_visible.sum(dim=1).numpy()) <= 4 for batch in one_epoch(sampler))


# -- without shuffling -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [1, 8, 30, 1000])
def test_in_order_covers_every_pair_once_within_the_budget(budget: int) -> None:
    batches = list(in_order(corpus(), tokens=budget))
    assert sorted(line for batch in batches for line in batch.lines) == list(range(101, 138))
    sides = [(batch.source_visible.sum(dim=1), batch.target_visible.sum(dim=1)) for batch in batches]
    longer = [source.maximum(target) for source, target in sides]
    assert all(len(rows) == 1 or len(rows) * int(rows.max()) <= budget for rows in longer)
    lengths = [int(n) for rows in longer for n in rows]
    assert lengths == sorted(lengths)
    assert sum(batch.tokens for batch in batches) == sum(i % 7 + 2 for i in range(37))
