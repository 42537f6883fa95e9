"""The note's pre-norm bound: its formula, its assumptions in words, and where it is false."""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest

from leadline.theory import BOUNDS, AttentionFacts

NOTE = BOUNDS.get("pre-norm-as-written")()

FACTS = AttentionFacts(
    queries=8,
    keys=8,
    positions="none",
    scaling=0.25,
    head_width=4,
    width=16,
    gain=0.5,
    shift=0.0,
    query_weight=0.75,
    key_weight=2.0,
    query_bias=0.0,
    key_bias=0.0,
)
"""M = 0.25 * 0.75 * 2 * 4 = 1.5."""


def reasons(facts: AttentionFacts) -> list[str]:
    return [c.because for c in NOTE.conditions(facts) if not c.holds]


def norm(logits: np.ndarray, *, causal: bool = False) -> float:
    if causal:
        logits = np.where(np.tri(len(logits)) > 0, logits, -np.inf)
    weights = np.exp(logits - logits.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    return float(np.linalg.svd(weights, compute_uv=False)[0])


def value(facts: AttentionFacts) -> float:
    found = NOTE.value(facts)
    assert found is not None
    return found


def test_the_formula_is_the_note_s() -> None:
    assert value(FACTS) == pytest.approx(math.sqrt(8 / (1 + 7 * math.exp(-3.0))), rel=1e-15)
    assert value(FACTS) == pytest.approx(2.436, abs=5e-4)
    assert NOTE.applies(FACTS)
    assert all(c.because == "" for c in NOTE.conditions(FACTS))


@pytest.mark.parametrize("reach", [0.0, 1e-6, 13.8, 47.7, 400.0, 1e5])
def test_large_exponents_are_exact(reach: float) -> None:
    facts = replace(FACTS, gain=1.0, width=1, query_weight=reach, key_weight=1.0, keys=1024)
    with mpmath.workdps(60):
        truth = mpmath.sqrt(1024 / (1 + 1023 * mpmath.exp(-2 * mpmath.mpf(reach))))
    assert abs(value(facts) / truth - 1) < 1e-15


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"mask": "causal"}, "the mask is causal"),
        ({"keys": 9}, "there are 8 queries and 9 keys"),
        ({"shared_input": False}, "the keys come from another stream"),
        ({"shift": 3.2}, "|beta| = 3.2"),
        ({"query_bias": 0.5}, "|b_Q| = 0.5"),
        ({"key_bias": 0.25}, "|b_K| = 0.25"),
        ({"shift": None}, "|beta| is not known"),
        ({"query_radius": 1.0}, "there is a QK-norm"),
        ({"key_radius": 1.0}, "there is a QK-norm"),
        ({"bias_range": 2.5}, "a position bias of range 2.5 is added"),
        (
            {"width": 768, "scaling": 0.125},
            "the logits are scaled by 0.125 and the note needs 1/√d = 0.0361",
        ),
        ({"scaling": None}, "the scaling or the width is not known"),
        ({"gain": None}, "no norm stands before the projections"),
        ({"query_weight": None}, "sigma_Q or sigma_K is not known"),
        ({"key_weight": None}, "sigma_Q or sigma_K is not known"),
    ],
)
def test_a_failing_assumption_is_told_in_words_and_numbers(
    changed: dict[str, object], sentence: str
) -> None:
    facts = replace(FACTS, **changed)
    assert reasons(facts) == [sentence]
    assert not NOTE.applies(facts)


def test_a_missing_width_is_told() -> None:
    facts = replace(FACTS, width=None)
    assert NOTE.value(facts) is None
    assert reasons(facts) == ["the width is not known", "the scaling or the width is not known"]


def test_turned_positions_a_cap_and_a_smaller_scaling_do_no_harm() -> None:
    for changed in (
        {"positions": "rotary"},
        {"soft_cap": 2.0},
        {"scaling": 0.1},
        {"scaling": -0.25},
    ):
        assert reasons(replace(FACTS, **changed)) == []


def test_only_rounding_may_lift_the_scaling_above_the_width_s() -> None:
    assert reasons(replace(FACTS, scaling=0.25 * (1 + 9e-10))) == []
    assert len(reasons(replace(FACTS, scaling=0.25 * (1 + 1.1e-9)))) == 1


def test_two_causal_tokens_violate_it() -> None:
    facts = replace(FACTS, queries=2, keys=2, mask="causal", query_weight=0.0)
    attained = norm(np.zeros((2, 2)), causal=True)
    assert value(facts) == 1.0
    assert attained == pytest.approx(1.144, abs=5e-4)
    assert reasons(facts) == ["the mask is causal"]


ONE = np.array([1.0, -1.0] * 8)
OTHER = np.array([1.0, 1.0, -1.0, -1.0] * 4)
"""Two normed vectors of 16 features, at right angles: mean 0, norm 4."""


def head(facts: AttentionFacts, u: np.ndarray, *, beta: np.ndarray | None = None) -> np.ndarray:
    """Logits of a head of one feature: queries read along ONE, keys along OTHER."""
    assert facts.gain is not None and facts.scaling is not None
    assert facts.query_weight is not None and facts.key_weight is not None
    z = facts.gain * u + (0.0 if beta is None else beta)
    query, key = z @ ONE / 4.0 * facts.query_weight, z @ OTHER / 4.0 * facts.key_weight
    return facts.scaling * np.outer(query, key)


def test_a_bias_of_the_norm_violates_it() -> None:
    """With beta along ONE every query looks the same way: at the one key that differs."""
    u = np.stack([OTHER] + [-OTHER] * 7)
    facts = replace(FACTS, gain=1.0, query_weight=0.4, key_weight=0.4)
    assert norm(head(facts, u)) <= value(facts)
    shifted = replace(facts, shift=8.0)
    attained = norm(head(shifted, u, beta=8.0 * ONE / 4.0))
    assert attained > 1.1 * value(shifted)
    assert reasons(shifted) == ["|beta| = 8"]
    corrected = BOUNDS.get("bidirectional")()
    found = corrected.value(shifted)
    assert corrected.applies(shifted) and found is not None and attained <= found


def test_scaling_by_the_head_violates_it() -> None:
    """d = 16, d_h = 1, n = 128, M = 1: one key stands out for all queries but one."""
    u = np.stack([OTHER] + [(ONE - OTHER) / math.sqrt(2.0)] * 127)
    facts = replace(FACTS, queries=128, keys=128, gain=1.0, query_weight=0.5, key_weight=0.5)
    assert norm(head(facts, u)) <= value(facts) == pytest.approx(2.653, abs=5e-4)
    by_head = replace(facts, scaling=1.0, head_width=1)
    attained = norm(head(by_head, u))
    assert attained > 2.0 * value(by_head)
    assert reasons(by_head) == ["the logits are scaled by 1 and the note needs 1/√d = 0.25"]
    corrected = BOUNDS.get("bidirectional")()
    found = corrected.value(by_head)
    assert corrected.applies(by_head) and found is not None and attained <= found
