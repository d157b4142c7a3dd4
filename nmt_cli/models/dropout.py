"""Dropout whose randomness is handed in, can be saved, and is cheap to draw on a CPU.

`torch.bernoulli_` on a CPU is sequential and took a quarter of a training step. Here one random byte an element decides, so a
rate is rounded to a multiple of 1/256 and the kept elements are scaled by what is really kept.

Reference: Srivastava et al. 2014.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class RandomSource:
    """The generator of all dropout masks of a model: bytes from SFC64 on a CPU, a torch generator elsewhere.

    Args:
        seed: Seed; several numbers, such as (seed, rank), may be given.
    """

    def __init__(self, *seed: int) -> None:
        self._seed = seed
        self._bytes = np.random.Generator(np.random.SFC64(list(seed)))
        self._generators: dict[str, torch.Generator] = {}  # by kind of device: a model is on one of a kind
        self._saved: dict[str, list[int]] = {}

    def mask(self, like: Tensor, drop_level: int) -> Tensor:
        """Return a bool mask of the shape of `like` that is False with probability `drop_level` / 256."""
        if like.device.type == "cpu":
            words = self._bytes.bit_generator.random_raw(-(-like.numel() // 8))  # eight bytes each
            return torch.from_numpy(words.view(np.uint8)[: like.numel()] >= drop_level).view(like.shape)
        generator = self._generator(like.device)
        return torch.rand(like.shape, device=like.device, generator=generator) >= drop_level / 256

    def state(self) -> dict[str, Any]:
        """Return the state as plain values (numbers, texts and lists)."""
        state = self._bytes.bit_generator.state
        return {
            "bytes": [int(word) for word in state["state"]["state"]],
            "has_uint32": int(state["has_uint32"]),
            "uinteger": int(state["uinteger"]),
            "devices": {
                **self._saved,
                **{kind: generator.get_state().tolist() for kind, generator in self._generators.items()},
            },
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state that `state` gave."""
        self._bytes.bit_generator.state = {
            "bit_generator": "SFC64",
            "state": {"state": np.array(state["bytes"], dtype=np.uint64)},
            "has_uint32": state["has_uint32"],
            "uinteger": state["uinteger"],
        }
        self._generators, self._saved = {}, dict(state["devices"])

    def _generator(self, device: torch.device) -> torch.Generator:
        """Return the generator of a kind of device, in its restored state where there is one."""
        if device.type not in self._generators:
            generator = torch.Generator(device)
            if device.type in self._saved:
                generator.set_state(torch.tensor(self._saved[device.type], dtype=torch.uint8))
            else:
                generator.manual_seed(int(np.random.SeedSequence(list(self._seed)).generate_state(1)[0]))
            self._generators[device.type] = generator
        return self._generators[device.type]


class _Masked(torch.autograd.Function):
    """x * mask * scale in one pass, forward and backward, keeping only the bool mask."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.scale = scale
        return torch.ops.aten.native_dropout_backward(x, mask, scale)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (mask,) = ctx.saved_tensors
        return torch.ops.aten.native_dropout_backward(gradient, mask, ctx.scale), None, None


class Dropout(nn.Module):
    """Zeroes elements at random in training and scales the others so that the mean stays.

    Args:
        rate: Share to drop, below 1, rounded to a multiple of 1/256 (at most 255/256).
        source: Where the randomness comes from.
    """

    def __init__(self, rate: float, source: RandomSource) -> None:
        super().__init__()
        self.drop_level = min(round(rate * 256), 255)
        self.source = source

    def forward(self, x: Tensor) -> Tensor:
        """Return `x` with elements dropped in training, `x` itself in evaluation."""
        if not self.training or not self.drop_level:
            return x
        mask = self.source.mask(x, self.drop_level)
        dropped: Tensor = _Masked.apply(x, mask, 256 / (256 - self.drop_level))  # type: ignore[no-untyped-call]
        return dropped

    def extra_repr(self) -> str:
        """Return the rate for printing."""
        return f"rate={self.drop_level / 256:.4f}"


def dropout(rate: float, source: RandomSource) -> nn.Module:
    """Return a dropout, or the identity where the rate rounds to zero (so that faster paths can be taken)."""
    return Dropout(rate, source) if round(rate * 256) else nn.Identity()
