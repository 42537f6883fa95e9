"""Remember values that a forward pass may change, to put their content back.

Tensors, arrays of numpy, and lists, dictionaries, sets and deques with what is in them are
remembered by their content: the very same object gets it back. So are generators of random numbers,
and the attributes of objects of other classes, such as a namespace, a dataclass or a cache. Numbers,
strings and tuples do not change, but what is inside of a tuple may.

What lies behind `DEPTH` objects is left alone, and so is what belongs to others rather than to the
model: objects of the standard library, of torch and of trainers, those that hold a lock, a thread or
a file, and tables of more than `LONGEST` entries inside of an object.

Modules and parameters that are met on the way, in a plain list for instance, are noted: they are
part of the model although it does not know.
"""

from __future__ import annotations

import random
import sys
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

__all__ = ["Memory", "remember_tensor"]

Restore = Callable[[], None]

DEPTH = 3
LONGEST = 10_000

_CONSTANT = frozenset({type(None), bool, int, float, complex, str, bytes})
_TABLES: tuple[Any, ...] = (OrderedDict, dict)
_ROWS: tuple[Any, ...] = (list, deque)
_OF_OTHERS = (sys.stdlib_module_names | {"torch", "leadline", "numpy", "tokenizers"}) - {"__main__"}
"""The packages whose objects are not looked into, with those of trainers."""
_TRAINERS = frozenset({"lightning", "pytorch_lightning", "accelerate", "deepspeed", "ray", "wandb"})
_DATA_OF_OTHERS = (SimpleNamespace, UserDict, UserList)
_SHARED = frozenset(
    {"_thread", "threading", "queue", "multiprocessing", "socket", "_io", "asyncio"}
)
"""Whose objects another thread may be using: what holds one is not the model's alone."""
_MISSING = object()


class Memory:
    """What values hold now, and what gives it back to them."""

    def __init__(self) -> None:
        self.modules: list[nn.Module] = []
        """Modules that were met inside of values."""
        self.parameters: list[nn.Parameter] = []
        """Parameters that were met inside of values."""
        self.restores: list[Restore] = []
        """What puts the content back, one by one."""
        self._met: dict[int, Any] = {}
        """What was remembered; held, so that no other object takes its identity meanwhile."""

    def remember(self, value: Any) -> None:
        """Remember the content of a value, and that of what is inside of it."""
        if type(value) not in _CONSTANT:
            self._remember(value, 0)

    def remember_function(self, function: Any) -> None:
        """Remember what a function of the user keeps: in its closure, or in what it belongs to."""
        inner = getattr(function, "__func__", function)
        if (getattr(inner, "__module__", None) or "").partition(".")[0] in _OF_OTHERS:
            return
        for cell in getattr(inner, "__closure__", None) or ():
            kept = _content(cell)
            self.restores.append(lambda cell=cell, kept=kept: _fill_cell(cell, kept))
            if kept is not _MISSING:
                self.remember(kept)
        self.remember(getattr(function, "__self__", None))
        if not hasattr(function, "__code__"):
            self.remember(function)  # an object that can be called

    def _remember(self, value: Any, depth: int) -> None:
        kind = type(value)
        if kind in _CONSTANT or id(value) in self._met:
            return
        self._met[id(value)] = value
        if isinstance(value, torch.Tensor):
            if isinstance(value, nn.Parameter):
                self.parameters.append(value)
            else:
                remember_tensor(value, self.restores)
        elif isinstance(value, nn.Module):
            self.modules.append(value)
        elif isinstance(value, dict):
            self._remember_table(value, depth)
        elif isinstance(value, list | deque):
            if not (depth and len(value) > LONGEST):
                rows, base = list(value), _base(value, _ROWS)
                self.restores.append(lambda: _fill_rows(base, value, rows))
                self._remember_all(rows, depth)
        elif isinstance(value, set):
            members = set(value)
            self.restores.append(lambda: _fill_set(value, members))
        elif isinstance(value, tuple):
            self._remember_all(value, depth)
        elif isinstance(value, np.ndarray):
            if value.flags.writeable and not isinstance(value, np.memmap):
                saved = value.copy()
                self.restores.append(lambda: _fill_array(value, saved))
        elif not self._remember_generator(value):
            self._remember_object(value, depth)
            return
        if kind not in _PLAIN and depth < DEPTH and not isinstance(value, torch.Tensor | nn.Module):
            self._remember_attributes(value, depth)  # of a class that inherits from a container

    def _remember_table(self, value: Any, depth: int) -> None:
        if depth and len(value) > LONGEST:
            return
        base = _base(value, _TABLES)
        items = list(base.items(value))
        self.restores.append(lambda: _fill_table(base, value, items))
        self._remember_all(base.values(value), depth)

    def _remember_all(self, values: Iterable[Any], depth: int) -> None:
        if not set(map(type, values)) <= _CONSTANT:  # long tables of words are passed by quickly
            for one in list(values):
                self._remember(one, depth)

    def _remember_generator(self, value: Any) -> bool:
        restore: Restore | None = None
        if isinstance(value, torch.Generator):
            state = value.get_state()
            restore = lambda: _set_state(value, state)  # noqa: E731
        elif isinstance(value, random.Random) and type(value) is not random.SystemRandom:
            drawn = value.getstate()
            restore = lambda: value.setstate(drawn)  # noqa: E731
        elif isinstance(value, np.random.Generator):
            bits = value.bit_generator
            before = bits.state
            restore = lambda: setattr(bits, "state", before)  # noqa: E731
        elif isinstance(value, np.random.RandomState):
            numbers = value.get_state(legacy=False)
            restore = lambda: value.set_state(numbers)  # noqa: E731
        if restore is not None:
            self.restores.append(restore)
        return restore is not None

    def _remember_object(self, value: Any, depth: int) -> None:
        if depth < DEPTH and not isinstance(value, type) and not _is_of_others(value):
            self._remember_attributes(value, depth)

    def _remember_attributes(self, value: Any, depth: int) -> None:
        table = getattr(value, "__dict__", None)
        if type(table) is dict:
            if any(_package(one) in _SHARED for one in table.values()):
                return
            items = list(table.items())
            self.restores.append(lambda: _fill_table(dict, table, items))
            self._remember_all(table.values(), depth + 1)
        names = _slots(type(value))
        if names:
            slots = [(name, getattr(value, name, _MISSING)) for name in names]
            self.restores.append(lambda: _fill_slots(value, slots))
            self._remember_all([one for _, one in slots if one is not _MISSING], depth + 1)


_PLAIN = _CONSTANT | {dict, OrderedDict, list, deque, set, tuple, frozenset, np.ndarray}


def _base(value: Any, bases: Iterable[Any]) -> Any:
    """The container that a value is, whatever its class makes of it."""
    return next(base for base in bases if isinstance(value, base))


def _package(value: object) -> str:
    return (getattr(type(value), "__module__", None) or "").partition(".")[0]


def _is_of_others(value: object) -> bool:
    """Whether an object is no state of a model: its class is another's, or a function or the like."""
    package = _package(value)
    if isinstance(value, _DATA_OF_OTHERS):
        return False
    return package in _OF_OTHERS or package in _TRAINERS


def _slots(kind: type) -> list[str]:
    """The names of the slots of a class, those of the classes that it inherits from among them."""
    names: list[str] = []
    for one in kind.__mro__:
        slots = vars(one).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            if name not in ("__dict__", "__weakref__"):
                private = name.startswith("__") and not name.endswith("__")
                names.append(f"_{one.__name__.lstrip('_')}{name}" if private else name)
    return names


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return _MISSING


def _fill_cell(cell: Any, kept: Any) -> None:
    if _content(cell) is kept:
        return
    if kept is _MISSING:
        del cell.cell_contents
    else:
        cell.cell_contents = kept


def _set_state(generator: torch.Generator, state: torch.Tensor) -> None:
    generator.set_state(state)


def _fill_table(base: Any, table: Any, items: list[tuple[Any, Any]]) -> None:
    if base.__len__(table) == len(items) and all(
        key is known and value is kept
        for (key, value), (known, kept) in zip(base.items(table), items, strict=True)
    ):
        return
    base.clear(table)
    for key, value in items:
        base.__setitem__(table, key, value)


def _fill_rows(base: Any, rows: Any, kept: list[Any]) -> None:
    if base.__len__(rows) == len(kept) and all(
        a is b for a, b in zip(base.__iter__(rows), kept, strict=True)
    ):
        return
    base.clear(rows)
    base.extend(rows, kept)


def _fill_set(members: set[Any], kept: set[Any]) -> None:
    if members != kept:
        set.clear(members)
        set.update(members, kept)


def _fill_array(array: np.ndarray[Any, Any], saved: np.ndarray[Any, Any]) -> None:
    if array.shape != saved.shape:
        array.shape = saved.shape
    if array.dtype.hasobject or array.tobytes() != saved.tobytes():
        array[...] = saved


def _fill_slots(value: Any, slots: list[tuple[str, Any]]) -> None:
    for name, kept in slots:
        now = getattr(value, name, _MISSING)
        if now is kept:
            continue
        if kept is _MISSING:
            object.__delattr__(value, name)
        else:
            object.__setattr__(value, name, kept)


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
