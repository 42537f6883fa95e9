"""How weights start: one file per init."""

from __future__ import annotations

from leadline.parts.inits.init import INITS, Init

__all__ = ["INITS", "Init"]
