"""Steps that are given a closure: forward, backward and clipping happen inside of the step.

Lightning hands every optimizer a closure, and LBFGS needs one. A step hook comes before it, when the
gradients are those of the update before. So the closure is exchanged for one that calls it and then
reads; LBFGS calls it several times, and before the first call no weight has moved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Arguments", "reading_after_closure"]

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional arguments, with the optimizer as the first, and named ones."""


def reading_after_closure(
    args: tuple[Any, ...], kwargs: dict[str, Any], read: Callable[[], object]
) -> Arguments | None:
    """Return the arguments of a step with `read` behind its closure; None where it has none."""
    named = kwargs.get("closure")
    closure = named if named is not None else next(iter(args[1:2]), None)
    if not callable(closure):
        return None
    waiting = [read]

    def closure_and_reading() -> Any:
        loss = closure()
        if waiting:
            waiting.pop()()
        return loss

    if named is not None:
        return args, {**kwargs, "closure": closure_and_reading}
    return (args[0], closure_and_reading, *args[2:]), kwargs
