"""The cubic bound from the weights and the first residual alone: gamma at its largest."""

from __future__ import annotations

from leadline.theory.rank_collapse._facts import LayerFacts, StackFacts
from leadline.theory.rank_collapse.bound import COLLAPSE_BOUNDS
from leadline.theory.rank_collapse.cubic import CubicBound, centring, largest_gamma
from leadline.theory.rank_collapse.log import product


@COLLAPSE_BOUNDS.register("collapse-from-weights")
class CollapseFromWeights(CubicBound):
    """r_{l+1} <= 2 (1 - 1/n) (sqrt(n) / 2) lambda scaling (sum_h |W_QK,h|_1) w r_l^3.

    `collapse-proved` with gamma at its largest, so that nothing is measured but the first residual.
    Assumptions: those of `collapse-proved`. Proof that gamma <= sqrt(n) / 2, hence <= sqrt(n): the
    largest and the smallest entry of a row stand in different columns, so osc_i <= sum_j |E_ij|,
    and sum_i osc_i <= the sum of all |E_ij| <= n |E|_1. Because R has mean zero the columns of
    E = scaling R W_QK R' sum to zero; then no |E_ij| exceeds half of its column's sum, at most
    |E|_1 / 2, and osc_i <= |E|_1. So gamma = sqrt(sum_i osc_i max_i osc_i) / (2 |E|_1) <=
    sqrt(n) / 2; two tokens of width one attain it. The same two inequalities, added over heads,
    give the joint gamma. About another centre than the mean the second is osc_i <= 2 |E|_1, and
    gamma <= sqrt(n / 2).
    """

    title = "rank collapse, from weights alone"
    statement = "r' <= (1 - 1/n) √n λ s Σ_h|W_QK,h|₁ w r³, r = |res X|₁,∞"
    source = "as `collapse-proved`, with γ <= √n / 2"

    def log10_gamma(self, facts: StackFacts, layer: LayerFacts) -> float:
        return product(centring(facts.tokens), largest_gamma(facts.tokens))
