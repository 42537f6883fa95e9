"""What a law of depth is: its assumptions, and a band at every site or an exponent over depth.

A law is a class with one decorator in a file of its own:

    @LAWS.register("xiong-stream")
    class XiongStream(Law): ...

It is asked with `DepthFacts`. A law along "layers" predicts the ends of a band for every site of one
model; a law along "depth" predicts with which power of the depth a number of whole models grows.
Most are about the mean over random weights, of which one model is a sample: a measurement a little
outside of the band contradicts nothing. Those that are `strict` hold for every model.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal

from leadline.catalog import Catalog
from leadline.theory._condition import Condition
from leadline.theory.depth._facts import DepthFacts

__all__ = ["LAWS", "Along", "Band", "Law"]

Along = Literal["layers", "depth"]
Band = tuple[float, float]
"""At least and at most."""


class Law(ABC):
    """Predicts how a quantity changes with depth; its docstring gives assumptions and proof."""

    title: str
    """In a few words, for a table."""
    statement: str
    """The formula, in one line."""
    source: str
    quantity: str
    """What it is about."""
    along: Along = "layers"
    strict: bool = False
    """Whether it holds for every model, not only in the mean over random weights."""
    log10: bool = False
    """Whether the ends of the band are log10, because they may lie beyond float."""

    @abstractmethod
    def conditions(self, facts: DepthFacts) -> list[Condition]:
        """Say of every assumption whether it holds; one that is not known has no `because`."""

    def predicted(self, facts: DepthFacts) -> tuple[Band, ...] | None:
        """Return depth + 1 bands, the first that of site 0; None where a number is missing."""
        return None

    def exponent(self, facts: DepthFacts) -> float | None:
        """Return the power of the depth; None where the law is not about depth."""
        return None

    def applies(self, facts: DepthFacts) -> bool:
        """Whether every assumption holds and every number is known."""
        if not all(condition.holds for condition in self.conditions(facts)):
            return False
        if self.along == "depth":
            return self.exponent(facts) is not None
        bands = self.predicted(facts)
        return bands is not None and not any(math.isnan(end) for band in bands for end in band)


LAWS: Catalog[type[Law]] = Catalog(
    "law of depth", package="leadline.theory.depth", group="leadline.laws"
)
