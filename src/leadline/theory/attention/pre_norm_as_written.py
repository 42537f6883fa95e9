"""The pre-norm bound of the long note, exactly as written there.

    |A|_2 <= sqrt(n / (1 + (n-1) e^{-2M})),   M = Gamma^2 sigma_Q sigma_K sqrt(d)

It is right under its assumptions and wrong outside of them: with a causal mask and M = 0, n = 2
has |A|_2 = 1.144 > 1. It is computed there too, so that the difference can be seen.
"""

from __future__ import annotations

import math

from leadline.theory._condition import Condition, assume
from leadline.theory.attention._assumptions import every_key_is_seen, rows_at_most_one, square
from leadline.theory.attention._bound import BOUNDS, AttentionFacts, Bound

ROUNDING = 1e-9
"""How far, relatively, the scaling may lie above 1 / sqrt(d)."""


@BOUNDS.register("pre-norm-as-written")
class PreNormAsWritten(Bound):
    """|A|_2 <= sqrt(n / (1 + (n-1) e^{-2M})) with M = Gamma^2 sigma_Q sigma_K sqrt(d).

    Assumptions: no mask, a square A, a norm before the projections whose bias beta is 0, no b_Q and
    no b_K, logits scaled by 1 / sqrt(d) (d the width of the stream, not of the head; less does no
    harm), no norm on queries and keys, no additive position bias. Rotary positions and a soft cap
    leave |l| <= M as it is. Proof: |z| <= Gamma sqrt(d), so |l_ij| <= M; every weight is at most
    1 / (1 + (n-1) e^{-2M}), hence every column sum at most n times that; then sqrt(c_max).
    """

    title = "the note's pre-norm bound"
    statement = "|A|₂ <= √(n / (1 + (n-1) e^(-2M))), M = Γ² σ_Q σ_K √d"
    source = "Deep Dive into Transformer Architecture, section 2.2"

    def conditions(self, facts: AttentionFacts) -> list[Condition]:
        radius = facts.query_radius is not None or facts.key_radius is not None
        normed = facts.gain is not None and facts.width is not None
        weights = facts.query_weight is not None and facts.key_weight is not None
        return [
            every_key_is_seen(facts),
            square(facts),
            rows_at_most_one(facts),
            assume(
                "queries and keys are read from the same vectors",
                facts.shared_input,
                "the keys come from another stream",
            ),
            assume(
                "a norm stands before the projections",
                normed,
                "no norm stands before the projections"
                if facts.gain is None
                else "the width is not known",
            ),
            assume("the weights are known", weights, "sigma_Q or sigma_K is not known"),
            _vanishes("the norm has no bias", "beta", facts.shift),
            _vanishes("queries have no bias", "b_Q", facts.query_bias),
            _vanishes("keys have no bias", "b_K", facts.key_bias),
            _scaled_by_the_width(facts),
            assume("queries and keys are not normed", not radius, "there is a QK-norm"),
            assume(
                "nothing is added to the logits",
                facts.bias_range == 0.0,
                f"a position bias of range {facts.bias_range:.3g} is added",
            ),
        ]

    def value(self, facts: AttentionFacts) -> float | None:
        if facts.gain is None or facts.width is None:
            return None
        if facts.query_weight is None or facts.key_weight is None:
            return None
        reach = facts.gain**2 * facts.query_weight * facts.key_weight * math.sqrt(facts.width)
        n = facts.keys
        return math.sqrt(n / (1.0 + (n - 1) * math.exp(-2.0 * reach)))


def _vanishes(assumption: str, name: str, size: float | None) -> Condition:
    otherwise = f"|{name}| is not known" if size is None else f"|{name}| = {size:.3g}"
    return assume(assumption, size == 0.0, otherwise)


def _scaled_by_the_width(facts: AttentionFacts) -> Condition:
    assumption = "the logits are scaled by 1/√d"
    if facts.scaling is None or facts.width is None:
        return assume(assumption, False, "the scaling or the width is not known")
    scaling = 1.0 / math.sqrt(facts.width)
    return assume(
        assumption,
        abs(facts.scaling) <= scaling * (1.0 + ROUNDING),
        f"the logits are scaled by {facts.scaling:.3g} and the note needs 1/√d = {scaling:.3g}",
    )
