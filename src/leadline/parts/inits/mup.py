"""The init of muP, with which hyper-parameters carry over between widths.

    hidden weights: std 1 / sqrt(fan in);  tables: std 1;  head: std 1 / width

Yang et al. 2022, arXiv 2203.03466. `zero_query` starts the queries at 0, which the paper advises:
then attention is uniform at first at any width. The rest of muP is not an init: the learning rate
of Adam falls with 1 / width for hidden weights and the head, and attention divides by the head
width instead of its root (attention multihead(scale=...)). A table cannot be drawn for both ends,
so a tied head is refused.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leadline.errors import RecipeError
from leadline.parts.inits.init import INITS, TABLES, Init, normal
from leadline.parts.options import flag
from leadline.parts.place import Place


@INITS.register("mup")
class MuP(Init):
    """Normal of std 1/sqrt(fan in), tables of std 1, a head of std 1/width."""

    def __init__(self, *, zero_query: bool = False) -> None:
        self.zero_query = flag("mup", "zero_query", zero_query)

    def fill(self, role: str, weight: Tensor, place: Place, generator: torch.Generator) -> None:
        if role == "tied":
            raise RecipeError(
                "The init mup draws the embedding with std 1 and the head with std 1/width, and "
                "this recipe has one table for both; choose the head linear."
            )
        if role == "query" and self.zero_query:
            weight.zero_()
        elif role in TABLES:
            normal(weight, 1.0, generator)
        elif role == "head":
            normal(weight, 1.0 / place.width, generator)
        else:
            normal(weight, weight.shape[-1] ** -0.5, generator)
