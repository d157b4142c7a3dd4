"""Which device and which number format. The one place that asks torch what there is."""

from __future__ import annotations

import ctypes
import mmap
import re
import sys

import torch

from nmt_cli.errors import ConfigError

HEAP_BYTES = 1 << 30
"""Addresses that are set aside for tensors, with huge pages."""


def choose_device(name: str) -> torch.device:
    """Return the device of an option `auto`, `cpu`, `cuda`, `cuda:N` or `mps`; auto is CUDA where there is one, else the CPU.

    Raises:
        ConfigError: The name is unknown, or this machine has no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|mps|cuda(:(0|[1-9][0-9]*))?", name, flags=re.ASCII):
        raise ConfigError(f"--device: expected auto, cpu, cuda, cuda:N or mps, but is {name!r}")
    kind, _, index = name.partition(":")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"--device {name}: torch {torch.__version__} finds {torch.cuda.device_count()} CUDA devices on this machine; "
            "use --device cpu or auto"
        )
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(f"--device {name}: torch finds no such device here; use --device cpu or auto")
    return torch.device(name)


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """Return the format that `auto`, `float32` or `bf16` means on `device`; auto is bf16 on GPUs that have it.

    Raises:
        ConfigError: bf16 is asked for on a GPU without it.
    """
    has_bf16 = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    if name == "bf16" and device.type == "cuda" and not has_bf16:
        raise ConfigError(f"training.precision: bf16 is not supported by {torch.cuda.get_device_name(device)}; use float32")
    if name == "bf16" or (name == "auto" and has_bf16):
        return torch.bfloat16
    return torch.float32


def prepare_device(device: torch.device) -> None:
    """Set what makes `device` fast.

    On a CPU tiny numbers, which it computes slowly, become zero, and memory that was given back is kept for the next tensor:
    the first touch of fresh memory took a twentieth of a training step.
    """
    if device.type == "cpu":
        torch.set_flush_denormal(True)
        _keep_memory()


def _keep_memory() -> None:
    """Tell glibc, where that is the C library, to keep freed memory, and the kernel to give it huge pages where it may."""
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return
    trim_threshold, top_pad, mmap_threshold, mmap_max = -1, -2, -3, -4  # numbers of malloc.h
    library.mallopt(trim_threshold, 2**31 - 1)
    library.mallopt(top_pad, 64 << 20)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.argtypes, library.madvise.argtypes = [ctypes.c_void_p], [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    library.mallopt(mmap_max, 0)
    reserved = library.malloc(HEAP_BYTES)  # addresses only: nothing is touched
    library.mallopt(mmap_max, 65536)  # the default
    library.mallopt(mmap_threshold, 32 << 20)  # the most it accepts
    if reserved:
        huge_pages, page = 14, mmap.PAGESIZE  # MADV_HUGEPAGE
        start = -(-reserved // page) * page
        library.madvise(start, HEAP_BYTES - page, huge_pages)  # where the kernel has none, nothing changes
        library.free(reserved)


def threads_of(device: torch.device) -> int:
    """Return how many threads of their own can compute at once: those of a CPU; one thread is enough for another device."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def use_one_thread() -> None:
    """Let the calling thread compute on one core: for threads that work side by side."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # each thread has a setting of its own


def autocast(device: torch.device, precision: torch.dtype) -> torch.autocast:
    """Return a context in which products are computed in `precision`; float32 changes nothing."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == torch.bfloat16)


def describe_device(device: torch.device) -> str:
    """Return a short text for logs and reports."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return f"{device} ({torch.get_num_threads()} threads)" if device.type == "cpu" else str(device)
