"""What theorems predict about rank collapse: one file per statement."""

from __future__ import annotations

from leadline.theory.rank_collapse._bound import COLLAPSE_BOUNDS, CollapseBound
from leadline.theory.rank_collapse._facts import LayerFacts, StackFacts

__all__ = ["COLLAPSE_BOUNDS", "CollapseBound", "LayerFacts", "StackFacts"]
