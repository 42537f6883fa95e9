"""The losses of a loop, without a line in the loop: every value on which backward is called.

`torch.autograd.backward`, which every way of calling backward passes through, is wrapped as long as
somebody listens; the wrapper hands on the value, a detached scalar, and calls the original. Nothing
is read off the device. A backward call with gradients of its own is not a loss: gradient
checkpointing makes such calls inside of backward.

`GradScaler.scale` is wrapped likewise, so that a scaled loss is known to be scaled, and by how much.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

__all__ = ["BackwardCall", "listen_to_losses"]


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
