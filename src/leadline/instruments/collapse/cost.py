"""What `collapse` costs: every example goes alone through all layers, as split tokens in float64.

Split tokens are a reference and what sets them apart, several runs of it for the estimate of
rounding, so a layer takes `RUNS` times its own work, with products in float64 at half the rate.
"""

from __future__ import annotations

from leadline.instruments.cost.rates import Rates
from leadline.instruments.cost.result import CostPart
from leadline.instruments.cost.sizes import CountedModel
from leadline.instruments.cost.work import NO_WORK, calling
from leadline.instruments.passes.cost import part_of

__all__ = ["collapse_of"]

RUNS = 4
"""The tokens themselves, their differences, and two runs that are rounded otherwise."""
CALLS = 400
"""Small operations of one layer on one example: exponents are followed apart from numbers."""


def collapse_of(model: CountedModel, rates: Rates) -> list[CostPart]:
    """All layers on all examples."""
    work = NO_WORK
    for shape in model.forward.stacks:
        work = work + 2 * RUNS * shape.work + calling(CALLS * len(shape.paths) * shape.examples)
    memory = 2 * RUNS * model.forward.memory
    return [part_of("layers", "all layers on split tokens", work, rates, memory=memory)]
