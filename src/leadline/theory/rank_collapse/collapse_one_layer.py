"""The cubic bound of every layer by itself, from the residual that was measured before it."""

from __future__ import annotations

import math

from leadline.theory.rank_collapse._facts import StackFacts
from leadline.theory.rank_collapse.bound import COLLAPSE_BOUNDS, measured_residuals
from leadline.theory.rank_collapse.collapse_proved import CollapseProved
from leadline.theory.rank_collapse.log import product


@COLLAPSE_BOUNDS.register("collapse-one-layer")
class CollapseOneLayer(CollapseProved):
    """r_{l+1} <= 2 (1 - 1/n) gamma lambda scaling (sum_h |W_QK,h|_1) w r_l^3, r_l measured.

    `collapse-proved`, begun anew at every layer: it says how much of the gap is due to one layer,
    and how much to the cubes of the layers before it. Assumptions and proof are the same.
    """

    title = "rank collapse, one layer at a time"
    statement = "r' <= 2(1 - 1/n) γ λ s Σ_h|W_QK,h|₁ w r³, r measured before the layer"
    source = "as `collapse-proved`, between theory and measurement"

    def log10_values(self, facts: StackFacts) -> tuple[float, ...] | None:
        measured = measured_residuals(facts, self.measure)
        factors = self.factors(facts)
        if not measured or any(math.isnan(factor) for factor in factors):
            return None
        steps = zip(factors, measured[:-1], strict=True)
        return (measured[0], *(product(factor, 3.0 * before) for factor, before in steps))
