"""No attention: a stack of MLPs alone, in which tokens never meet."""

from __future__ import annotations

from leadline.parts.branches.branch import ATTENTIONS, Inside
from leadline.parts.place import Place


@ATTENTIONS.register("none")
def none(place: Place, inside: Inside) -> None:
    """No attention in any layer."""
