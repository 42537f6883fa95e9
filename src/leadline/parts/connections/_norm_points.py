"""At which points a placement puts norms: what a connection asks before it refuses one."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from leadline.parts.place import Place
from leadline.parts.placements import Placement

__all__ = ["norm_points"]

DEEP = 1000
"""Deep enough that a placement which changes with depth is seen in all of its forms."""


def norm_points(placement: Placement) -> frozenset[str]:
    """Return those of enter, exit and settle at which a placement norms in at least one layer."""
    points = {
        name
        for place in _places()
        for name in ("enter", "exit", "settle")
        if getattr(placement, name)(place) is not None
    }
    return frozenset(points)


def _places() -> Iterator[Place]:
    for layer in (1, DEEP):
        for sublayer, branch in enumerate(("attention", "mlp"), 1):
            yield Place(1, 1, DEEP, layer, sublayer, norm=_mark, branch=branch)


def _mark(width: int) -> nn.Module:
    return nn.Identity()
