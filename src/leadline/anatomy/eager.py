"""Run compiled regions eagerly, and without importing the compiler where there is nothing to compile.

`torch._dynamo` takes longer to import than all else that a small model needs. Two things import it
unasked: `torch.compiler.set_stance`, and torch's wrapper around every `__torch_dispatch__`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["EagerMode", "eagerly"]


@contextmanager
def eagerly() -> Iterator[None]:
    """Run compiled regions eagerly, those that are compiled meanwhile among them.

    Nothing can have been compiled before the compiler was imported; `torch.compile` tells when a
    model begins to.
    """
    with ExitStack() as stack:
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        elif not isinstance(torch.compile, _FirstCompile):
            first = _FirstCompile(torch.compile, stack)
            stack.callback(setattr, torch, "compile", torch.compile)
            torch.compile = first  # pyright: ignore[reportAttributeAccessIssue]
        yield


class _FirstCompile:
    """Stands for `torch.compile` until somebody calls it."""

    def __init__(self, original: Any, stack: ExitStack) -> None:
        self._original = original
        self._stack = stack
        self._called = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._called:
            self._called = True
            self._stack.enter_context(torch.compiler.set_stance("force_eager"))
        return self._original(*args, **kwargs)


class EagerMode(TorchDispatchMode):
    """A dispatch mode of ours: it only stands where nothing runs compiled."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: torch then leaves `__torch_dispatch__` as it is."""
        return False
