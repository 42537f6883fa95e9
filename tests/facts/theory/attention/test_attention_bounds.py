"""The bounds of attention norms: values by hand, conditions in words, and matrices that attain them."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest

from leadline.theory import BOUNDS, AttentionFacts, Bound

NAMES = [
    "any-mask", "any-mask-measured", "bidirectional", "bidirectional-measured", "causal",
    "causal-measured", "column-sum", "cosh", "cosh-measured", "one", "pre-norm-as-written",
    "product", "sqrt-queries",
]  # fmt: skip


def bound(name: str) -> Bound:
    return BOUNDS.get(name)()


def reasons(name: str, facts: AttentionFacts) -> list[str]:
    return [c.because for c in bound(name).conditions(facts) if not c.holds]


def norm(matrix: np.ndarray) -> float:
    return float(np.linalg.svd(matrix, compute_uv=False)[0])


def with_span(
    n: int, span: float, *, mask: str = "none", queries: int | None = None
) -> AttentionFacts:
    """Facts whose Delta from the weights and whose measured span are both `span`."""
    return AttentionFacts(
        queries or n, n, mask=mask, scaling=1.0, query_radius=span / 2, key_radius=1.0,
        logit_span=span,
    )  # fmt: skip


def test_the_catalog_holds_the_thirteen_bounds() -> None:
    assert BOUNDS.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_bound_says_what_it_is_and_how_it_is_proved(name: str) -> None:
    one = bound(name)
    assert one.title and one.statement and one.source
    text = inspect.getdoc(type(one)) or ""
    assert "Assumptions: " in text and "roof" in text
    assert one.side == ("lower" if name == "one" else "upper")
    expected = "attention.product_norm" if name == "product" else "attention.spectral_norm"
    assert one.quantity == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_number_is_none_and_does_not_apply(name: str) -> None:
    facts = AttentionFacts(4, 4)
    if name in ("one", "product", "sqrt-queries"):
        assert bound(name).applies(facts)
    else:
        assert bound(name).value(facts) is None
        assert not bound(name).applies(facts)
        assert reasons(name, facts)


def test_one_is_the_root_of_queries_over_keys() -> None:
    assert bound("one").value(AttentionFacts(7, 7)) == 1.0
    assert bound("one").value(AttentionFacts(1, 4)) == 0.5
    assert norm(np.full((1, 4), 0.25)) == pytest.approx(0.5)


def test_one_needs_rows_that_sum_to_one() -> None:
    assert reasons("one", AttentionFacts(2, 2, stochastic=False)) == ["rows sum to less than one"]
    blind = AttentionFacts(3, 3, mask="other", allowed=(0, 2, 0))
    assert reasons("one", blind) == ["2 queries see none"]


def test_column_sum_is_the_root_of_the_measured_sum() -> None:
    facts = AttentionFacts(5, 5, column_sum=2.25)
    assert bound("column-sum").value(facts) == 1.5
    assert bound("column-sum").applies(facts)
    assert reasons("column-sum", AttentionFacts(5, 5)) == ["they were not measured"]


def test_sqrt_queries_is_attained_when_all_look_at_one_key() -> None:
    one_column = np.zeros((9, 4))
    one_column[:, 2] = 1.0
    assert (
        bound("sqrt-queries").value(AttentionFacts(9, 4)) == 3.0 == pytest.approx(norm(one_column))
    )


def test_product_is_the_root_of_n_and_needs_square_matrices() -> None:
    assert bound("product").value(AttentionFacts(9, 9, stochastic=False)) == 3.0
    assert reasons("product", AttentionFacts(9, 4)) == ["there are 9 queries and 4 keys"]


def test_a_product_stays_where_the_product_of_norms_explodes() -> None:
    generator = np.random.default_rng(0)
    product, norms = np.eye(8), 1.0
    for _ in range(100):
        weights = np.exp(3.0 * generator.standard_normal((8, 8)))
        weights /= weights.sum(1, keepdims=True)
        product, norms = weights @ product, norms * norm(weights)
    assert norm(product) <= math.sqrt(8) < 1e10 < norms


@pytest.mark.parametrize("suffix", ["", "-measured"])
def test_a_matrix_of_equal_rows_attains_the_bidirectional_bound(suffix: str) -> None:
    # n = 8, D = 3: one weight of e^3 against seven of 1.
    row = np.array([math.exp(3.0)] + [1.0] * 7)
    attained = norm(np.tile(row / row.sum(), (8, 1)))
    facts = with_span(8, 3.0)
    assert attained == pytest.approx(2.1156, abs=5e-5)
    assert bound("bidirectional" + suffix).value(facts) == pytest.approx(attained, rel=1e-14)
    assert bound("any-mask" + suffix).value(facts) == pytest.approx(attained, rel=1e-14)
    assert bound("cosh" + suffix).value(facts) == pytest.approx(math.cosh(1.5), rel=1e-15)
    assert math.sqrt(8 / (1 + 7 * math.exp(-3.0))) == pytest.approx(2.436, abs=5e-4)  # the note's


def test_rectangles_are_bounded_by_their_own_rows() -> None:
    row = np.array([math.exp(2.0)] + [1.0] * 5)
    attained = norm(np.tile(row / row.sum(), (3, 1)))
    facts = with_span(6, 2.0, queries=3)
    assert bound("bidirectional-measured").value(facts) == pytest.approx(attained, rel=1e-14)
    cosh = math.sqrt(3 / 6) * math.cosh(1.0)
    assert bound("cosh-measured").value(facts) == pytest.approx(cosh, rel=1e-15)


def test_cosh_ends_at_the_root_of_n_and_never_overflows() -> None:
    for span in (20.0, 1400.0, 1e6, math.inf):
        assert bound("cosh-measured").value(with_span(9, span)) == 3.0
    just_below = 2 * math.acosh(3.0) - 1e-6
    assert bound("cosh-measured").value(with_span(9, just_below)) == pytest.approx(3.0, rel=2e-6)
    assert bound("cosh-measured").value(with_span(9, just_below)) < 3.0


def test_cosh_is_never_below_the_sharp_form_and_meets_it_where_k_is_whole() -> None:
    for n in (1, 2, 9, 100):
        for span in (0.0, 0.3, 1.0, 4.0, 9.0):
            facts = with_span(n, span)
            sharp, free = bound("bidirectional").value(facts), bound("cosh").value(facts)
            assert sharp is not None and free is not None and sharp <= free * (1 + 1e-15)
    facts = with_span(9, math.log(2.0))
    assert bound("cosh").value(facts) == pytest.approx(
        bound("bidirectional").value(facts), rel=1e-14
    )


@pytest.mark.parametrize(("n", "expected"), [(2, 1.144), (8, 1.380), (64, 1.598), (512, 1.720)])
def test_uniform_causal_attention_attains_the_causal_bound(n: int, expected: float) -> None:
    uniform = np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]
    found = bound("causal").value(with_span(n, 0.0, mask="causal"))
    assert found == pytest.approx(norm(uniform), rel=1e-11)
    assert found == pytest.approx(expected, abs=6e-4)


def test_the_causal_bound_is_below_each_of_its_simple_forms() -> None:
    rows = np.arange(512)
    for span in (0.0, 0.2, 1.0, 2.0, 5.0, 30.0):
        found = bound("causal").value(with_span(512, span, mask="causal"))
        by_columns = math.sqrt((1 / (1 + rows * math.exp(-span))).sum())
        by_rows = bound("any-mask").value(with_span(512, span, mask="causal"))
        assert found is not None and by_rows is not None
        assert found <= min(by_columns, by_rows, 2 * math.exp(span), math.sqrt(512))


def test_the_causal_bound_takes_the_triangle_for_small_spans_and_the_rows_for_large_ones() -> None:
    def both(span: float) -> tuple[float | None, float | None]:
        facts = with_span(64, span, mask="causal")
        return bound("causal").value(facts), bound("any-mask").value(facts)

    small, rows = both(0.0)
    assert small is not None and rows is not None and small < 0.74 * rows
    large, rows = both(3.0)
    assert large == rows


def test_a_window_with_a_sink_refutes_the_causal_form_and_not_the_form_of_any_mask() -> None:
    n = 256
    seen = np.eye(n) + np.eye(n, k=-1)
    seen[:, 0] = 1.0
    seen = np.minimum(seen, 1.0)
    attained = norm(seen / seen.sum(1, keepdims=True))
    assert attained == pytest.approx(5.47, abs=5e-3)
    counts = tuple(int(count) for count in seen.sum(1))
    facts = AttentionFacts(
        n, n, mask="other", allowed=counts, scaling=1.0, query_radius=0.0, key_radius=1.0
    )
    causal, any_mask = bound("causal").value(facts), bound("any-mask").value(facts)
    assert causal is not None and causal < 2.0 < attained
    assert reasons("causal", facts) == [
        "the mask lets a query see 1 to 3 of 256 keys and is not the causal one"
    ]
    assert any_mask is not None and attained < any_mask
    assert any_mask == pytest.approx(math.sqrt(1 + 1 / 2 + 254 / 3), rel=1e-14)
    assert bound("any-mask").applies(facts)


def test_any_mask_needs_the_counts_of_its_rows() -> None:
    facts = AttentionFacts(3, 3, mask="other", logit_span=1.0)
    assert reasons("any-mask-measured", facts) == [
        "the mask is neither empty nor causal, and its rows were not counted"
    ]
    counted = AttentionFacts(3, 3, mask="other", allowed=(2, 2, 2), logit_span=0.0)
    assert bound("any-mask-measured").value(counted) == pytest.approx(math.sqrt(1.5))
    assert bound("any-mask-measured").applies(counted)


def test_a_mask_that_does_not_fit_is_named() -> None:
    causal = with_span(4, 1.0, mask="causal")
    for name in ("bidirectional", "cosh", "bidirectional-measured", "cosh-measured"):
        assert reasons(name, causal) == ["the mask is causal"]
        assert not bound(name).applies(causal)
    assert reasons("causal", with_span(4, 1.0)) == ["there is no mask"]
    same = AttentionFacts(2, 2, mask="other", allowed=(1, 1), logit_span=0.0)
    assert reasons("causal-measured", same) == [
        "the mask lets a query see 1 of 2 keys and is not the causal one"
    ]
    uncounted = AttentionFacts(2, 2, mask="other", logit_span=0.0)
    assert reasons("cosh-measured", uncounted) == ["the mask is neither empty nor causal"]


def test_a_measured_span_that_is_no_number_does_not_apply() -> None:
    assert reasons("any-mask-measured", AttentionFacts(4, 4)) == ["it was not measured"]
    nan = AttentionFacts(4, 4, logit_span=math.nan)
    assert reasons("any-mask-measured", nan) == ["it was measured as nan"]
    for name in ("bidirectional", "cosh", "any-mask"):
        assert not bound(f"{name}-measured").applies(nan)
    assert not bound("causal-measured").applies(
        AttentionFacts(4, 4, mask="causal", logit_span=math.nan)
    )


@pytest.mark.parametrize("name", ["bidirectional", "cosh", "causal", "any-mask"])
def test_the_weights_and_the_measurement_give_their_own_spans(name: str) -> None:
    mask = "causal" if name == "causal" else "none"
    facts = AttentionFacts(
        8, 8, mask=mask, scaling=0.5, query_radius=2.0, key_radius=1.0, logit_span=1.0
    )
    from_weights, measured = bound(name).value(facts), bound(f"{name}-measured").value(facts)
    assert from_weights == bound(name).value(with_span(8, 2.0, mask=mask))
    assert measured == bound(name).value(with_span(8, 1.0, mask=mask))
    assert measured is not None and from_weights is not None and measured < from_weights


def test_a_sink_lowers_rows_and_leaves_upper_bounds() -> None:
    # e^0 goes to the sink: two keys of weight e^1 and 1 share what is left.
    row = np.array([math.e, 1.0]) / (math.e + 2.0)
    attained = norm(np.tile(row, (2, 1)))
    facts = AttentionFacts(2, 2, stochastic=False, logit_span=1.0, column_sum=2 * row[0])
    for name in ("bidirectional-measured", "any-mask-measured", "column-sum", "sqrt-queries"):
        found = bound(name).value(facts)
        assert bound(name).applies(facts) and found is not None and attained < found


def test_an_endless_span_says_no_more_than_the_root_of_n() -> None:
    for name, mask in (("bidirectional", "none"), ("any-mask", "causal"), ("causal", "causal")):
        facts = with_span(16, math.inf, mask=mask)
        assert bound(f"{name}-measured").value(facts) == 4.0


def test_no_upper_bound_speaks_of_weights_that_no_softmax_makes() -> None:
    facts = AttentionFacts(
        queries=4, keys=4, column_sum=-0.5, logit_span=1.0, substochastic=False
    )  # fmt: skip
    for name, kind in BOUNDS.items():
        bound = kind()
        if bound.side == "upper":
            assert not bound.applies(facts), name
