"""The defaults: 12 layers of width 256, pre-norm, plain residual, bytes as tokens.

No paper: a small GPT-2 shape for trials, whose fields are meant to be changed.
"""

from __future__ import annotations

from leadline.parts.recipe import Recipe
from leadline.parts.recipes._recipe import RECIPES


@RECIPES.register("default")
def default() -> Recipe:
    """A small pre-norm stack over bytes, to start from."""
    return Recipe()
