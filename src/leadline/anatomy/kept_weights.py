"""Put the content of weights back that a model writes to in its own passes.

Some models do: an average over weights that is made in the forward pass, weights that are set to
unit length whenever they are used, adapters that `eval()` adds into the matrices, embeddings that
are cut to a largest norm. To copy all weights would double the memory of a model. So the first
passes are watched, one without gradients and one with them: a weight is copied right before the
first operation that writes to it, whichever way the write comes, `.data` and views among them.

    alias   the parameter's tensor of before, which counts no versions: a parameter that was given
            other data gets it back, and content is written into it
    saved   the content of those that were written to

What writes past torch, through numpy or a kernel of its own that declares no write, is not seen,
nor is a write of a later pass only.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode, _pop_mode_temporarily

from leadline.anatomy.eager import EagerMode

__all__ = ["KeptWeights", "apart_from_pass", "model_pass"]


class _Standing(threading.local):
    """Those that stand in this thread."""

    weights: KeptWeights | None = None


_standing = _Standing()


class KeptWeights:
    """Keeps weights as they are, from `begin` to `put_back`."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self._aliases: list[tuple[Tensor, Tensor]] = []
        self._ids = set[int]()
        for one in parameters:
            part = getattr(one, "_local_tensor", one)  # of a DTensor its own part is written to
            if part.layout != torch.strided or part.is_nested or part.is_inference():
                continue
            self._ids.add(id(one))
            self._aliases.append((part, part.data))
        self._saved: dict[int, Tensor] = {}
        self._storages: dict[int, list[int]] | None = None
        self._watched: set[bool] = set()
        self._outer: KeptWeights | None = None

    def begin(self) -> KeptWeights | None:
        """Stand from now on, unless one that stands already keeps the same weights."""
        outer = _standing.weights
        if outer is not None and self._ids <= outer._ids:
            return None
        self._outer, _standing.weights = outer, self
        return self

    def watching(self, *, always: bool = False) -> Any:
        """A context that sees what is written, for the first passes of each kind, or `always`."""
        if not always:
            kind = torch.is_grad_enabled()
            if kind in self._watched:
                return nullcontext()
            self._watched.add(kind)
        return _Writes(self)

    def save(self, tensor: Tensor) -> None:
        """Keep the content of the weights that live in the same memory, before it is written to."""
        if self._storages is None:
            self._storages = {}
            for at, (_, alias) in enumerate(self._aliases):
                memory = _storage(alias)
                if memory is not None:
                    self._storages.setdefault(memory, []).append(at)
        for at in self._storages.get(_storage(tensor) or 0, ()):
            if at not in self._saved:
                with torch.no_grad():
                    self._saved[at] = self._aliases[at][1].clone()

    def put_back(self) -> None:
        """Give every weight its memory and its content."""
        _standing.weights = self._outer
        with ExitStack() as stack, torch.no_grad():  # all of them, whichever fails
            for part, alias in self._aliases:
                if _layout(part) != _layout(alias):
                    stack.callback(setattr, part, "data", alias)
            for at, saved in self._saved.items():
                stack.callback(self._aliases[at][1].copy_, saved)


class _Writes(EagerMode):
    """Hands a tensor that an operation is about to write to to those who keep it."""

    supports_higher_order_operators = True

    def __init__(self, kept: KeptWeights) -> None:
        super().__init__()
        self._kept = kept

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        places = _written.get(func)
        if places is None:
            places = _written[func] = _writes_of(func)
        for at, name in places:
            value = kwargs.get(name) if name in kwargs or at >= len(args) else args[at]
            for one in value if isinstance(value, list | tuple) else (value,):
                if isinstance(one, Tensor):
                    self._kept.save(one)
        return func(*args, **kwargs)


_written: dict[Any, tuple[tuple[int, str], ...]] = {}
"""By operations, the arguments that they write to."""


def _writes_of(func: Any) -> tuple[tuple[int, str], ...]:
    arguments = getattr(getattr(func, "_schema", None), "arguments", ())
    return tuple(
        (at, one.name)
        for at, one in enumerate(arguments)
        if one.alias_info is not None and one.alias_info.is_write
    )


def _storage(tensor: Tensor) -> int | None:
    """What tensors that share memory have in common; None where a tensor has none of its own."""
    part = getattr(tensor, "_local_tensor", tensor)
    try:
        return part.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):
        return None


def _layout(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


@contextmanager
def model_pass() -> Iterator[None]:
    """Stand around a pass of a model, so that weights which it writes to are put back later."""
    kept = _standing.weights
    with nullcontext() if kept is None else kept.watching():
        yield


@contextmanager
def apart_from_pass() -> Iterator[None]:
    """Stand around what is computed about a pass in the middle of it.

    It writes to no weight, and there are far more operations in it than in the pass itself.
    """
    watched = isinstance(_get_current_dispatch_mode(), _Writes)
    with _pop_mode_temporarily() if watched else nullcontext():
        yield
