"""The processes of a run: each reads its own part, the first one adds up and writes.

Every process runs the same line. Of a sampled update each reads its own layers, gradients and
weights and leaves the numbers in the mailbox; the first one takes them out. It waits `PATIENCE`
seconds for a process that is late, once, and nobody else waits for anything: a process that fails,
that counts otherwise, or that does not watch at all leaves nobody hanging.

How parameters lie in the processes is said by `Sharding`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import nn

from leadline.anatomy import Anatomy
from leadline.errors import AnatomyError
from leadline.instruments.passes.processes.gathered import (
    LONGEST,
    decline,
    prove_gathered,
)
from leadline.instruments.passes.processes.mailbox import (
    Mailbox,
    Message,
    process_store,
    waiting_time,
)
from leadline.instruments.passes.processes.sharding import Sharding, plain_class, sharding_of
from leadline.lab.watch.fence import Fence
from leadline.lab.watch.processes.parts import (
    RankPart,
    digest,
    joined_layers,
    joined_losses,
    joined_sums,
    same_gradients,
)
from leadline.record import Reading, Site

__all__ = ["FOREIGN", "PATIENCE", "Ranks"]

PATIENCE = 30.0
"""Seconds that the first process waits for what another one read of a sampled update."""
MOMENT = 2.0
"""Seconds that the first process waits at the end: the loop may be over because of an error."""
SHARDED_LATER = (
    "The model was sharded after leadline.watch, so layers and weights are not read; put the line "
    "behind fully_shard or parallelize_module."
)
FOREIGN = (
    "The model is sharded by FSDP1 or DeepSpeed, whose parts of parameters are not read: losses and "
    "the learning rate are watched, layers and weights are not. FSDP2 (fully_shard) is."
)
TENSOR = (
    "Under tensor parallelism every pass needs all processes; give "
    "anatomy=leadline.anatomy_of(model, inputs), made before parallelize_module"
)
FIRST_PART = (
    "Layers and losses are those of the first process's part of the batch: put the same line into "
    "every process to have the whole."
)
TENSOR_PART = (
    "Under tensor parallelism layers and losses are those of the first process: its part of the "
    "batch and, in attention, its heads."
)


class Ranks:
    """Which process this is, how parameters are spread, and what all processes read together."""

    def __init__(self, module: nn.Module, fence: Fence, *, path: Path | None = None) -> None:
        self.several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        self.rank = dist.get_rank() if self.several else 0
        self.count = dist.get_world_size() if self.several else 1
        self.main = self.rank == 0
        self.sharding: Sharding = sharding_of(module) if self.several else "replicated"
        self._module = module
        self._fence = fence
        self._mailbox: Mailbox | None = None
        store = process_store() if self.several else None
        if store is not None:
            # Shapes are left out: those of FSDP1 differ from process to process.
            names = [name for name, _ in module.named_parameters()]
            name = digest([str(path), plain_class(module).__name__, *names])
            self._mailbox = Mailbox(store, name, rank=self.rank, count=self.count)
        self._stops = False
        self._asked = 0
        self._told: list[int] = []
        self.layers_of = "all" if not self.several else "first"
        """Whether layers and losses of the last sample are those of all processes."""

    @property
    def sharded(self) -> bool:
        """Whether a process has a part of the parameters only."""
        return self.sharding != "replicated"

    @property
    def facts(self) -> dict[str, Any]:
        """What the record says about the processes."""
        return {"count": self.count, "sharding": self.sharding, "layers": self.layers_of}

    # --- beginning and ending ----------------------------------------------------------------------

    def open(self, *, every: int, stop: bool = False) -> None:
        """Say that this process watches, how often, and whether a serious warning is to stop it."""
        if self._mailbox is not None:
            self._mailbox.open({"every": every, "stop": stop})

    def every_of_first(self, own: int) -> int:
        """How often the first process samples: all others do as it does."""
        return own if self._mailbox is None else int(self._mailbox.facts.get("every", own))

    def stop_of_first(self, own: bool) -> bool:
        """Whether the first process ends the training: one that goes on alone would hang."""
        return own if self._mailbox is None else bool(self._mailbox.facts.get("stop", own))

    def leave(self) -> None:
        """Say that nothing more will come from this process."""
        if self._mailbox is not None:
            self._mailbox.leave()

    def look_again(self) -> None:
        """Notice a model that was sharded after the watch began."""
        if (
            self.several
            and self.sharding == "replicated"
            and sharding_of(self._module) != "replicated"
        ):
            self.sharding = "foreign"
            self._fence.note(SHARDED_LATER)

    # --- the anatomy ---------------------------------------------------------------------------------

    def prove(self, prove: Callable[[], Anatomy]) -> Anatomy:
        """The anatomy; where passes need all processes, proved in a way that none can wait in."""
        if self.sharding == "replicated":
            return prove()
        if self.sharding == "fsdp" and self._mailbox is not None:
            return prove_gathered(self._module, prove, self._mailbox)
        raise AnatomyError(TENSOR if self.sharding == "tensor" else FOREIGN)

    def decline(self, why: str) -> None:
        """Tell the others that this process cannot take part in a proof."""
        if self._mailbox is not None and self.sharding == "fsdp":
            decline(self._mailbox, why)

    # --- a sample ------------------------------------------------------------------------------------

    def send(self, step: int, part: RankPart, sites: Sequence[Site]) -> None:
        """Leave what this process read for the first one."""
        if self._mailbox is not None and not self.main:
            self._mailbox.send(f"sample {step}", part.message(sites, self._fence.notes))

    def join(
        self, step: int, own: RankPart, sites: Sequence[Site], *, layers: bool = True
    ) -> RankPart:
        """What all processes read of an update; in the first process."""
        if not self.several:
            return own
        messages = self._collect(f"sample {step}")
        complete = len(messages) == self.count - 1
        whole = RankPart(own.sums, own.layers, own.counts, own.losses)
        self.layers_of = "first"
        if self.sharded:
            sums = None
            if own.sums is not None and complete:
                sums = joined_sums(own.sums, messages, sites)
            if sums is None and own.sums is not None:
                self._fence.note(self._missing_sums())
            whole.sums = sums
        if self.sharding == "tensor":
            self._fence.note(TENSOR_PART)
        elif not complete:
            self._fence.note(FIRST_PART)
        elif self.sharding == "replicated" and not same_gradients(own.sums, messages, sites):
            self._fence.note(
                "The processes took different gradients, so they do not train one model together: "
                "what is read is the model of the first process."
            )
        else:
            read = joined_layers(own, messages) if layers else own.layers
            if read is None:
                self._fence.note(
                    "The processes read different layers of the model, so that layers are those of "
                    "the first process's part of the batch."
                )
            else:
                whole.layers, self.layers_of = read, "all"
            whole.losses = joined_losses(own.losses, messages)
        return whole

    def send_losses(self, losses: Sequence[Reading], sites: Sequence[Site]) -> None:
        """Leave the last losses for the first process, at the end."""
        if self._mailbox is not None and not self.main and losses and self._mailbox.has_joined:
            self._mailbox.send("last losses", RankPart(losses=list(losses)).message(sites, ()))

    def join_losses(self, own: Sequence[Reading]) -> list[Reading]:
        """The last losses over all processes, in the first one: a moment is waited for them."""
        if self.layers_of != "all" or self._mailbox is None or not own:
            return list(own)
        messages = self._mailbox.collect("last losses", patience=MOMENT)
        if len(messages) < self.count - 1:
            self._fence.note(
                f"The losses from step {own[0].step} on are those of the first process: the others "
                "had not come to their end."
            )
            return list(own)
        return joined_losses(own, list(messages.values()))

    def join_squares(
        self, step: int, own: dict[Site, float], sites: Sequence[Site]
    ) -> dict[Site, float]:
        """The squared gradient norms of an update over all processes, in the first one.

        Empty where not every process has sent its own.
        """
        if not self.sharded or self._mailbox is None:
            return own
        topic = f"norms {step}"
        if not self.main:
            facts = {"groups": digest(sites), "notes": []}
            self._mailbox.send(topic, Message(facts, [own.get(site, 0.0) for site in sites]))
            return {}
        messages = self._collect(topic)
        if len(messages) < self.count - 1 or any(
            message.facts["groups"] != digest(sites) for message in messages
        ):
            return {}
        return {
            site: own.get(site, 0.0) + sum(message.numbers[at] for message in messages)
            for at, site in enumerate(sites)
        }

    def _collect(self, topic: str) -> list[Message]:
        if self._mailbox is None:
            return []
        # Those who do not watch are not waited for: by now an update has passed everywhere.
        for other in set(range(1, self.count)) - self._mailbox.silent:
            if not self._mailbox.is_here(other) and not self._mailbox.has(topic, other):
                self._mailbox.silent.add(other)
        found = self._mailbox.collect(topic, patience=waiting_time(PATIENCE))
        for sender, message in found.items():
            for note in set(message.facts["notes"]) - set(self._fence.notes):
                self._fence.note(f"Process {sender}: {note}")
        return list(found.values())

    def _missing_sums(self) -> str:
        silent = set() if self._mailbox is None else self._mailbox.silent
        if not silent:
            return (
                "In some samples not every process could read its part of gradients and weights: "
                "there they are left out."
            )
        names = ", ".join(map(str, sorted(silent)))
        return (
            f"The parameters are spread over {self.count} processes, and nothing comes from "
            f"process {names}, so gradients and weights are not read; put the same line into every "
            "process."
        )

    # --- stopping ------------------------------------------------------------------------------------

    def tell(self, step: int, *, stop: bool) -> None:
        """Decide for all processes whether to stop at a sampled update; in the first one.

        Where one of them would not hear of it, nobody stops: it would wait for the others.
        """
        if self._mailbox is None:
            return
        stop = self._stops or (stop and not self._mailbox.silent)
        self._mailbox.send(f"verdict {step}", Message({"stop": stop}))
        self._stops = stop
        # Whoever is at this sample has read the verdict of the one before the last.
        self._told.append(step)
        for old in self._told[:-2]:
            self._mailbox.take_back(f"verdict {old}")
        del self._told[:-2]

    def verdict(self, step: int) -> bool:
        """Whether all stop. The others wait for the first process: all have to do the same."""
        if self.main or self._stops or self._mailbox is None or step == self._asked:
            return self._stops
        until = time.monotonic() + waiting_time(LONGEST)
        message = self._mailbox.read(f"verdict {step}", 0, until=until)
        self._asked = step
        self._stops = message is not None and bool(message.facts["stop"])
        return self._stops
