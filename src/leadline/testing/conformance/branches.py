"""What a branch must name: the roles of its weights, each a view of its own parameters."""

from __future__ import annotations

from leadline.parts.branches import Branch
from leadline.testing.conformance._case import PartCase
from leadline.testing.conformance._check import Question, require

__all__ = ["questions"]


def questions(case: PartCase) -> list[Question]:
    """The checks of a branch on its own."""
    return [("weights", lambda: _weights(case))]


def _weights(case: PartCase) -> str:
    sublayer = next(
        (s for s in case.fresh.sublayers() if s.connection.place.branch == case.kind), None
    )
    if sublayer is None:
        return "no branch: it is left out of every layer"
    branch: Branch = sublayer.branch
    named = list(branch.weights())
    require(bool(named), "weights() names nothing, so the recipe's init draws nothing")
    roles = [role for role, _ in named]
    twice = sorted({role for role in roles if roles.count(role) > 1})
    require(not twice, f"weights() names {', '.join(twice)} twice; the draw depends on the name")
    storages = {p.untyped_storage().data_ptr() for p in branch.parameters()}
    strange = [r for r, w in named if w.untyped_storage().data_ptr() not in storages]
    require(
        not strange, f"{', '.join(strange)} in weights() is a copy, so filling it has no effect"
    )
    return ", ".join(roles)
