"""The losses of a loop, without a line in the loop: every value on which backward is called.

`torch.autograd.backward`, which every way of calling backward passes through, is wrapped as long as
somebody listens; the wrapper hands on the value, a scalar of its own, and calls the original. Of
several values at once it hands on the sum. Nothing is read off the device. A backward call with
gradients of its own is not a loss: gradient checkpointing makes such calls inside of backward.

Listeners are called in whatever thread calls backward, and several threads may do so at once: whose
loss it is, they have to tell. The wrapper stands for the original in TorchScript, too.

`GradScaler.scale` is wrapped likewise, so that a scaled loss is known to be scaled, and by how much,
and `GradScaler.update`: what was scaled before and has not led to a step was skipped. Loops divide a
scaled loss by their micro-batches, or add several up, before they call backward. So it is the node of
the graph that says so, and not the tensor: whatever is near to one of them holds its factor, as the
gradients do that the scaler divides by it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.jit import _builtins as script

__all__ = ["BackwardCall", "LossScale", "listen_to_losses"]

NEAREST = 64
"""So many nodes of the graph behind a value are looked at for a loss scaler."""
_KEY = "leadline.loss_scale"
"""Under it a node of the graph says that it is the product with the factor of a scaler."""


@dataclass(frozen=True)
class LossScale:
    """The factor of a loss scaler, still on its device, and which scaler it is."""

    factor: Tensor
    scaler: int


@dataclass(frozen=True)
class BackwardCall:
    """One value on which backward is called, and the factor of a loss scaler in it."""

    value: Tensor
    scaled: LossScale | None = None

    @property
    def scale(self) -> Tensor | None:
        """The factor of the loss scaler."""
        return None if self.scaled is None else self.scaled.factor

    @property
    def loss(self) -> Tensor:
        """The loss itself, still on its device."""
        value = self.value.double()
        return value if self.scale is None else value / self.scale.to(value.device).double()


@dataclass(frozen=True)
class _Listener:
    hear: Callable[[BackwardCall], Callable[[], None] | None]
    skip: Callable[[int], None]
    fail: Callable[[Exception], None]


_listeners: tuple[_Listener, ...] = ()
"""Exchanged as a whole, so that other threads may walk it meanwhile."""
_changing = threading.RLock()
_scalers: set[int] = set()
"""The scalers that have scaled anything: where there is none, no graph is looked at."""
_turn = [0]
"""How often wrappers were set. One that others have wrapped cannot be taken off; it falls silent."""
_originals: list[tuple[Any, str, Any, Any]] = []
"""Whose attribute was exchanged, its name, what was there, and what is there now."""


def listen_to_losses(
    hear: Callable[[BackwardCall], Callable[[], None] | None],
    *,
    skip: Callable[[int], None] = lambda _: None,
    fail: Callable[[Exception], None] = lambda _: None,
) -> Callable[[], None]:
    """Call `hear` ahead of every backward call, and what it returns behind it.

    `skip` is called with a scaler's number whenever that scaler is updated, and `fail` with what
    goes wrong in here. None of them may raise. Return the function that ends it.
    """
    global _listeners  # noqa: PLW0603 (the wrappers are global, too)
    listener = _Listener(hear, skip, fail)
    with _changing:
        if not _listeners:
            try:
                _wrap()
            except Exception:
                _unwrap()
                raise
        _listeners = (*_listeners, listener)

    def end() -> None:
        global _listeners  # noqa: PLW0603
        with _changing:
            if listener in _listeners:
                _listeners = tuple(one for one in _listeners if one is not listener)
                if not _listeners:
                    _unwrap()

    return end


def _wrap() -> None:
    _turn[0] += 1
    # Without this torch.compile would compile the wrapper, where the loop's own function is.
    original = torch.autograd.backward
    watched = torch.compiler.disable(_watched_backward(original, _turn[0]))
    _exchange(torch.autograd, "backward", watched)
    _stand_in_scripts(original, watched)
    sharded = sys.modules.get("torch.distributed.fsdp.sharded_grad_scaler")
    for kind in (torch.amp.GradScaler, getattr(sharded, "ShardedGradScaler", None)):
        if kind is not None and "scale" in vars(kind):
            _exchange(kind, "scale", _watched_scale(kind.scale))
        if kind is not None and "update" in vars(kind):
            _exchange(kind, "update", _watched_update(kind.update, _turn[0]))


def _exchange(owner: Any, name: str, ours: Any) -> None:
    _originals.append((owner, name, getattr(owner, name), ours))
    setattr(owner, name, ours)


def _stand_in_scripts(original: Any, ours: Any) -> None:
    """Let TorchScript take the wrapper for what it wraps; it knows functions by their identity."""
    with suppress(Exception):  # a table of torch's own
        meaning = script._find_builtin(original)
        if meaning is not None:
            script._register_builtin(ours, meaning)


def _fail(error: Exception) -> None:
    for listener in _listeners:
        listener.fail(error)


def _watched_backward(backward: Callable[..., Any], turn: int) -> Callable[..., Any]:
    def watched_backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
        waiting: list[Callable[[], None]] = []
        if turn != _turn[0]:
            return backward(tensors, grad_tensors, *args, **kwargs)
        try:
            call = None if grad_tensors is not None else _call(tensors)
            if call is not None:
                heard = [one.hear(call) for one in _listeners]
                waiting = [one for one in heard if one is not None]
        except Exception as error:
            _fail(error)
        result = backward(tensors, grad_tensors, *args, **kwargs)
        for done in waiting:
            done()
        return result

    return watched_backward


def _call(tensors: Any) -> BackwardCall | None:
    """What backward is called on, where that is a loss, or several of them under one scale."""
    several = list(tensors) if isinstance(tensors, list | tuple) else [tensors]
    if not several or not all(isinstance(one, Tensor) and one.numel() == 1 for one in several):
        return None
    scale = _scale_behind(several)
    # A copy: loops average a loss over processes in place.
    value = several[0].detach().clone()
    for one in several[1:]:
        value = value.reshape(()) + one.detach().reshape(()).to(value.device)
    return BackwardCall(value, scale)


def _scale_behind(values: Sequence[Tensor]) -> LossScale | None:
    """The factor of a loss scaler in values: of the nearest that their graph was multiplied by."""
    if not _scalers:
        return None
    nodes: list[Any] = [one.grad_fn for one in values]
    known: set[Any] = set()
    for node in nodes:  # it grows meanwhile
        if node is None or node in known:
            continue
        scale = node.metadata.get(_KEY)
        if scale is not None:
            return scale
        known.add(node)
        if len(known) == NEAREST:
            break
        nodes += [one for one, _ in node.next_functions]
    return None


def _watched_scale(scale: Callable[..., Any]) -> Callable[..., Any]:
    def watched_scale(self: Any, outputs: Any) -> Any:
        scaled = scale(self, outputs)
        mark = partial(_mark_scaled, self)
        # A generator of losses is scaled when somebody asks for them.
        return map(mark, scaled) if isinstance(scaled, map) else mark(scaled)

    return watched_scale


def _mark_scaled(scaler: Any, scaled: Any) -> Any:
    """Let the graph of what a scaler has multiplied say so."""
    try:
        factor = getattr(scaler, "_scale", None)
        for one in scaled if isinstance(scaled, list | tuple) else (scaled,):
            node: Any = getattr(one, "grad_fn", None)
            if isinstance(one, list | tuple):
                _mark_scaled(scaler, one)
            elif node is not None and isinstance(factor, Tensor):
                node.metadata[_KEY] = LossScale(factor.detach().clone(), id(scaler))
                _scalers.add(id(scaler))
    except Exception as error:
        _fail(error)
    return scaled


def _watched_update(update: Callable[..., Any], turn: int) -> Callable[..., Any]:
    def watched_update(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = update(self, *args, **kwargs)
        for listener in _listeners if turn == _turn[0] else ():
            listener.skip(id(self))
        return result

    return watched_update


def _unwrap() -> None:
    """Put the originals back, unless somebody has wrapped them once more meanwhile."""
    while _originals:
        owner, name, original, ours = _originals.pop()
        with suppress(Exception):  # its identity may soon be that of another function
            script._get_builtin_table().pop(id(ours), None)
        if getattr(owner, name) is ours:
            setattr(owner, name, original)
    _scalers.clear()
