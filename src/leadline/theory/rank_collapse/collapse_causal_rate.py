"""The rate at which tokens become equal under a causal mask: only exponential."""

from __future__ import annotations

import math

from leadline.theory._condition import Condition
from leadline.theory.rank_collapse._assumptions import (
    causal,
    layered,
    no_mlp,
    no_norm,
    no_skip,
    one_head,
    rows_sum_to_one,
)
from leadline.theory.rank_collapse._facts import LayerFacts, StackFacts
from leadline.theory.rank_collapse.bound import COLLAPSE_BOUNDS, CollapseBound, measured_residuals
from leadline.theory.rank_collapse.log import log10, product

_SEVERAL = "the gain of the sum of their W_h is theirs only where their patterns are equal"


@COLLAPSE_BOUNDS.register("collapse-causal-rate")
class CollapseCausalRate(CollapseBound):
    """|res X'|_F / |res X|_F -> (max_{i>=2} P_ii) sigma(W) as depth grows, sigma(W) = |W|_2.

    Exactly 1/2 where W_V W_O keeps norms and patterns are near uniform: row i is 1/i.

    Assumptions: the causal mask, no skip, no norm, no MLP, softmax rows, and one head: two heads
    with W_1 = -W_2 and unequal patterns have sum_h W_h = 0 and a residual all the same. It is the
    asymptotic rate of a stack whose patterns and weights stay the same, not a bound: a single layer
    may be above it, and with a W that stretches some directions only, its largest singular value is
    above the true rate.

    Proof sketch: measure every token against the first, which sees itself alone: x_i - x_1 becomes
    sum_{2<=j<=i} P_ij (x_j - x_1) W. The matrix (P_ij), i, j >= 2, is lower triangular, so its
    eigenvalues are its diagonal, and its powers fall like the largest of them. So a causal
    stack does not collapse double exponentially.
    """

    title = "the rate under a causal mask"
    statement = "|res X'|_F / |res X|_F → max_(i>=2) P_ii |W|₂ (one head); 1/2 for a norm-keeping W"
    source = "the eigenvalues of a triangular matrix are its diagonal"
    side = "law"
    measure = "frobenius"

    def conditions(self, facts: StackFacts) -> list[Condition]:
        return [
            causal(facts),
            no_skip(facts),
            no_norm(facts),
            layered(facts),
            no_mlp(facts),
            one_head(facts, _SEVERAL),
            rows_sum_to_one(facts),
        ]

    def log10_values(self, facts: StackFacts) -> tuple[float, ...] | None:
        measured = measured_residuals(facts, self.measure)
        rates = [_rate(layer) for layer in facts.layers]
        if not measured or any(math.isnan(rate) for rate in rates):
            return None
        steps = zip(rates, measured[:-1], strict=True)
        return (measured[0], *(product(rate, before) for rate, before in steps))


def _rate(layer: LayerFacts) -> float:
    if layer.diagonal is None or layer.value_gain is None:
        return math.nan
    return product(log10(layer.diagonal), log10(layer.value_gain))
