"""Which calls of `step` are updates, told by who calls them.

A step inside of another step is no update of its own: SAM, Lookahead and wrappers step an optimizer
that they hold. Neither is the step by which `torch.distributed.checkpoint` fills the state of an
optimizer, with a rate of zero, before it saves or loads that.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType

from torch.optim import Optimizer

from leadline.lab.watch import fence
from leadline.lab.watch.sampling import apart

__all__ = ["StepUnderWay", "calling_frame", "fills_state", "held", "inner_optimizers"]

CHECKPOINTS = "torch.distributed.checkpoint."
FRAMES = 6
"""So many callers of a step are looked at: schedulers and profilers wrap it once or twice."""
DEEPEST = 4
"""Wrappers of wrappers are followed so far."""


class StepUnderWay:
    """A step that counts, until it has ended or its caller has left it by an error."""

    def __init__(self, optimizer: Optimizer, frame: FrameType) -> None:
        self.optimizer = optimizer
        self.frame = frame
        self.waits_for = inner_optimizers(optimizer)
        """Where it holds optimizers, the first of them to step is the one that moves the weights."""
        self.read = False
        """Whether gradients and weights ahead of it were looked at."""

    def calls(self, frame: FrameType) -> bool:
        """Whether a frame runs inside of this step."""
        return any(one is self.frame for one in _up(frame))


def calling_frame() -> FrameType:
    """Return the frame of torch that calls a step hook of ours; it is one for each step."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") in _OURS:
        frame = frame.f_back
    return frame


_OURS = {__name__, fence.__name__, apart.__name__, "leadline.lab.watch.updates.counting"}


def fills_state(frame: FrameType) -> bool:
    """Whether the step that runs in a frame only fills the optimizer's state."""
    callers = zip(_up(frame), range(FRAMES), strict=False)
    return any(one.f_globals.get("__name__", "").startswith(CHECKPOINTS) for one, _ in callers)


def inner_optimizers(optimizer: Optimizer, depth: int = DEEPEST) -> list[Optimizer]:
    """Return the optimizers that one holds to move the same parameters."""
    found: list[Optimizer] = []
    ours = held(optimizer)
    for value in list(vars(optimizer).values()) if depth else ():
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, Optimizer) and one is not optimizer and ours & held(one):
                found += [one, *inner_optimizers(one, depth - 1)]
    return found


def held(optimizer: Optimizer) -> set[int]:
    """Return the identities of the parameters that an optimizer moves."""
    groups = getattr(optimizer, "param_groups", None) or ()
    return {id(parameter) for group in groups for parameter in group["params"]}


def _up(frame: FrameType) -> Iterator[FrameType]:
    one: FrameType | None = frame
    while one is not None:
        yield one
        one = one.f_back
