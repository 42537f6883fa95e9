"""Hooks on somebody's model that do nothing to it but look.

While torch.compile traces a model, its hooks are traced with it; there these do nothing at all, so
that the graph stays what it would be. `has_compiled_parts` says where that would happen.

`torch.jit.script` compiles the hooks of a model as well. `hidden_from_script` keeps ours from it, and
`LeftOutOfCopies` keeps them out of copies of the model: what a hook becomes in a copy (`ModuleHook`)
does nothing, but could not be compiled either.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from leadline.anatomy import ModuleHook
from leadline.lab.watch.exchange import Exchange

__all__ = ["LeftOutOfCopies", "LookingHook", "has_compiled_parts", "hidden_from_script"]

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_OF_HOOKS = (
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs",
)
"""What torch notes about hooks, by the same keys."""


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


class LeftOutOfCopies:
    """Leaves our hooks out where one module is copied or saved, until it is removed.

    `copy.deepcopy` and pickle ask an object how it is copied. The tables of a module's hooks are
    asked like everything else, and answer with what is in them besides our hooks.
    """

    def __init__(self, module: nn.Module) -> None:
        hooks = [getattr(module, name, None) for name in _HOOKS]
        notes = [getattr(module, name, None) for name in _OF_HOOKS]
        self._tables = [one for one in (*hooks, *notes) if type(one) is OrderedDict]
        for table in self._tables:
            table.__dict__["__deepcopy__"] = lambda memo, table=table: deepcopy(
                _without_hooks(table, hooks), memo
            )
            table.__dict__["__reduce_ex__"] = lambda protocol, table=table: _without_hooks(
                table, hooks
            ).__reduce_ex__(protocol)

    def remove(self) -> None:
        """Let the tables be copied as they are."""
        for table in self._tables:
            table.__dict__.pop("__deepcopy__", None)
            table.__dict__.pop("__reduce_ex__", None)


def _without_hooks(table: Any, hooks: list[Any]) -> OrderedDict[Any, Any]:
    ours = {
        key
        for one in hooks
        if one is not None
        for key, hook in one.items()
        if isinstance(hook, ModuleHook)
    }
    return OrderedDict((key, value) for key, value in table.items() if key not in ours)


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
