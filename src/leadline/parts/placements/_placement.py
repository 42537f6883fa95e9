"""What a placement is: which norms stand around and inside a branch.

    enter(place)     on what the branch reads
    exit(place)      on what the branch returned, before it is added
    settle(place)    on the stream after the addition
    inside(place, point, width)      in the branch: "query", "key", "value" (each over one head),
                     "mixed" (before the output projection), "heads" (a scale for every head, which
                     takes [example, head, token, head width]), "hidden" (before the last MLP
                     projection)
    opening          a norm on the embedding; closing: a norm after the last layer

Each method returns a module or None. `place.norm(width)` makes the recipe's norm, which may be
None too; `place.branch` tells attention from mlp. `joined`: attention and MLP read the same stream
and are added together; 1 means one norm for both, 2 one for each.

Facts that `leadline check` proves: `settles` (a norm follows every addition) and `varies` (the
norms differ from layer to layer). `needs` names the branches without which the placement makes no
sense; `refuses(branches)` gives the reason, or None.
"""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from leadline.catalog import Catalog
from leadline.parts.place import Place

__all__ = ["PLACEMENTS", "Placement"]

PLACEMENTS: Catalog[type[Placement]] = Catalog(
    "placement", package="leadline.parts.placements", group="leadline.placements"
)


class Placement:
    """Hands out the norms of a sublayer; its options are the constructor's keyword arguments."""

    formula: ClassVar[str] = ""
    """The write on one line, in x (the stream), F (the branch), N (the norm)."""
    needs: ClassVar[tuple[str, ...]] = ()
    settles: bool = False
    varies: bool = False
    opening: bool = False
    closing: bool = True
    joined: int = 0

    def enter(self, place: Place) -> nn.Module | None:
        return None

    def exit(self, place: Place) -> nn.Module | None:
        return None

    def settle(self, place: Place) -> nn.Module | None:
        return None

    def inside(self, place: Place, point: str, width: int) -> nn.Module | None:
        return None

    def refuses(self, branches: tuple[str, ...]) -> str | None:
        """Why this placement makes no sense with the branches of a recipe, or None."""
        if all(branch in branches for branch in self.needs):
            return None
        return f"it needs {' and '.join(self.needs)}, and this recipe has {branches[0]} only"
