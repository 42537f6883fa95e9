"""The cubic bound with a constant that two tokens attain: sqrt(2) (1 - 1/n)."""

from __future__ import annotations

import math

from leadline.theory.rank_collapse._facts import LayerFacts, StackFacts
from leadline.theory.rank_collapse.bound import COLLAPSE_BOUNDS
from leadline.theory.rank_collapse.collapse_proved import CollapseProved


@COLLAPSE_BOUNDS.register("collapse-sharp")
class CollapseSharp(CollapseProved):
    """r_{l+1} <= sqrt(2) (1 - 1/n) gamma lambda scaling (sum_h |W_QK,h|_1) w r_l^3.

    Assumptions: those of `collapse-proved`. Proof: the same but for the column sums of step (3). A
    row of delta sums to zero, so that none of its entries exceeds half of |delta_i|_1, and
    |delta R|_1 <= (sum_i max_j |delta_ij|) |R|_1 <= (sum_i osc_i / 4) |R|_1: half of what is used
    there. Two tokens +a and -a of width one have r' = sqrt(2) w a tanh(scaling W_QK a^2), which
    comes as close to it as one likes as a falls.
    """

    title = "rank collapse, sharp for two tokens"
    statement = "r' <= √2 (1 - 1/n) γ λ s Σ_h|W_QK,h|₁ w r³, r = |res X|₁,∞"
    source = "as `collapse-proved`; rows of P - 1p' sum to zero"

    def log10_gamma(self, facts: StackFacts, layer: LayerFacts) -> float:
        return super().log10_gamma(facts, layer) - 0.5 * math.log10(2.0)
