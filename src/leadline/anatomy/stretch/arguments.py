"""Copy, exchange and inspect the arguments that a block got in a real pass.

Blocks are handed tensors, tuples, dictionaries, dataclasses that all layers of a pass share, and
caches. In a whole pass, what one layer leaves in a container must reach the next layer. For a block
that runs alone it must not change the copy of the arguments.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any

import torch

from leadline.anatomy.find.replay import is_cache

__all__ = ["is_opaque", "map_tensors", "other_tensors", "swap_tensor", "without_caches"]

Tensor = torch.Tensor

_PLAIN = (Tensor, bool, int, float, str, bytes, torch.dtype, torch.device, torch.Size, enum.Enum)


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Copy the nesting into new containers and change every tensor, also inside dataclasses.

    The containers are new because an early layer may leave something in them for later ones.
    """
    if isinstance(value, Tensor):
        return change(value)
    if type(value) in (tuple, list):
        return type(value)(map_tensors(inner, change) for inner in value)
    if type(value) is dict:
        return {key: map_tensors(inner, change) for key, inner in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        copied = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(copied, field.name, map_tensors(getattr(value, field.name), change))
        return copied
    return value


def without_caches(value: Any) -> Any:
    """Remove key-value caches, in which a block that runs again would find its own keys."""
    if type(value) in (tuple, list):
        return type(value)(without_caches(inner) for inner in value)
    if type(value) is dict:
        return {key: without_caches(inner) for key, inner in value.items()}
    return None if is_cache(value) else value


def is_opaque(value: Any) -> bool:
    """Whether the arguments hold an object of an unknown class, which may keep state."""
    if value is None or isinstance(value, _PLAIN) or callable(value):
        return False
    if isinstance(value, tuple | list):
        return any(is_opaque(inner) for inner in value)
    if isinstance(value, Mapping):
        return any(is_opaque(inner) for inner in value.values())
    if dataclasses.is_dataclass(value):
        return any(is_opaque(getattr(value, field.name)) for field in dataclasses.fields(value))
    return True


def swap_tensor(value: Any, old: Tensor | None, new: Tensor) -> Any:
    """Exchange one tensor in a nesting; containers without it stay the same objects.

    Layers that pass something on in a container of their own must still find it there.
    """
    if value is old:
        return new
    if type(value) in (tuple, list):
        inner = [swap_tensor(one, old, new) for one in value]
        same = all(a is b for a, b in zip(inner, value, strict=True))
        return value if same else type(value)(inner)
    if isinstance(value, Mapping):
        inner = {key: swap_tensor(one, old, new) for key, one in value.items()}
        if all(inner[key] is value[key] for key in inner):
            return value
        copied: Any = copy.copy(value)  # what Hugging Face models return is no plain dictionary
        for key, one in inner.items():
            copied[key] = one
        return copied
    return value


def other_tensors(arguments: Any, stream: Tensor) -> list[Tensor]:
    """The floating tensors of a call beside its stream."""
    tensors: list[Tensor] = []

    def collect(tensor: Tensor) -> Tensor:
        if tensor is not stream and tensor.is_floating_point():
            tensors.append(tensor)
        return tensor

    map_tensors(arguments, collect)
    return tensors
