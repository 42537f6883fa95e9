"""What theorems predict about attention matrices: one file per bound."""

from __future__ import annotations

from leadline.theory.attention._bound import BOUNDS, AttentionFacts, Bound

__all__ = ["BOUNDS", "AttentionFacts", "Bound"]
