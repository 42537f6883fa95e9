"""Jobs: work that takes long, each in a process of its own that can be stopped even if it hangs.

Two run at once and some wait. What a job tells is kept in its log, so that a page that was reloaded
goes on reading where it was. Every log ends with an event `end` that says why.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from leadline.errors import LeadlineError
from leadline.web.server.events import EventLog
from leadline.web.server.process import LabProcess, ProcessSettings

__all__ = ["BrowserJob", "JobRoom", "TooManyJobs"]

MOST_RUNNING = 2
MOST_WAITING = 8
MOST_KEPT = 50
"""So many jobs that have ended can still be read."""
GRACE = 3.0
"""Seconds that a job has to stop by itself, between two of its steps."""
State = Literal["waiting", "running", "paused", "ended"]


class TooManyJobs(LeadlineError):
    """So many jobs wait already that another one is refused."""


@dataclass(eq=False)
class BrowserJob:
    """One job of the page."""

    kind: str
    title: str
    call: str
    arguments: list[Any]
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    state: State = "waiting"
    reason: str = ""
    began: float = field(default_factory=time.time)
    log: EventLog = field(default_factory=EventLog)
    process: LabProcess | None = None
    stopping: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return what the list of jobs says of it."""
        names = ("id", "kind", "title", "state", "reason", "began")
        return {name: getattr(self, name) for name in names}

    def finish(self, reason: str) -> None:
        """Close the log with why the job has ended."""
        self.state, self.reason = "ended", reason
        self.log.add({"event": "end", "reason": reason})
        self.log.close()


class JobRoom:
    """All jobs of a server; its methods belong to one event loop."""

    def __init__(self, settings: ProcessSettings, *, most_running: int = MOST_RUNNING) -> None:
        self._settings = settings
        self._most_running = most_running
        self._jobs: dict[str, BrowserJob] = {}
        self._waiting: deque[BrowserJob] = deque()
        self._running: dict[BrowserJob, asyncio.Task[None]] = {}
        self._closed = False

    def __iter__(self) -> Any:
        return iter(self._jobs.values())

    def get(self, name: str) -> BrowserJob | None:
        """Return the job of this id; None where there is none, or none any more."""
        return self._jobs.get(name)

    def begin(self, kind: str, title: str, call: str, *arguments: Any) -> BrowserJob:
        """Enter a job; it begins when there is room."""
        if len(self._waiting) >= MOST_WAITING:
            raise TooManyJobs(
                f"{len(self._running)} jobs run and {len(self._waiting)} wait already; stop one of "
                "them first."
            )
        job = BrowserJob(kind, title, call, list(arguments))
        self._jobs[job.id] = job
        self._waiting.append(job)
        self._forget()
        self._fill()
        return job

    async def stop(self, job: BrowserJob) -> None:
        """Stop a job: by asking it, and if it does not answer by ending its process."""
        if job.state == "ended" or job.stopping:
            return
        job.stopping = True
        task = self._running.get(job)
        if task is None:
            self._waiting.remove(job)
            job.finish("stopped")
            return
        if job.process is not None and job.process.lives:
            await job.process.order("stop")
        done, _ = await asyncio.wait([task], timeout=GRACE)
        if not done:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def pause(self, job: BrowserJob) -> None:
        """Let a running job wait after its present step."""
        if job.state == "running" and job.process is not None:
            if job.process.lives:  # one that is only starting is told when it has its task
                await job.process.order("pause")
            job.state = "paused"
            job.log.add({"event": "paused"})

    async def go_on(self, job: BrowserJob) -> None:
        """Let a paused job go on."""
        if job.state == "paused" and job.process is not None:
            if job.process.lives:
                await job.process.order("continue")
            job.state = "running"
            job.log.add({"event": "continued"})

    async def close(self) -> None:
        """End all jobs at once."""
        self._closed = True
        for job in self._waiting:
            job.finish("the lab has ended")
        self._waiting.clear()
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self._most_running and not self._closed:
            job = self._waiting.popleft()
            job.state = "running"
            self._running[job] = asyncio.create_task(self._run(job))

    def _forget(self) -> None:
        ended = [job for job in self._jobs.values() if job.state == "ended"]
        for job in ended[: max(0, len(ended) - MOST_KEPT)]:
            del self._jobs[job.id]

    async def _run(self, job: BrowserJob) -> None:
        reason = "stopped"
        job.process = LabProcess(self._settings)
        try:
            await job.process.start()
            reason = await self._hear(job, job.process)
        except asyncio.CancelledError:
            if self._closed:
                reason = "the lab has ended"
        except (LeadlineError, OSError) as error:
            job.log.add({"event": "error", "reason": str(error), "knob": None})
            reason = "failed"
        finally:
            await job.process.end()
            job.finish("stopped" if job.stopping else reason)
            self._running.pop(job, None)
            self._fill()

    async def _hear(self, job: BrowserJob, process: LabProcess) -> str:
        """Put what the job tells into its log; return why it has ended."""
        if job.state == "paused":  # while the process was starting
            await process.order("pause")
        await process.ask(job.call, job.arguments)
        if job.stopping:
            await process.order("stop")
        reason = "finished"
        while (message := await process.message()) is not None:
            if message.word == "part":
                value = message.value()
                if value.get("event") == "end":  # the log says it once, when the process is gone
                    reason = str(value.get("reason") or reason)
                else:
                    job.log.add(message.text)
            elif message.word == "end":
                word = message.value()["reason"]
                return reason if word == "finished" else word
            else:
                job.log.add({"event": "error", "knob": None} | message.value())
                return "failed"
        await process.end()
        how = process.how_it_ended()
        job.log.add(
            {"event": "error", "reason": f"The process of the job is gone: {how}.", "knob": None}
        )
        return "failed"
