"""Work in other processes: it ends at once when it is stopped, and says why it cannot begin."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from nmt_cli.errors import ResourceError
from nmt_cli.text.encoding import Task, encoded_chunks, in_another_process
from nmt_cli.text.examples import Filters
from nmt_cli.text.parallel import PairChunk
from nmt_cli.text.tokenizers import WordSettings, WordTokenizer

LONG = 30.0
SOON = 10.0
"""Seconds; far less than the work takes, and more than processes need to start."""


class SlowTokenizer(WordTokenizer):
    """Takes very long for each chunk."""

    def encode_lines(self, lines: object, *, threads: int = 1) -> list[list[int]]:
        time.sleep(LONG)
        return []


@pytest.fixture(name="interrupt_soon")
def _interrupt_soon() -> Iterator[None]:
    """Press Ctrl-C in two seconds."""
    timer = threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    yield
    timer.cancel()


@pytest.mark.usefixtures("interrupt_soon")
def test_an_interrupt_does_not_wait_for_what_is_learned() -> None:
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        in_another_process(time.sleep, LONG)
    assert time.monotonic() - started < SOON


@pytest.mark.usefixtures("interrupt_soon")
def test_an_interrupt_does_not_wait_for_what_is_tokenised() -> None:
    slow = SlowTokenizer(WordTokenizer.train(["a"], settings=WordSettings()).vocabulary, WordSettings())
    tasks: list[Task] = [(PairChunk(["a"], ["a"], "a.tsv", 1), None)] * 20
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(encoded_chunks(tasks, (slow, slow), Filters(), processes=2))
    assert time.monotonic() - started < SOON


def test_an_error_does_not_wait_either() -> None:
    slow = SlowTokenizer(WordTokenizer.train(["a"], settings=WordSettings()).vocabulary, WordSettings())
    started = time.monotonic()

    def tasks() -> Iterator[Task]:
        yield PairChunk(["a"], ["a"], "a.tsv", 1), None
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        list(encoded_chunks(tasks(), (slow, slow), Filters(), processes=2))
    assert time.monotonic() - started < SOON


def test_processes_that_cannot_be_started_are_a_message() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unused = os.dup(0)
    os.close(unused)
    resource.setrlimit(resource.RLIMIT_NOFILE, (unused, hard))
    try:
        with pytest.raises(
            ResourceError, match=r"cannot start a process that learns the vocabulary: Too many open files; .*run"
        ):
            in_another_process(time.sleep, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_command_ends_at_once_with_its_exit_code() -> None:
    """What `nmt` does with an interrupt while another process works."""
    code = (
        "import time\n"
        "from nmt_cli.cli import app\n"
        "from nmt_cli.text.encoding import in_another_process\n"
        "def work(**_):\n"
        "    print('ready', flush=True)\n"
        f"    in_another_process(time.sleep, {LONG})\n"
        "app.app = work\n"
        "app.main()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(1.5)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=LONG)
    assert (process.returncode, told) == (130, "stopped\n")
    assert time.monotonic() - started < SOON
