"""What theorems predict: one file per bound, pure functions of numbers. Never imports torch."""

from __future__ import annotations

from leadline.theory._bound import BOUNDS, AttentionFacts, Bound, Condition

__all__ = ["BOUNDS", "AttentionFacts", "Bound", "Condition"]
