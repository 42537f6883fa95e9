"""Hooks on somebody's model that do nothing to it but look.

A hook of torch belongs to the module: `copy.deepcopy(model)` copies it and `torch.save(model)` saves
it, with everything that it holds. One of these stays behind: the copy, and what is loaded again,
has a hook that does nothing.

While torch.compile traces a model, its hooks are traced with it; there these do nothing at all, so
that the graph stays what it would be. `has_compiled_parts` says where that would happen.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

__all__ = ["ModuleHook", "has_compiled_parts"]


class ModuleHook:
    """Calls a function as a hook of a module; it stays with the module that it was set on.

    `traced` is called instead where the model is being traced by torch.compile.
    """

    def __init__(self, call: Callable[..., None], traced: Callable[[], None]) -> None:
        self._call = call
        self._traced = traced

    def __call__(self, *args: Any) -> None:
        if torch.compiler.is_compiling():
            self._traced()
        else:
            self._call(*args)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return nullcontext().__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        # Of the standard library, so that whoever loads the model needs nothing of ours.
        return getattr, (nullcontext(), "__exit__")


def has_compiled_parts(module: nn.Module) -> bool:
    """Whether a part of a model runs compiled: wrapped, compiled in place, or by its forward."""
    for part in module.modules():
        forward = vars(part).get("forward")
        if (
            hasattr(part, "_orig_mod")
            or getattr(part, "_compiled_call_impl", None) is not None
            or hasattr(forward, "_torchdynamo_orig_callable")
        ):
            return True
    return False
