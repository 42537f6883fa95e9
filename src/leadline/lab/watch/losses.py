"""The losses of a loop, without a line in the loop: every value on which backward is called.

`torch.autograd.backward`, which every way of calling backward passes through, is wrapped as long as
somebody listens; the wrapper hands on the value, a detached scalar, and calls the original. Nothing
is read off the device. A backward call with gradients of its own is not a loss: gradient
checkpointing makes such calls inside of backward.

`GradScaler.scale` is wrapped likewise, so that a scaled loss is known to be scaled, and by how much.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from leadline.record import Reading
from leadline.record.rows.site import RUN
from leadline.record.run.watching import LOSS

__all__ = ["BackwardCall", "LossKeeper", "listen_to_losses"]


@dataclass(frozen=True)
class BackwardCall:
    """One value on which backward is called, and the factor of a loss scaler in it."""

    value: Tensor
    scale: Tensor | None

    @property
    def loss(self) -> Tensor:
        """The loss itself, still on its device."""
        value = self.value.double()
        return value if self.scale is None else value / self.scale.to(value.device).double()


_listeners: list[Callable[[BackwardCall], None]] = []
_scaled: Any = WeakTensorKeyDictionary()
_original: dict[str, Any] = {}


def listen_to_losses(listener: Callable[[BackwardCall], None]) -> Callable[[], None]:
    """Call the listener for every loss from now on; return the function that ends it."""
    if not _listeners:
        _wrap()
    _listeners.append(listener)

    def end() -> None:
        if listener in _listeners:
            _listeners.remove(listener)
        if not _listeners:
            _unwrap()

    return end


def _wrap() -> None:
    backward, scale = torch.autograd.backward, torch.amp.GradScaler.scale

    def watched_backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(tensors, Tensor) and tensors.numel() == 1 and grad_tensors is None:
            call = BackwardCall(tensors.detach(), _scaled.get(tensors))
            for listener in list(_listeners):
                listener(call)
        return backward(tensors, grad_tensors, *args, **kwargs)

    def watched_scale(self: Any, outputs: Any) -> Any:
        scaled = scale(self, outputs)
        if isinstance(scaled, Tensor) and isinstance(getattr(self, "_scale", None), Tensor):
            _scaled[scaled] = self._scale.detach().clone()
        return scaled

    _original.update(backward=backward, scale=scale, ours=(watched_backward, watched_scale))
    torch.autograd.backward = watched_backward
    torch.amp.GradScaler.scale = watched_scale


def _unwrap() -> None:
    """Put the originals back, unless somebody has wrapped them once more meanwhile."""
    ours = _original["ours"]
    if torch.autograd.backward is ours[0]:
        torch.autograd.backward = _original["backward"]
    if torch.amp.GradScaler.scale is ours[1]:
        torch.amp.GradScaler.scale = _original["scale"]
    _scaled.clear()


class LossKeeper:
    """The losses of every update, kept on their device until somebody reads them."""

    def __init__(self) -> None:
        self._calls: list[BackwardCall] = []
        self._named: Tensor | None = None
        self._updates: list[tuple[int, list[Tensor]]] = []

    def hear(self, call: BackwardCall) -> None:
        """Keep a value on which backward is called."""
        # A scaler that skips a step changes its scale: what was scaled before belongs to no update.
        if call.scale is not None:
            self._calls = [one for one in self._calls if _same_scale(one, call)]
        self._calls.append(call)

    def name(self, value: Any) -> None:
        """Keep what the loop itself calls the loss of this update."""
        tensor = value.detach() if isinstance(value, Tensor) else torch.tensor(float(value))
        self._named = tensor.double() if self._named is None else self._named + tensor.double()

    def end_update(self, step: int) -> list[BackwardCall]:
        """Give the losses since the last update to this one, and return what was heard."""
        calls, self._calls = self._calls, []
        named, self._named = self._named, None
        losses = [call.loss for call in calls] if named is None else [named]
        if losses:
            self._updates.append((step, [loss.reshape(()) for loss in losses]))
        return calls

    def last(self, step: int) -> float:
        """The loss of the update that has just ended; NaN where there was none."""
        if not self._updates or self._updates[-1][0] != step:
            return math.nan
        return float(torch.stack(self._updates[-1][1]).sum())

    def readings(self) -> list[Reading]:
        """The losses of all updates since this was asked last, with one transfer from the device."""
        updates, self._updates = self._updates, []
        if not updates:
            return []
        sums = [torch.stack(losses).sum() for _, losses in updates]
        values = torch.stack([one.to(sums[0].device) for one in sums]).tolist()
        return [
            Reading(LOSS.name, RUN, "value", value, step=step)
            for (step, _), value in zip(updates, values, strict=True)
        ]


def _same_scale(one: BackwardCall, other: BackwardCall) -> bool:
    return one.scale is not None and other.scale is not None and bool(one.scale == other.scale)
