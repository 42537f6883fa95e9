"""No positions: causal attention alone tells tokens apart, bidirectional attention cannot."""

from __future__ import annotations

from leadline.parts.positions._positions import POSITIONS, Positions


@POSITIONS.register("none")
class NoPositions(Positions):
    """No positions at all."""

    def __init__(self, width: int, context: int, head_width: int) -> None:
        super().__init__()
