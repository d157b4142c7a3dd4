"""Weights in and out: exact, nothing but safetensors is read, and every mismatch is named."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from nmt_cli.errors import RunError
from nmt_cli.runs.weights import load_weights, weights_of


class Toy(nn.Module):
    def __init__(self, *, width: int = 3, tied: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, width)
        self.output = nn.Linear(width, 5)
        if tied:
            self.output.weight = self.embedding.weight


class Harmful:
    """Creates a marker file when it is unpickled (docs/faults.md PB-28)."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.marker),)


def file_of(path: Path, module: nn.Module) -> Path:
    save_file(weights_of(module), path)
    return path


@pytest.mark.parametrize("tied", [False, True])
def test_weights_come_back_bit_for_bit(tied: bool, tmp_path: Path) -> None:
    source, target = Toy(tied=tied), Toy(tied=tied)
    names = {"embedding.weight", "output.bias"} | (set() if tied else {"output.weight"})
    assert set(weights_of(source)) == names  # what two layers share comes once
    assert not torch.equal(source.embedding.weight, target.embedding.weight)
    load_weights(target, file_of(tmp_path / "w", source))
    for name, parameter in target.named_parameters():
        assert torch.equal(parameter, source.get_parameter(name))
    assert (target.output.weight is target.embedding.weight) is tied


def test_weights_stay_trainable_parameters(tmp_path: Path) -> None:
    target = Toy()
    before = [id(parameter) for parameter in target.parameters()]
    load_weights(target, file_of(tmp_path / "w", Toy()))
    assert [id(parameter) for parameter in target.parameters()] == before
    assert all(parameter.requires_grad and parameter.grad_fn is None for parameter in target.parameters())


@pytest.mark.parametrize("form", ["pickle", "torch"])
def test_a_pickle_is_refused_and_not_run(form: str, tmp_path: Path) -> None:
    marker, path = tmp_path / "marker", tmp_path / "model.safetensors"
    if form == "pickle":
        path.write_bytes(pickle.dumps({"embedding.weight": Harmful(marker)}))
    else:
        torch.save({"embedding.weight": Harmful(marker)}, path)
    model = Toy()
    before = model.embedding.weight.clone()
    with pytest.raises(RunError, match=r"model\.safetensors: expected weights in safetensors form"):
        load_weights(model, path)
    assert not marker.exists()
    assert torch.equal(model.embedding.weight, before)


def test_the_harmful_file_would_do_harm(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Harmful(tmp_path / "marker")))
    assert (tmp_path / "marker").exists()


@pytest.mark.parametrize("damage", ["cut", "empty", "missing", "folder"])
def test_a_damaged_file_is_refused_by_its_name(damage: str, tmp_path: Path) -> None:
    path = file_of(tmp_path / "model.safetensors", Toy())
    if damage in {"cut", "empty"}:
        os.truncate(path, 0 if damage == "empty" else path.stat().st_size - 4)
    else:
        path.unlink()
        if damage == "folder":
            path.mkdir()
    with pytest.raises(RunError, match=r"model\.safetensors: expected weights in safetensors form"):
        load_weights(Toy(), path)


def test_every_mismatch_is_named_and_nothing_is_loaded(tmp_path: Path) -> None:
    stored = {
        "embedding.weight": torch.zeros(5, 4),
        "bias": torch.zeros(1),
        "zoo": torch.zeros(2),
        "output.bias": torch.ones(5),
    }
    save_file(stored, tmp_path / "w")
    model = Toy()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    with pytest.raises(RunError) as caught:
        load_weights(model, tmp_path / "w")
    found = str(caught.value).partition("of this run's config: ")[2].split("; ")
    assert found == [
        "missing output.weight",
        "unexpected bias",
        "unexpected zoo",
        "embedding.weight has shape (5, 4), expected (5, 3)",
    ]
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
