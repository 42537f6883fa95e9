"""Tensors that are spread over processes (DTensor): which part is here, and who counts it."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "indices_of_part",
    "is_addend",
    "is_counted",
    "is_spread",
    "is_spread_type",
    "local_part",
    "whole",
]


def is_spread(tensor: object) -> bool:
    """Whether a tensor is a DTensor."""
    tensors = sys.modules.get("torch.distributed.tensor")
    return tensors is not None and isinstance(tensor, tensors.DTensor)


def is_spread_type(kind: type) -> bool:
    """Whether tensors of a class are DTensors."""
    tensors = sys.modules.get("torch.distributed.tensor")
    return tensors is not None and issubclass(kind, tensors.DTensor)


def whole(tensor: Any) -> Tensor:
    """The whole of a tensor; of a DTensor it is gathered, which all processes must do."""
    return tensor.full_tensor() if is_spread(tensor) else tensor


def local_part(tensor: Any) -> Tensor:
    """The part of a tensor that this process holds: all of it, but for a DTensor."""
    return tensor.to_local() if is_spread(tensor) else tensor


def is_counted(tensor: Any, *, first: bool) -> bool:
    """Whether this process counts its part: the first of those that hold the same one.

    `first` says whether this is the first process of all, which counts what is not spread.
    """
    if not is_spread(tensor):
        return first
    where = tensor.device_mesh.get_coordinate()
    if where is None:
        return False
    return all(
        at == 0 for at, place in zip(where, tensor.placements, strict=True) if place.is_replicate()
    )


def is_addend(tensor: Any) -> bool:
    """Whether the parts have to be added up to be the tensor."""
    return is_spread(tensor) and any(place.is_partial() for place in tensor.placements)


def indices_of_part(tensor: Any, step: int) -> Any:
    """Which numbers of this part are every `step`-th of the whole tensor, flattened."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    shape, part = tuple(tensor.shape), local_part(tensor)
    size, offset = compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )
    if tuple(size) != tuple(part.shape):
        raise NotImplementedError(f"The part of a tensor with placements {tensor.placements}")
    if not part.numel():
        return slice(0, 0)
    if tuple(size[1:]) == shape[1:]:  # whole rows lie one after the other
        inner = part[0].numel() if part.ndim else 1
        return slice(-offset[0] * inner % step if offset else 0, None, step)
    return _indices(shape, tuple(size), tuple(offset), step).to(part.device)


@lru_cache(maxsize=1024)
def _indices(
    shape: tuple[int, ...], size: tuple[int, ...], offset: tuple[int, ...], step: int
) -> Tensor:
    count = torch.Size(shape).numel()
    places = torch.unravel_index(torch.arange(0, count, step), shape)
    inside = torch.ones_like(places[0], dtype=torch.bool)
    flat = torch.zeros_like(places[0])
    for place, length, first in zip(places, size, offset, strict=True):
        inside &= (place >= first) & (place < first + length)
        flat = flat * length + (place - first)
    return flat[inside]
