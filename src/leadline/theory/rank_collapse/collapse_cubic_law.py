"""The law that small residuals follow without a mask: they are cubed, with a known matrix."""

from __future__ import annotations

import math

from leadline.theory._condition import Condition
from leadline.theory.rank_collapse._assumptions import (
    bidirectional,
    layered,
    no_mlp,
    no_norm,
    no_skip,
    plain_logits,
    rows_sum_to_one,
)
from leadline.theory.rank_collapse._facts import StackFacts
from leadline.theory.rank_collapse.bound import COLLAPSE_BOUNDS, CollapseBound, measured_residuals


@COLLAPSE_BOUNDS.register("collapse-cubic-law")
class CollapseCubicLaw(CollapseBound):
    """res X' = (scaling / n) sum_h R W_QK,h R' R W_h (1 + o(1)) as R = res X falls.

    In the Frobenius norm, each layer from what entered it. Assumptions: no mask, no skip, no norm,
    no MLP, no positions in the logits, softmax rows. It is a law, not a bound: it says what the
    residual tends to, wherever the product does not vanish.

    Proof sketch: with P = 1p' + delta as in `collapse-proved`, res X' = sum_h res(delta_h) R W_h.
    To first order in E the softmax gives delta_ij = p_j (E_ij - sum_k p_k E_ik), and p = 1/n to
    first order in R. Then delta R = (1/n) E R, because 1'R = 0 takes away what is constant in a
    row; the mean over tokens of E R is zero, since the columns of E sum to zero.
    """

    title = "the cubic law of small residuals"
    statement = "|res X'|_F → (s/n) |Σ_h R W_QK,h R' R W_h|_F, R = res X"
    source = "first order of the softmax about equal tokens"
    side = "law"
    measure = "frobenius"

    def conditions(self, facts: StackFacts) -> list[Condition]:
        return [
            bidirectional(facts),
            no_skip(facts),
            no_norm(facts),
            layered(facts),
            no_mlp(facts),
            *plain_logits(facts),
            rows_sum_to_one(facts),
        ]

    def log10_values(self, facts: StackFacts) -> tuple[float, ...] | None:
        measured = measured_residuals(facts, self.measure)
        laws = [math.nan if one.cubic_law is None else one.cubic_law for one in facts.layers]
        if not measured or any(math.isnan(law) for law in laws):
            return None
        return (measured[0], *laws)
