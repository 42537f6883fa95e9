"""Delta: by how much the logits of one row can differ, from the weights alone.

What enters the projections is z = gamma * u + beta with |u| <= sqrt(d): for LayerNorm and RMSNorm
alike, since epsilon only shortens u. With Gamma = max |gamma|:

    |q| <= R_Q = sigma_Q (Gamma sqrt(d) + |beta|) + |b_Q|,   or the radius of a norm on queries;
    |k| <= R_K = sigma_K (Gamma sqrt(d) + |beta|) + |b_K|,   or the radius of a norm on keys.

Two logits of one row share the query. Without rotary positions they differ by
scaling <q, W_K' gamma * (u_j - u_j')>: beta and b_K cancel on the key side, and

    Delta = 2 scaling R_Q sigma_K Gamma sqrt(d).

Rotary positions turn each key by its own angle. Norms stay, differences do not, nothing cancels:

    Delta = 2 scaling R_Q R_K,

also used for a normed key and where the positions are not known, since it is the larger form.
A factor that lengthens turned queries and keys (long-context variants) belongs to the scaling.
A soft cap c maps an interval of length Delta into one of length at most 2c tanh(Delta / 2c),
which is below Delta and below 2c. An additive bias comes after the cap and adds its range.
"""

from __future__ import annotations

import math

from leadline.theory._condition import Condition, assume
from leadline.theory.attention._bound import AttentionFacts

__all__ = ["measured_span", "measured_span_conditions", "weight_span", "weight_span_conditions"]


def weight_span(facts: AttentionFacts) -> float | None:
    """Return Delta from the weights; None where a number is missing."""
    query = _query_reach(facts)
    key = _key_reach(facts)
    if query is None or key is None or facts.scaling is None:
        return None
    span = 2.0 * abs(facts.scaling) * query * key
    if facts.soft_cap:
        twice = 2.0 * abs(facts.soft_cap)
        span = twice * math.tanh(span / twice)
    return span + facts.bias_range


def weight_span_conditions(facts: AttentionFacts) -> list[Condition]:
    """Say what Delta needs: its numbers, and that they speak of both queries and keys."""
    scaled = facts.scaling is not None
    conditions = [assume("the scaling of the logits is known", scaled, "it is not known")]
    if facts.query_radius is not None and facts.key_radius is not None:
        return conditions  # the radii hold whatever enters the projections
    normed = facts.gain is not None and facts.shift is not None and facts.width is not None
    conditions.append(
        assume("a norm stands before the projections", normed, _missing_norm(facts)),
    )
    unknown = _missing_weights(facts)
    conditions.append(
        assume(
            "the weights of queries and keys are known",
            not unknown,
            f"{' and '.join(unknown)} not known",
        )
    )
    shared = facts.shared_input and facts.queries == facts.keys
    conditions.append(
        assume("queries and keys are read from the same vectors", shared, _other_input(facts))
    )
    return conditions


def measured_span(facts: AttentionFacts) -> float | None:
    """Return the largest range of one row's logits that was measured."""
    return facts.logit_span


def measured_span_conditions(facts: AttentionFacts) -> list[Condition]:
    """Say whether the range was measured."""
    span = facts.logit_span
    otherwise = "it was not measured" if span is None else f"it was measured as {span:g}"
    is_known = span is not None and not math.isnan(span)
    return [assume("the range of the logits was measured", is_known, otherwise)]


def _query_reach(facts: AttentionFacts) -> float | None:
    """R_Q: the largest norm of a query."""
    if facts.query_radius is not None:
        return facts.query_radius
    return _affine_reach(facts, facts.query_weight, facts.query_bias)


def _key_reach(facts: AttentionFacts) -> float | None:
    """Half of the largest distance of two keys, or R_K where turning breaks their differences."""
    if facts.key_radius is not None:
        return facts.key_radius
    if facts.positions in ("rotary", "unknown"):
        return _affine_reach(facts, facts.key_weight, facts.key_bias)
    if facts.gain is None or facts.width is None or facts.key_weight is None:
        return None
    return facts.key_weight * facts.gain * math.sqrt(facts.width)


def _affine_reach(facts: AttentionFacts, weight: float | None, bias: float | None) -> float | None:
    """sigma (Gamma sqrt(d) + |beta|) + |b|."""
    if facts.gain is None or facts.shift is None or facts.width is None:
        return None
    if weight is None or bias is None:
        return None
    return weight * (facts.gain * math.sqrt(facts.width) + facts.shift) + bias


def _missing_norm(facts: AttentionFacts) -> str:
    if facts.gain is None:
        return "no norm stands before the projections"
    return "the norm's bias is not known" if facts.shift is None else "the width is not known"


def _missing_weights(facts: AttentionFacts) -> list[str]:
    numbers = {"sigma_Q": facts.query_weight, "|b_Q|": facts.query_bias}
    if facts.query_radius is not None:
        numbers = {}
    if facts.key_radius is None:
        numbers["sigma_K"] = facts.key_weight
        if facts.positions in ("rotary", "unknown"):
            numbers["|b_K|"] = facts.key_bias
    names = [name for name, number in numbers.items() if number is None]
    if len(names) > 1:
        return [*names[:-1], f"{names[-1]} are"]
    return [f"{name} is" for name in names]


def _other_input(facts: AttentionFacts) -> str:
    if not facts.shared_input:
        return "the keys come from another stream, whose norm is not known"
    return (
        f"there are {facts.queries} queries and {facts.keys} keys, "
        "so the keys may come from elsewhere"
    )
