"""Messages between the processes of a run that nobody has to wait for.

A collective operation waits until every process has come: one that failed, or counts otherwise,
would hang all of them. So messages are left in the store through which the processes of torch once
found each other. Who sends never waits. Who reads looks again and again, until the message is there,
the sender has said that it is off, or the patience is over.

The store is that of the default process group. It is asked one short question at a time, because
torch's own threads use it too.
"""

from __future__ import annotations

import json
import time
import uuid
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

__all__ = ["Mailbox", "Message", "process_store", "waiting_time"]

FIRST_PAUSE, LONGEST_PAUSE = 0.0005, 0.05
"""Seconds between two looks; they grow from the first to the longest."""
_OFF, _SESSION = "off", "session"
_OVER, _UNUSED = b"over", b"unused"
_numbers: dict[tuple[str, int], int] = {}
"""How many mailboxes of each name a process has made."""
_used_sessions: set[tuple[str, int]] = set()
"""The sessions that a mailbox of a process has joined."""


@dataclass(frozen=True)
class Message:
    """Facts that JSON can hold, and many numbers."""

    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    numbers: Sequence[float] = ()

    def packed(self) -> bytes:
        return json.dumps(self.facts).encode() + b"\n" + array("d", self.numbers).tobytes()

    @classmethod
    def unpacked(cls, data: bytes) -> Message:
        facts, _, rest = data.partition(b"\n")
        numbers = array("d")
        numbers.frombytes(rest)
        return cls(json.loads(facts), numbers)


def waiting_time(seconds: float) -> float:
    """How long a process may wait for another: far less than torch waits for its operations.

    Whoever waits is itself waited for by an operation of the loop, which would fail.
    """
    limits = [seconds]
    with suppress(Exception):
        limits.append(dist.distributed_c10d._get_default_store().timeout.total_seconds() / 4)  # pyright: ignore
    with suppress(Exception):
        group: Any = dist.distributed_c10d._get_default_group()  # pyright: ignore
        for device in group._device_types:
            limits.append(group._get_backend(device).options._timeout.total_seconds() / 4)
    return min(limits)


def process_store() -> Any:
    """The store of the default process group; None where there is none, as under MPI."""
    try:
        return dist.distributed_c10d._get_default_store()  # pyright: ignore
    except Exception:
        return None


class Mailbox:
    """The messages of one watch between all processes; `silent` are those nobody waits for.

    The first process opens a session; the others join it when they need it, because they may be
    ahead. They take the newest one that no other watch of theirs has used. One that was used and is
    over is not it: the first process has still to begin. One that was given up unused is.
    """

    def __init__(self, store: Any, name: str, *, rank: int, count: int) -> None:
        self._number = _numbers[name, rank] = _numbers.get((name, rank), 0) + 1
        self.rank = rank
        self.count = count
        self.silent: set[int] = set()
        self._store: Any = dist.PrefixStore(  # pyright: ignore[reportPrivateImportUsage]
            f"leadline/{name}", store
        )
        self._session = ""
        self._facts: dict[str, Any] = {}
        self._is_here = self._was_used = False

    # --- who is there ------------------------------------------------------------------------------

    def open(self, facts: dict[str, Any]) -> None:
        """Say that this process watches; the first one begins a session with facts for all."""
        self._store.add(f"here/{self.rank}", 1)
        self._is_here = True
        if self.rank == 0:
            self._session, self._facts = uuid.uuid4().hex, facts
            card = {"session": self._session, "facts": facts}
            self._store.set(_SESSION, json.dumps(card).encode())

    def leave(self) -> None:
        """Say that nothing more will come from this process."""
        if self._is_here:
            self._store.add(f"here/{self.rank}", -1)
            self._is_here = False
        if self._session:
            self._store.set(self._key(_OFF, self.rank), _OVER if self._was_used else _UNUSED)
        else:  # it never needed a session; the first process will see that this watch is over
            self._store.set(f"{_OFF}/{self.rank}", f"{self._number} {_OFF}")

    def is_here(self, rank: int) -> bool:
        """Whether a process watches this model."""
        return self._store.add(f"here/{rank}", 0) > 0

    def has_left(self, sender: int) -> bool:
        """Whether a process has said that nothing more will come."""
        return self.has(_OFF, sender) or bool(self._early(_OFF, sender))

    def join(self, *, until: float = 0.0) -> bool:
        """Find the session of the first process; False where there is none by then."""
        pause = FIRST_PAUSE
        while not self._session and not self._take_session():
            if time.monotonic() >= until:
                return False
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return True

    @property
    def has_joined(self) -> bool:
        """Whether this process has joined the session."""
        return bool(self._session)

    @property
    def facts(self) -> dict[str, Any]:
        """What the first process has said to all; empty as long as its session is not found."""
        self.join()
        return self._facts

    def _take_session(self) -> bool:
        if not self._store.check([_SESSION]):
            return False
        card = json.loads(self._store.get(_SESSION))
        name = card["session"]
        off = f"{name}/{_OFF}/0"
        is_over = bool(self._store.check([off])) and bytes(self._store.get(off)) == _OVER
        if (name, self.rank) in _used_sessions or is_over:
            return False
        _used_sessions.add((name, self.rank))
        self._session, self._facts = name, card["facts"]
        return True

    # --- messages ----------------------------------------------------------------------------------

    def send(self, topic: str, message: Message) -> None:
        """Leave a message under a topic; without a session nobody would read it."""
        if self.join():
            self._was_used = True
            self._store.set(self._key(topic, self.rank), message.packed())

    def take_back(self, topic: str) -> None:
        """Remove a message of this process that everybody has read."""
        self._store.delete_key(self._key(topic, self.rank))

    def has(self, topic: str, sender: int) -> bool:
        """Whether a message is there."""
        return self.join() and bool(self._store.check([self._key(topic, sender)]))

    def read(self, topic: str, sender: int, *, until: float) -> Message | None:
        """The message of a process; None if it is not there at `until` (of the monotonic clock)."""
        data = self._data(topic, sender, until=until)
        return None if data is None else Message.unpacked(data)

    def _data(self, topic: str, sender: int, *, until: float) -> bytes | None:
        pause = FIRST_PAUSE
        while not self.has(topic, sender):
            # What was sent before the goodbye is read all the same.
            gone = self.has_left(sender) and not self.has(topic, sender)
            if gone or not self._session or time.monotonic() >= until:
                return None
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return bytes(self._store.get(self._key(topic, sender)))

    def mark(self, topic: str, word: str) -> None:
        """Leave one word under a topic, which others may exchange for another."""
        if self.join():
            self._was_used = True
            self._store.set(self._key(topic, self.rank), word)
        else:  # the first process has not begun yet: it will find the word of this watch
            self._store.set(f"{topic}/{self.rank}", f"{self._number} {word}")

    def exchange(self, topic: str, sender: int, old: str, new: str) -> bool:
        """Exchange the word of a process for another, if it still is the old one."""
        key = self._key(topic, sender)
        return bytes(self._store.compare_set(key, old, new)) == new.encode()

    def word(self, topic: str, sender: int, *, until: float) -> str | None:
        """The word of a process; None if it is not there at `until`."""
        early = self._early(topic, sender)
        data = None if early else self._data(topic, sender, until=until)
        return early or (None if data is None else data.decode())

    def _early(self, topic: str, sender: int) -> str:
        """What the same watch of a process has said before there was a session."""
        key = f"{topic}/{sender}"
        if not self._store.check([key]):
            return ""
        number, _, word = bytes(self._store.get(key)).decode().partition(" ")
        return word if int(number) >= self._number else ""

    def collect(self, topic: str, *, patience: float) -> dict[int, Message]:
        """The messages of all other processes, taken out of the store; who is late is silent."""
        until = time.monotonic() + patience
        messages: dict[int, Message] = {}
        for sender in range(self.count):
            if sender == self.rank or sender in self.silent:
                continue
            message = self.read(topic, sender, until=until)
            if message is None:
                self.silent.add(sender)
            else:
                messages[sender] = message
                self._store.delete_key(self._key(topic, sender))
        return messages

    def _key(self, topic: str, rank: int) -> str:
        return f"{self._session}/{topic}/{rank}"
