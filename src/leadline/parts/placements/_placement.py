"""What a placement is: which norms stand around and inside a branch.

    enter(place)     on what the branch reads
    exit(place)      on what the branch returned, before it is added
    settle(place)    on the stream after the addition
    inside(place, point, width)      in the branch: "query", "key", "value" (each over one head),
                     "mixed" (before the output projection), "heads" (a scale for every head),
                     "hidden" (before the last MLP projection)
    opening          a norm on the embedding; closing: a norm after the last layer

Each method returns a module or None. `place.norm(width)` makes the recipe's norm, which may be
None too. `joined`: attention and MLP read the same stream and are added together; 1 means one
norm for both, 2 one for each.

Facts that `leadline check` proves: `settles` (a norm follows every addition) and `varies` (the
norms differ from layer to layer).
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from leadline.catalog import Catalog
from leadline.parts.place import Place

__all__ = ["PLACEMENTS", "Placement", "Scaled"]

PLACEMENTS: Catalog[type[Placement]] = Catalog(
    "placement", package="leadline.parts.placements", group="leadline.placements"
)


class Placement:
    """See the module's first lines. Options are the keyword arguments of the constructor."""

    formula: ClassVar[str] = ""
    settles: ClassVar[bool] = False
    varies: ClassVar[bool] = False
    opening: ClassVar[bool] = False
    closing: ClassVar[bool] = True
    joined: ClassVar[int] = 0

    def enter(self, place: Place) -> nn.Module | None:
        return None

    def exit(self, place: Place) -> nn.Module | None:
        return None

    def settle(self, place: Place) -> nn.Module | None:
        return None

    def inside(self, place: Place, point: str, width: int) -> nn.Module | None:
        return None

    def kind(self, place: Place) -> str:
        """What the anatomy calls the norms around this sublayer."""
        names = {
            (True, False, False): "pre",
            (False, True, False): "output",
            (False, False, True): "post",
            (True, True, False): "sandwich",
            (True, False, True): "pre-and-post",
            (False, False, False): "none",
        }
        stands = (self.enter(place), self.exit(place), self.settle(place))
        return names.get(tuple(n is not None for n in stands), "all")  # type: ignore[arg-type]


class Scaled(nn.Module):
    """A norm whose output is multiplied by a number."""

    def __init__(self, norm: nn.Module | None, factor: float) -> None:
        super().__init__()
        self.norm = norm
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x if self.norm is None else self.norm(x)) * self.factor

    def extra_repr(self) -> str:
        return f"factor={self.factor:.6g}"
