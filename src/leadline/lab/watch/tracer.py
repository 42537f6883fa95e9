"""Whether the gradient was clipped between backward and the step, told by one small parameter.

Its norm is kept whenever backward has added to its gradient, and compared with the norm that the
optimizer takes. The factor in between is that of clipping, once the loss scale is taken out. With
several processes gradients are averaged in between, so that nothing can be told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from leadline.lab.watch.losses import BackwardCall

__all__ = ["Tracer"]

SIZE = 4096
"""The parameter whose size is nearest to this is taken: large enough not to be all zero."""
UNCLIPPED = 1e-4
"""A factor this near to 1 is rounding."""


class Tracer:
    """Follows one parameter through a sampled update."""

    def __init__(self, module: nn.Module, *, several: bool) -> None:
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self._parameter: nn.Parameter | None = None
        if trained and not several:
            self._parameter = min(trained, key=lambda one: abs(one.numel() - SIZE))
        self._handle: Any = None
        self._left: Tensor | None = None
        self._taken: Tensor | None = None

    def arm(self) -> None:
        """Listen to the gradient of the next update."""
        self._left = self._taken = None
        if self._handle is not None:
            return
        if self._parameter is not None and self._parameter.requires_grad:
            self._handle = self._parameter.register_post_accumulate_grad_hook(self._after_backward)

    def disarm(self) -> None:
        """Listen no more."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _after_backward(self, parameter: Tensor) -> None:
        if parameter.grad is not None:
            self._left = torch.linalg.vector_norm(parameter.grad.detach())

    def take(self) -> None:
        """Look at the gradient that the optimizer is about to take."""
        if self._parameter is not None and self._parameter.grad is not None:
            self._taken = torch.linalg.vector_norm(self._parameter.grad.detach())

    def factor(self, calls: Sequence[BackwardCall]) -> float | None:
        """What clipping left of the gradient; None where it cannot be told."""
        if self._left is None or self._taken is None:
            return None
        left, taken = float(self._left), float(self._taken)
        scale = next((call.scale for call in calls if call.scale is not None), None)
        left /= 1.0 if scale is None else float(scale)
        if not left > 0.0:
            return None
        ratio = taken / left
        return 1.0 if abs(ratio - 1.0) < UNCLIPPED else ratio
