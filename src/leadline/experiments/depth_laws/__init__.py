"""Exponents over depth at initialisation, beside the published laws: what can be chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.errors import InputError
from leadline.experiments.experiment import (
    EXPERIMENTS,
    ExperimentOptions,
    check_depths,
    option,
)

if TYPE_CHECKING:
    from leadline.experiments.depth_laws.cases import LawCase

__all__ = ["DepthLawsOptions"]

STRICT_SEEDS = 3
"""So many models are enough for a law that holds for every single one."""


@EXPERIMENTS.register("depth-laws")
@dataclass(frozen=True)
class DepthLawsOptions(ExperimentOptions):
    """Do the laws of depth hold? Each beside its measurement on a design that meets its assumptions.

    Bands at every site with the mean over seeds and its standard error, exponents over depth
    beside those of the laws, and the product of Jacobians between its bounds. Nothing is trained.
    """

    redoes = "published laws of signal and gradient over depth"
    work = "leadline.experiments.depth_laws.experiment:depth_laws"
    quick_text = "Fewer seeds, products of Jacobians up to 6 layers."

    depths: tuple[int, ...] = option(
        (6, 12, 24, 48, 96), "Layers of the models: {default} unless given."
    )
    seeds: int = option(
        8, "How many models of each kind: {default}, or {quick} with --quick; at least 2.", quick=3
    )
    product_to: int = option(12, quick=6, least=1)
    """The Jacobians of no deeper model are taken: they cost the square of the depth."""
    width: int = 64
    length: int = option(32, least=2)
    examples: int = option(2, least=1)
    """Few tokens: what differs from draw to draw is the weights."""

    def check(self) -> None:
        """Refuse what cannot be measured, with what to change."""
        from leadline.experiments.depth_laws.cases import HEADS

        super().check()
        if self.width < HEADS or self.width % HEADS:
            raise InputError(
                f"width is {self.width}; the models have {HEADS} heads, so give a multiple of "
                f"{HEADS}."
            )
        if self.seeds < 2:
            raise InputError(
                f"seeds is {self.seeds}; the laws are about the mean over weights, whose standard "
                "error needs at least 2 seeds."
            )
        check_depths(self.depths)

    def depths_of(self, case: LawCase) -> list[int]:
        """The depths at which a law is measured; `product_to` where all are too deep for Jacobians."""
        from leadline.experiments.depth_laws.cases import law_of

        depths = sorted(set(self.depths))
        if law_of(case).quantity != "jacobian.through":
            return depths
        return [depth for depth in depths if depth <= self.product_to] or [self.product_to]

    def seeds_of(self, case: LawCase) -> int:
        """How many models are built at each depth."""
        from leadline.experiments.depth_laws.cases import law_of

        return min(self.seeds, STRICT_SEEDS) if law_of(case).strict else self.seeds
