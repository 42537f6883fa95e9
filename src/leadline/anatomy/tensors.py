"""Find the stream among the arguments and the output of a module.

Blocks return a tensor, a tuple, a list or a mapping; they are called with positional or keyword
arguments. The stream is the first floating tensor of at least two axes that has its width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from leadline.errors import InputError

__all__ = ["all_tensors", "check_dense", "first_tensor", "mapped", "stream_input"]

Tensor = torch.Tensor


def check_dense(tensor: Tensor, name: str) -> None:
    """Refuse a tensor without values, or one whose values do not lie side by side."""
    if tensor.is_nested:
        raise InputError(
            f"{name} is a nested tensor; give a padded one, such as tensor.to_padded_tensor(0)."
        )
    if tensor.layout != torch.strided:
        kind = str(tensor.layout).removeprefix("torch.")
        raise InputError(f"{name} is a sparse tensor ({kind}); give tensor.to_dense().")
    if tensor.is_meta:
        raise InputError(f"{name} is on the meta device and has no values; give one that has.")
    if tensor.is_quantized:
        raise InputError(f"{name} is quantised; give tensor.dequantize().")


def all_tensors(value: object) -> Iterator[Tensor]:
    """Every floating tensor inside nested tuples, lists and mappings, in order."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from all_tensors(inner)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for inner in value:
            yield from all_tensors(inner)


def first_tensor(output: object) -> Tensor | None:
    """What a module returned: the tensor itself or the first one of a tuple or mapping."""
    return next(all_tensors(output), None)


def stream_input(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], *, like: torch.Size | None = None
) -> Tensor | None:
    """The stream among the arguments of a call: positional ones first, then keywords.

    `like` is the shape it must have; without it the first tensor of two axes or more is taken.
    """
    hidden_states = kwargs.get("hidden_states")
    candidates = [
        *(a for a in args if isinstance(a, Tensor)),
        *([hidden_states] if isinstance(hidden_states, Tensor) else []),
        *(v for v in kwargs.values() if isinstance(v, Tensor)),
    ]
    for tensor in candidates:
        if tensor.is_floating_point() and tensor.ndim >= 2 and like in (None, tensor.shape):
            return tensor
    return None


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same nesting with every tensor changed; anything that is no plain container is kept."""
    if isinstance(value, Tensor):
        return change(value)
    if type(value) is tuple:
        return tuple(mapped(inner, change) for inner in value)
    if type(value) is list:
        return [mapped(inner, change) for inner in value]
    if type(value) is dict:
        return {key: mapped(inner, change) for key, inner in value.items()}
    return value
