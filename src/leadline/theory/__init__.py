"""What theorems predict: one file per bound, pure functions of numbers. Never imports torch."""

from __future__ import annotations

from leadline.theory._condition import Condition
from leadline.theory.attention import BOUNDS, AttentionFacts, Bound
from leadline.theory.depth import LAWS, DepthFacts, Law
from leadline.theory.rank_collapse import (
    COLLAPSE_BOUNDS,
    CollapseBound,
    LayerFacts,
    StackFacts,
)

__all__ = [
    "BOUNDS",
    "COLLAPSE_BOUNDS",
    "LAWS",
    "AttentionFacts",
    "Bound",
    "CollapseBound",
    "Condition",
    "DepthFacts",
    "Law",
    "LayerFacts",
    "StackFacts",
]
