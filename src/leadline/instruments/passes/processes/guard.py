"""Agree on every collective operation of torch before it begins: each waits for all processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from leadline.anatomy.spread import is_spread_type

__all__ = ["Guard"]

_COLLECTIVES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional")
_NOT_EXCHANGED = ("wait_tensor",)


class Guard(TorchDispatchMode):
    """Agrees on what waits for all processes; everything else passes."""

    def __init__(self, agree: Callable[[str], None]) -> None:
        super().__init__()
        self._agree = agree

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # A tensor that is spread first becomes operations on its parts, which come here again.
        if any(is_spread_type(kind) for kind in types):
            return NotImplemented
        namespace = getattr(func, "namespace", "")
        if namespace in _COLLECTIVES and func._opname not in _NOT_EXCHANGED:
            shapes = [
                tuple(one.shape)
                for one in tree_leaves((args, kwargs))
                if isinstance(one, torch.Tensor)
            ]
            self._agree(f"{func} of {shapes}")
        return func(*args, **(kwargs or {}))
