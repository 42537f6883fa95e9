"""The model of a design, built at the speed of a slider.

Most of the time that building a Transformer takes goes to its linear maps, and these are the same
for every depth, connection, placement and gain: a thread keeps the branches of its last models and
builds new ones around them. Weights are drawn for every model by the init, in the way of
`Transformer`, so that both hold the same numbers; building another model of the same thread
overwrites them.

Branches that hold more than linear maps (norms at points inside) belong to their placement and are
not kept.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from torch import nn

from leadline.errors import LeadlineError
from leadline.parts import Transformer
from leadline.parts.branches import ATTENTIONS, MLPS
from leadline.parts.connections import CONNECTIONS
from leadline.parts.norms import NORMS
from leadline.parts.sublayer import Sublayer
from leadline.web.playground.design import DesignError, scale_outputs

if TYPE_CHECKING:
    from leadline.parts.branches import Branch
    from leadline.parts.place import Place
    from leadline.web.playground.design import Design

__all__ = ["PooledTransformer", "pooled_model"]

MOST_KEPT = 20_000_000
"""Numbers in the weights of the branches that a thread keeps; more are built anew every time."""


class _BranchPool(threading.local):
    def __init__(self) -> None:
        self.branches: dict[tuple[object, ...], Branch] = {}
        self.size = 0


_POOL = _BranchPool()


def pooled_model(design: Design) -> PooledTransformer:
    """The model of a design, valid until this thread asks for the next one."""
    try:
        model = PooledTransformer(design.recipe(), seed=design.seed)
    except LeadlineError as error:
        design.model()  # raises the same with the knob to turn
        raise DesignError(str(error)) from error
    scale_outputs(model, design.gain)
    return model.eval().requires_grad_(False)


class PooledTransformer(Transformer):
    """A Transformer whose branches may have served another one before.

    The recipe has been checked by its constructor, so parts are made without checking it again.
    """

    def _norm(self, width: int) -> nn.Module | None:
        choice = self.recipe.choice("norm")
        return NORMS.get(choice.name)(width=width, **choice.options)

    def _branch(self, name: str, place: Place) -> Branch:
        choice = self.recipe.choice(name)
        key = (name, choice, place.width, place.heads, place.layer)
        if key in _POOL.branches and not self._norms_inside(place):
            return _POOL.branches[key]
        catalog = ATTENTIONS if name == "attention" else MLPS
        branch = catalog.get(choice.name)(
            place=place,
            inside=lambda point, width: self.placement.inside(place, point, width),
            **choice.options,
        )
        if all(isinstance(child, nn.Linear) for child in branch.children()):
            _keep(key, branch)
        return branch

    def _norms_inside(self, place: Place) -> bool:
        """Whether the placement sets norms inside a branch: this one has to be built with them."""
        points = ("query", "key", "value", "heads", "mixed", "hidden")
        return any(self.placement.inside(place, point, 1) is not None for point in points)

    def _sublayer(self, place: Place, branch: Branch) -> Sublayer:
        choice = self.recipe.choice("connection")
        return Sublayer(
            branch,
            CONNECTIONS.get(choice.name)(place=place, **choice.options),
            enter=self.placement.enter(place),
            exit=self.placement.exit(place),
            settle=self.placement.settle(place),
        )


def _keep(key: tuple[object, ...], branch: Branch) -> None:
    size = sum(parameter.numel() for parameter in branch.parameters())
    if _POOL.size + size > MOST_KEPT:
        _POOL.branches.clear()
        _POOL.size = 0
    _POOL.branches[key] = branch
    _POOL.size += size
