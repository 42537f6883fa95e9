"""What the loop does to the gradient between backward and the step, told by a few parameters.

Evenly spaced numbers of them are kept whenever backward has ended, and compared with what the
optimizers take. Where all of them were multiplied by one and the same number, that number is the
factor: of clipping, or of a loop that divides by its micro-batches. The loss scale is taken out
before. Everything else is no factor: clipping by value or by groups, noise, averaging over processes
by hand, or a change between two backward passes of one update. Then gradients are known as the
optimizer takes them, and in no other way.

What hooks of parameters do belongs to backward: it is over when backward ends, as is the averaging
of data parallelism. Of a sharded parameter the part that is here tells the factor as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeGuard

import torch
from torch import Tensor, nn

from leadline.anatomy.spread import local_part
from leadline.lab.watch.losses.calls import BackwardCall
from leadline.lab.watch.sampling.apart import inside_backward
from leadline.lab.watch.weights.picked import picked

__all__ = ["HALVES", "UNCLIPPED", "Trace", "Tracer", "Why", "scale_left"]

SIZE = 4096
"""Parameters whose size is near to this are followed: large enough not to be all zero."""
FOLLOWED = 24
"""So many parameters are followed, each from another part of the model, matrices and vectors; and
one of every group of an optimizer. What changes none of them is not noticed."""
LEAST = 2
"""So many of them have to tell the same; of a model that trains fewer, all."""
UNCLIPPED = 1e-4
"""A factor this near to 1 is rounding."""
ALIKE = 1e-4
"""Gradients that differ from a multiple by less, as a share of their length, are that multiple."""
ALIKE_IN_HALF = 1e-2
"""The same in half precision, which rounds every number of a gradient."""

HALVES = (torch.float16, torch.bfloat16)

Why = Literal["", "several", "between", "inside", "unheard", "few", "lost"]


@dataclass(frozen=True)
class Trace:
    """The factor of one update, or why there is none."""

    factor: float | None
    why: Why = ""
    """`several`: no common factor. `between`: changed between two backward passes. `inside`: the
    optimizer steps before backward is over. `unheard`: no backward pass left it. `few`: too few parameters tell. `lost`: nothing there is finite."""


class Tracer:
    """Follows a few parameters through a sampled update."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._parameters: list[nn.Parameter] = []
        self._ours: set[int] = set()
        self._armed = False
        self._is_between = False
        """Whether gradients were changed between two backward passes of this update."""
        self._is_inside = self._in_half = False
        self._left: dict[int, Tensor] = {}
        self._marks: dict[int, tuple[int, int]] = {}
        self._taken: dict[int, Tensor] = {}
        self._with_gradient: dict[int, nn.Parameter] = {}
        """What the optimizers of this update hold and step."""
        self.choose()

    def choose(self, among: Iterable[nn.Parameter] | None = None) -> None:
        """Choose whom to follow: in each part of the model in turn a vector and a matrix."""
        trained = [one for one in self._module.parameters() if one.requires_grad]
        if among is not None:
            wanted = {id(one) for one in among}
            trained = [one for one in trained if id(one) in wanted] or trained
        self._ours = {id(one) for one in trained}
        chosen: dict[int, nn.Parameter] = {}
        edges = [len(trained) * at // FOLLOWED for at in range(FOLLOWED + 1)]
        for at, (first, last) in enumerate(pairwise(edges)):
            part = trained[first:last]
            kind = [one for one in part if (one.ndim > 1) == bool(at % 2)] or part
            if kind:
                one = min(kind, key=_distance)
                chosen[id(one)] = one
        self._parameters = list(chosen.values())

    def arm(self) -> None:
        """Listen to the gradient of the next update."""
        self._left, self._marks, self._taken = {}, {}, {}
        self._with_gradient = {}
        self._is_between = self._is_inside = self._in_half = False
        self._armed = True

    def disarm(self) -> None:
        """Listen no more."""
        self._armed = False

    def before_backward(self) -> None:
        """Notice what has happened to the gradient since the last backward pass of this update.

        Where it was zeroed, the update begins anew.
        """
        if not self._armed:
            return
        for one in self._parameters:
            gradient, mark = one.grad, self._marks.get(id(one))
            if gradient is None or mark is None or id(one) in self._taken:
                continue
            if _mark(gradient) != mark and bool(local_part(gradient.detach()).any()):
                self._is_between = True

    def after_backward(self) -> None:
        """Keep what a backward pass of the loop has left."""
        if not self._armed:
            return
        for one in self._parameters:
            # LBFGS calls backward again inside of the step that has taken the gradient.
            if id(one) in self._taken:
                continue
            if _can_be_picked(one.grad):
                self._left[id(one)] = picked(one.grad)
                self._marks[id(one)] = _mark(one.grad)
            else:
                self._left.pop(id(one), None)
                self._marks.pop(id(one), None)

    def take(self, optimizer: torch.optim.Optimizer) -> None:
        """Look at the gradients that an optimizer is about to take."""
        held = {
            id(one): one
            for group in optimizer.param_groups
            for one in group["params"]
            if one.grad is not None
        }
        self._with_gradient |= held
        self._is_inside = self._is_inside or inside_backward()
        scale = scale_left(optimizer)
        for one in self._parameters:
            if id(one) in held and _can_be_picked(one.grad):
                self._taken[id(one)] = picked(one.grad) / scale
                self._in_half = self._in_half or one.grad.dtype in HALVES
        self._follow_groups(optimizer)

    def _follow_groups(self, optimizer: torch.optim.Optimizer) -> None:
        """Follow one parameter of every group from the next update on: groups may be clipped apart."""
        followed = {id(one) for one in self._parameters}
        for group in optimizer.param_groups:
            ours = [one for one in group["params"] if id(one) in self._ours]
            if ours and not any(id(one) in followed for one in ours):
                self._parameters.append(min(ours, key=_distance))

    def trace(self, calls: Sequence[BackwardCall]) -> Trace:
        """What the loop did to the gradient of this update, by all whom it followed."""
        scale = next((float(call.scale) for call in calls if call.scale is not None), 1.0)
        pairs = [
            (self._left[key] / scale, taken)
            for key, taken in self._taken.items()
            if key in self._left and self._left[key].shape == taken.shape
        ]
        told = [one for one in _products(pairs) if one != (0.0, 0.0, 0.0)]
        enough = min(LEAST, len(self._with_gradient))
        if len(told) < enough:
            # Others may tell the next time: these are frozen, exchanged, or in a branch that rests.
            self.choose(self._with_gradient.values())
        if self._is_between:
            return Trace(None, "between")
        if self._is_inside:
            return Trace(None, "inside")
        if not told:
            return Trace(None, "unheard" if self._taken.keys() - self._left.keys() else "few")
        if not all(math.isfinite(number) for one in told for number in one):
            return Trace(None, "lost")
        factors = [_factor(*one) for one in told]
        alike = ALIKE_IN_HALF if self._in_half else ALIKE
        known = [one for one, rest in factors if one > 0.0 and rest <= alike]
        if len(known) < len(told) or max(known) - min(known) > alike * max(known):
            return Trace(None, "several")
        if len(known) < enough:
            return Trace(None, "few")
        middle = sorted(known)[len(known) // 2]
        return Trace(1.0 if abs(middle - 1.0) < UNCLIPPED else middle)


def _products(pairs: Sequence[tuple[Tensor, Tensor]]) -> list[tuple[float, float, float]]:
    """Of every pair: left . left, left . taken, taken . taken, with one transfer for all of them."""
    if not pairs:
        return []
    device = pairs[0][0].device
    rows: list[Tensor] = []
    for left, taken in pairs:
        a, b = left.double(), taken.double()
        rows.append(torch.stack([a.square().sum(), (a * b).sum(), b.square().sum()]).to(device))
    return [(row[0], row[1], row[2]) for row in torch.stack(rows).tolist()]


def _factor(left: float, both: float, taken: float) -> tuple[float, float]:
    """The number that takes one gradient nearest to the other, and what share of it is then left."""
    if left == 0.0 or taken == 0.0:
        return 0.0, 1.0
    return both / left, math.sqrt(max(0.0, 1.0 - both * both / (left * taken)))


def _can_be_picked(gradient: Tensor | None) -> TypeGuard[Tensor]:
    return gradient is not None and gradient.layout == torch.strided and not gradient.is_meta


def _mark(gradient: Tensor) -> tuple[int, int]:
    """What changes when somebody writes to a gradient or puts another in its place."""
    part = getattr(gradient, "_local_tensor", gradient)  # of a DTensor its own part changes
    return id(part), part._version


def _distance(parameter: nn.Parameter) -> int:
    return abs(local_part(parameter).numel() - SIZE)


def scale_left(optimizer: torch.optim.Optimizer) -> float:
    """The loss scale that is still in the gradients: fused optimizers take it out themselves."""
    scale = getattr(optimizer, "grad_scale", None)
    return float(scale) if isinstance(scale, Tensor) else 1.0
