"""Copies of the arguments of a call, so that a pass of our own uses up nothing that the loop gave.

Some models take entries out of the batch that they are given, write into its tensors, put the
stream into an attribute of it, or fill a cache. So every pass of our own gets copies of its own:
tensors are cloned without the graph behind them, everything else is copied as `copy.deepcopy` does.
What cannot be copied, such as a generator or an open file, allows no pass of our own.

Modules among the arguments are shared; they are found in containers and behind the attributes of a
few objects, and whoever runs the pass puts them back.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from leadline.errors import InputError

__all__ = ["copied", "modules_in"]

DEPTH = 4
"""So many containers and objects one inside of the other are looked into for modules."""


class _Clones(TorchFunctionMode):
    """Lets a tensor be copied although a graph stands behind it."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is not Tensor.__deepcopy__:
            return func(*args, **(kwargs or {}))
        tensor, memo = args
        if id(tensor) not in memo:
            clone = tensor.detach().clone().requires_grad_(tensor.requires_grad)
            memo[id(tensor)] = clone
            if vars(tensor):  # attributes that somebody has set
                with self:
                    vars(clone).update(copy.deepcopy(vars(tensor), memo))
        return memo[id(tensor)]


def copied(values: Any) -> Any:
    """Copy arguments with all that is inside of them, but for modules."""
    memo: dict[int, Any] = {id(one): one for one in modules_in(values)}
    try:
        with torch.inference_mode(False), _Clones():
            return copy.deepcopy(values, memo)
    except Exception as error:
        raise InputError(
            f"The arguments of the forward pass cannot be copied ({type(error).__name__}: {error}), "
            "and a pass of our own would use them up. With anatomy=leadline.anatomy_of(model, inputs) "
            "there is none, unless the model is compiled."
        ) from error


def modules_in(values: Any) -> list[nn.Module]:
    """The modules among arguments."""
    found: dict[int, nn.Module] = {}
    met: set[int] = set()
    waiting = [(values, 0)]
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, nn.Module):
            found[id(value)] = value
        elif depth <= DEPTH and id(value) not in met:
            met.add(id(value))
            waiting += [(one, depth + 1) for one in _inside(value)]
    return list(found.values())


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, str | bytes | int | float | Tensor | type):
        return
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        yield from value
    table = getattr(value, "__dict__", None)
    if isinstance(table, dict):
        yield from table.values()
