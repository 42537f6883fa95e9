"""Laws of depth beside a record: both ends of their bands, and what is said where they fail."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import pytest

import leadline
from leadline.errors import InputError, RecordError, UnknownName
from leadline.reading.bounds.evaluate import bounds
from leadline.reading.bounds.table import BoundResult, BoundsTable
from leadline.reading.bounds.terminal import bounds_screen
from leadline.record import Quantity, Reading, Record, Site
from leadline.theory import LAWS, StackFacts
from tests.synthetic import gpt2_record
from tests.synthetic_attention import attention_record

DEPTH = 3


def full(table: BoundsTable) -> str:
    """Every bound and every reason, as `leadline bounds --all` prints them."""
    return bounds_screen(table, everything=True).text()


def measured(**fields: Any) -> Record:
    small = {"depth": DEPTH, "width": 32, "heads": 2, "context": 16, "vocabulary": 40}
    model = leadline.Transformer(**(small | {"init": "xavier", "mlp": "relu"} | fields))
    inputs = leadline.random_tokens(model, examples=2, length=8, seed=0)
    return leadline.measure(model, inputs)


def with_jacobians(branch: float, through: list[float], *, error: float = 0.0) -> Record:
    record = measured()
    record.describe(Quantity("jacobian.branch", "b", "b", "b", lives_on="layer"))
    record.describe(Quantity("jacobian.through", "t", "t", "t"))
    for layer, value in enumerate(through, start=1):
        ends = {"lower": value - error, "upper": value + error} if error else {}
        at = Site("decoder", layer, point="block")
        record.append([Reading("jacobian.branch", at, "max", branch)])
        at = Site("decoder", layer)
        record.append([Reading("jacobian.through", at, "max", value, **ends)])
    return record


def ends(table: BoundsTable, name: str) -> tuple[BoundResult, BoundResult]:
    upper, lower = sorted((b for b in table.bounds if b.name == name), key=lambda b: b.side)[::-1]
    assert (upper.side, lower.side) == ("upper", "lower")
    return upper, lower


def test_the_default_probes_give_a_law_of_the_stream() -> None:
    record = measured()
    table = bounds(record, initial=True)
    upper, lower = ends(table, "xiong-stream")
    assert {bound.name for bound in table.bounds} == {"xiong-stream"}
    variances = np.asarray(record["stream.variance"])
    start = variances[0]
    for layer in range(1, DEPTH + 1):
        assert upper.rows[layer - 1].predicted == pytest.approx(start + layer * 33 / 25)
        assert lower.rows[layer - 1].predicted == pytest.approx(start + layer * 8 / 25)
    assert all(row.applies and not row.violated for row in (*upper.rows, *lower.rows))
    assert upper.rows[0].measured == pytest.approx(variances[1])
    assert upper.rows[0].ratio == pytest.approx(variances[1] / (start + 33 / 25))


def test_of_a_module_that_was_handed_over_it_is_not_known_whether_it_was_trained() -> None:
    table = bounds(measured())
    for end in ends(table, "xiong-stream"):
        assert not end.applying
        assert end.rows[0].because == (
            "it is not known whether the weights are as they were drawn",
        )
    # Both ends have one reason and one name.
    assert full(table).count("it is not known whether the weights are as they were drawn") == 1


def test_the_words_tell_both_ends_and_what_was_measured() -> None:
    text = full(bounds(measured(), initial=True))
    assert text.startswith("Bounds: identity pre 3x32\nNo bound is violated; all 2 apply")
    assert "\nLaws of depth: identity pre 3x32\n" in text
    assert "xiong-stream ≤" in text
    assert "xiong-stream ≥" in text
    assert "measured: the mean over the tokens." in text
    assert "3 of 3 layers" in text


def test_the_json_has_the_family_and_is_strict() -> None:
    told = bounds(measured(), initial=True).to_json()
    found = json.loads(json.dumps(told, allow_nan=False))["bounds"]
    assert [(one["name"], one["side"], one["family"]) for one in found] == [
        ("xiong-stream", "upper", "depth"),
        ("xiong-stream", "lower", "depth"),
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"init": "gpt2"}, "gpt2-scaling"),
        ({"connection": "weighted(alpha=depth)"}, "gpt2-scaling"),
        ({"placement": "layernorm_scaling"}, "layernorm-scaling"),
        ({"placement": "none"}, "unnormed-stream"),
        ({"placement": "none", "connection": "weighted(alpha=depth)"}, "noci"),
    ],
)
def test_every_design_gets_the_law_that_is_about_it(fields: dict[str, Any], expected: str) -> None:
    table = bounds(measured(**fields), initial=True)
    assert {bound.name for bound in table.bounds} == {expected}
    assert all(len(bound.applying) == DEPTH for bound in table.bounds)


@pytest.mark.parametrize(
    ("fields", "name", "eps"),
    [
        ({"norm": "layernorm(eps=10.0)"}, "xiong-stream", "10"),
        ({"init": "gpt2(std=0.002)"}, "gpt2-scaling", "1e-05"),
    ],
)
def test_a_law_does_not_apply_where_eps_is_not_small(
    fields: dict[str, Any], name: str, eps: str
) -> None:
    record = measured(**fields)
    start = np.asarray(record["stream.variance"]).min()
    for end in ends(bounds(record, names=[name], initial=True), name):
        assert not end.applying
        assert end.rows[0].because == (
            f"eps is {eps}, and the stream has a mean square of {start:.2g}",
        )


@pytest.mark.parametrize("positions", ["learned", "none"])
def test_gpt2_s_own_eps_is_small_against_its_own_embeddings(positions: str) -> None:
    record = measured(init="gpt2", positions=positions)
    embedded = 2 * 0.02**2 if positions == "learned" else 0.02**2
    assert np.asarray(record["stream.variance"])[0] == pytest.approx(embedded, rel=0.2)
    assert all(end.applying for end in ends(bounds(record, initial=True), "gpt2-scaling"))


def test_a_law_that_is_asked_for_says_why_it_does_not_apply() -> None:
    record = measured(placement="post")
    for end in ends(bounds(record, names=["xiong-stream"], initial=True), "xiong-stream"):
        assert end.rows[0].because == ("the placement is post",)
        assert not end.violations


def test_a_design_without_a_law_is_refused_with_what_to_measure() -> None:
    with pytest.raises(RecordError, match="nor what a law of depth says of a model like this"):
        bounds(measured(placement="post"), initial=True)


@pytest.mark.parametrize("names", [None, ["residual-product"]])
def test_what_a_refusal_says_to_measure_is_enough_for_the_product(names: list[str] | None) -> None:
    small = {"depth": 2, "width": 8, "heads": 2, "context": 8, "vocabulary": 16}
    model = leadline.Transformer(**small, placement="post")
    inputs = leadline.random_tokens(model, examples=1, length=4, seed=0)
    with pytest.raises(RecordError) as caught:
        bounds(leadline.measure(model, inputs, probes="jacobian"), names=names)
    (probe,) = re.findall(r'`--probes "(jacobian[^"]*)"` for residual-product', str(caught.value))
    found = bounds(leadline.measure(model, inputs, probes=[probe]), names=["residual-product"])
    assert all(len(end.applying) == 2 for end in ends(found, "residual-product"))


def test_without_a_recipe_a_law_is_told_only_when_it_is_asked_for() -> None:
    with pytest.raises(RecordError, match="neither attention readings"):
        bounds(gpt2_record())
    upper, _ = ends(bounds(gpt2_record(), names=["xiong-stream"]), "xiong-stream")
    assert "it is not known whether the init is xavier" in upper.rows[0].because
    assert upper.rows[0].predicted is None
    assert upper.rows[0].measured is not None


def test_laws_stand_behind_bounds_on_attention_in_a_table_of_their_own() -> None:
    small = {"depth": 2, "width": 16, "heads": 2, "context": 16, "vocabulary": 20}
    model = leadline.Transformer(**small)
    inputs = leadline.random_tokens(model, examples=1, length=6, seed=0)
    record = leadline.measure(model, inputs, probes="stream,attention")
    table = bounds(record)
    families = [part.bounds[0].family for part in table.families()]
    assert families == ["attention", "depth"]
    assert full(table).index("Bounds on attention") < full(table).index("Laws of depth")


def test_one_layer_can_be_asked_for() -> None:
    for end in ends(bounds(measured(), layer=2), "xiong-stream"):
        assert [row.layer for row in end.rows] == [2]
    with pytest.raises(RecordError, match="Layer 9 has no readings"):
        bounds(measured(), layer=9)


def test_a_law_over_depth_needs_several_models() -> None:
    with pytest.raises(InputError, match="several depths"):
        bounds(measured(), names=["xiong-last-gradient"])


def test_an_unknown_name_offers_the_laws_too() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'xiong-stream'"):
        bounds(measured(), names=["xiong-strem"])


def test_a_law_needs_readings_of_the_stream() -> None:
    with pytest.raises(RecordError, match="no variance of the stream"):
        bounds(attention_record(layers=1, heads=1, tokens=4), names=["xiong-stream"])


def test_the_facts_of_a_stack_do_not_answer_for_laws_of_depth() -> None:
    facts = StackFacts(tokens=4, layers=())
    with pytest.raises(InputError):
        bounds(facts, names=["xiong-stream"])


def test_a_product_within_its_band_violates_nothing() -> None:
    table = bounds(with_jacobians(0.5, [1.4, 1.9, 2.5]), names=["residual-product"])
    upper, lower = ends(table, "residual-product")
    assert not table.violated
    assert upper.log10
    assert upper.rows[2].predicted == pytest.approx(3 * math.log10(1.5))
    assert lower.rows[2].predicted == pytest.approx(3 * math.log10(0.5))
    assert upper.rows[2].ratio == pytest.approx(2.5 / 1.5**3)


@pytest.mark.parametrize(("value", "side"), [(1.6, "upper"), (0.4, "lower")])
def test_a_product_outside_of_its_band_is_a_violation(value: float, side: str) -> None:
    table = bounds(with_jacobians(0.5, [value, 1.0, 1.0]), names=["residual-product"])
    assert [(b.side, len(b.violations)) for b in table.bounds if b.violations] == [(side, 1)]
    assert f"VIOLATED: residual-product {'≤' if side == 'upper' else '≥'}" in full(table)


@pytest.mark.parametrize("value", [1.6, 0.4])
def test_what_its_interval_allows_is_no_violation(value: float) -> None:
    record = with_jacobians(0.5, [value, 1.0, 1.0], error=0.11)
    assert not bounds(record, names=["residual-product"]).violated


def test_rounding_is_no_violation() -> None:
    record = with_jacobians(0.5, [1.5 * (1 + 5e-7), 1.0, 1.0])
    assert not bounds(record, names=["residual-product"]).violated
    record = with_jacobians(0.5, [1.5 * (1 + 2e-6), 1.0, 1.0])
    assert bounds(record, names=["residual-product"]).violated


def test_a_branch_as_large_as_the_identity_leaves_a_lower_end_of_zero_without_a_ratio() -> None:
    _, lower = ends(bounds(with_jacobians(1.0, [1.0] * 3), names=["residual-product"]),
                    "residual-product")  # fmt: skip
    assert lower.rows[0].predicted == -math.inf
    assert math.isnan(lower.rows[0].ratio)
    assert not lower.violations


def test_a_law_in_the_mean_over_weights_is_never_violated() -> None:
    record = measured()
    record.append([Reading("stream.variance", Site("decoder", 2), "mean", 1e6, seed=1)])
    upper, _ = ends(bounds(record, initial=True), "xiong-stream")
    assert upper.rows[1].ratio > 1e4
    assert not upper.violations


@pytest.mark.parametrize("name", [n for n, law in LAWS.items() if law.along == "layers"])
def test_every_law_along_the_layers_can_be_asked_for(name: str) -> None:
    upper, lower = ends(bounds(measured(), names=[name]), name)
    assert len(upper.rows) == len(lower.rows) == DEPTH


def test_what_was_not_measured_is_told_with_what_measures_it() -> None:
    model = leadline.Transformer(depth=2, width=16, heads=2, vocabulary=20)
    whole = leadline.jacobian(model, leadline.random_tokens(model, examples=1, length=4, seed=0))
    answer = bounds(whole).to_json()["answer"]
    assert "|J_k - I| of every block was not measured; `leadline measure MODEL` with" in answer[-1]
    assert "jacobian(through=true)" in answer[-1]
