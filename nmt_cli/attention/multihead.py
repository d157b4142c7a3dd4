"""Multi-head attention: project, split into heads, attend, merge.

Reference: Vaswani et al. 2017, section 3.2.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from nmt_cli.attention.masking import causal_visible, masked_softmax
from nmt_cli.errors import ConfigError


def split_heads(joined: Tensor, heads: int) -> Tensor:
    """Return `(B, T, D)` as `(B, H, T, K)` with D = H x K."""
    batch, length, width = joined.shape
    return joined.view(batch, length, heads, width // heads).transpose(1, 2)  # (B, T, D) -> (B, H, T, K)


def merge_heads(split: Tensor) -> Tensor:
    """Return `(B, H, T, K)` as `(B, T, D)`, the inverse of `split_heads`."""
    batch, heads, length, width = split.shape
    return split.transpose(1, 2).reshape(batch, length, heads * width)  # (B, H, T, K) -> (B, T, D)


ROOM_STEPS = 24
"""Steps for which there is room at first."""


@dataclass
class Room:
    """Storage `(B, H, positions, K)` of keys and values, of which the first `filled` positions are written."""

    keys: Tensor
    values: Tensor
    filled: int


@dataclass(frozen=True)
class KeysValues:
    """Projected keys and values of all heads, each `(B, H, S, K)`: what a decoder keeps between steps.

    Args:
        keys: The keys.
        values: The values.
        room: Where they lie with room behind them, so that what is appended need not move what is there.
    """

    keys: Tensor
    values: Tensor
    room: Room | None = None

    def append(self, later: KeysValues) -> KeysValues:
        """Return these followed by `later` along S. These stay as they are, and so may be appended to again."""
        if torch.is_grad_enabled():  # a gradient needs what was there
            return KeysValues(torch.cat((self.keys, later.keys), dim=2), torch.cat((self.values, later.values), dim=2))
        size = self.keys.shape[2]
        grown = size + later.keys.shape[2]
        room = self.room
        if room is None or room.filled != size or grown > room.keys.shape[2]:
            room = self._moved(max(2 * grown, ROOM_STEPS * later.keys.shape[2]))
        room.keys[:, :, size:grown] = later.keys
        room.values[:, :, size:grown] = later.values
        room.filled = grown
        return KeysValues(room.keys[:, :, :grown], room.values[:, :, :grown], room)

    def _moved(self, positions: int) -> Room:
        batch, heads, size, width = self.keys.shape
        shape = (batch, heads, positions, width)
        room = Room(self.keys.new_empty(shape), self.values.new_empty(shape), filled=size)
        room.keys[:, :, :size] = self.keys
        room.values[:, :, :size] = self.values
        return room

    def reorder(self, order: Tensor) -> KeysValues:
        """Return the sentences `order` `(B',)`."""
        return KeysValues(self.keys.index_select(0, order), self.values.index_select(0, order))

    def pick(self, sentences: Tensor, positions: Tensor, room: int) -> KeysValues:
        """Return of the sentences `(B',)` the positions `(B', S')`, with room for so many more behind them."""
        stored = (self.keys, self.values) if self.room is None else (self.room.keys, self.room.values)
        _, heads, size, width = stored[0].shape
        kept = positions.shape[1]
        padded = torch.cat((positions, positions[:, :1].expand(-1, room)), dim=1)  # the room must hold something
        starts = (sentences.unsqueeze(1) * heads + torch.arange(heads, device=sentences.device)) * size  # (B', H)
        rows = (starts.unsqueeze(2) + padded.unsqueeze(1)).flatten()  # of all (B x H x S) vectors
        shape = (len(sentences), heads, kept + room, width)
        keys, values = (part.reshape(-1, width).index_select(0, rows).view(shape) for part in stored)
        return KeysValues(keys[:, :, :kept], values[:, :, :kept], Room(keys, values, filled=kept))


class MultiHeadAttention(nn.Module):
    """h attentions of width D/h in parallel, joined and projected once more.

    Args:
        width: D.
        heads: H, a divisor of D.
        dropout: Applied to the weights.
        bias: Whether the four projections have biases.

    Raises:
        ConfigError: `width` is not a multiple of `heads`.
    """

    def __init__(self, width: int, heads: int, *, dropout: nn.Module, bias: bool = False) -> None:
        super().__init__()
        if width % heads:
            raise ConfigError(f"width must be a multiple of heads, but is {width} with {heads} heads")
        self.heads = heads
        self.query_layer = nn.Linear(width, width, bias=bias)
        self.key_layer = nn.Linear(width, width, bias=bias)
        self.value_layer = nn.Linear(width, width, bias=bias)
        self.output_layer = nn.Linear(width, width, bias=bias)
        self.dropout = dropout

    def project(self, memory: Tensor) -> KeysValues:
        """Return keys and values of what can be attended to, `(B, S, D)`."""
        return KeysValues(split_heads(self.key_layer(memory), self.heads), split_heads(self.value_layer(memory), self.heads))

    def forward(
        self,
        queries: Tensor,
        memory: KeysValues,
        visible: Tensor | None = None,
        *,
        causal: bool = False,
        want_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend.

        Args:
            queries: `(B, T, D)`.
            memory: Keys and values as `project` gave them, S positions.
            visible: Bool `(B, S)` or `(B, T, S)`; None: all visible.
            causal: Hide from each query the keys after it; the last query stands at the last key.
            want_weights: Return the weights too (computed before dropout).

        Returns:
            Context `(B, T, D)`, and weights `(B, H, T, S)` or None.
        """
        split = split_heads(self.query_layer(queries), self.heads)  # (B, T, D) -> (B, H, T, K)
        mask = None
        if visible is not None:  # (B, S) -> (B, 1, 1, S) or (B, T, S) -> (B, 1, T, S)
            mask = visible[:, None, None, :] if visible.dim() == 2 else visible[:, None]
        one_query = split.shape[2] == 1 and split.device.type == "cpu"  # the fused kernel is slower there
        if want_weights or one_query or (self.training and not isinstance(self.dropout, nn.Identity)):
            context, weights = self._explicit(split, memory, mask, causal=causal)
            return self.output_layer(merge_heads(context)), weights if want_weights else None
        return self.output_layer(merge_heads(_fast(split, memory, mask, causal=causal))), None

    def _explicit(self, split: Tensor, memory: KeysValues, mask: Tensor | None, *, causal: bool) -> tuple[Tensor, Tensor]:
        queries, keys = split.shape[2], memory.keys.shape[2]
        if causal and queries > 1:
            future = causal_visible(queries, keys, split.device)
            mask = future if mask is None else mask & future
        scores = torch.matmul(split * split.shape[-1] ** -0.5, memory.keys.transpose(2, 3))  # (B, H, T, S)
        weights = masked_softmax(scores, mask)
        return torch.matmul(self.dropout(weights), memory.values), weights  # (B, H, T, S) -> (B, H, T, K)


def _fast(split: Tensor, memory: KeysValues, mask: Tensor | None, *, causal: bool) -> Tensor:
    """Return the context `(B, H, T, K)` by torch's fused kernel; a row with nothing visible gives zeros."""
    queries, keys = split.shape[2], memory.keys.shape[2]
    attend = functional.scaled_dot_product_attention
    if causal and mask is None and queries == keys:
        return attend(split, memory.keys, memory.values, is_causal=queries > 1)
    if causal and queries > 1:
        future = causal_visible(queries, keys, split.device)
        mask = future if mask is None else mask & future
    return attend(split, memory.keys, memory.values, attn_mask=mask)
