"""What is predicted about a stack as it gets deeper: one file per law."""

from __future__ import annotations

from leadline.theory.depth._facts import DepthFacts
from leadline.theory.depth._law import LAWS, Along, Band, Law

__all__ = ["LAWS", "Along", "Band", "DepthFacts", "Law"]
