"""Processes that tests start: waited for by what they do, never by the clock, and always ended."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil

__all__ = ["children", "end", "free_port", "run_ranks", "wait_for"]

ROOT = Path(__file__).parent.parent

Value = TypeVar("Value")

_KEPT_BY_LIBRARIES = (
    "multiprocessing.resource_tracker",
    "multiprocessing.forkserver",
    "torch._inductor.compile_worker",
)
"""Helpers that Python and torch start once and keep until this process ends."""


def wait_for(condition: Callable[[], Value], *, of: subprocess.Popen[str] | None = None) -> Value:
    """Wait until the condition holds and return its value; fail if the process `of` it ends first.

    There is no limit of seconds, because a slow machine may take any time; the limit of pytest
    ends a test that hangs.
    """
    while True:
        has_ended = of is not None and of.poll() is not None
        if value := condition():
            return value
        assert not has_ended, (
            f"the process ended with exit code {of.returncode} before it came to it"
        )
        time.sleep(0.01)


def children() -> list[psutil.Process]:
    """The processes that this one has started and that are not over and waited for."""
    if hasattr(os, "waitid"):  # far cheaper than a look at every process of the machine
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return []
    return [one for one in psutil.Process().children() if not _is_kept(one)]


def end(process: subprocess.Popen[str]) -> None:
    """End a process with all processes below it, and wait until they are gone."""
    family: list[psutil.Process] = []
    if process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            family = psutil.Process(process.pid).children(recursive=True)
    with process:
        process.kill()
    for one in family:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(family)


def free_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def run_ranks(script: str, *arguments: str, count: int = 2, port: int, limit: float) -> list[str]:
    """Run a script of tests/ in processes of one group over gloo, and return what each said as errors.

    Each gets the arguments, its rank, how many there are, and the port on which they meet. Whoever
    still runs after `limit` seconds is ended, and the test fails: nothing may hang.
    """
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                str(ROOT / "tests" / script),
                *arguments,
                f"{rank}",
                f"{count}",
                f"{port}",
            ],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    try:
        return [process.communicate(timeout=limit)[1] for process in processes]
    finally:
        for process in processes:
            end(process)


def _is_kept(process: psutil.Process) -> bool:
    try:
        command = " ".join(process.cmdline())
    except psutil.Error:  # it has ended and nobody has waited for it
        return False
    return any(name in command for name in _KEPT_BY_LIBRARIES)
