"""Which norms a placement puts anywhere: what a connection asks before it refuses one."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from leadline.parts.place import Place
from leadline.parts.placements import Placement

__all__ = ["standing"]

DEEP = 1000
"""Deep enough that a placement which changes from layer to layer shows both of its faces."""


def standing(placement: Placement) -> frozenset[str]:
    """Those of enter, exit and settle at which the placement puts a norm in at least one layer."""
    found = {
        name
        for place in _places()
        for name in ("enter", "exit", "settle")
        if getattr(placement, name)(place) is not None
    }
    return frozenset(found)


def _places() -> Iterator[Place]:
    for layer in (1, DEEP):
        for sublayer, branch in enumerate(("attention", "mlp"), 1):
            yield Place(1, 1, DEEP, layer, sublayer, norm=_mark, branch=branch)


def _mark(width: int) -> nn.Module:
    return nn.Identity()
