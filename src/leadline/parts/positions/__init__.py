"""How a model knows where a token stands: one file per kind."""

from __future__ import annotations

from leadline.parts.positions._positions import POSITIONS, Positions

__all__ = ["POSITIONS", "Positions"]
