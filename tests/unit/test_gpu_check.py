"""What `make gpu-check` measures, tried on the CPU with tiny sizes."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import gpu_check
from benchmarks.gpu_check import Check, main, missing, run_check
from benchmarks.gpu_measures import Finding, compare, made_up_examples, model_flop, peak_of
from nmt_cli.config import TransformerConfig
from nmt_cli.models.dropout import RandomSource
from nmt_cli.runs.build import build_model
from nmt_cli.text.batching import make_batch
from nmt_cli.training.loop import batch_loss


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tensors are tiny here: a second thread would only wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_script_runs_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setattr(gpu_check, "limited", contextlib.nullcontext)  # a busy machine may take its time
    monkeypatch.setattr(gpu_check, "SECONDS", 1e6)
    names = [
        "matmul",
        "float32-transformer",
        "bf16-transformer",
        "bf16-recurrent",
        "waiting-recurrent",
        "speed-base",
        "speed-big",
    ]
    assert main(["--device", "cpu", "--small", "--only", ",".join(reversed(names))]) == 0
    lines = capsys.readouterr().out.splitlines()
    checks = [line for line in lines if line.startswith("check ")]
    assert [line.split(": ")[0] for line in checks] == [f"check {name}" for name in names]
    skipped = "skipped (needs a GPU; this is cpu)"
    assert [line.split(": ", 1)[1] for line in checks if "skipped" in line] == [skipped] * 2
    assert all(": ok (" in line for line in checks if "skipped" not in line)
    written = json.loads((tmp_path / "gpu-check.json").read_text(encoding="utf-8"))
    assert written["ok"] is True
    assert [check["name"] for check in written["checks"]] == [names[0], names[2], names[3], *names[5:]]
    base = written["checks"][-2]["figures"]
    assert base["tokens_per_second"] > 0
    assert base["share_of_measured_product"] > 0
    assert base["updates"] % 5 == 0


def test_a_model_is_trained_to_its_report_through_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    finding = gpu_check.train_to_report("recurrent", "cpu", gpu_check.SMALL, 600)
    assert finding.ok, finding.text
    assert finding.text.startswith("BLEU ")
    assert finding.figures["updates"] == 2


def test_a_training_that_ends_badly_fails_with_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gpu_check.KINDS, "recurrent", "no-such-config")
    finding = gpu_check.train_to_report("recurrent", "cpu", gpu_check.SMALL, 600)
    assert not finding.ok
    assert "exit code 2" in finding.text
    assert "no-such-config.yaml" in finding.text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "cuda:99"], "--device cuda:99: torch"),
        (["--device", "cpu", "--only", "matmul,speed-huge"], "no check is called speed-huge; there are matmul, float32-"),
    ],
)
def test_what_cannot_run_ends_with_code_2(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    assert said in capsys.readouterr().err


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert missing(("torch", "no_such_module", "numpy")) == ["no_such_module"]
    monkeypatch.setattr(gpu_check, "NEEDED", ("torch", "no_such_module"))
    with pytest.raises(SystemExit) as raised:
        main(["--device", "cpu"])
    assert raised.value.code == 2
    assert "needs no_such_module, which" in capsys.readouterr().err


def test_a_check_that_breaks_or_takes_too_long_fails_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    def break_down(seconds: float) -> Finding:
        raise ValueError("a card\non fire")

    def sleep(seconds: float) -> Finding:
        time.sleep(600)
        return Finding(True, "", {})

    assert run_check(Check("one", 5, False, break_down), 100)["ok"] is False
    assert run_check(Check("two", 50, False, sleep), 0.01)["ok"] is False
    assert run_check(Check("three", 50, False, sleep), -1)["ok"] is False
    assert run_check(Check("four", 5, False, lambda seconds: Finding(False, f"{seconds:.0f}", {"x": 1.0})), 3)["ok"] is False
    assert capsys.readouterr().out.splitlines() == [
        "check one: FAILED (ValueError: a card on fire)",
        "check two: FAILED (TimeoutError: took longer than 1 s)",
        "check three: FAILED (TimeoutError: no time was left for it)",
        "check four: FAILED (3)",
    ]


# -- what is measured --------------------------------------------------------------------------------------------------


def test_operations_are_those_that_torch_counts_where_nothing_is_padding() -> None:
    """Attention with dropout takes its products one by one, so that torch's counter sees them."""
    model = TransformerConfig(
        type="transformer",
        width=24,
        heads=3,
        feed_forward=40,
        encoder_layers=2,
        decoder_layers=3,
        attention_dropout=0.1,
    )
    draw = np.random.default_rng(1)
    sources, targets = (list(draw.integers(4, 50, (5, length)).astype(np.int32)) for length in (7, 9))
    batch = make_batch(sources, targets, range(5))
    built = build_model(model, source_size=50, target_size=60, random=RandomSource(1)).train()
    with FlopCounterMode(display=False) as counter:
        batch_loss(built, batch, 0.1).smoothed.backward()  # type: ignore[no-untyped-call]
    assert model_flop(model, 60, batch) == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_padding_is_no_work_of_the_model() -> None:
    model = TransformerConfig(type="transformer", width=8, heads=2, feed_forward=8, encoder_layers=1, decoder_layers=1)
    long, short = np.full(9, 5, dtype=np.int32), np.full(2, 5, dtype=np.int32)
    apart = sum(model_flop(model, 30, make_batch([ids], [ids], [1])) for ids in (long, short))
    assert model_flop(model, 30, make_batch([long, short], [long, short], [1, 2])) == pytest.approx(apart)


def test_made_up_examples_are_pairs_of_similar_length() -> None:
    examples = made_up_examples(300, 50)
    source, target = examples.source_lengths - 1, examples.target_lengths - 1
    assert len(examples) == len(source) == len(target) == 300
    assert int(source.min()) >= 10
    assert int(source.max()) <= 44
    assert int(abs(source - target).max()) <= 5
    assert int(examples.source_ids.min()) >= 4
    assert int(examples.target_ids.max()) < 50


def gradients(*rows: list[float]) -> list[torch.Tensor]:
    return [torch.tensor(row) for row in rows]


@pytest.mark.parametrize(
    ("loss", "rows", "ok"),
    [
        (2.0, ([3.0, 4.0], [0.0, 0.0]), True),
        (2.001, ([3.0, 4.0], [0.0, 0.0]), True),
        (2.01, ([3.0, 4.0], [0.0, 0.0]), False),
        (2.0, ([3.0, 4.004], [0.0, 0.0]), True),  # 0.004 of 5
        (2.0, ([3.0, 4.01], [0.0, 0.0]), False),
        (2.0, ([3.0, 4.0], [1e-5, 0.0]), True),  # a rounding error where zero should be
        (2.0, ([3.0, 4.0], [1e-3, 0.0]), False),
        (math.nan, ([3.0, 4.0], [0.0, 0.0]), False),
        (2.0, ([3.0, math.nan], [0.0, 0.0]), False),
        (2.0, ([3.0, 4.0], [math.nan, 0.0]), False),
    ],
)
def test_agreement_by_hand(loss: float, rows: tuple[list[float], list[float]], ok: bool) -> None:
    finding = compare((loss, gradients(*rows)), (2.0, gradients([3.0, 4.0], [0.0, 0.0])), most=1e-3)
    assert finding.ok is ok


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H200", 989e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA GeForce RTX 4090", 165e12),
        ("NVIDIA L40S", None),
        ("NVIDIA H100 PCIe", None),
        ("cpu", None),
    ],
)
def test_cards_of_our_table(name: str, peak: float | None) -> None:
    assert peak_of(name) == peak
