"""Steps that are given a closure: forward, backward and clipping happen inside of the step.

Lightning hands every optimizer a closure, and LBFGS needs one. A step hook comes before it, when the
gradients are those of the update before. So the closure is exchanged for one that calls it and then
reads; LBFGS calls it several times, and before the first call no weight has moved.

Only what the optimizer's own `step` calls `closure` is one, or, where a wrapper's `step` names
nothing, a function that needs no argument. Some take the model, or a function of something.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache, update_wrapper
from types import FunctionType, MethodType
from typing import Any

from torch import nn
from torch.optim import Optimizer

__all__ = ["Arguments", "reading_after_closure"]

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional arguments, with the optimizer as the first, and named ones."""
NAME = "closure"
UNNAMED = -1
"""The position of the closure where `step` names none of its arguments."""


def reading_after_closure(
    optimizer: Optimizer,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    read: Callable[[], object],
) -> Arguments | None:
    """Return the arguments of a step with `read` behind its closure; None where it has none."""
    at = _position(type(optimizer))
    named = kwargs.get(NAME)
    index = 1 if at == UNNAMED else at
    closure: Any = named
    if named is None and index is not None and index < len(args):
        closure = args[index]
    if not callable(closure) or isinstance(closure, nn.Module):
        return None
    if at == UNNAMED and not _is_plain(closure):
        return None
    waiting = [read]

    # Some optimizers pass arguments on.
    def closure_and_reading(*given: Any, **options: Any) -> Any:
        loss = closure(*given, **options)
        if waiting:
            waiting.pop()()
        return loss

    update_wrapper(closure_and_reading, closure, updated=())
    if named is not None:
        return args, {**kwargs, NAME: closure_and_reading}
    assert index is not None
    return (*args[:index], closure_and_reading, *args[index + 1 :]), kwargs


@lru_cache(maxsize=256)
def _position(kind: type[Optimizer]) -> int | None:
    """Where the `step` of a class takes its closure, the optimizer itself counted as 0."""
    try:
        parameters = list(inspect.signature(kind.step).parameters.values())
    except (TypeError, ValueError):
        return UNNAMED
    taken = [one for one in parameters if one.kind is not one.KEYWORD_ONLY]
    for at, one in enumerate(taken):
        if one.name == NAME:
            return at
        if one.kind is one.VAR_POSITIONAL:
            return UNNAMED if at <= 1 else None
    return None


def _is_plain(function: Any) -> bool:
    """Whether a function can be called without arguments."""
    if not isinstance(function, FunctionType | MethodType):
        return False
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        return False
    return True
