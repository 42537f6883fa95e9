"""Which examples of the whole batch each process has, and what its loss is worth.

Every process gives its own inputs; the batch is all of them, in the order of the processes. Processes
with the same inputs have copies of one part, which counts once: all of them under tensor parallelism,
where every process needs the whole batch, and wherever the inputs are drawn from a seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from leadline.errors import InputError
from leadline.instruments.passes.processes.convoy import Convoy
from leadline.models.inputs import Inputs, Loss

__all__ = ["BatchShares", "SharedLoss", "share_inputs"]


@dataclass(frozen=True)
class BatchShares:
    """What each process has: `first` names, for each, the first one with the same inputs."""

    rank: int
    first: tuple[int, ...]
    summaries: tuple[dict[str, Any], ...]

    @property
    def parts(self) -> list[int]:
        """The processes whose inputs count: the first of those with the same."""
        return sorted(set(self.first))

    @property
    def copies(self) -> int:
        """How many processes have the inputs of this one."""
        return self.first.count(self.first[self.rank])

    @property
    def rows(self) -> tuple[int, int]:
        """The first example of this process in the whole batch, and how many there are."""
        sizes = {part: int(self.summaries[part]["examples"]) for part in self.parts}
        own = self.first[self.rank]
        return sum(size for part, size in sizes.items() if part < own), sum(sizes.values())

    def summary(self) -> dict[str, Any]:
        """What the record says of the whole batch."""
        parts = [self.summaries[part] for part in self.parts]
        if len(parts) == 1:
            return parts[0]
        whole = dict(parts[0])
        for name in ("examples", "tokens", "padded"):
            values = [one[name] for one in parts]
            whole[name] = None if None in values else sum(values)
        longest = [one["longest"] for one in parts]
        whole["longest"] = None if None in longest else max(longest)
        digests = "".join(one["digest"] for one in parts)
        whole["digest"] = hashlib.sha256(digests.encode()).hexdigest()
        return whole


def share_inputs(convoy: Convoy, batch: Inputs, request: dict[str, Any]) -> BatchShares:
    """Tell the others what this process has, and that it was asked for the same as they."""
    digest = batch.digest
    for targets in (batch.labels, batch.targets):
        if targets is not None:
            values = targets.detach().cpu().contiguous().numpy().tobytes()
            digest = hashlib.sha256(digest.encode() + values).hexdigest()
    facts = {"digest": digest, "summary": batch.summary(), "request": request}
    told = convoy.exchange("the inputs", facts)
    for sender, other in enumerate(told):
        for name, value in told[0]["request"].items():
            if other["request"][name] != value:
                raise InputError(
                    f"Processes 0 and {sender} were asked for different things: {name} is "
                    f"{value!r} and {other['request'][name]!r}. Make the same call in every process."
                )
    digests = [one["digest"] for one in told]
    first = tuple(digests.index(digest) for digest in digests)
    if convoy.sharding == "tensor" and set(first) != {0}:
        other = next(rank for rank, same in enumerate(first) if same)
        raise InputError(
            f"Process {other} has other inputs than process 0, and under tensor parallelism every "
            "process computes a part of every token: give all processes the same inputs."
        )
    return BatchShares(convoy.rank, first, tuple(one["summary"] for one in told))


class SharedLoss:
    """The loss of a part, as its share of that of the whole batch; `whole` is that of the last pass."""

    def __init__(self, loss: Loss, shares: BatchShares, convoy: Convoy) -> None:
        self._loss, self._shares, self._convoy = loss, shares, convoy
        # Gradients of copies are added up, but under tensor parallelism, where each has the whole.
        self._copies = 1 if convoy.sharding == "tensor" else shares.copies
        self.whole = float("nan")

    @property
    def copies(self) -> int:
        """By what the share is smaller than what the part contributes."""
        return self._copies

    def compute(self, output: Any, inputs: Inputs) -> torch.Tensor:
        """What this process differentiates: the sum over the processes is the loss of the batch."""
        value = self._loss.compute(output, inputs)
        terms = self._loss.terms(output, inputs)
        facts = {"terms": terms, "value": float(value.detach())}
        told = self._convoy.exchange("the loss", facts)
        parts: Sequence[dict[str, Any]] = [told[part] for part in self._shares.parts]
        total = sum(part["terms"] for part in parts)
        self.whole = sum(
            part["value"] * (part["terms"] / total) ** self._loss.power for part in parts
        )
        return value * ((terms / total) ** self._loss.power / self._copies)
