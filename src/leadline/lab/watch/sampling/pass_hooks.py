"""What stands on a model and on torch while a sample is taken, from the update before to its end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

from torch import nn

from leadline.lab.watch.hooks import LeftOutOfCopies, LookingHook, hidden_from_script
from leadline.lab.watch.sampling.engine_runs import engine_runs

__all__ = ["PassHooks", "is_compiled_in_place"]


class _Removable(Protocol):
    def remove(self) -> None: ...


class PassHooks:
    """Calls `before(module, args, kwargs)` and `after(module, args, output)` around every pass.

    `traced` is called instead where torch.compile traces the pass.
    """

    def __init__(
        self,
        before: Callable[..., None],
        after: Callable[..., None],
        *,
        traced: Callable[[], None],
    ) -> None:
        self._before, self._after, self._traced = before, after, traced
        self._handles: list[_Removable] = []

    def __bool__(self) -> bool:
        return bool(self._handles)

    def begin(self, roots: list[nn.Module]) -> None:
        """Stand on these modules from now on."""
        for exchange in (hidden_from_script, engine_runs):
            self._handles.append(exchange.begin())
        for root in {id(one): one for one in roots}.values():
            if is_compiled_in_place(root):
                self._handles.append(_CompiledCall(root, self._before, self._after))
                continue
            before = LookingHook(self._before, self._traced)
            after = LookingHook(self._after, self._traced)
            # Ahead of the hooks of FSDP2: a pass of our own must not run inside of its pass.
            self._handles.append(
                root.register_forward_pre_hook(before, with_kwargs=True, prepend=True)
            )
            self._handles.append(root.register_forward_hook(after, always_call=True))
            self._handles.append(LeftOutOfCopies(root))

    def end(self) -> None:
        """Take everything off, whatever fails on the way."""
        with ExitStack() as stack:
            for handle in self._handles:  # the last of them first
                stack.callback(handle.remove)
            self._handles = []


def is_compiled_in_place(module: nn.Module) -> bool:
    """Whether `module.compile()` was called."""
    return getattr(module, "_compiled_call_impl", None) is not None


class _CompiledCall:
    """Stands around the call of a module that was compiled in place, until it is removed.

    `module.compile()` compiles the whole call, hooks and all, so that none of them can be heard.
    """

    def __init__(
        self, module: nn.Module, before: Callable[..., None], after: Callable[..., None]
    ) -> None:
        self._module: Any = module
        self._original = compiled = self._module._compiled_call_impl

        def call(*args: Any, **kwargs: Any) -> Any:
            before(module, args, kwargs)
            output = None
            try:
                output = compiled(*args, **kwargs)
            finally:
                after(module, args, output)
            return output

        self._ours = self._module._compiled_call_impl = call

    def remove(self) -> None:
        """Put the module's own call back, unless somebody has compiled it anew."""
        if self._module._compiled_call_impl is self._ours:
            self._module._compiled_call_impl = self._original
