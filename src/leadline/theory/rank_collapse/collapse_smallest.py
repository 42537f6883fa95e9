"""The cubic bound for the smallest residual, over all tokens x that could be taken away."""

from __future__ import annotations

import math

from leadline.theory.rank_collapse._facts import LayerFacts, StackFacts
from leadline.theory.rank_collapse.bound import COLLAPSE_BOUNDS
from leadline.theory.rank_collapse.cubic import CubicBound, centring, largest_gamma
from leadline.theory.rank_collapse.log import log10, product


@COLLAPSE_BOUNDS.register("collapse-smallest")
class CollapseSmallest(CubicBound):
    """r'_min <= g lambda scaling (sum_h |W_QK,h|_1) w r_min^3, r_min = min_x |X - 1x'|_{1,inf}.

    g = min{sqrt(n / 2), 4 (1 - 1/n)^2 gamma} with the gamma that was measured about the mean, or
    sqrt(n) / 2 where none was. Assumptions: those of `collapse-proved`.

    Proof: the constant is 1, because the mean is not taken away at the end; the residual about y
    is at least the smallest one. Steps (1) to (6) of `collapse-proved` hold about any centre, with
    the gamma of that centre: E changes with it, so the measured gamma may not be put in. Two ways
    are left. About the minimiser gamma <= sqrt(n / 2) (`collapse-from-weights`). Or delta is
    taken about the mean, with its gamma and its E = scaling R W_QK R', while delta R = delta R_min
    since rows of delta sum to zero; then R enters |E|_1 alone, and |R|_{1,inf} <= 2 (1 - 1/n)
    |R_min|_{1,inf} twice.
    """

    title = "rank collapse of the smallest residual"
    statement = "r' <= min{√(n/2), 4(1 - 1/n)² γ} λ s Σ_h|W_QK,h|₁ w r³, r = min_x |X - 1x'|₁,∞"
    source = "as `collapse-proved`, without the step to the mean"
    measure = "smallest"

    def log10_gamma(self, facts: StackFacts, layer: LayerFacts) -> float:
        anywhere = 0.5 * log10(0.5 * facts.tokens)
        about_mean = largest_gamma(facts.tokens)
        if layer.joint_gamma is not None and not math.isnan(layer.joint_gamma):
            about_mean = min(about_mean, log10(layer.joint_gamma))
        return min(anywhere, product(2.0 * centring(facts.tokens), about_mean))
