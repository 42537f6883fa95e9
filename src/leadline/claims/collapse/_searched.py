"""The worst ratios of bounds on rank collapse, over networks drawn and climbed with one seed."""

from __future__ import annotations

from leadline.instruments.attacks.attention import Attacked
from leadline.instruments.attacks.collapse import optimised_collapse_attack, random_collapse_attack

__all__ = ["searched"]


def searched(
    kind: str, bounds: tuple[str, ...], *, seed: int, random: int = 400, climbed: int = 25
) -> dict[str, Attacked]:
    """Measured over predicted (upper bounds) of random networks of a kind, and of climbed ones."""
    found = random_collapse_attack(kind, count=random, seed=seed, bounds=bounds)
    if climbed:
        more = optimised_collapse_attack(kind, count=climbed, steps=50, seed=seed, bounds=bounds)
        found = {name: found[name].with_(more[name]) for name in found}
    return found
