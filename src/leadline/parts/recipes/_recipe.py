"""What an entry is: a function without arguments that returns a Recipe.

The name is the model's, the function's docstring one line, and the module's docstring gives the
sizes and where they stand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from leadline.catalog import Catalog

if TYPE_CHECKING:
    from leadline.parts.recipe import Recipe

__all__ = ["RECIPES"]

RECIPES: Catalog[Callable[[], Recipe]] = Catalog(
    "recipe", package="leadline.parts.recipes", group="leadline.recipes"
)
