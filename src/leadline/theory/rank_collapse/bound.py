"""What a statement on rank collapse is: its assumptions, and the residual it predicts per layer.

A statement is a class with one decorator in a file of its own:

    @COLLAPSE_BOUNDS.register("collapse-proved")
    class CollapseProved(CollapseBound): ...

It is asked with `StackFacts`. `conditions` says of every assumption whether it holds and why not;
`log10_values` computes the predicted residuals, also where an assumption fails (what a statement
claims where it does not apply can be shown to be wrong). Everything is a log10: residuals fall
double exponentially, and what is 0.1 is 10^(-10^19) after 40 cubes. What lies beyond float
saturates at +-inf, and nothing raises.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal

from leadline.catalog import Catalog
from leadline.theory._condition import Condition
from leadline.theory.rank_collapse._facts import StackFacts

__all__ = ["COLLAPSE_BOUNDS", "CollapseBound", "CollapseSide", "Measure", "measured_residuals"]

CollapseSide = Literal["upper", "lower", "law"]
Measure = Literal["composite", "smallest", "frobenius"]


class CollapseBound(ABC):
    """Predicts the residual of every layer; its docstring gives statement and proof sketch."""

    title: str
    """In a few words, for a table: "the published bound"."""
    statement: str
    """The formula, in one line."""
    source: str
    side: CollapseSide = "upper"
    """law: an asymptotic statement, each site predicted from the measured one before it.

    A law is never violated; measured / predicted tends to 1.
    """
    measure: Measure = "composite"
    """Which residual it is about."""

    @abstractmethod
    def conditions(self, facts: StackFacts) -> list[Condition]:
        """Say of every assumption whether it holds."""

    @abstractmethod
    def log10_values(self, facts: StackFacts) -> tuple[float, ...] | None:
        """Return depth + 1 numbers, the first that of the entry; None where a number is missing."""

    def applies(self, facts: StackFacts) -> bool:
        """Whether every assumption holds and every number is known."""
        values = self.log10_values(facts)
        if values is None or any(math.isnan(value) for value in values):
            return False
        return all(condition.holds for condition in self.conditions(facts))


def measured_residuals(facts: StackFacts, measure: Measure) -> tuple[float, ...]:
    """Return the log10 residuals of a measure, depth + 1 of them, or none where one is missing."""
    residuals = {
        "composite": facts.log10_composite,
        "smallest": facts.log10_smallest,
        "frobenius": facts.log10_frobenius,
    }[measure]
    complete = len(residuals) == facts.depth + 1 and not any(
        math.isnan(value) for value in residuals
    )
    return residuals if complete else ()


COLLAPSE_BOUNDS: Catalog[type[CollapseBound]] = Catalog(
    "collapse bound",
    package="leadline.theory.rank_collapse",
    group="leadline.collapse_bounds",
)
