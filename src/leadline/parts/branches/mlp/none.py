"""No MLP: a pure self-attention network."""

from __future__ import annotations

from leadline.parts.branches.branch import MLPS, Inside
from leadline.parts.place import Place


@MLPS.register("none")
def none(place: Place, inside: Inside) -> None:
    """No MLP in any layer."""
