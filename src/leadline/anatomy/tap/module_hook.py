"""A hook that stays with the module that it was set on.

A hook of torch belongs to the module: `copy.deepcopy(model)` copies it and `torch.save(model)` saves
it, with everything that it holds. One of these stays behind: the copy, and what is loaded again,
has a hook that does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

__all__ = ["ModuleHook"]


class ModuleHook:
    """Calls a function as a hook of a module, and of no copy of it."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return nullcontext().__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        # Of the standard library, so that whoever loads the model needs nothing of ours.
        return getattr, (nullcontext(), "__exit__")
