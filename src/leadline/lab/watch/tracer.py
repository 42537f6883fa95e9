"""Whether the gradient was clipped between backward and the step, told by a few small parameters.

Their norms are kept whenever backward has ended, and compared with the norms that the optimizers
take. The factor in between is that of clipping, once the loss scale is taken out. Where it is not
the same for all of them, as with clipping by value or by groups, there is no such factor. When
backward has ended, data parallelism has averaged the gradients of all processes; of a sharded
parameter the part that is here tells the factor as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from leadline.lab.watch.losses import BackwardCall
from leadline.lab.watch.processes.spread import local_part

__all__ = ["Tracer", "scale_left"]

SIZE = 4096
"""Parameters whose size is near to this are followed: large enough not to be all zero."""
FOLLOWED = 3
"""So many parameters are followed, each from another part of the model."""
UNCLIPPED = 1e-4
"""A factor this near to 1 is rounding."""
ALIKE = 1e-2
"""Factors of several parameters that differ by less are one: half precision rounds gradients."""


class Tracer:
    """Follows a few parameters through a sampled update."""

    def __init__(self, module: nn.Module) -> None:
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        edges = [len(trained) * at // FOLLOWED for at in range(FOLLOWED + 1)]
        parts = [trained[first:last] for first, last in pairwise(edges)]
        self._parameters = [min(part, key=_distance) for part in parts if part]
        self.uneven = False
        """Whether the last update had more than one factor."""
        self._armed = False
        self._left: dict[int, Tensor] = {}
        self._taken: dict[int, Tensor] = {}

    def arm(self) -> None:
        """Listen to the gradient of the next update."""
        self._left, self._taken = {}, {}
        self._armed = True

    def disarm(self) -> None:
        """Listen no more."""
        self._armed = False

    def after_backward(self) -> None:
        """Keep the norms that a backward pass of the loop has left."""
        # LBFGS calls backward again inside of the step that has taken the gradient.
        if self._armed and not self._taken:
            self._left = self._norms()

    def take(self, optimizer: torch.optim.Optimizer) -> None:
        """Look at the gradients that an optimizer is about to take."""
        held = {id(one) for group in optimizer.param_groups for one in group["params"]}
        scale = scale_left(optimizer)
        for key, norm in self._norms().items():
            if key in held:
                self._taken[key] = norm / scale

    def _norms(self) -> dict[int, Tensor]:
        norms: dict[int, Tensor] = {}
        for one in self._parameters:
            if one.grad is not None:
                gradient = local_part(one.grad.detach())
                norms[id(one)] = torch.linalg.vector_norm(gradient, dtype=torch.float64)
        return norms

    def factor(self, calls: Sequence[BackwardCall]) -> float | None:
        """What clipping left of the gradient; None where it cannot be told."""
        scale = next((float(call.scale) for call in calls if call.scale is not None), 1.0)
        ratios: list[float] = []
        for key, taken in self._taken.items():
            left = float(self._left.get(key, 0.0)) / scale
            if left > 0.0:
                ratios.append(float(taken) / left)
        ratios = [ratio for ratio in ratios if math.isfinite(ratio)]
        self.uneven = bool(ratios) and max(ratios) - min(ratios) > ALIKE * max(ratios)
        if not ratios or self.uneven:
            return None
        ratio = max(ratios)
        return 1.0 if abs(ratio - 1.0) < UNCLIPPED else ratio


def _distance(parameter: nn.Parameter) -> int:
    return abs(local_part(parameter).numel() - SIZE)


def scale_left(optimizer: torch.optim.Optimizer) -> float:
    """The loss scale that is still in the gradients: fused optimizers take it out themselves."""
    scale = getattr(optimizer, "grad_scale", None)
    return float(scale) if isinstance(scale, Tensor) else 1.0
