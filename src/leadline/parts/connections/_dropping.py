"""How often something is dropped: the rate of a layer.

    linear     p_l = rate l / L        the last layer has the full rate (Huang et al. 2016)
    constant   p_l = rate

l is the layer, counted from 1, and L the number of layers. (timm starts the line at 0 instead:
p_l = rate (l - 1) / (L - 1).)
"""

from __future__ import annotations

from leadline.parts.options import number, one_of
from leadline.parts.place import Place

__all__ = ["checked_rate", "rate_of"]

SCHEDULES = ("linear", "constant")


def checked_rate(part: str, rate: object) -> float:
    """A rate from 0 to less than 1."""
    return number(
        part, "rate", rate, wanted="a number from 0 to less than 1", fits=lambda p: 0.0 <= p < 1.0
    )


def rate_of(part: str, place: Place, *, rate: object, schedule: object) -> float:
    """The rate of the layer at a place."""
    full = checked_rate(part, rate)
    linear = one_of(part, "schedule", schedule, SCHEDULES) == "linear"
    return full * place.layer / place.depth if linear else full
