"""Events of one source, kept with their numbers, and sent as server-sent events.

    log = EventLog()
    log.add({"event": "step", "step": 1})
    async for number, text in log.after(0): ...        # those that are there, then those that come
    log.close()

A reader that lost its connection asks for what came after the last number that it has seen.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

__all__ = ["HEARTBEAT", "EventLog", "json_bytes", "sse_stream"]

HEARTBEAT = 15.0
"""Seconds of silence after which a comment is sent, so that a closed connection is noticed."""


def json_bytes(value: object) -> bytes:
    r"""Return strict JSON without spaces, in UTF-8.

    Half of a surrogate pair, as in the name of a file that is no UTF-8, has no bytes there: it is
    written as JSON's own \ud800.
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class _Entry:
    number: int
    text: bytes
    topic: str


class EventLog:
    """The last `most` events of one source, for any number of readers, all in one event loop.

    An event with a `topic` replaces the one before it of the same topic: who comes later needs the
    present state alone.
    """

    def __init__(self, *, most: int = 5_000) -> None:
        self._entries: deque[_Entry] = deque()
        self._most = most
        self._last = 0
        self._news = asyncio.Event()
        self.closed = False

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self._last

    def add(self, event: Mapping[str, Any] | bytes, *, topic: str = "") -> None:
        """Append an event; what is added to a closed log is dropped."""
        if self.closed:
            return
        if topic:
            self._entries = deque(one for one in self._entries if one.topic != topic)
        self._last += 1
        text = event if isinstance(event, bytes) else json_bytes(event)
        self._entries.append(_Entry(self._last, text, topic))
        while len(self._entries) > self._most:
            self._entries.popleft()
        self._wake()

    def close(self) -> None:
        """Say that nothing more comes."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def after(self, number: int) -> AsyncIterator[tuple[int, bytes] | None]:
        """Yield the events behind this number; None where nothing came for a while."""
        if number > self._last:  # of another log, which a restarted server no longer has
            number = 0
        while True:
            news = self._news
            for entry in [one for one in self._entries if one.number > number]:
                number = entry.number
                yield entry.number, entry.text
            if self.closed and number >= self._last:
                return
            if news.is_set():  # something came while the reader was busy
                continue
            with suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(news.wait(), HEARTBEAT)
                continue
            yield None


async def sse_stream(log: EventLog, after: int = 0) -> AsyncIterator[bytes]:
    """Write the events of a log as a stream of server-sent events."""
    yield b": leadline\n\n"
    async for event in log.after(after):
        yield b": still here\n\n" if event is None else b"id: %d\ndata: %b\n\n" % event
