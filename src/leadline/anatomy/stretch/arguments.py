"""The arguments of a block in a real pass: held, exchanged, and looked through.

Blocks are handed tensors, tuples, dictionaries, dataclasses that all layers of a pass share, and
caches. What one layer leaves in a container must neither be lost to the next one in a whole pass nor
change what was held for a block that runs alone.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any

import torch

from leadline.anatomy.find.replay import is_cache

__all__ = ["emptied", "held", "opaque", "others", "swapped"]

Tensor = torch.Tensor

_PLAIN = (Tensor, bool, int, float, str, bytes, torch.dtype, torch.device, torch.Size, enum.Enum)


def held(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same nesting in new containers with every tensor changed; also inside dataclasses.

    What an early layer leaves in a container for later ones would otherwise change what was held.
    """
    if isinstance(value, Tensor):
        return change(value)
    if type(value) in (tuple, list):
        return type(value)(held(inner, change) for inner in value)
    if type(value) is dict:
        return {key: held(inner, change) for key, inner in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        made = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(made, field.name, held(getattr(value, field.name), change))
        return made
    return value


def emptied(value: Any) -> Any:
    """Without key-value caches: a block that ran again would look at its own keys in them."""
    if type(value) in (tuple, list):
        return type(value)(emptied(inner) for inner in value)
    if type(value) is dict:
        return {key: emptied(inner) for key, inner in value.items()}
    return None if is_cache(value) else value


def opaque(value: Any) -> bool:
    """Whether an object is among the arguments of which nothing is known."""
    if value is None or isinstance(value, _PLAIN) or callable(value):
        return False
    if isinstance(value, tuple | list):
        return any(opaque(inner) for inner in value)
    if isinstance(value, Mapping):
        return any(opaque(inner) for inner in value.values())
    if dataclasses.is_dataclass(value):
        return any(opaque(getattr(value, field.name)) for field in dataclasses.fields(value))
    return True


def swapped(value: Any, old: Tensor | None, new: Tensor) -> Any:
    """The same nesting with one tensor exchanged; containers without it stay the same objects.

    Layers that hand something on in a container of their own must still find it there.
    """
    if value is old:
        return new
    if type(value) in (tuple, list):
        inner = [swapped(one, old, new) for one in value]
        same = all(a is b for a, b in zip(inner, value, strict=True))
        return value if same else type(value)(inner)
    if isinstance(value, Mapping):
        inner = {key: swapped(one, old, new) for key, one in value.items()}
        if all(inner[key] is value[key] for key in inner):
            return value
        made: Any = copy.copy(value)  # what Hugging Face models return is no plain dictionary
        for key, one in inner.items():
            made[key] = one
        return made
    return value


def others(arguments: Any, stream: Tensor) -> list[Tensor]:
    """The floating tensors of a call beside its stream."""
    found: list[Tensor] = []

    def seen(tensor: Tensor) -> Tensor:
        if tensor is not stream and tensor.is_floating_point():
            found.append(tensor)
        return tensor

    held(arguments, seen)
    return found
