"""Whether the gradient was clipped between backward and the step, told by one small parameter.

Its norm is kept whenever backward has ended, and compared with the norm that the optimizer takes.
The factor in between is that of clipping, once the loss scale is taken out. When backward has ended,
data parallelism has averaged the gradients of all processes; of a sharded parameter the part that is
here tells the factor as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from leadline.lab.watch.losses import BackwardCall
from leadline.lab.watch.processes.spread import local_part

__all__ = ["Tracer"]

SIZE = 4096
"""The parameter whose size is nearest to this is taken: large enough not to be all zero."""
UNCLIPPED = 1e-4
"""A factor this near to 1 is rounding."""


class Tracer:
    """Follows one parameter through a sampled update."""

    def __init__(self, module: nn.Module) -> None:
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self._parameter = min(
            trained, key=lambda one: abs(local_part(one).numel() - SIZE), default=None
        )
        self._armed = False
        self._left: Tensor | None = None
        self._taken: Tensor | None = None

    def arm(self) -> None:
        """Listen to the gradient of the next update."""
        self._left = self._taken = None
        self._armed = True

    def disarm(self) -> None:
        """Listen no more."""
        self._armed = False

    def after_backward(self) -> None:
        """Keep the norm that a backward pass of the loop has left."""
        if self._armed:
            self._left = self._norm()

    def take(self) -> None:
        """Look at the gradient that the optimizer is about to take."""
        self._taken = self._norm()

    def _norm(self) -> Tensor | None:
        if self._parameter is None or self._parameter.grad is None:
            return None
        return torch.linalg.vector_norm(local_part(self._parameter.grad.detach()))

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
