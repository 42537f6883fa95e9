"""Hooks on somebody's model that do nothing to it but look.

While torch.compile traces a model, its hooks are traced with it; there these do nothing at all, so
that the graph stays what it would be. `has_compiled_parts` says where that would happen.

`torch.jit.script` compiles the hooks of a model as well. `hidden_from_script` keeps ours from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from leadline.anatomy import ModuleHook
from leadline.lab.watch.exchange import Exchange

__all__ = ["LookingHook", "has_compiled_parts", "hidden_from_script"]


class LookingHook(ModuleHook):
    """A hook whose answer is nothing; `traced` is called instead where torch.compile traces it."""

    def __init__(self, call: Callable[..., None], traced: Callable[[], None]) -> None:
        super().__init__(call)
        self._traced = traced

    def __call__(self, *args: Any) -> None:
        if torch.compiler.is_compiling():
            self._traced()
        else:
            self._call(*args)


def _without_ours(get_hook_stubs: Callable[[nn.Module], Any]) -> Callable[[nn.Module], Any]:
    def get_stubs_of_others(module: nn.Module) -> Any:
        tables: list[Any] = [module._forward_hooks, module._forward_pre_hooks]
        kept = [dict(table) for table in tables]
        try:
            for table in tables:
                for key in [key for key, one in table.items() if isinstance(one, ModuleHook)]:
                    del table[key]
            return get_hook_stubs(module)
        finally:
            for table, items in zip(tables, kept, strict=True):
                table.clear()
                table.update(items)

    return get_stubs_of_others


hidden_from_script = Exchange(
    getattr(torch.jit, "_recursive", None), "get_hook_stubs", _without_ours
)
"""Hides our hooks from `torch.jit.script`, which asks one function for the hooks of every module and
fails where it cannot compile one of them."""


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
