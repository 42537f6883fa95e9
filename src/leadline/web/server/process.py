"""A process of the lab, seen from the server: started, asked, and ended even if it hangs.

It is a process of its own and no fork: torch is imported in it and nowhere else, the main module of
a script that calls `leadline.lab` is not run again, and Ctrl-C in the terminal reaches the server
alone, which then ends its processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from typing import Any

from leadline.errors import MachineError

__all__ = ["LabProcess", "ProcessLine", "ProcessSettings"]

_BEGIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1])['path']; "
    "from leadline.web.server.worker import work; work()"
)
LONGEST_LINE = 2**28
"""Bytes of one answer at most: a report with its numbers has some millions."""
START = 180.0
"""Seconds within which a process has to listen: torch is slow to import on a cold disk."""
TERMINATE = 2.0
"""Seconds that a process has to end by itself before it is killed."""


@dataclass(frozen=True)
class ProcessSettings:
    """What a process of the lab begins with.

    `warm` are modules that are imported before anybody waits, `nice` how far it steps back behind
    other processes, `threads` how many threads it computes with (0: as many as libraries choose).
    """

    plugins: tuple[str, ...] = ()
    warm: tuple[str, ...] = ()
    nice: int = 0
    threads: int = 0
    debug: bool = False

    def without_warmth(self) -> ProcessSettings:
        """The same without modules that are imported first."""
        return replace(self, warm=())


@dataclass(frozen=True, slots=True)
class ProcessLine:
    """One line of a process: `word` is ready, part, refused, failed or end."""

    word: str
    task: int
    text: bytes

    def value(self) -> Any:
        """What the line says, from JSON."""
        return json.loads(self.text)


class LabProcess:
    """One process; its methods belong to one event loop."""

    def __init__(self, settings: ProcessSettings) -> None:
        self._settings = settings
        self._process: asyncio.subprocess.Process | None = None
        self._task = 0

    @property
    def lives(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start it and wait until it listens."""
        settings = asdict(self._settings) | {"path": sys.path}
        environment = dict(os.environ)
        if self._settings.threads and "OMP_NUM_THREADS" not in environment:
            environment["OMP_NUM_THREADS"] = str(self._settings.threads)
        apart: dict[str, Any] = (
            {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
            if os.name == "nt"
            else {"start_new_session": True}
        )
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _BEGIN, json.dumps(settings)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if self._settings.debug else subprocess.DEVNULL,
            limit=LONGEST_LINE,
            env=environment,
            **apart,
        )
        try:
            first = await asyncio.wait_for(self.message(), START)
        except TimeoutError:
            await self.end()
            raise MachineError(
                f"A process of the lab did not start within {START:.0f} s; is the disk very slow?"
            ) from None
        except BaseException:
            await self.end()
            raise
        if first is None or first.word != "ready":
            reason = "it ended at once" if first is None else first.value()["reason"]
            await self.end()
            raise MachineError(f"A process of the lab could not start: {reason}")

    async def ask(self, call: str, arguments: list[Any]) -> int:
        """Let it run `module:function`; return the number of the task."""
        self._task += 1
        await self._write({"task": self._task, "call": call, "arguments": arguments})
        return self._task

    async def order(self, order: str) -> None:
        """Tell a running job to stop, pause or continue."""
        await self._write({"order": order})

    async def message(self) -> ProcessLine | None:
        """Return its next line; None where it has ended."""
        assert self._process is not None and self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            return None
        word, task, text = line[:-1].split(b" ", 2)
        return ProcessLine(word.decode(), int(task), text)

    async def end(self) -> None:
        """End it: politely, then by force. Nothing of it is left when this returns.

        That holds where the caller is cancelled too: an end that was left half done would leave a
        process behind.
        """
        ending = asyncio.ensure_future(self._end())
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            await ending
            raise

    async def _end(self) -> None:
        process = self._process
        if process is None:
            return
        if process.stdout is not None and process.stdout.at_eof():
            # It is going by itself. A signal now would collect its exit code before the loop does.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), TERMINATE)
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), TERMINATE)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        # The pipes are closed here, so that nothing is left to a loop that may be closed later.
        transport = getattr(process, "_transport", None)
        if transport is not None:
            transport.close()

    def how_it_ended(self) -> str:
        """Say how it ended by itself, as part of a sentence."""
        code = None if self._process is None else self._process.returncode
        if code == -9:
            return "the system ended it, which it does where memory runs out"
        return f"it ended with exit code {code}"

    async def _write(self, message: dict[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        # A process that has died is noticed where its answers are read.
        with contextlib.suppress(ConnectionError):
            await self._process.stdin.drain()
