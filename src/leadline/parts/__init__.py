"""The composable Transformer: its residual connection and the place of its norms are parts."""

from __future__ import annotations

from leadline.parts.recipe import PARTS, Recipe
from leadline.parts.transformer import Transformer

__all__ = ["PARTS", "Recipe", "Transformer"]
