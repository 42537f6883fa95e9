"""What brings a vector to size: one file per norm."""

from __future__ import annotations

from leadline.parts.norms._norm import NORMS

__all__ = ["NORMS"]
