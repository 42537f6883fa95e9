"""The cubic bound, proved layer by layer: constant 2 (1 - 1/n) where the published one has 4."""

from __future__ import annotations

import math

from leadline.theory.rank_collapse._facts import LayerFacts, StackFacts
from leadline.theory.rank_collapse.bound import COLLAPSE_BOUNDS
from leadline.theory.rank_collapse.cubic import CubicBound, centring
from leadline.theory.rank_collapse.log import log10, product


@COLLAPSE_BOUNDS.register("collapse-proved")
class CollapseProved(CubicBound):
    """r_{l+1} <= 2 (1 - 1/n) gamma lambda scaling (sum_h |W_QK,h|_1) w r_l^3, r = |res X|_{1,inf}.

    gamma is the joint one of the layer's heads, w = sqrt(max_h |W_h|_1 max_h |W_h|_inf): with one
    head |W|_{1,inf}. Assumptions: no mask, no skip, no norm, no positions in the logits, softmax
    rows; an MLP after attention has a Lipschitz constant lambda. Biases are allowed. Nothing is
    assumed of the size of the logits.

    Proof. X = 1x' + R. A softmax does not see what is constant in a row, so row i of a pattern is
    softmax(a + E_i), E = scaling R W_QK R', with one a for all rows; let p = softmax(a) and
    P = 1p' + delta. (1) |delta_i|_1 <= 2 tanh(osc_i / 4) <= osc_i / 2: the ratio of the two
    weights of a key has mean 1 under p and lies in [m, M] with M/m = e^osc_i; |delta_i|_1 is at
    most 2 (1 - m)(M - 1) / (M - m), largest at M = 1/m. (2) Rows of delta sum to zero, so
    P X W = 1y' + delta R W. (3) Row sums: |delta R|_inf <= max_i |delta_i|_1 |R|_inf <=
    (max_i osc_i / 2) |R|_inf. Column sums: |delta R|_1 <= (sum_i |delta_i|_1) |R|_1 <=
    (sum_i osc_i / 2) |R|_1. (4) Heads add in each of the two norms, biases go into y; the square
    root of the product of the two sums is gamma (sum_h |E_h|_1) w |R|_{1,inf} by the definition of
    the joint gamma. (5) |E_h|_1 <= scaling |R|_1 |W_QK,h|_1 |R'|_1 = scaling |W_QK,h|_1
    |R|_{1,inf}^2. (6) The MLP multiplies both norms of the difference to the token f(y) by its
    parts of lambda. (7) Taking the mean away multiplies both by |I - 11'/n| = 2 (1 - 1/n).
    """

    title = "rank collapse, as proved"
    statement = "r' <= 2(1 - 1/n) γ λ s Σ_h|W_QK,h|₁ w r³, r = |res X|₁,∞"
    source = "after Dong, Cordonnier, Loukas 2021, arXiv 2103.03404, with a proof of its own"

    def log10_gamma(self, facts: StackFacts, layer: LayerFacts) -> float:
        if layer.joint_gamma is None:
            return math.nan
        return product(centring(facts.tokens), log10(layer.joint_gamma))
