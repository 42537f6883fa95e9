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
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

__all__ = ["Mailbox", "Message", "process_store"]

FIRST_PAUSE, LONGEST_PAUSE = 0.0005, 0.05
"""Seconds between two looks; they grow from the first to the longest."""
_OFF = "off"
_names: dict[str, int] = {}
"""How many mailboxes have each name: the n-th of one process is the n-th of all."""


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


def process_store() -> Any:
    """The store of the default process group; None where there is none, as under MPI."""
    try:
        return dist.distributed_c10d._get_default_store()  # pyright: ignore
    except Exception:
        return None


class Mailbox:
    """The messages of one watch between all processes; `silent` are those nobody waits for."""

    def __init__(self, store: Any, name: str, *, rank: int, count: int) -> None:
        number = _names[name] = _names.get(name, 0) + 1
        self.rank = rank
        self.count = count
        self.silent: set[int] = set()
        prefix = f"leadline.watch/{name}/{number}"
        self._store: Any = dist.PrefixStore(prefix, store)  # pyright: ignore[reportPrivateImportUsage]

    def send(self, topic: str, message: Message) -> None:
        """Leave a message under a topic."""
        self._store.set(f"{topic}/{self.rank}", message.packed())

    def leave(self) -> None:
        """Say that nothing more will come from this process."""
        self._store.set(f"{_OFF}/{self.rank}", b"")

    def take_back(self, topic: str) -> None:
        """Remove a message of this process that everybody has read."""
        self._store.delete_key(f"{topic}/{self.rank}")

    def has(self, topic: str, sender: int) -> bool:
        """Whether a message is there."""
        return bool(self._store.check([f"{topic}/{sender}"]))

    def has_left(self, sender: int) -> bool:
        """Whether a process has said that nothing more will come."""
        return self.has(_OFF, sender)

    def read(self, topic: str, sender: int, *, until: float) -> Message | None:
        """The message of a process; None if it is not there at `until` (of the monotonic clock)."""
        pause = FIRST_PAUSE
        key = f"{topic}/{sender}"
        while not self._store.check([key]):
            # What was sent before the goodbye is read all the same.
            gone = self.has_left(sender) and not self._store.check([key])
            if gone or time.monotonic() >= until:
                return None
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return Message.unpacked(bytes(self._store.get(key)))

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
                self._store.delete_key(f"{topic}/{sender}")
        return messages
