"""Weights in and out of safetensors files, with every mismatch named."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from nmt_cli.errors import RunError

WEIGHTS_FILE = "model.safetensors"


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return every parameter by name, on the CPU; parameters that two layers share come once."""
    return {name: parameter.detach().cpu().contiguous() for name, parameter in model.named_parameters()}


def load_weights(model: nn.Module, path: Path) -> None:
    """Copy the weights in `path` into `model`, wherever it is.

    Raises:
        RunError: The file is not safetensors, is damaged, or does not fit the model; all differences are named.
    """
    try:
        stored = load_file(path)
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path}: expected weights in safetensors form, but it cannot be read as such: {error}") from None
    parameters = dict(model.named_parameters())
    problems = [f"missing {name}" for name in sorted(parameters.keys() - stored.keys())]
    problems += [f"unexpected {name}" for name in sorted(stored.keys() - parameters.keys())]
    problems += [
        f"{name} has shape {tuple(stored[name].shape)}, expected {tuple(parameters[name].shape)}"
        for name in sorted(parameters.keys() & stored.keys())
        if stored[name].shape != parameters[name].shape
    ]
    if problems:
        raise RunError(f"{path}: these weights do not fit the model of this run's config: {'; '.join(problems)}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(stored[name])
