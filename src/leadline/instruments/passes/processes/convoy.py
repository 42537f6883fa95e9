"""All processes of a job measure together, or none does.

Every process calls the same function. Whatever they do that needs the others, they first agree on: each
says in the mailbox which stage it has reached, with what it has to tell, and reads the same of the
others. A process that raises says so in place of its next word, so that the others raise too, in a
sentence that names it, and none waits for a word that never comes.

A forward pass of FSDP2 or of tensor parallelism is full of collective operations, which wait for all
processes. Inside of `guarded()` each of them is agreed on before it begins: a probe that raises in one
process between two of them leaves nobody inside of the second.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from leadline.anatomy import configured_model
from leadline.errors import ProcessError, words_of
from leadline.instruments.passes.processes.guard import Guard
from leadline.instruments.passes.processes.mailbox import Mailbox, Message, process_store
from leadline.instruments.passes.processes.pulse import SILENCE, Pulse
from leadline.instruments.passes.processes.sharding import Sharding, plain_class, sharding_of

__all__ = ["Convoy", "convoy_for"]

ARRIVAL = 120.0
"""Seconds that a process may come later than another one to the same call."""
LONGEST = 1800.0
"""Seconds between two words of a process: the time of the longest stage that has none."""
LOOK = 1.0
"""Seconds between two looks at whether a process that is waited for is still there."""
CHUNK = 400_000
"""Numbers in one message: the store takes no more than 8 MB at once."""
_GIVEN_UP = "given up"
_UNREACHABLE: Any = (dist.DistNetworkError, dist.DistStoreError) if dist.is_available() else ()
"""What torch raises where the process that keeps the store is gone."""
_calls: dict[tuple[str, int], int] = {}
"""How many calls with a model a process has made together with others."""


def convoy_for(model: Any) -> Convoy | None:
    """What the processes of a job measure together; None where this process measures alone.

    They do where the model is wrapped by DDP or spread over them. A plain model is measured by the
    process that asks for it.
    """
    is_grouped = dist.is_available() and dist.is_initialized()
    if not is_grouped or not isinstance(model, nn.Module):
        return None
    sharding = sharding_of(model)
    data_parallel = any(
        isinstance(one, nn.parallel.DistributedDataParallel) for one in model.modules()
    )
    if sharding == "foreign" or (sharding == "replicated" and not data_parallel):
        return None
    if sharding == "replicated" and dist.get_world_size() == 1:
        return None
    return Convoy(model, sharding)


class Convoy:
    """One process of those that measure a model together; `rank` 0 joins what all of them read."""

    def __init__(self, model: nn.Module, sharding: Sharding) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        self.sharding = sharding
        self.copies: tuple[int, ...] = ()
        """For each process the first one that has the same inputs."""
        names = [name.removeprefix("module.") for name, _ in model.named_parameters()]
        kind = plain_class(configured_model(model)).__name__
        self._label = f"measure {sharding} {kind} {len(names)} {names[0] if names else ''}"
        self._stage = 0
        self._patience = ARRIVAL
        self._topics: list[str] = []
        self._failure: ProcessError | None = None
        """Why this call has failed in another process: whatever catches it, it is raised again."""
        self._mailbox, self._pulse = self._begun()

    @property
    def main(self) -> bool:
        """Whether this is the process that joins."""
        return self.rank == 0

    @property
    def spread(self) -> bool:
        """Whether a pass needs all processes."""
        return self.sharding != "replicated"

    # --- beginning and ending ----------------------------------------------------------------------

    def _begun(self) -> tuple[Mailbox, Pulse]:
        """The mailbox and the pulse of this call; calls are counted, so that the n-th of one meets the n-th of all.

        A call to which some process never came counts for those that came: the others pass it by.
        """
        store = process_store()
        if store is None:
            raise ProcessError(
                "The processes of this job have no store through which they could agree; start "
                "them with torchrun."
            )
        number, until = _calls.get((self._label, self.rank), 0), time.monotonic() + ARRIVAL
        while True:
            number += 1
            label = f"{self._label}, call {number}"
            mailbox = Mailbox(store, label, rank=self.rank, count=self.count)
            with self._asking():
                if self.main:
                    mailbox.open({})
                elif not mailbox.join(until=until):
                    raise ProcessError(_absence(0), by=0)
                if self.main or not mailbox.has(_GIVEN_UP, 0):
                    _calls[self._label, self.rank] = number
                    return mailbox, Pulse(store, label, rank=self.rank)

    @contextmanager
    def call(self) -> Iterator[None]:
        """One call of a function that every process makes: an error here is told to all others."""
        try:
            with self._pulse.beating():
                yield
                self.agree("the end")
        except BaseException as error:
            # A search that tries one thing after the other may have caught it and found nothing.
            if self._failure is None:
                self._tell(error)
                raise
            if error is self._failure:
                raise
            raise self._failure from error
        # Everybody has come to the end, so everything before it was read.
        with suppress(Exception):
            for topic in self._topics[:-1]:
                self._mailbox.take_back(topic)

    def _tell(self, error: BaseException) -> None:
        """Say instead of the next word that this process leaves, and why."""
        by = error.by if isinstance(error, ProcessError) else None
        if by is not None:
            words = str(error)
        else:
            what = words_of(error) if isinstance(error, Exception) else type(error).__name__
            words = f"Process {self.rank} left, so no process measures. It said: {what}"
        with suppress(Exception):
            self._send(
                self._stage + 1, Message({"error": words, "by": self.rank if by is None else by})
            )

    # --- words -------------------------------------------------------------------------------------

    def agree(self, stage: str) -> None:
        """Wait until all processes have come to this stage."""
        self.exchange(stage, {})

    def exchange(self, stage: str, facts: dict[str, Any]) -> list[dict[str, Any]]:
        """Tell all processes something, and return what each has told, by its rank."""
        self._next()
        self._send(self._stage, Message({"stage": stage, **facts}))
        own = {"stage": stage, **facts}
        told = [
            own if sender == self.rank else self._read(sender, stage).facts
            for sender in range(self.count)
        ]
        self._patience = LONGEST
        return told

    def gather(self, stage: str, message: Message) -> list[Message]:
        """What all processes hand over, by their rank, in the first one; nothing in the others."""
        self._next()
        own = Message({"stage": stage, **message.facts}, message.numbers)
        self._send(self._stage, Message({"stage": stage}) if self.main else own)
        if not self.main:
            return []
        return [own, *(self._read(sender, stage) for sender in range(1, self.count))]

    def hand_out(self, stage: str, message: Message | None) -> Message:
        """What the first process hands to all others."""
        self._next()
        if self.main:
            assert message is not None
            message = Message({"stage": stage, **message.facts}, message.numbers)
            self._send(self._stage, message)
            return message
        self._send(self._stage, Message({"stage": stage}))
        return self._read(0, stage)

    def _next(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._stage += 1

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Say in a sentence that the store is gone: nobody can be told, and nobody is heard."""
        try:
            yield
        except _UNREACHABLE as error:
            self._failure = ProcessError(
                "The store through which the processes of this job agree cannot be reached any "
                f"more ({words_of(error, first_line=True).rstrip('.')}): the process that keeps "
                "it, as a rule process 0, was ended, so no process measures.",
                by=0,
            )
            raise self._failure from error

    def _send(self, stage: int, message: Message) -> None:
        topic, numbers = f"stage {stage}", message.numbers
        rests = range(CHUNK, len(numbers), CHUNK)
        for part, first in enumerate(rests, start=1):
            self._topics.append(f"{topic}, part {part}")
            with self._asking():
                self._mailbox.send(self._topics[-1], Message({}, numbers[first : first + CHUNK]))
        # Last, because whoever finds it counts on the others.
        self._topics.append(topic)
        facts = {**message.facts, "parts": len(rests)}
        with self._asking():
            self._mailbox.send(topic, Message(facts, numbers[:CHUNK]))

    def _read(self, sender: int, stage: str) -> Message:
        try:
            with self._asking():
                return self._message_of(sender, stage)
        except ProcessError as error:
            self._failure = error
            self._tell(error)
            raise

    def _awaited(self, topic: str, sender: int, until: float) -> Message | None:
        """The word of a process; None where the time is over, or the process is gone before."""
        while True:
            look = min(until, time.monotonic() + LOOK)
            message = self._mailbox.read(topic, sender, until=look)
            if message is not None or look == until:
                return message
            if self._patience != ARRIVAL and self._pulse.is_silent(sender):
                return None

    def _message_of(self, sender: int, stage: str) -> Message:
        topic, until = f"stage {self._stage}", time.monotonic() + self._patience
        message = self._awaited(topic, sender, until)
        if message is None and self._patience == ARRIVAL:
            if self.main:
                self._mailbox.send(_GIVEN_UP, Message())
            raise ProcessError(_absence(sender), by=sender)
        if message is None and time.monotonic() < until:
            raise ProcessError(
                f"Process {sender} has not been heard of for {SILENCE:.0f} seconds, before "
                f"'{stage}': it was ended, or its machine cannot be reached.",
                by=sender,
            )
        if message is None:
            raise ProcessError(
                f"Process {sender} said nothing for {self._patience:.0f} seconds, before '{stage}'.",
                by=sender,
            )
        facts = message.facts
        if "error" in facts:
            raise ProcessError(facts["error"], by=facts["by"])
        if facts["stage"] != stage:
            raise ProcessError(
                f"Process {sender} came to '{facts['stage']}' where process {self.rank} came to "
                f"'{stage}': they do different things, and their passes would wait for each other "
                "forever. Call it in every process with the same arguments.",
                by=sender,
            )
        numbers = list(message.numbers)
        for part in range(1, facts["parts"] + 1):
            rest = self._mailbox.read(f"{topic}, part {part}", sender, until=until)
            assert rest is not None
            numbers += rest.numbers
        return Message(facts, numbers)

    # --- collective operations -----------------------------------------------------------------------

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Agree on every collective operation of torch before it begins."""
        with Guard(self.agree):
            yield

    def add_up(self, tensors: Sequence[torch.Tensor], group: Any = None) -> None:
        """Replace tensors by their sums over the processes."""
        with self.guarded():
            for tensor in tensors:
                dist.all_reduce(tensor, group=group)


def _absence(rank: int) -> str:
    return (
        f"Process {rank} has not come to this call within {ARRIVAL:.0f} seconds; make it in every "
        "process, or measure the plain model (without DDP) in one."
    )
