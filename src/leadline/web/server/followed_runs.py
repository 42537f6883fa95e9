"""Runs that are followed: one process for each, as long as a page reads its events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from leadline.errors import LeadlineError
from leadline.web.server.events import EventLog
from leadline.web.server.jobs import TooManyJobs
from leadline.web.server.process import LabProcess, ProcessSettings
from leadline.web.server.shelf import RecordFile

__all__ = ["RunRoom"]

MOST_FOLLOWED = 6
LINGER = 5.0
"""Seconds that a run is followed after its last reader has left: a page that is loaded again comes
back."""
_EVENTS = "leadline.web.server.live_run:run_events"


@dataclass(eq=False)
class _Followed:
    log: EventLog = field(default_factory=EventLog)
    readers: int = 0
    task: asyncio.Task[None] | None = None
    leaving: asyncio.TimerHandle | None = None


class RunRoom:
    """All runs that are followed; its methods belong to one event loop."""

    def __init__(self, settings: ProcessSettings) -> None:
        self._settings = settings
        self._runs: dict[str, _Followed] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def check_room(self, file: RecordFile) -> None:
        """Refuse another run where so many are followed already."""
        if file.id not in self._runs and len(self._runs) >= MOST_FOLLOWED:
            raise TooManyJobs(
                f"{MOST_FOLLOWED} runs are followed already; close one of their pages first."
            )

    @asynccontextmanager
    async def follow(self, file: RecordFile) -> AsyncIterator[EventLog]:
        """Follow a run while inside; all readers share one process."""
        run = self._runs.get(file.id)
        if run is None:
            run = self._runs[file.id] = _Followed()
            run.task = asyncio.create_task(self._hear(file, run.log))
            self._tasks.add(run.task)
            run.task.add_done_callback(self._tasks.discard)
        run.readers += 1
        if run.leaving is not None:
            run.leaving.cancel()
            run.leaving = None
        try:
            yield run.log
        finally:
            run.readers -= 1
            if not run.readers:
                loop = asyncio.get_running_loop()
                # A run that has ended is read anew by the next reader: its file may grow again.
                wait = 0.0 if run.log.closed else LINGER
                run.leaving = loop.call_later(wait, self._drop, file.id, run)

    async def close(self) -> None:
        """Follow none any more."""
        for run in self._runs.values():
            if run.leaving is not None:
                run.leaving.cancel()
        self._runs.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _drop(self, name: str, run: _Followed) -> None:
        if not run.readers and self._runs.get(name) is run:
            del self._runs[name]
            if run.task is not None and not run.log.closed:  # else it ends by itself
                run.task.cancel()

    async def _hear(self, file: RecordFile, log: EventLog) -> None:
        process = LabProcess(self._settings)
        try:
            await process.start()
            await process.ask(_EVENTS, [str(file.path)])
            while (message := await process.message()) is not None:
                if message.word == "part":
                    log.add(message.text, topic=str(message.value()["event"]))
                elif message.word == "end":
                    return
                else:
                    log.add({"event": "error", "knob": None} | message.value())
                    return
            log.add({"event": "error", "reason": "The process that reads the run is gone."})
        except (LeadlineError, OSError) as error:
            log.add({"event": "error", "reason": str(error), "knob": None})
        finally:
            log.close()
            with suppress(OSError):
                await process.end()
