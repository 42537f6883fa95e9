"""A desk: one warm process, and a fair queue of those who want something computed by it.

Clients take turns, each with its oldest wish, so that a slider that is dragged in one tab cannot keep
another tab waiting. A client has at most one wish per side that waits: a newer one takes its place, and
the older gets the word `superseded`. A computation that takes too long is given up with its process.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from leadline.errors import LeadlineError
from leadline.web.server.events import json_bytes
from leadline.web.server.process import LabProcess, ProcessLine, ProcessSettings

__all__ = ["Desk", "DeskBusy", "DeskRefusal"]

MOST_WAITING = 512


class DeskBusy(LeadlineError):
    """So many requests wait already that another one is refused."""


class DeskRefusal(LeadlineError):
    """What was asked of a desk could not be computed: why, and by the fault of which knob."""

    def __init__(self, reason: str, knob: str | None = None, *, fault: bool = False) -> None:
        super().__init__(reason)
        self.knob = knob
        self.fault = fault


@dataclass(eq=False)
class _Wish:
    client: str
    side: Hashable
    call: str
    arguments: list[Any]
    answers: asyncio.Queue[ProcessLine] = field(default_factory=asyncio.Queue)
    left: bool = False

    def tell(self, word: str, **value: Any) -> None:
        self.answers.put_nowait(ProcessLine(word, 0, json_bytes(value)))


class Desk:
    """One warm process behind a queue; its methods belong to one event loop."""

    def __init__(self, settings: ProcessSettings, *, limit: float) -> None:
        self._settings = settings
        self._limit = limit
        self._waiting: OrderedDict[str, OrderedDict[Hashable, _Wish]] = OrderedDict()
        self._news = asyncio.Event()
        self._process: LabProcess | None = None
        self._runner: asyncio.Task[None] | None = None
        self._numbers = 0
        self._closed = False
        self.restarts = 0
        """How often a process was given up."""

    def open(self) -> None:
        """Begin to work, and start the process."""
        self._runner = asyncio.create_task(self._work())

    async def close(self) -> None:
        """End the process; those who wait are told, and who comes later is too."""
        self._closed = True
        if self._runner is not None:
            self._runner.cancel()
            with suppress(asyncio.CancelledError):
                await self._runner
        for wishes in self._waiting.values():
            for wish in wishes.values():
                wish.tell("failed", reason="The lab has ended.")
        self._waiting.clear()
        await self._give_up()

    async def parts(
        self, call: str, *arguments: Any, client: str = "", side: Hashable = None
    ) -> AsyncGenerator[bytes]:
        """Yield the parts of an answer as JSON, as soon as each is known.

        Raises `DeskRefusal` where it cannot be computed. Without a client the wish is nobody's and
        replaces no other.
        """
        wish = self._enter(call, list(arguments), client, side)
        try:
            while True:
                message = await wish.answers.get()
                if message.word == "part":
                    yield message.text
                elif message.word == "end":
                    return
                else:
                    value = message.value()
                    fault = message.word == "failed"
                    raise DeskRefusal(value["reason"], value.get("knob"), fault=fault)
        finally:
            wish.left = True

    async def answer(self, call: str, *arguments: Any, client: str = "") -> bytes:
        """Return an answer of one part, as JSON."""
        parts = [part async for part in self.parts(call, *arguments, client=client)]
        return parts[0]

    def _enter(self, call: str, arguments: list[Any], client: str, side: Hashable) -> _Wish:
        if self._closed:
            raise DeskRefusal("The lab has ended.", fault=True)
        if sum(map(len, self._waiting.values())) >= MOST_WAITING:
            raise DeskBusy("The lab has too much to compute already; try again in some seconds.")
        self._numbers += 1
        wish = _Wish(client, side if client else self._numbers, call, arguments)
        wishes = self._waiting.setdefault(client, OrderedDict())
        older = wishes.get(wish.side)
        wishes[wish.side] = wish  # in the place of the older one, so that nobody has to wait anew
        if older is not None:
            older.answers.put_nowait(ProcessLine("part", 0, b'{"part":"superseded"}'))
            older.tell("end")
        self._news.set()
        return wish

    async def _next(self) -> _Wish:
        while True:
            while self._waiting:
                client, wishes = self._waiting.popitem(last=False)
                _, wish = wishes.popitem(last=False)
                if wishes:
                    self._waiting[client] = wishes  # behind all others
                if not wish.left:
                    return wish
            self._news.clear()
            await self._news.wait()

    async def _work(self) -> None:
        with suppress(LeadlineError, OSError):  # said to the first who asks
            await self._ready()
        # Python before 3.12 loses a cancellation that meets an answer in `wait_for`.
        while not self._closed:
            wish = await self._next()
            try:
                await self._carry_out(wish)
            except (LeadlineError, OSError) as error:
                wish.tell("failed", reason=str(error))
                await self._give_up()
            except BaseException:
                wish.tell("failed", reason="The lab has ended.")
                raise

    async def _ready(self) -> LabProcess:
        if self._process is None or not self._process.lives:
            process = LabProcess(self._settings)
            self._process = process
            await process.start()
        return self._process

    async def _carry_out(self, wish: _Wish) -> None:
        process = await self._ready()
        loop = asyncio.get_running_loop()
        until = loop.time() + self._limit
        task = await process.ask(wish.call, wish.arguments)
        while True:
            try:
                message = await asyncio.wait_for(process.message(), max(0.0, until - loop.time()))
            except TimeoutError:
                await self._give_up()
                wish.tell(
                    "failed",
                    reason=f"This took longer than {self._limit:g} s and was given up; try something "
                    "smaller.",
                )
                return
            if message is None:
                await process.end()
                how = process.how_it_ended()
                await self._give_up()
                wish.tell(
                    "failed",
                    reason=f"The process that computes is gone: {how}. A new one has been started; "
                    "try something smaller.",
                )
                return
            if message.task != task:
                continue
            wish.answers.put_nowait(message)
            if message.word != "part":
                return

    async def _give_up(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self.restarts += 1
            await process.end()
