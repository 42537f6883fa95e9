"""The losses of a loop, without a line in the loop: every value on which backward is called.

`torch.autograd.backward`, which every way of calling backward passes through, is wrapped as long as
somebody listens; the wrapper hands on the value, a scalar of its own, and calls the original. Nothing
is read off the device. A backward call with gradients of its own is not a loss: gradient
checkpointing makes such calls inside of backward. Neither is one that leaves the gradients of the
model as they were: another model is trained in the same loop. A few parameters tell; where none of
them ever changes, because gradients are kept elsewhere, every value counts.

`GradScaler.scale` is wrapped likewise, so that a scaled loss is known to be scaled, and by how much,
and `GradScaler.update`: what was scaled before and has not led to a step was skipped.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from leadline.record import Reading
from leadline.record.rows.site import RUN
from leadline.record.run.watching import LOSS

__all__ = ["BackwardCall", "LossKeeper", "LossScale", "listen_to_losses"]

MOST_CALLS = 10_000
"""Micro-batches of one update that are kept: a loop may never step the optimizer that is watched."""
MOST_UPDATES = 1000
"""After so many updates without a sample their losses are read, so that they take no more room."""
WITNESSES = 16
"""So many parameters tell whether a backward call was of this model."""


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


_listeners: list[_Listener] = []
_scaled: Any = WeakTensorKeyDictionary()
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
    listener = _Listener(hear, skip, fail)
    if not _listeners:
        try:
            _wrap()
        except Exception:
            _unwrap()
            raise
    _listeners.append(listener)

    def end() -> None:
        if listener in _listeners:
            _listeners.remove(listener)
        if not _listeners:
            _unwrap()

    return end


def _wrap() -> None:
    _turn[0] += 1
    # Without this torch.compile would compile the wrapper, where the loop's own function is.
    watched = torch.compiler.disable(_watched_backward(torch.autograd.backward, _turn[0]))
    _exchange(torch.autograd, "backward", watched)
    sharded = sys.modules.get("torch.distributed.fsdp.sharded_grad_scaler")
    for kind in (torch.amp.GradScaler, getattr(sharded, "ShardedGradScaler", None)):
        if kind is not None and "scale" in vars(kind):
            _exchange(kind, "scale", _watched_scale(kind.scale))
        if kind is not None and "update" in vars(kind):
            _exchange(kind, "update", _watched_update(kind.update, _turn[0]))


def _exchange(owner: Any, name: str, ours: Any) -> None:
    _originals.append((owner, name, getattr(owner, name), ours))
    setattr(owner, name, ours)


def _fail(error: Exception) -> None:
    for listener in list(_listeners):
        listener.fail(error)


def _watched_backward(backward: Callable[..., Any], turn: int) -> Callable[..., Any]:
    def watched_backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
        waiting: list[Callable[[], None]] = []
        if turn != _turn[0]:
            return backward(tensors, grad_tensors, *args, **kwargs)
        try:
            if isinstance(tensors, Tensor) and tensors.numel() == 1 and grad_tensors is None:
                # A copy: loops average a loss over processes in place.
                call = BackwardCall(tensors.detach().clone(), _scaled.get(tensors))
                heard = [one.hear(call) for one in list(_listeners)]
                waiting = [one for one in heard if one is not None]
        except Exception as error:
            _fail(error)
        result = backward(tensors, grad_tensors, *args, **kwargs)
        for done in waiting:
            done()
        return result

    return watched_backward


def _watched_scale(scale: Callable[..., Any]) -> Callable[..., Any]:
    def watched_scale(self: Any, outputs: Any) -> Any:
        scaled = scale(self, outputs)
        try:
            factor = getattr(self, "_scale", None)
            if isinstance(scaled, Tensor) and isinstance(factor, Tensor):
                _scaled[scaled] = LossScale(factor.detach().clone(), id(self))
        except Exception as error:
            _fail(error)
        return scaled

    return watched_scale


def _watched_update(update: Callable[..., Any], turn: int) -> Callable[..., Any]:
    def watched_update(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = update(self, *args, **kwargs)
        for listener in list(_listeners) if turn == _turn[0] else ():
            listener.skip(id(self))
        return result

    return watched_update


def _unwrap() -> None:
    """Put the originals back, unless somebody has wrapped them once more meanwhile."""
    while _originals:
        owner, name, original, ours = _originals.pop()
        if getattr(owner, name) is ours:
            setattr(owner, name, original)
    _scaled.clear()


class LossKeeper:
    """The losses of every update, kept on their device until somebody reads them."""

    def __init__(self, module: nn.Module | None = None) -> None:
        parameters = [] if module is None else list(module.parameters())
        trained = [one for one in parameters if one.requires_grad]
        self._witnesses = trained[:: max(1, len(trained) // WITNESSES)]
        self._calls: deque[tuple[BackwardCall, list[bool]]] = deque(maxlen=MOST_CALLS)
        self._named: Tensor | None = None
        self._updates: list[tuple[int, Tensor]] = []

    def hear(self, call: BackwardCall) -> Callable[[], None]:
        """Keep a value on which backward is called; what is returned is called behind it."""
        before = self._marks()
        ours: list[bool] = []
        self._calls.append((call, ours))

        def done() -> None:
            if before != self._marks():
                ours.append(True)

        return done

    def name(self, value: Any) -> None:
        """Keep what the loop itself calls the loss of this update."""
        tensor = value.detach() if isinstance(value, Tensor) else torch.tensor(float(value))
        self._named = tensor.double() if self._named is None else self._named + tensor.double()

    def skip(self, scaler: int) -> bool:
        """Forget what was scaled for a step that was skipped; say whether there was any."""
        skipped = any(call.scaled and call.scaled.scaler == scaler for call, _ in self._calls)
        if skipped:
            self._calls.clear()
            self._named = None
        return skipped

    def end_update(self, step: int) -> list[BackwardCall]:
        """Give the losses since the last update to this one, and return what was heard."""
        calls = [call for call, ours in self._calls if ours] or [call for call, _ in self._calls]
        self._calls.clear()
        named, self._named = self._named, None
        losses = [call.loss for call in calls] if named is None else [named]
        if losses:
            self._updates.append((step, _sum(losses)))
        return calls

    @property
    def full(self) -> bool:
        """Whether the losses should be read, whether or not there is a sample."""
        return len(self._updates) >= MOST_UPDATES

    def last(self, step: int) -> float:
        """The loss of the update that has just ended; NaN where there was none."""
        if not self._updates or self._updates[-1][0] != step:
            return math.nan
        return float(self._updates[-1][1])

    def readings(self) -> list[Reading]:
        """The losses of all updates since this was asked last, with one transfer from the device."""
        updates, self._updates = self._updates, []
        if not updates:
            return []
        device = updates[0][1].device
        values = torch.stack([loss.to(device) for _, loss in updates]).tolist()
        return [
            Reading(LOSS.name, RUN, "value", value, step=step)
            for (step, _), value in zip(updates, values, strict=True)
        ]

    def _marks(self) -> list[tuple[int, int] | None]:
        """What changes when backward adds to a gradient: the tensor, or its version."""
        gradients = [one.grad for one in self._witnesses]
        return [None if one is None else _mark(one) for one in gradients]


def _mark(gradient: Tensor) -> tuple[int, int]:
    part = getattr(gradient, "_local_tensor", gradient)  # of a DTensor its own part changes
    return id(part), part._version


def _sum(losses: Sequence[Tensor]) -> Tensor:
    if len(losses) == 1:
        return losses[0].reshape(())
    device = losses[0].device
    return torch.stack([loss.reshape(()).to(device) for loss in losses]).sum()
