"""Remember values that a forward pass may change, to put their content back.

Tensors, and lists, dictionaries, sets and deques with what is in them, are remembered by their
content: the very same object gets it back. So are generators of random numbers. Numbers, strings and
tuples do not change, but what is inside of a tuple may. Every other object is left alone.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import nn

__all__ = ["is_plain", "remember", "remember_tensor"]

Restore = Callable[[], None]

_CONSTANT = frozenset({type(None), bool, int, float, complex, str, bytes})
_TABLES = frozenset({dict, OrderedDict, defaultdict, Counter})
_ROWS = frozenset({list, deque})
_SETS = frozenset({set})
_CONTAINERS = _TABLES | _ROWS | _SETS | {tuple, frozenset}


def is_plain(value: object) -> bool:
    """Whether a value is data: a constant, a tensor, or one of the containers of Python."""
    kind = type(value)
    return (
        kind in _CONSTANT
        or kind in _CONTAINERS
        or isinstance(value, torch.Tensor | int | float | str)
    )


def remember(value: Any, put_back: list[Restore]) -> None:
    """Add what puts the content of a value back, and that of what is inside of it."""
    if type(value) not in _CONSTANT:
        _remember(value, put_back, set())


def _remember(value: Any, put_back: list[Restore], seen: set[int]) -> None:
    kind = type(value)
    if kind in _CONSTANT or id(value) in seen:
        return
    seen.add(id(value))
    if kind in _TABLES:
        items = list(value.items())
        put_back.append(lambda: _fill_table(value, items))
        _remember_all(value.values(), put_back, seen)
    elif kind in _ROWS:
        rows = list(value)
        put_back.append(lambda: _fill_rows(value, rows))
        _remember_all(rows, put_back, seen)
    elif kind in _SETS:
        members = set(value)
        put_back.append(lambda: _fill_set(value, members))
    elif kind is tuple:
        _remember_all(value, put_back, seen)
    elif isinstance(value, torch.Tensor):
        if not isinstance(value, nn.Parameter):
            remember_tensor(value, put_back)
    elif isinstance(value, torch.Generator):
        state = value.get_state()
        put_back.append(lambda: _set_state(value, state))
    elif isinstance(value, random.Random) and kind is not random.SystemRandom:
        drawn = value.getstate()
        put_back.append(lambda: value.setstate(drawn))
    elif isinstance(value, np.random.Generator):
        bits = value.bit_generator
        before = bits.state
        put_back.append(lambda: setattr(bits, "state", before))
    elif isinstance(value, np.random.RandomState):
        numbers = value.get_state(legacy=False)
        put_back.append(lambda: value.set_state(numbers))


def _remember_all(values: Iterable[Any], put_back: list[Restore], seen: set[int]) -> None:
    if not set(map(type, values)) <= _CONSTANT:  # long tables of words are passed by quickly
        for one in list(values):
            _remember(one, put_back, seen)


def _set_state(generator: torch.Generator, state: torch.Tensor) -> None:
    generator.set_state(state)


def _fill_table(table: Any, items: list[tuple[Any, Any]]) -> None:
    if len(table) == len(items) and all(
        key is known and value is kept
        for (key, value), (known, kept) in zip(table.items(), items, strict=True)
    ):
        return
    table.clear()
    for key, value in items:
        table[key] = value


def _fill_rows(rows: Any, kept: list[Any]) -> None:
    if len(rows) == len(kept) and all(a is b for a, b in zip(rows, kept, strict=True)):
        return
    rows.clear()
    rows.extend(kept)


def _fill_set(members: set[Any], kept: set[Any]) -> None:
    if members != kept:
        members.clear()
        members.update(kept)


def remember_tensor(tensor: torch.Tensor, put_back: list[Restore]) -> None:
    """Add what puts the content of a tensor back."""
    if tensor.is_inference():
        return  # it counts no versions
    saved, version = tensor.detach().clone(), tensor._version
    put_back.append(lambda: _restore(tensor, saved, version))


def _restore(tensor: torch.Tensor, saved: torch.Tensor, version: int) -> None:
    """Give a tensor its content back. What is changed through `.data` counts no version."""
    with torch.no_grad():
        if tensor.shape != saved.shape or tensor.dtype != saved.dtype:
            tensor.data = saved
        elif tensor._version != version or not _is_same(tensor, saved):
            tensor.copy_(saved)


def _is_same(tensor: torch.Tensor, saved: torch.Tensor) -> bool:
    """Whether the content is the same, NaN for NaN; of what torch cannot compare, versions tell."""
    try:
        return torch.equal(tensor, saved) or bool(
            torch.isclose(tensor, saved, rtol=0.0, atol=0.0, equal_nan=True).all()
        )
    except NotImplementedError:  # a sparse tensor, one on meta, or one of four bits
        return True
