"""What is set for a device (devices.py)."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

TOUCHED = """
import resource
import sys
import torch
from nmt_cli.devices import prepare_device

if sys.argv[1] == "prepared":
    prepare_device(torch.device("cpu"))

def faults_of_a_step() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    kept = [torch.ones(1 << 21) for _ in range(8)]  # 8 MB each
    del kept
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults_of_a_step()
print(sum(faults_of_a_step() for _ in range(3)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="there is nothing to set for another C library")
def test_freed_memory_is_kept_for_the_next_tensor() -> None:
    """Memory that comes fresh from the system costs a page fault for every 4 KiB: 16,384 for these 64 MB."""
    faults = {}
    for how in ("prepared", "as it is"):
        command = [sys.executable, "-c", TOUCHED, how]
        faults[how] = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert faults["prepared"] < 100
    assert faults["as it is"] > 1000  # otherwise there is nothing to do
