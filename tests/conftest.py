"""Tests are tiny: one thread computes them fastest, and leaves nothing behind that a forked child could wait for."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
