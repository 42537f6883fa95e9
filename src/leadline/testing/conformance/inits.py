"""Checks of an init: it fills every weight that it gets, from the generator that it gets."""

from __future__ import annotations

import torch
from torch import Tensor

from leadline.errors import RecipeError
from leadline.parts.inits import INITS, Init
from leadline.parts.inits.init import generator_of
from leadline.parts.place import Place
from leadline.testing.conformance._case import PartCase
from leadline.testing.conformance._check import Question, require, some

__all__ = ["questions"]

ROLES = {
    "embedding": 0,
    "tied": 0,
    "positions": 0,
    "types": 0,
    "transform": 0,
    "head": 0,
    "query": 1,
    "key": 1,
    "value": 1,
    "output": 1,
    "up": 1,
    "gate": 1,
    "down": 1,
    "mixture": 1,
}
"""Every role with the layer where it stands; the last one is what a connection might ask for."""


def questions(case: PartCase) -> list[Question]:
    """The checks of an init on its own."""
    return [("every role", lambda: _every_role(case)), ("generator", lambda: _generator(case))]


def _filled(init: Init, role: str, *, seed: int = 0) -> Tensor | None:
    """A weight that held NaN, filled; None where the init refuses the role with a sentence."""
    weight = torch.full((12, 8), torch.nan)
    place = Place(width=8, heads=2, depth=4, layer=ROLES[role])
    try:
        with torch.no_grad():
            init.fill(role, weight, place, generator_of(seed, role))
    except RecipeError:
        return None
    return weight


def _every_role(case: PartCase) -> str:
    init: Init = INITS.build(case.choice)
    refused: list[str] = []
    for role in ROLES:
        weight = _filled(init, role)
        if weight is None:
            refused.append(role)
            continue
        count = int(weight.isnan().sum())
        require(count == 0, f"the role {role!r} is not filled: {count} of 96 numbers are left")
        require(bool(weight.isfinite().all()), f"the role {role!r} gets values that are not finite")
    without = f", {some(refused)} refused" if refused else ""
    return f"{len(ROLES) - len(refused)} roles filled{without}"


def _generator(case: PartCase) -> str:
    init: Init = INITS.build(case.choice)
    count = 0
    for role in ROLES:
        before = torch.random.get_rng_state()
        one, again, other = (_filled(init, role, seed=seed) for seed in (0, 0, 1))
        require(
            torch.equal(before, torch.random.get_rng_state()),
            f"the role {role!r} moves the global random numbers; draw from the generator",
        )
        if one is None or again is None or other is None:
            continue
        require(torch.equal(one, again), f"the same generator gives {role!r} two sets of numbers")
        count += not torch.equal(one, other)
    require(count > 0, "no weight depends on the generator")
    return f"{count} roles drawn from the generator"
