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
from torch.utils._python_dispatch import TorchDispatchMode

from leadline.anatomy import configured_model
from leadline.anatomy.spread import is_spread_type
from leadline.errors import ProcessError, words_of
from leadline.instruments.passes.processes.mailbox import Mailbox, Message, process_store
from leadline.instruments.passes.processes.sharding import Sharding, plain_class, sharding_of

__all__ = ["Together", "together_for"]

ARRIVAL = 120.0
"""Seconds that a process may come later than another one to the same call."""
LONGEST = 1800.0
"""Seconds between two words of a process: the time of the longest stage that has none."""
CHUNK = 400_000
"""Numbers in one message: the store takes no more than 8 MB at once."""
_COLLECTIVES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional")
_NOT_EXCHANGED = ("wait_tensor",)


def together_for(model: Any) -> Together | None:
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
    return Together(model, sharding)


class Together:
    """One process of those that measure a model together; `rank` 0 joins what all of them read."""

    def __init__(self, model: nn.Module, sharding: Sharding) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        self.sharding = sharding
        self.copies: tuple[int, ...] = ()
        """For each process the first one that has the same inputs."""
        store = process_store()
        if store is None:
            raise ProcessError(
                "The processes of this job have no store through which they could agree; start "
                "them with torchrun."
            )
        inner = configured_model(model)
        names = [name.removeprefix("module.") for name, _ in model.named_parameters()]
        label = f"measure {plain_class(inner).__name__} {len(names)} {names[0] if names else ''}"
        self._mailbox = Mailbox(store, label, rank=self.rank, count=self.count)
        self._stage = 0
        self._patience = ARRIVAL
        self._over = False
        self._topics: list[str] = []

    @property
    def main(self) -> bool:
        """Whether this is the process that joins."""
        return self.rank == 0

    @property
    def spread(self) -> bool:
        """Whether a pass needs all processes."""
        return self.sharding != "replicated"

    # --- beginning and ending ----------------------------------------------------------------------

    @contextmanager
    def call(self) -> Iterator[None]:
        """One call of a function that every process makes: an error here is told to all others."""
        self._mailbox.open({})
        try:
            if not self._mailbox.join(until=time.monotonic() + ARRIVAL):
                raise ProcessError(
                    f"Process 0 has not come to this call within {ARRIVAL:.0f} seconds; make it in "
                    "every process, or measure the plain model in one."
                )
            yield
            self.agree("the end")
        except BaseException as error:
            self._tell(error)
            raise
        finally:
            with suppress(Exception):
                for topic in self._topics[:-1] if not self._over else ():
                    self._mailbox.take_back(topic)
            self._over = True
            self._mailbox.leave()

    def _tell(self, error: BaseException) -> None:
        """Say instead of the next word that this process leaves, and why."""
        if self._over or not self._mailbox.has_joined:
            return
        self._over = True
        if isinstance(error, ProcessError) and error.by is not None:
            words = str(error)
        else:
            what = words_of(error) if isinstance(error, Exception) else type(error).__name__
            words = f"Process {self.rank} left, so no process measures. It said: {what}"
        by = getattr(error, "by", None)
        with suppress(Exception):
            facts = {"error": words, "by": self.rank if by is None else by}
            self._send(self._stage + 1, Message(facts))

    # --- words -------------------------------------------------------------------------------------

    def agree(self, stage: str) -> None:
        """Wait until all processes have come to this stage."""
        self.exchange(stage, {})

    def exchange(self, stage: str, facts: dict[str, Any]) -> list[dict[str, Any]]:
        """Tell all processes something, and return what each has told, by its rank."""
        self._stage += 1
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
        self._stage += 1
        own = Message({"stage": stage, **message.facts}, message.numbers)
        self._send(self._stage, Message({"stage": stage}) if self.main else own)
        if not self.main:
            return []
        return [own, *(self._read(sender, stage) for sender in range(1, self.count))]

    def hand_out(self, stage: str, message: Message | None) -> Message:
        """What the first process hands to all others."""
        self._stage += 1
        if self.main:
            assert message is not None
            message = Message({"stage": stage, **message.facts}, message.numbers)
            self._send(self._stage, message)
            return message
        self._send(self._stage, Message({"stage": stage}))
        return self._read(0, stage)

    def _send(self, stage: int, message: Message) -> None:
        topic, numbers = f"stage {stage}", message.numbers
        rests = range(CHUNK, len(numbers), CHUNK)
        for part, first in enumerate(rests, start=1):
            self._topics.append(f"{topic}, part {part}")
            self._mailbox.send(self._topics[-1], Message({}, numbers[first : first + CHUNK]))
        # Last, because whoever finds it counts on the others.
        self._topics.append(topic)
        facts = {**message.facts, "parts": len(rests)}
        self._mailbox.send(topic, Message(facts, numbers[:CHUNK]))

    def _read(self, sender: int, stage: str) -> Message:
        topic, until = f"stage {self._stage}", time.monotonic() + self._patience
        message = self._mailbox.read(topic, sender, until=until)
        if message is None:
            raise ProcessError(self._silence(sender, stage), by=sender)
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

    def _silence(self, sender: int, stage: str) -> str:
        if self._patience == ARRIVAL:
            return (
                f"Process {sender} has not come to this call within {ARRIVAL:.0f} seconds; make it "
                "in every process, or measure the plain model in one."
            )
        return f"Process {sender} said nothing for {self._patience:.0f} seconds, before '{stage}'."

    # --- collective operations -----------------------------------------------------------------------

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Agree on every collective operation of torch before it begins."""
        with _Guard(self):
            yield

    def add_up(self, tensors: Sequence[torch.Tensor], group: Any = None) -> None:
        """Replace tensors by their sums over the processes."""
        with self.guarded():
            for tensor in tensors:
                dist.all_reduce(tensor, group=group)


class _Guard(TorchDispatchMode):
    """Agrees on what waits for all processes; everything else passes."""

    def __init__(self, together: Together) -> None:
        super().__init__()
        self._together = together

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # A tensor that is spread first becomes operations on its parts, which come here again.
        if any(is_spread_type(kind) for kind in types):
            return NotImplemented
        namespace = getattr(func, "namespace", "")
        if namespace in _COLLECTIVES and func._opname not in _NOT_EXCHANGED:
            self._together.agree(str(func))
        return func(*args, **(kwargs or {}))
