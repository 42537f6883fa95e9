"""Recipes of known models: one file per family.

    recipe = RECIPES.build("gpt2")
    model = Transformer(RECIPES.build("gpt2").but(depth=6))

A recipe holds no weights: those of a checkpoint come with `Transformer.from_hf`.
"""

from __future__ import annotations

from leadline.parts.recipes._recipe import RECIPES

__all__ = ["RECIPES"]
