"""Draw random weights only where somebody will see them.

A constructor often draws a tensor twice: the layer as torch does it, then the model as its own design
does it; and the weight of a tied head is drawn and dropped. Inside `with DrawsThatCount()` a draw into a
large parameter waits until an operation reads the tensor. A second draw into the whole tensor replaces
the first, and what nobody holds at the end is never drawn. The numbers follow the same law, in another
order.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from leadline.anatomy.eager import EagerMode

__all__ = ["DrawsThatCount"]

LEAST_VALUES = 1 << 14
"""Smaller tensors are drawn at once: waiting would cost as much."""
_ATEN = torch.ops.aten
_DRAWS = {_ATEN.normal_.default, _ATEN.uniform_.default}
_FILLS = {_ATEN.zero_.default, _ATEN.fill_.Scalar}
_SAME_VALUES = {_ATEN.detach.default, _ATEN.alias.default}


@dataclass
class _Draw:
    """A draw that waits."""

    parameter: Tensor | None
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: dict[str, Any]

    def do(self) -> None:
        """Draw now."""
        with torch.no_grad():
            self.function(self.parameter, *self.arguments, **self.named)

    def is_seen(self) -> bool:
        """Whether any tensor but the one of this draw has the same values."""
        assert self.parameter is not None
        holder, values = weakref.ref(self.parameter), self.parameter.data
        self.parameter = None
        if holder() is None:
            self.parameter = values
            # A tensor made by `.data` may outlive its parameter; `values` itself is one.
            return _holders(values) > _holders(torch.empty(1))
        self.parameter = holder()
        return True


class DrawsThatCount(EagerMode):
    """Postpone draws into whole parameters until they are read, or until the end."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[int, _Draw] = {}
        """By the identity of the storage, which the draw keeps alive."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        named = kwargs or {}
        if func in _DRAWS | _FILLS and _is_whole(args[0]):
            self.waiting.pop(_storage(args[0]), None)
            if func in _DRAWS and _may_wait(args[0], named):
                self.waiting[_storage(args[0])] = _Draw(args[0], func, args[1:], named)
                return args[0]
        elif self.waiting and func not in _SAME_VALUES:
            for tensor in _tensors((args, named)):
                if (draw := self.waiting.pop(_storage(tensor), None)) is not None:
                    draw.do()
        return func(*args, **named)

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        draws = list(self.waiting.values())
        self.waiting.clear()
        for draw in draws:
            if draw.is_seen():
                draw.do()


def _may_wait(tensor: Tensor, named: dict[str, Any]) -> bool:
    """Large parameters drawn with torch's own generator; others may depend on the order of draws."""
    return (
        isinstance(tensor, nn.Parameter)
        and tensor.numel() >= LEAST_VALUES
        and named.get("generator") is None
    )


def _is_whole(tensor: Tensor) -> bool:
    """Whether a tensor is all of its storage."""
    if tensor.is_meta or tensor.is_sparse:
        return False
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]


def _holders(tensor: Tensor) -> int:
    """How many tensors share the storage of this one, it and what torch adds included."""
    return torch._C._storage_Use_Count(_storage(tensor))  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        if not value.is_sparse:
            yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
