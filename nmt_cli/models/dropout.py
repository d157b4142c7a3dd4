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

    def bytes_for(self, x: Tensor) -> Tensor:
        """Return a random byte for each element of `x`, uint8 of its shape."""
        if x.device.type == "cpu":
            words = self._bytes.bit_generator.random_raw(-(-x.numel() // 8))  # eight bytes each
            return torch.from_numpy(words.view(np.uint8)[: x.numel()]).view(x.shape)
        generator = self._generator(x.device)
        return torch.randint(0, 256, x.shape, dtype=torch.uint8, device=x.device, generator=generator)

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


def _factors(drawn: Tensor, drop_level: int, dtype: torch.dtype) -> Tensor:
    """Return what the elements are multiplied by: 0 where the byte is below the level, what keeps the mean elsewhere."""
    kept = torch.empty_like(drawn, dtype=dtype)
    return torch.ge(drawn, drop_level, out=kept).mul_(256 / (256 - drop_level))


class _Dropped(torch.autograd.Function):
    """x with elements dropped, or `base` plus that in the same pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, base: Tensor | None, drawn: Tensor, drop_level: int) -> Tensor:
        factors = _factors(drawn, drop_level, x.dtype)
        ctx.save_for_backward(factors)
        return x * factors if base is None else torch.addcmul(base, x, factors)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        (factors,) = ctx.saved_tensors
        return gradient * factors, gradient if ctx.needs_input_grad[1] else None, None, None


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
        return self.add(None, x)

    def add(self, base: Tensor | None, x: Tensor) -> Tensor:
        """Return `base` plus `x` with elements dropped, of the same shape and dtype; without base what was dropped of `x`."""
        if not self.training or not self.drop_level:
            return x if base is None else base + x
        dropped: Tensor = _Dropped.apply(x, base, self.source.bytes_for(x), self.drop_level)  # type: ignore[no-untyped-call]
        return dropped

    def extra_repr(self) -> str:
        """Return the rate for printing."""
        return f"rate={self.drop_level / 256:.4f}"


def dropout(rate: float, source: RandomSource) -> nn.Module:
    """Return a dropout, or the identity where the rate rounds to zero (so that faster paths can be taken)."""
    return Dropout(rate, source) if round(rate * 256) else nn.Identity()


def add_dropped(base: Tensor, x: Tensor, layer: nn.Module) -> Tensor:
    """Return `base` plus what `layer`, from `dropout`, makes of `x`."""
    if isinstance(layer, Dropout) and base.dtype == x.dtype:  # under autocast they may differ
        return layer.add(base, x)
    added: Tensor = base + layer(x)
    return added


def factors_of(layer: nn.Module, x: Tensor) -> Tensor | None:
    """Return what `layer`, from `dropout`, would multiply the elements of `x` by, or None where it would leave them alone."""
    if not isinstance(layer, Dropout) or not layer.training or not layer.drop_level or not x.numel():
        return None
    return _factors(layer.source.bytes_for(x), layer.drop_level, x.dtype)
