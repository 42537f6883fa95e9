"""No norm at all: wherever a placement puts one, nothing stands."""

from __future__ import annotations

from leadline.parts.norms._norm import NORMS


@NORMS.register("none")
def none(width: int) -> None:
    """No norm."""
