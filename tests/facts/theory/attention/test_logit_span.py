"""Delta from the weights: every form by hand, and examples that attain it or refute a smaller one."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from leadline.theory import AttentionFacts
from leadline.theory.attention.logit_span import weight_span, weight_span_conditions

FACTS = AttentionFacts(
    queries=5,
    keys=5,
    positions="none",
    scaling=0.5,
    width=9,
    gain=2.0,
    shift=1.0,
    query_weight=3.0,
    key_weight=0.25,
    query_bias=4.0,
    key_bias=10.0,
)
"""|q| <= 3 (2 * 3 + 1) + 4 = 25, |k| <= 0.25 * 7 + 10 = 11.75, half a key difference 0.25 * 6."""


def test_without_turning_the_key_side_shift_and_bias_cancel() -> None:
    assert weight_span(FACTS) == pytest.approx(2 * 0.5 * 25 * 1.5, rel=1e-15)
    assert weight_span(replace(FACTS, key_bias=None)) == weight_span(FACTS)


def test_an_additive_position_bias_turns_nothing() -> None:
    assert weight_span(replace(FACTS, positions="bias")) == weight_span(FACTS)


@pytest.mark.parametrize("positions", ["rotary", "unknown"])
def test_with_turned_or_unknown_positions_nothing_cancels(positions: str) -> None:
    facts = replace(FACTS, positions=positions)
    assert weight_span(facts) == pytest.approx(2 * 0.5 * 25 * 11.75, rel=1e-15)


def test_radii_stand_in_for_the_norms_of_queries_and_keys() -> None:
    both = AttentionFacts(5, 5, scaling=0.5, query_radius=3.0, key_radius=7.0)
    assert weight_span(both) == 2 * 0.5 * 3 * 7
    assert weight_span(replace(FACTS, query_radius=3.0)) == pytest.approx(2 * 0.5 * 3 * 1.5)
    assert weight_span(replace(FACTS, key_radius=7.0)) == pytest.approx(2 * 0.5 * 25 * 7)


def test_a_soft_cap_gives_less_than_the_span_and_less_than_twice_the_cap() -> None:
    capped = weight_span(replace(FACTS, soft_cap=30.0))
    assert capped == pytest.approx(60 * math.tanh(37.5 / 60), rel=1e-15)
    assert weight_span(replace(FACTS, soft_cap=1.0)) == pytest.approx(2.0, rel=1e-15)
    assert weight_span(replace(FACTS, soft_cap=0.0)) == weight_span(FACTS)


def test_no_capped_interval_is_longer_than_the_cap_allows() -> None:
    middle, length, cap = np.linspace(-9, 9, 2001), 3.0, 2.0
    ends = cap * np.tanh((middle + length / 2) / cap) - cap * np.tanh((middle - length / 2) / cap)
    allowed = weight_span(
        AttentionFacts(2, 2, scaling=1.5, query_radius=1, key_radius=1, soft_cap=cap)
    )
    assert allowed == pytest.approx(ends.max(), rel=1e-12)


def test_an_additive_bias_comes_after_the_cap() -> None:
    facts = replace(FACTS, soft_cap=1.0, bias_range=5.0)
    assert weight_span(facts) == pytest.approx(7.0, rel=1e-15)


def test_the_sign_of_scaling_and_cap_does_not_matter() -> None:
    assert weight_span(replace(FACTS, scaling=-0.5)) == weight_span(FACTS)
    assert weight_span(replace(FACTS, soft_cap=-30.0)) == weight_span(replace(FACTS, soft_cap=30.0))


def test_a_span_beyond_any_float_is_infinite() -> None:
    assert weight_span(replace(FACTS, query_weight=1e300, key_weight=1e300)) == math.inf


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        ("gain", "no norm stands before the projections"),
        ("shift", "the norm's bias is not known"),
        ("width", "the width is not known"),
        ("query_weight", "sigma_Q is not known"),
        ("query_bias", "|b_Q| is not known"),
        ("key_weight", "sigma_K is not known"),
        ("key_bias", "|b_K| is not known"),
        ("scaling", "it is not known"),
    ],
)
def test_what_is_missing_is_said(missing: str, sentence: str) -> None:
    facts = replace(FACTS, positions="rotary", **{missing: None})
    assert weight_span(facts) is None
    assert [c.because for c in weight_span_conditions(facts) if not c.holds] == [sentence]


def test_several_missing_weights_are_named_together() -> None:
    facts = replace(FACTS, query_weight=None, query_bias=None, key_weight=None)
    assert "sigma_Q and |b_Q| and sigma_K are not known" in [
        c.because for c in weight_span_conditions(facts)
    ]


def test_everything_known_holds_without_a_reason() -> None:
    conditions = weight_span_conditions(FACTS)
    assert all(c.holds and c.because == "" for c in conditions)
    assert [c.assumption for c in conditions] == [
        "the scaling of the logits is known",
        "a norm stands before the projections",
        "the weights of queries and keys are known",
        "queries and keys are read from the same vectors",
    ]


def test_keys_from_another_stream_are_not_described_by_the_norm() -> None:
    def reasons(facts: AttentionFacts) -> list[str]:
        return [c.because for c in weight_span_conditions(facts) if not c.holds]

    assert reasons(replace(FACTS, shared_input=False)) == [
        "the keys come from another stream, whose norm is not known"
    ]
    assert reasons(replace(FACTS, keys=7)) == [
        "there are 5 queries and 7 keys, so the keys may come from elsewhere"
    ]
    normed = replace(FACTS, shared_input=False, query_radius=1.0, key_radius=1.0)
    assert reasons(normed) == []


def test_the_span_is_attained_by_opposite_keys() -> None:
    # d = 4, u = (1, 1, -1, -1) and its opposite: |u| = sqrt(d) exactly. One feature per head.
    u = np.array([[1.0, 1.0, -1.0, -1.0], [-1.0, -1.0, 1.0, 1.0]])
    direction = u[0] / 2.0
    gain, shift, scaling = 1.5, 0.7, 0.3
    z = gain * u + shift * direction
    query = z @ (2.0 * direction) + 0.9
    key = z @ (0.5 * direction) + 5.0
    logits = scaling * np.outer(query, key)
    facts = AttentionFacts(
        2, 2, positions="none", scaling=scaling, width=4, gain=gain, shift=shift,
        query_weight=2.0, key_weight=0.5, query_bias=0.9, key_bias=5.0,
    )  # fmt: skip
    assert np.ptp(logits, axis=1).max() == pytest.approx(weight_span(facts), rel=1e-14)


def test_turned_keys_refute_the_span_of_unturned_ones() -> None:
    """W_K = 0 and b_K alone: by the unturned form all logits are equal and |A| is 1."""
    n, pace, bias = 8, math.pi / 9, 4000.0
    # Query i is turned back by its own angle, so every query looks at key 1 and away from key 8.
    angles = pace * np.arange(n)
    key = bias * np.stack([np.cos(angles), np.sin(angles)], 1)
    query = np.stack([np.ones(n), np.zeros(n)], 1)
    logits = query @ key.T
    weights = np.exp(logits - logits.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    norm = np.linalg.svd(weights, compute_uv=False)[0]
    assert norm == pytest.approx(2.83, abs=2e-3)
    facts = AttentionFacts(
        n, n, positions="rotary", scaling=1.0, width=2, gain=1.0, shift=0.0,
        query_weight=1 / math.sqrt(2), key_weight=0.0, query_bias=0.0, key_bias=bias,
    )  # fmt: skip
    assert weight_span(replace(facts, positions="none")) == 0.0
    span = weight_span(facts)
    assert span is not None and np.ptp(logits, axis=1).max() <= span == pytest.approx(2 * bias)
