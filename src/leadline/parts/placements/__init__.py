"""Where norms stand: one file per placement."""

from __future__ import annotations

from leadline.parts.placements._placement import PLACEMENTS, Placement

__all__ = ["PLACEMENTS", "Placement"]
