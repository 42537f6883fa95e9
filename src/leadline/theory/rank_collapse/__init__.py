"""What theorems predict about rank collapse: one file per statement."""

from __future__ import annotations

from leadline.theory.rank_collapse._facts import LayerFacts, StackFacts
from leadline.theory.rank_collapse.bound import COLLAPSE_BOUNDS, CollapseBound

__all__ = ["COLLAPSE_BOUNDS", "CollapseBound", "LayerFacts", "StackFacts"]
