"""A check finds out one thing about a model that the probes of a pass do not see.

To add one, put one file into `checks/` and one decorator into it:

    @check("repeat", facts=("repeat",), pass_cost=1.0)
    def repeat(patient: Patient) -> Iterator[VisitFact | Reading]: ...

Numbers of a place are readings of declared quantities; all else is a fact, a JSON value under a name,
in the provenance of the record. A check that cannot look yields `CouldNot` with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leadline.catalog import Catalog
from leadline.record import Quantity, Reading

if TYPE_CHECKING:
    from leadline.instruments.visit.patient import Patient

__all__ = ["CHECKS", "CouldNot", "VisitCheck", "VisitFact", "check", "check_quantity"]


@dataclass(frozen=True, slots=True)
class VisitFact:
    """What was found out, as a JSON value under a name."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class CouldNot:
    """Quantities or facts that this model has none of, and why."""

    names: tuple[str, ...]
    why: str


VisitEntry = Reading | VisitFact | CouldNot


@dataclass(frozen=True)
class VisitCheck:
    """One check: what it gives, in which order it runs, and the function.

    `pass_cost` is what it costs in forward passes over the batch, roughly; the visit says the sum
    beforehand.
    """

    name: str
    quantities: tuple[Quantity, ...]
    facts: tuple[str, ...]
    pass_cost: float
    look: Callable[[Patient], Iterable[VisitEntry]]


CHECKS: Catalog[VisitCheck] = Catalog("check", package="leadline.instruments.visit.checks")
"""Every check by its name."""


def check(
    name: str,
    *,
    quantities: tuple[Quantity, ...] = (),
    facts: tuple[str, ...] = (),
    pass_cost: float = 0.0,
) -> Callable[[Callable[[Patient], Iterable[VisitEntry]]], VisitCheck]:
    """Return the decorator that makes a function of a patient a check of the catalog."""

    def enter(look: Callable[[Patient], Iterable[VisitEntry]]) -> VisitCheck:
        return CHECKS.register(name)(VisitCheck(name, quantities, facts, pass_cost, look))

    return enter


def check_quantity(
    name: str, title: str, symbol: str, formula: str, meaning: str, *, logarithmic: bool = False
) -> Quantity:
    """A quantity that rules alone read: one value per tensor or module of a layer."""
    return Quantity(
        name,
        title,
        symbol,
        formula,
        lives_on="layer",
        headline="value",
        scale="log" if logarithmic else "linear",
        meaning=meaning,
        ingredient_of="diagnosis",
    )
