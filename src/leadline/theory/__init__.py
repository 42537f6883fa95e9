"""What theorems predict: one file per bound, pure functions of numbers. Never imports torch."""

from __future__ import annotations

from leadline.theory._condition import Condition
from leadline.theory.attention import BOUNDS, AttentionFacts, Bound

__all__ = ["BOUNDS", "AttentionFacts", "Bound", "Condition"]
