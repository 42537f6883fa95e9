"""Parallel branches: attention and MLP read the same stream and are one write.

    x' = x + A(N(x)) + M(N(x))             norms=1 (GPT-J)
    x' = x + A(N_1(x)) + M(N_2(x))         norms=2 (GPT-NeoX)

and one more norm after the last layer. Wang and Komatsuzaki 2021 (GPT-J); Black et al. 2022
(GPT-NeoX, arXiv 2204.06745). The stack has one write per layer instead of two. It costs `norms`
norms per layer.
"""

from __future__ import annotations

from torch import nn

from leadline.errors import RecipeError
from leadline.parts.place import Place
from leadline.parts.placements._placement import PLACEMENTS, Placement


@PLACEMENTS.register("parallel")
class Parallel(Placement):
    """Attention and MLP side by side behind one norm, or one each (GPT-J, GPT-NeoX)."""

    formula = "x + A(N(x)) + M(N(x))"
    needs = ("attention", "mlp")

    def __init__(self, *, norms: int = 1) -> None:
        if norms not in (1, 2) or isinstance(norms, bool | float):
            raise RecipeError(
                f"The option 'norms' of 'parallel' is 1 (one norm for both branches) or 2 (one "
                f"for each), not {norms!r}."
            )
        self.joined = norms

    def enter(self, place: Place) -> nn.Module | None:
        # With two norms each stands inside the joined branch.
        return place.norm(place.width) if self.joined == 1 else None
