"""What theorems predict beside what was measured."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from leadline.catalog import Catalog
from leadline.errors import RecordError, UnknownName
from leadline.reading.bounds import evaluate as module
from leadline.reading.bounds.attention_facts import attention_sublayers, facts_of
from leadline.reading.bounds.evaluate import NOT_KNOWN, BoundAtHead, bounds, has_attention
from leadline.reading.bounds.table import BoundsTable
from leadline.reading.bounds.terminal import bounds_screen
from leadline.reading.bounds.text import reasons_of
from leadline.record import Quantity, Reading, Record, Site
from leadline.theory import BOUNDS, AttentionFacts, Bound, Condition
from tests.synthetic import gpt2_record
from tests.synthetic_attention import attention_record, seen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NORM = "attention.spectral_norm"
INGREDIENTS = {
    f"attention.{name}" for name in ("bias_range", "norm_gain", "query_weight", "scaling")
}


def full(table: BoundsTable) -> str:
    """Every bound and every reason, as `leadline bounds --all` prints them."""
    return bounds_screen(table, everything=True).text()


class Ceiling(Bound):
    """At most the number of keys."""

    title, statement, source = "keys", "x <= n", "by hand"

    def conditions(self, facts: AttentionFacts) -> list[Condition]:
        causal = facts.mask == "causal"
        odd = facts.keys % 2 == 1
        return [
            Condition("no causal mask", not causal, "the mask is causal" if causal else ""),
            Condition("an even number of keys", not odd, f"n = {facts.keys} is odd" if odd else ""),
        ]

    def value(self, facts: AttentionFacts) -> float | None:
        return float(facts.keys)


class Floor(Bound):
    """At least a tenth of the number of keys."""

    title, statement, source, side = "tenth", "x >= n / 10", "by hand", "lower"

    def conditions(self, facts: AttentionFacts) -> list[Condition]:
        return []

    def value(self, facts: AttentionFacts) -> float | None:
        return facts.keys / 10


class Scaled(Ceiling):
    """Needs the scaling."""

    def conditions(self, facts: AttentionFacts) -> list[Condition]:
        return []

    def value(self, facts: AttentionFacts) -> float | None:
        return facts.scaling


class Whole(Floor):
    """At most 9, of a quantity without heads."""

    side, quantity = "upper", "attention.product_norm"

    def value(self, facts: AttentionFacts) -> float | None:
        return 9.0


@pytest.fixture(autouse=True)
def bounds_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    known: Catalog[type[Bound]] = Catalog("bound")
    for name, bound in {
        "ceiling": Ceiling,
        "floor": Floor,
        "scaled": Scaled,
        "whole": Whole,
    }.items():
        known.register(name)(bound)
    monkeypatch.setattr(module, "BOUNDS", known)


def shape(keys: int, allowed: Sequence[Sequence[int]] = ()) -> dict[str, object]:
    return {"queries": keys, "keys": keys, "examples": 1, "allowed": allowed}


def record_of(
    readings: Sequence[Reading],
    *,
    shapes: Sequence[Mapping[str, object]] = (shape(4),),
    layers: int = 1,
    heads: int = 1,
    **told: object,
) -> Record:
    record = Record()
    for name in dict.fromkeys(reading.quantity for reading in readings):
        family = "attention" if name in INGREDIENTS else ""
        record.describe(Quantity(name, name, "x", "x", lives_on="sublayer", ingredient_of=family))
    record.append(readings)
    entry = {"heads": heads, "mask": "none", "shapes": list(shapes), **told}
    told_of = [seen("decoder", layer) | entry for layer in range(1, layers + 1)]
    record.note("attention", told_of)
    return record


def norm(
    value: float, statistic: str = "max", *, layer: int = 1, head: int | None = 1, **more: Any
) -> Reading:
    return Reading(
        NORM, Site("decoder", layer, 1, "attention", head=head), statistic, value, **more
    )


def part(
    name: str, value: float, statistic: str = "value", *, head: int | None = None, **more: Any
) -> Reading:
    site = Site("decoder", 1, 1, more.pop("point", "attention"), head=head)
    return Reading(f"attention.{name}", site, statistic, value, **more)


def only(record: Record, name: str) -> BoundAtHead:
    [bound] = bounds(record, names=[name]).bounds
    [row] = bound.rows
    return row


def facts_at(record: Record, head: int | None = 1) -> AttentionFacts:
    [sublayer] = attention_sublayers(record)
    [facts] = facts_of(record, [sublayer])[sublayer.address, head]
    return facts


# ---- predicted, measured, ratio ---------------------------------------------------------------


def test_an_upper_bound_is_the_largest_over_the_shapes_and_a_lower_one_the_smallest() -> None:
    record = record_of([norm(2.0)], shapes=[shape(4), shape(10), shape(6)])
    assert only(record, "ceiling").predicted == 10.0
    assert only(record, "floor").predicted == 0.4


def test_measured_is_the_largest_over_the_examples_with_its_interval() -> None:
    record = record_of([norm(1.5, "mean"), norm(2.0, lower=1.9, upper=2.1), norm(1.0, "min")])
    row = only(record, "ceiling")
    assert (row.measured, row.lower, row.upper, row.ratio) == (2.0, 1.9, 2.1, 0.5)
    assert bounds(record, names=["ceiling"]).bounds[0].statistic == "max"


@pytest.mark.parametrize(
    ("statistics", "used"),
    [
        (("min", "mean", "value", "max"), "min"),
        (("mean", "value", "max"), "mean"),
        (("value", "max"), "value"),
        (("max",), "max"),
    ],
)
def test_a_lower_bound_is_set_beside_the_smallest_there_is(
    statistics: tuple[str, ...], used: str
) -> None:
    values = {"min": 1.0, "mean": 1.5, "value": 1.6, "max": 2.0}
    record = record_of([norm(values[one], one) for one in statistics])
    [bound] = bounds(record, names=["floor"]).bounds
    assert (bound.statistic, bound.rows[0].measured) == (used, values[used])


@pytest.mark.parametrize(
    ("statistics", "used"), [(("mean", "value"), "value"), (("mean",), "mean")]
)
def test_an_upper_bound_does_without_the_largest(statistics: tuple[str, ...], used: str) -> None:
    record = record_of([norm(2.0, one) for one in statistics])
    assert bounds(record, names=["ceiling"]).bounds[0].statistic == used


def test_a_predicted_infinity_has_the_ratio_zero_and_zero_has_none() -> None:
    for scaling, ratio in ((math.inf, 0.0), (0.0, math.nan), (2.0, 1.5)):
        row = only(record_of([norm(3.0), part("scaling", scaling)]), "scaled")
        assert row.ratio == pytest.approx(ratio, nan_ok=True)


def test_every_layer_and_head_has_its_row() -> None:
    readings = [norm(l + h / 10, layer=l, head=h) for l in (1, 2, 3) for h in (1, 2)]
    [bound] = bounds(record_of(readings, layers=3, heads=2), names=["ceiling"]).bounds
    found = [(row.layer, row.head, row.measured) for row in bound.rows]
    assert found == [(l, h, l + h / 10) for l in (1, 2, 3) for h in (1, 2)]
    assert (bound.closest.layer, bound.closest.head) == (3, 2)  # pyright: ignore


def test_a_head_without_a_reading_is_told_as_not_measured() -> None:
    [bound] = bounds(record_of([norm(2.0)], heads=2), names=["ceiling"]).bounds
    missing = bound.rows[1]
    assert (missing.measured, missing.predicted, missing.violated) == (None, 4.0, False)
    assert math.isnan(missing.ratio)
    assert bound.closest is bound.rows[0]


def test_a_quantity_without_heads_has_one_row_per_sublayer_where_it_was_measured() -> None:
    site = Site("decoder", 2, 1, "attention")
    product = Reading("attention.product_norm", site, "max", 3.0)
    record = record_of([norm(2.0), product], layers=3, heads=2)
    assert (row := only(record, "whole")).head is None
    assert (row.layer, row.measured, row.predicted) == (2, 3.0, 9.0)
    # Where it was measured nowhere, the prediction still stands for every layer.
    [bound] = bounds(record_of([norm(2.0)], layers=3, heads=2), names=["whole"]).bounds
    assert [(row.layer, row.head, row.measured) for row in bound.rows] == [
        (1, None, None),
        (2, None, None),
        (3, None, None),
    ]


def test_two_attentions_in_one_sublayer_go_on_counting_their_heads() -> None:
    record = record_of([norm(1.0 + h, head=h) for h in (1, 2, 3)])
    entry = seen("decoder", 1) | {"mask": "none"}
    record.note(
        "attention",
        [
            entry | {"heads": 2, "shapes": [shape(4)]},
            entry | {"heads": 1, "first_head": 3, "shapes": [shape(8)]},
        ],
    )
    [bound] = bounds(record, names=["ceiling"]).bounds
    assert [(row.head, row.predicted, row.measured) for row in bound.rows] == [
        (1, 4.0, 2.0),
        (2, 4.0, 3.0),
        (3, 8.0, 4.0),
    ]
    [whole] = bounds(record, names=["whole"]).bounds
    assert len(whole.rows) == 1


def test_of_several_seeds_the_largest_counts_and_nan_is_not_hidden() -> None:
    seeds = [norm(1.0, seed=0), norm(3.0, seed=1), norm(2.0, seed=2)]
    assert only(record_of(seeds), "ceiling").measured == 3.0
    smallest = [norm(3.0, "min", seed=0), norm(1.0, "min", seed=1)]
    assert only(record_of(smallest), "floor").measured == 1.0
    lost = only(record_of([*seeds, norm(math.nan, seed=3)]), "ceiling")
    assert math.isnan(lost.measured or 0.0)
    assert not lost.violated


def test_the_first_run_and_its_last_step_are_read() -> None:
    readings = [
        norm(1.0, run="a", step=1),
        norm(2.0, run="a", step=5),
        norm(3.0, run="b", step=9),
    ]
    assert only(record_of(readings), "ceiling").measured == 2.0


# ---- applies, violated ------------------------------------------------------------------------


def test_a_bound_applies_where_every_assumption_holds_on_every_shape() -> None:
    assert only(record_of([norm(2.0)], shapes=[shape(4), shape(6)]), "ceiling").applies
    row = only(record_of([norm(2.0)], shapes=[shape(4), shape(5), shape(7)]), "ceiling")
    assert not row.applies
    assert row.because == ("n = 5 is odd", "n = 7 is odd")
    both = only(record_of([norm(2.0)], shapes=[shape(5)], mask="causal"), "ceiling")
    assert both.because == ("the mask is causal", "n = 5 is odd")


def test_a_number_that_is_missing_or_nan_keeps_a_bound_from_applying() -> None:
    row = only(record_of([norm(2.0)]), "scaled")
    assert (row.applies, row.predicted, row.because) == (False, None, (NOT_KNOWN,))
    lost = only(record_of([norm(2.0), part("scaling", math.nan)]), "scaled")
    assert (lost.applies, lost.predicted, lost.because) == (False, None, (NOT_KNOWN,))
    assert not only(record_of([norm(2.0)], shapes=[]), "floor").applies


@pytest.mark.parametrize(("excess", "violated"), [(2e-6, True), (0.5e-6, False), (-1.0, False)])
def test_an_upper_bound_may_be_passed_by_rounding_alone(excess: float, violated: bool) -> None:
    assert only(record_of([norm(4.0 * (1 + excess))]), "ceiling").violated is violated


@pytest.mark.parametrize(("excess", "violated"), [(2e-6, True), (0.5e-6, False), (-1.0, False)])
def test_a_lower_bound_may_be_missed_by_rounding_alone(excess: float, violated: bool) -> None:
    assert only(record_of([norm(0.4 * (1 - excess), "min")]), "floor").violated is violated


def test_the_certified_end_decides_not_the_value() -> None:
    assert not only(record_of([norm(4.1, lower=3.9, upper=4.2)]), "ceiling").violated
    assert only(record_of([norm(4.1, lower=4.05, upper=4.2)]), "ceiling").violated
    low = norm(0.3, "min", lower=0.2, upper=0.45)
    assert not only(record_of([low]), "floor").violated
    assert only(record_of([norm(0.3, "min", lower=0.2, upper=0.35)]), "floor").violated


def test_a_bound_that_does_not_apply_is_not_violated() -> None:
    record = record_of([norm(50.0)], mask="causal")
    row = only(record, "ceiling")
    assert (row.violated, row.ratio) == (False, 12.5)
    assert not bounds(record).violated


def test_violated_bounds_come_first_then_those_that_apply() -> None:
    record = record_of([norm(5.0), norm(0.1, "min")])
    table = bounds(record)
    assert table.violated
    names = [bound.name for bound in table.bounds]
    # Both by-head ones are violated, the upper first; `scaled` has no number, and what `whole`
    # bounds was not measured.
    assert names == ["ceiling", "floor", "scaled"]


def test_the_tightest_of_those_that_apply_comes_first() -> None:
    record = record_of([norm(1.0), part("scaling", 2.0)])
    assert [b.name for b in bounds(record, names=["ceiling", "scaled"]).bounds] == [
        "scaled",
        "ceiling",
    ]


def test_the_closest_row_is_one_to_which_the_bound_applies() -> None:
    record = record_of([norm(50.0, layer=1), norm(1.0, layer=2)], layers=2)
    causal, plain = record.provenance["attention"]
    record.note("attention", [causal | {"mask": "causal"}, plain])
    [bound] = bounds(record, names=["ceiling"]).bounds
    assert bound.closest is not None
    assert (bound.closest.layer, bound.closest.ratio) == (2, 0.25)
    [low] = bounds(record_of([norm(1.0), norm(2.0, head=2)], heads=2), names=["floor"]).bounds
    assert low.closest is not None
    assert low.closest.head == 1


# ---- facts ------------------------------------------------------------------------------------


def test_every_ingredient_reaches_the_facts() -> None:
    names = [
        "norm_gain",
        "norm_shift",
        "query_weight",
        "key_weight",
        "query_bias",
        "key_bias",
        "query_radius",
        "key_radius",
        "scaling",
        "soft_cap",
        "bias_range",
    ]
    readings = [part(name, 1.0 + at) for at, name in enumerate(names)]
    readings += [part("column_sum", 20.0, "max"), part("logit_span", 30.0, "max")]
    facts = facts_at(record_of([norm(2.0), *readings]))
    assert (facts.gain, facts.shift) == (1.0, 2.0)
    assert (facts.query_weight, facts.key_weight) == (3.0, 4.0)
    assert (facts.query_bias, facts.key_bias) == (5.0, 6.0)
    assert (facts.query_radius, facts.key_radius) == (7.0, 8.0)
    assert (facts.scaling, facts.soft_cap, facts.bias_range) == (9.0, 10.0, 11.0)
    assert (facts.column_sum, facts.logit_span) == (20.0, 30.0)


def test_the_provenance_reaches_the_facts() -> None:
    record = record_of(
        [norm(2.0)],
        shapes=[{"queries": 3, "keys": 5, "examples": 2, "allowed": [[2, 1], [5, 2]]}],
        mask="other",
        positions="rotary",
        stochastic=False,
    )
    facts = facts_at(record)
    assert (facts.queries, facts.keys, facts.allowed) == (3, 5, (2, 5, 5))
    assert (facts.mask, facts.positions, facts.stochastic) == ("other", "rotary", False)
    assert (facts.width, facts.head_width, facts.shared_input) == (32, 4, True)
    [sublayer] = attention_sublayers(record)
    assert (sublayer.module, sublayer.route, sublayer.proof_eps) == (
        "model.layers.0.attn",
        "kernel",
        1.3,
    )


def test_keys_of_cross_attention_come_from_elsewhere() -> None:
    record = record_of([part("spectral_norm", 2.0, "max", head=1, point="cross-attention")])
    record.note("attention", [record.provenance["attention"][0] | {"point": "cross-attention"}])
    assert not facts_at(record).shared_input


def test_words_that_are_not_known_are_taken_for_the_worst() -> None:
    facts = facts_at(record_of([norm(2.0)], mask="spiral", positions="lunar"))
    assert (facts.mask, facts.positions) == ("other", "unknown")


def test_a_bias_that_was_not_written_is_none_and_a_weight_that_was_not_is_not_known() -> None:
    facts = facts_at(record_of([norm(2.0), part("query_weight", 3.0), part("norm_gain", 1.0)]))
    assert (facts.query_bias, facts.shift) == (0.0, 0.0)
    assert (facts.key_weight, facts.key_bias) == (None, None)
    bare = facts_at(record_of([norm(2.0)]))
    assert (bare.gain, bare.shift, bare.query_bias, bare.soft_cap) == (None, None, None, None)


def test_a_position_bias_of_unknown_range_is_taken_for_infinite() -> None:
    assert facts_at(record_of([norm(2.0)], positions="bias")).bias_range == math.inf
    assert facts_at(record_of([norm(2.0)], positions="none")).bias_range == 0.0
    known = record_of([norm(2.0), part("bias_range", 4.0)], positions="bias")
    assert facts_at(known).bias_range == 4.0


def test_a_number_of_a_head_is_its_own_and_of_no_head_everyones() -> None:
    readings = [part("scaling", 0.5), *(part("query_weight", h, head=h) for h in (1, 2, 3))]
    record = record_of([norm(2.0), *readings], heads=3)
    assert [facts_at(record, h).query_weight for h in (1, 2, 3)] == [1, 2, 3]
    assert [facts_at(record, h).scaling for h in (1, 2, 3, None)] == [0.5] * 4
    # A whole sublayer has the largest of its heads.
    assert facts_at(record, None).query_weight == 3


def test_the_upper_end_of_an_ingredient_counts_and_the_largest_seed() -> None:
    readings = [
        part("column_sum", 2.0, "max", head=1, upper=2.5, seed=0),
        part("column_sum", 2.2, "max", head=1, seed=1),
    ]
    assert facts_at(record_of([norm(2.0), *readings])).column_sum == 2.5
    lost = [*readings, part("column_sum", math.nan, "max", head=1, seed=2)]
    assert math.isnan(facts_at(record_of([norm(2.0), *lost])).column_sum or 0.0)


# ---- errors -----------------------------------------------------------------------------------


def test_a_record_without_attention_is_refused_with_the_command_to_run() -> None:
    no_readings = gpt2_record()
    no_readings.note("attention", [seen("decoder", 1)])
    only_weights = record_of([part("scaling", 0.5)])
    no_entry = attention_record(layers=1, heads=1, tokens=3)
    no_entry.note("attention", "something else")
    for record in (gpt2_record(), no_readings, only_weights, no_entry):
        assert not has_attention(record)
        with pytest.raises(RecordError, match=r"`leadline measure MODEL --probes attention`"):
            bounds(record)
    assert has_attention(record_of([norm(2.0)]))


def test_a_layer_or_a_bound_that_is_not_there_is_refused() -> None:
    record = record_of([norm(2.0, layer=l) for l in (1, 2)], layers=2)
    assert {row.layer for b in bounds(record, layer=2).bounds for row in b.rows} == {2}
    with pytest.raises(RecordError, match=r"Layer 3 has no attention.*layers 1 to 2 have some"):
        bounds(record, layer=3)
    with pytest.raises(UnknownName, match="Did you mean 'ceiling'"):
        bounds(record, names=["cieling"])


# ---- words ------------------------------------------------------------------------------------


def row_with(*because: str, head: int = 1) -> BoundAtHead:
    return BoundAtHead(
        "decoder", 1, 1, "attention", head, 1.0, 1.0, None, None, 1.0, False, because, False
    )


def test_reasons_that_differ_in_numbers_alone_become_a_range() -> None:
    rows = [
        row_with("|beta| = 3.2", "the mask is causal", head=1),
        row_with("|beta| = 0.3", head=2),
        row_with("|beta| = 1e-05", "n = 4 and 1/√d = 0.25", "n = 5 and 1/√d = 0.25", head=3),
    ]
    assert reasons_of(rows) == [
        "|beta| = 1e-05 to 3.2 (3 heads)",
        "the mask is causal (1 head)",
        "n = 4 to 5 and 1/√d = 0.25 (1 head)",
    ]
    assert reasons_of(rows[:1], counted=False) == ["|beta| = 3.2", "the mask is causal"]


def test_the_text_has_a_line_per_bound_and_the_reasons_below() -> None:
    readings = [norm(l + h / 10, layer=l, head=h) for l in (1, 2) for h in (1, 2)]
    record = record_of(readings, layers=2, heads=2, shapes=[shape(5)])
    lines = full(bounds(record, names=["ceiling", "floor", "scaled"])).splitlines()
    assert lines[:2] == ["Bounds", "No bound is violated; 1 of 3 apply somewhere in this record."]
    table = lines.index("Bounds on attention")
    cells = {line.split("  ")[0]: line for line in lines[table + 2 : table + 6]}
    assert "floor    4 of 4 heads        0.5  1.1 to 2.2" in cells["floor"]
    assert "2.2  layer 1 head 1" in cells["floor"]
    assert "0 of 4 heads" in cells["ceiling"]
    assert "0.44  layer 2 head 2" in cells["ceiling"]
    assert "        -  1.1 to 2.2" in cells["scaled"]
    assert "ceiling: no, because n = 5 is odd (4 heads)" in lines
    assert f"scaled: no, because {NOT_KNOWN} (4 heads)" in lines


def test_bounds_with_the_same_reasons_share_a_line() -> None:
    record = record_of([norm(2.0)])
    known = module.BOUNDS
    known.register("scaled-too")(type("ScaledToo", (Scaled,), {}))
    assert f"scaled, scaled-too: no, because {NOT_KNOWN} (1 head)" in full(bounds(record))


def test_a_bound_that_applies_to_some_heads_says_where_it_does_not() -> None:
    record = record_of([norm(1.0, layer=l) for l in (1, 2)], layers=2)
    first, second = record.provenance["attention"]
    record.note("attention", [first | {"mask": "causal"}, second])
    text = full(bounds(record, names=["ceiling"]))
    assert "1 of 2 heads" in text
    assert "ceiling: not everywhere, because the mask is causal (1 head)" in text


def test_a_violation_is_the_first_thing_said() -> None:
    readings = [norm(4.1, lower=4.05, upper=4.2), norm(5.0, head=2), norm(1.0, head=3)]
    text = full(bounds(record_of(readings, heads=3), names=["ceiling"]))
    sentence = text.splitlines()[1]
    assert sentence.startswith(
        "VIOLATED: ceiling, x <= n. Predicted 4, measured 5 at layer 1 head 2"
    )
    assert ", and 1 more head." in sentence
    single = full(bounds(record_of(readings[:1]), names=["ceiling"]))
    assert "measured 4.1 (between 4.05 and 4.2) at layer 1 head 1. The" in single


def test_the_legend_says_which_values_were_measured() -> None:
    record = record_of([norm(2.0), norm(1.5, "mean")])
    text = full(bounds(record, names=["ceiling", "floor"]))
    assert "measured: the largest over the examples; for floor: the mean over the examples." in text
    assert "the largest (of a lower bound the smallest)" in text
    assert "the smallest, and where" in full(bounds(record, names=["floor"]))
    assert "the largest, and where" in full(bounds(record, names=["ceiling"]))


def test_stacks_and_roles_are_named_where_there_are_several() -> None:
    record = record_of(
        [norm(2.0), part("spectral_norm", 3.0, "max", head=1, point="cross-attention")]
    )
    [entry] = record.provenance["attention"]
    record.note("attention", [entry, entry | {"point": "cross-attention"}])
    assert "cross-attention layer 1 head 1" in full(bounds(record, names=["ceiling"]))


def test_nan_and_infinity_are_told() -> None:
    record = record_of([norm(math.nan), norm(2.0, head=2), part("scaling", math.inf)], heads=2)
    text = full(bounds(record, names=["scaled"]))
    assert "inf  2 (1 nan)" in text
    assert "nan" in full(bounds(record_of([norm(math.nan)]), names=["ceiling"]))


def test_notebook_form_shows_names_as_text() -> None:
    record = record_of([norm(5.0)])
    record.note("model", {"name": "<b>x</b>"})
    html = bounds(record)._repr_html_()
    assert "&lt;b&gt;x" in html
    assert "<b>" not in html
    assert "VIOLATED: ceiling, x &lt;= n" in html


def test_json_is_strict_and_holds_every_row() -> None:
    record = record_of([norm(math.nan), norm(2.0, head=2), part("scaling", math.inf)], heads=2)
    record.note("model", {"name": "tiny"})
    data = json.loads(json.dumps(bounds(record).to_json(), allow_nan=False))
    assert (data["schema"], data["name"], data["violated"]) == (1, "tiny", False)
    scaled = next(bound for bound in data["bounds"] if bound["name"] == "scaled")
    assert (scaled["applies_to"], scaled["violated"], scaled["statistic"]) == (2, 0, "max")
    first, second = scaled["rows"]
    assert (first["measured"], first["ratio"]) == (None, None)
    assert (second["predicted"], second["measured"], second["ratio"]) == ("Infinity", 2.0, 0.0)
    assert scaled["closest"] == second
    ceiling = next(bound for bound in data["bounds"] if bound["name"] == "ceiling")
    assert (ceiling["title"], ceiling["statement"], ceiling["source"]) == (
        "keys",
        "x <= n",
        "by hand",
    )


# ---- the theorems themselves -------------------------------------------------------------------


@pytest.mark.parametrize("causal", [True, False])
def test_no_theorem_is_violated_by_heads_computed_by_their_definition(
    causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BOUNDS", BOUNDS)
    table = bounds(attention_record(layers=4, heads=4, tokens=24, causal=causal))
    assert not table.violated
    applying = {bound.name for bound in table.bounds if len(bound.applying) == len(bound.rows)}
    assert {"column-sum", "sqrt-queries", "one", "product", "any-mask"} <= applying
    assert ("causal" in applying) is causal
    assert ("bidirectional" in applying) is not causal
    by_name = {bound.name: bound for bound in table.bounds}
    root = by_name["sqrt-queries"]
    assert {row.predicted for row in root.rows} == {math.sqrt(24)}
    note = by_name["pre-norm-as-written"]
    assert not note.applying
    assert all(any(why.startswith("|beta| = ") for why in row.because) for row in note.rows)
