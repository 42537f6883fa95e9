"""An address inside a model.

`layer` counts blocks from 1 to depth; the stream at layer 0 is what enters block 1, the stream at
layer l is what leaves block l. `sublayer` counts the writes inside a block from 1. `point` says
what stands there: `stream`, `block`, or the role of a branch (`attention`, `mlp`, ...). The other
axes count from 1, but for `hops`, the number of attention layers that a path goes through.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["OUTSIDE", "RUN", "Site"]


@dataclass(frozen=True, slots=True)
class Site:
    """Where a number was read."""

    stack: str
    layer: int
    sublayer: int | None = None
    point: str = "stream"
    lane: int | None = None
    head: int | None = None
    token: int | None = None
    rank: int | None = None
    example: int | None = None
    hops: int | None = None

    def __str__(self) -> str:
        """Say the address in words: `decoder layer 3 attention`."""
        if self.point == "run":
            return "the run"
        if self.point == "stream":
            place = "stream" if self.sublayer is None else f"stream after write {self.sublayer}"
        elif self.point == "block" or self.sublayer is None:
            place = "" if self.point == "block" else self.point
        else:
            place = f"{self.point} (write {self.sublayer})"
        axes = [
            f"{name} {number}"
            for name, number in (
                ("lane", self.lane),
                ("head", self.head),
                ("token", self.token),
                ("rank", self.rank),
                ("example", self.example),
                ("hops", self.hops),
            )
            if number is not None
        ]
        words = [self.stack, f"layer {self.layer}", place, *axes]
        return " ".join(word for word in words if word)


OUTSIDE = "model"
"""The stack of tensors that belong to no block, each at layer 0 under its full name."""
RUN = Site("run", 0, point="run")
"""The address of a number that belongs to a training run and to no place in the model."""
