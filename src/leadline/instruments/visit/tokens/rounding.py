"""How far two numbers may be apart and still be called equal: what rounding alone does."""

from __future__ import annotations

__all__ = ["rounding"]

_UNITS, _HALF_UNITS = 32.0, 4.0
"""32 units are above what convolutions by Fourier transforms leave before a token that was changed (about
25); in half precision, where a unit is large, 4."""
_HALF = 1e-4
"""Units above this are those of half precision: 9.8e-4 and 7.8e-3, against 1.2e-7 of float32."""


def rounding(eps: float) -> float:
    """The relative difference that rounding explains, by the unit of the numbers."""
    return eps * (_HALF_UNITS if eps > _HALF else _UNITS)
