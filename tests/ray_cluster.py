"""A Ray cluster of this machine for tests, with two cores; it ends with the block."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.processes import end, free_port, wait_for

__all__ = ["children", "started"]


@contextmanager
def started(settings: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str], int]]:
    """The address of the cluster, its environment, and the id of its first process."""
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))  # sockets need a short path
    port = free_port()
    environment = {**os.environ, **settings}
    head = subprocess.Popen(
        [
            *(Path(sys.executable).with_name("ray"), "start", "--head", "--block"),
            *(f"--port={port}", "--num-cpus=2", f"--temp-dir={folder}"),
            *("--include-dashboard=false", "--disable-usage-stats"),
        ],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    family = []
    try:
        wait_for(lambda: listening(port) and children(head.pid, "raylet"), of=head)
        yield f"127.0.0.1:{port}", environment, head.pid
        family = psutil.Process(head.pid).children(recursive=True)
    finally:
        head.terminate()
        with suppress(subprocess.TimeoutExpired):
            head.wait(timeout=30)
        end(head)
        for one in psutil.wait_procs(family, timeout=10)[1]:
            one.kill()
        shutil.rmtree(folder, ignore_errors=True)


def listening(port):
    with socket.socket() as found:
        return found.connect_ex(("127.0.0.1", port)) == 0


def children(parent, name):
    """The processes below `parent` in whose command `name` stands."""
    found = []
    for one in psutil.Process(parent).children(recursive=True):
        try:
            if name in " ".join(one.cmdline()):
                found.append(one)
        except psutil.Error:
            continue
    return found
