"""The lower bounds with a skip connection: the true one, and the note's, which is false."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from leadline.theory import COLLAPSE_BOUNDS, LayerFacts, StackFacts
from leadline.theory.rank_collapse.skip_as_written import ROUNDING
from tests.synthetic_collapse import facts_of, forward, random_layer, res


def reasons(name: str, facts: StackFacts) -> list[str]:
    return [c.because for c in COLLAPSE_BOUNDS.get(name)().conditions(facts) if not c.holds]


def written(*, alignment: float | None = 0.0, overlap: float | None = 0.0) -> StackFacts:
    layer = LayerFacts(alignment=alignment, overlap=overlap)
    return StackFacts(tokens=3, layers=(layer,), skip=True, log10_frobenius=(0.0, 0.1))


def test_the_residual_stays_where_no_update_points_against_it() -> None:
    rng = np.random.default_rng(0)
    applied = 0
    for _ in range(300):
        layers = [random_layer(rng, width=4, heads=2, act="relu") for _ in range(2)]
        facts = facts_of(forward(rng.normal(size=(5, 4)), layers, skip=True), layers, skip=True)
        stated = COLLAPSE_BOUNDS.get("skip-keeps-residual")()
        if stated.applies(facts):
            applied += 1
            assert min(facts.log10_frobenius) >= facts.log10_frobenius[0] - 1e-12
    assert applied > 20


def test_updates_orthogonal_token_by_token_keep_it() -> None:
    x = np.array([[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0]])
    u = np.array([[0.0, 1.0], [0.0, -3.0], [0.0, 0.5]])
    assert not (u @ x.T).any()
    assert (res(x) * res(u)).sum() == 0
    assert np.linalg.norm(res(x + u)) > np.linalg.norm(res(x))


def test_the_relative_residual_may_vanish_all_the_same() -> None:
    x = np.array([[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0]])
    u = np.full((3, 2), 1e9)  # one token for all: nothing in it points against the residual
    assert (res(x) * res(u)).sum() == 0
    kept, size = (np.linalg.norm(one) for one in (res(x + u), x + u))
    assert kept == pytest.approx(np.linalg.norm(res(x))) and kept / size < 1e-8


def test_no_values_leave_the_residual_as_it_is() -> None:
    rng = np.random.default_rng(0)
    layers = [random_layer(rng, width=4, value=0.0) for _ in range(3)]
    facts = facts_of(forward(rng.normal(size=(5, 4)), layers, skip=True), layers, skip=True)
    assert facts.layers[0].alignment == pytest.approx(0.0, abs=1e-15)
    facts = replace(facts, layers=tuple(replace(one, alignment=0.0) for one in facts.layers))
    assert COLLAPSE_BOUNDS.get("skip-keeps-residual")().applies(facts)
    assert facts.log10_frobenius == pytest.approx(facts.log10_frobenius[:1] * 4)


def test_the_notes_bound_is_false_an_orthogonal_update_halves_the_residual() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 12)) + 1.0
    x *= 11.51 / np.linalg.norm(res(x))
    mean = x.mean(0)
    # U = -res(X)/2 + 1c', c along the mean token so that <X, U> = 0.
    c = mean * (res(x) ** 2).sum() / (2 * len(x) * (mean**2).sum())
    u = -0.5 * res(x) + c
    assert abs((x * u).sum()) < 1e-10
    assert np.linalg.norm(res(x)) == pytest.approx(11.51)
    assert np.linalg.norm(res(x + u)) == pytest.approx(11.51 / 2)
    assert (res(x) * res(u)).sum() < 0  # so the true statement does not apply


def test_the_smallest_case_that_loses_everything() -> None:
    x, u = np.array([[2.0], [0.0]]), np.array([[0.0], [2.0]])
    assert (x * u).sum() == 0 and np.linalg.norm(res(x)) == pytest.approx(math.sqrt(2))
    assert np.linalg.norm(res(x + u)) == 0


def test_the_false_statement_never_applies() -> None:
    facts = written()
    (why,) = reasons("skip-as-written", facts)
    assert why.startswith("the statement is false: an orthogonal update may take the residual away")
    assert not COLLAPSE_BOUNDS.get("skip-as-written")().applies(facts)
    assert COLLAPSE_BOUNDS.get("skip-keeps-residual")().applies(facts)


def test_what_the_updates_do_is_told() -> None:
    assert reasons("skip-keeps-residual", written(alignment=-0.25)) == [
        "an update points against the residual, cosine -0.25"
    ]
    for lost in (None, math.nan):
        assert reasons("skip-keeps-residual", written(alignment=lost)) == [
            "the angle between update and residual was not measured at every write"
        ]
        assert reasons("skip-as-written", written(overlap=lost))[0] == (
            "the angle between update and stream was not measured at every write"
        )
    assert reasons("skip-as-written", written(overlap=0.5))[0] == (
        "updates are not orthogonal to the stream, cosine 0.5"
    )
    assert ROUNDING == 1e-6
    assert len(reasons("skip-as-written", written(overlap=1e-6))) == 1
    assert len(reasons("skip-as-written", written(overlap=1.1e-6))) == 2


def test_the_whole_stream_must_be_kept() -> None:
    for facts, why in (
        (replace(written(), skip=False), "no write keeps the stream"),
        (replace(written(), norm=True), "a norm may follow the writes"),
        (
            replace(written(), keep=0.5),
            "a write keeps less or more than the stream, or a norm follows it",
        ),
    ):
        assert reasons("skip-keeps-residual", facts) == [why]
    assert reasons("skip-keeps-residual", replace(written(), norm=True, keep=1.0)) == []
