"""Rank collapse from a record: facts as they are, rows per layer, and what counts as evidence."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leadline
from leadline.errors import InputError, RecordError, UnknownName
from leadline.reading.bounds.evaluate import bounds, has_attention, has_collapse
from leadline.reading.bounds.rank_collapse.applied_bounds import LOG_ROUNDING, ROUNDING
from leadline.reading.bounds.rank_collapse.facts import collapse_stacks
from leadline.reading.bounds.table import BoundResult, BoundsTable
from leadline.reading.bounds.terminal import bounds_screen
from leadline.record import Quantity, Reading, Record, Site
from leadline.theory import COLLAPSE_BOUNDS, StackFacts
from tests.synthetic import gpt2_record
from tests.synthetic_attention import attention_record
from tests.synthetic_collapse import (
    Layer,
    Run,
    collapse_record,
    facts_of,
    forward,
    random_layer,
)

DEPTH = 3
CUBIC = [name for name in COLLAPSE_BOUNDS if COLLAPSE_BOUNDS.get(name).side == "upper"]


def full(table: BoundsTable) -> str:
    """Every bound and every reason, as `leadline bounds --all` prints them."""
    return bounds_screen(table, everything=True).text()


def network(
    *, heads: int = 2, act: str = "", seed: int = 0, causal: bool = False, skip: bool = False
) -> tuple[Run, list[Layer]]:
    rng = np.random.default_rng(seed)
    layers = [random_layer(rng, width=5, heads=heads, act=act, value=2.0) for _ in range(DEPTH)]
    return forward(rng.normal(size=(6, 5)), layers, causal=causal, skip=skip), layers


@pytest.fixture(scope="module")
def plain() -> Record:
    return collapse_record(*network())


def result(table: BoundsTable, name: str) -> BoundResult:
    return next(one for one in table.bounds if one.name == name)


def one_stack(record: Record) -> Any:
    [stack] = collapse_stacks(record)
    return stack


def whole(record: Record) -> StackFacts:
    """The facts of all layers."""
    return one_stack(record).prefixes[-1].facts


def close(found: StackFacts, expected: StackFacts, *, fields: tuple[str, ...]) -> None:
    for name in fields:
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9), name


# --- facts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ["", "relu"])
def test_a_record_gives_the_facts_that_it_was_made_of(act: str) -> None:
    run, layers = network(act=act)
    found, expected = whole(collapse_record(run, layers)), facts_of(run, layers)
    assert (found.tokens, found.mask, found.skip, found.norm) == (6, "none", False, False)
    assert found.layered and found.plain and found.stochastic and not found.turned
    for here, there in zip(found.layers, expected.layers, strict=True):
        assert here == there
    close(found, expected, fields=("log10_frobenius",))
    # Bounds start from the upper end of what was read.
    for name in ("log10_composite", "log10_smallest"):
        for here, there in zip(getattr(found, name), getattr(expected, name), strict=True):
            assert there <= here <= there + 1e-2


def test_the_largest_over_the_examples_is_read_before_the_mean() -> None:
    run, layers = network()
    record = collapse_record(run, layers, statistic="max", examples=4)
    record.append([Reading("tokens.composite_residual", Site("encoder", 0), "mean", 1e-9)])
    stack = one_stack(record)
    assert stack.statistics["composite"] == "max"
    assert whole(record).log10_composite[0] > 0
    table = bounds(record)
    assert all(row.applies for row in result(table, "collapse-proved").rows)
    assert result(table, "collapse-proved").statistic == "max"


def test_a_mean_over_several_examples_is_the_residual_of_none() -> None:
    run, layers = network()
    table = bounds(collapse_record(run, layers, examples=4))
    why = "the residual is a mean over 4 examples, and the statement is about one"
    assert result(table, "collapse-proved").rows[0].because == (why,)
    assert why not in result(table, "skip-keeps-residual").rows[0].because


def test_masks_norms_and_skips_come_from_the_provenance() -> None:
    def facts(**options: Any) -> StackFacts:
        run, layers = network(causal=options.get("causal", False), skip=options.get("skip", False))
        return whole(collapse_record(run, layers, **options))

    assert facts(causal=True).mask == "causal"
    assert facts(skip=True).skip and facts(skip=True).keep == 1.0 and facts().keep == 0.0
    assert facts(placement="pre").norm and facts(skip=True, placement="pre").keep == 1.0
    post = facts(skip=True, placement="post", settle="blocks.0.norm")
    assert post.norm and post.keep == 0.0


def changed(change: Any) -> StackFacts:
    """The facts of a record whose provenance was changed."""
    record = collapse_record(*network())
    anatomy, attention = record.provenance["anatomy"], record.provenance["attention"]
    change(anatomy["layers"], attention)
    record.note("anatomy", anatomy)
    record.note("attention", attention)
    return whole(record)


def test_what_is_built_otherwise_is_noticed() -> None:
    assert changed(lambda blocks, seen: blocks[1].update(opening="norm")).norm
    assert not changed(lambda blocks, seen: blocks[1]["sublayers"][0].update(role="mixer")).layered
    assert not changed(lambda blocks, seen: blocks[0]["sublayers"][0].update(parallel=True)).layered
    assert changed(lambda blocks, seen: blocks[2]["sublayers"][0].update(keep=None)).skip
    assert changed(lambda blocks, seen: seen[1].update(positions="rotary")).turned
    assert changed(lambda blocks, seen: seen[1].update(positions="bias")).turned is True
    assert changed(lambda blocks, seen: seen[1].update(positions="unknown")).turned is None
    both = {0: "unknown", 1: "rotary"}
    assert changed(
        lambda blocks, seen: [seen[at].update(positions=how) for at, how in both.items()]
    ).turned
    assert not changed(lambda blocks, seen: seen[1].update(qk_norm=True)).plain
    assert not changed(lambda blocks, seen: seen[1].update(stochastic=False)).stochastic
    assert changed(lambda blocks, seen: seen[1].update(mask="causal")).mask == "other"
    assert changed(lambda blocks, seen: seen[0]["shapes"][0].update(queries=9)).tokens == 9


def test_a_soft_cap_is_noticed() -> None:
    record = collapse_record(*network())
    record.describe(Quantity("attention.soft_cap", "cap", "c", "c", lives_on="sublayer"))
    record.append([Reading("attention.soft_cap", Site("encoder", 1, 1, "attention"), "value", 5.0)])
    assert not whole(record).plain


def test_the_scaling_is_told_or_read() -> None:
    record = collapse_record(*network())
    told = record.provenance["attention"]
    record.note("attention", [{**one, "scaling": None} for one in told])
    assert whole(record).layers[0].scaling is None
    record.describe(Quantity("attention.scaling", "s", "s", "s", lives_on="sublayer"))
    record.append([Reading("attention.scaling", Site("encoder", 1, 1, "attention"), "value", 0.25)])
    assert [layer.scaling for layer in whole(record).layers] == [0.25, None, None]


def test_an_mlp_without_a_constant_has_none() -> None:
    run, layers = network(act="relu")
    record = collapse_record(run, layers)
    anatomy = record.provenance["anatomy"]
    anatomy["layers"][1]["sublayers"][1]["sublayer"] = 7  # so that its reading is not found
    record.note("anatomy", anatomy)
    facts = whole(record)
    assert facts.layers[1].lipschitz is None and facts.layers[1].alignment is None
    assert facts.layers[0].lipschitz is not None
    rows = result(bounds(record), "collapse-proved").rows
    assert rows[0].applies and rows[0].because == ()
    assert rows[1].because == rows[2].because == ("the MLP has none that is known",)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda seen: seen[1].update(altered=True),
            "attention weights are changed after the softmax",
        ),
        (lambda seen: seen.append(dict(seen[0])), "a sublayer runs attention more than once"),
        (lambda seen: seen.pop(0), "attention was not seen in 1 of 3 layers"),
    ],
)
def test_attention_that_is_not_known_is_told(change: Any, why: str) -> None:
    record = collapse_record(*network())
    attention = record.provenance["attention"]
    change(attention)
    record.note("attention", attention)
    table = bounds(record)
    assert why in result(table, "collapse-proved").rows[-1].because
    assert why in result(table, "collapse-cubic-law").rows[-1].because
    assert why not in result(table, "skip-keeps-residual").rows[-1].because


def test_without_an_anatomy_nothing_applies() -> None:
    record = collapse_record(*network())
    record.note("anatomy", {"stacks": {"encoder": {"depth": DEPTH}}})
    for found in bounds(record).bounds:
        assert found.applying == ()
        assert found.rows[0].because == (
            "the record does not say what the layers keep and where norms stand",
        )


# --- rows ------------------------------------------------------------------------------------


def test_every_statement_has_a_row_after_every_layer(plain: Record) -> None:
    table = bounds(plain)
    assert {one.name for one in table.bounds} == set(COLLAPSE_BOUNDS.names())
    for found in table.bounds:
        assert found.log10
        assert [row.layer for row in found.rows] == [1, 2, 3]
        assert {(row.stack, row.sublayer, row.point, row.head) for row in found.rows} == {
            ("encoder", None, "stream", None)
        }


def test_rows_hold_what_the_statements_say_and_what_was_read(plain: Record) -> None:
    run, layers = network()
    facts = facts_of(run, layers)
    found = result(bounds(plain), "collapse-proved")
    expected = COLLAPSE_BOUNDS.get("collapse-proved")().log10_values(facts)
    assert expected is not None
    for row in found.rows:
        assert row.predicted == pytest.approx(expected[row.layer], abs=1e-6)
        assert row.measured == pytest.approx(facts.log10_composite[row.layer], abs=1e-12)
        assert row.ratio == pytest.approx(10 ** (row.measured - row.predicted))
        assert row.lower <= row.measured <= row.upper
    assert (
        result(bounds(plain), "collapse-smallest").quantity == "tokens.smallest_composite_residual"
    )
    assert result(bounds(plain), "skip-keeps-residual").quantity == "tokens.residual"


def test_no_statement_is_violated_by_networks_that_obey_it() -> None:
    for seed in range(20):
        for heads in (1, 3):
            for act in ("", "gelu"):
                table = bounds(collapse_record(*network(seed=seed, heads=heads, act=act)))
                assert not table.violated
                applying = {one.name for one in table.bounds if one.applying}
                expected = set(CUBIC) - ({"collapse-published"} if heads > 1 else set())
                assert applying == expected | (set() if act else {"collapse-cubic-law"})


def test_a_layer_counts_from_where_it_stands_on() -> None:
    record = collapse_record(*network(heads=1))
    attention = record.provenance["attention"]
    attention[1]["positions"] = "rotary"
    record.note("attention", attention)
    rows = result(bounds(record), "collapse-proved").rows
    assert [row.applies for row in rows] == [True, False, False]
    assert rows[1].because == ("positions enter the logits",)
    plain = bounds(collapse_record(*network(heads=1)))
    # The published bound of l layers takes the largest numbers of these l.
    for row in result(plain, "collapse-published").rows:
        run, layers = network(heads=1)
        first = forward(run.streams[0], layers[: row.layer])
        facts = facts_of(first, layers[: row.layer])
        expected = COLLAPSE_BOUNDS.get("collapse-published")().log10_values(facts)
        assert expected is not None
        assert row.predicted == pytest.approx(expected[-1], abs=1e-6)


def test_two_stacks_have_rows_each() -> None:
    record = collapse_record(*network())
    first = record.provenance
    collapse_record(*network(seed=1), stack="other", record=record)
    second = record.provenance
    for key in ("anatomy", "attention"):
        if key == "anatomy":
            stacks = {**first[key]["stacks"], **second[key]["stacks"]}
            merged: Any = {"layers": first[key]["layers"] + second[key]["layers"], "stacks": stacks}
        else:
            merged = first[key] + second[key]
        record.note(key, merged)
    rows = result(bounds(record), "collapse-proved").rows
    assert [(row.stack, row.layer) for row in rows] == [
        (stack, layer) for stack in ("encoder", "other") for layer in (1, 2, 3)
    ]
    assert all(row.applies for row in rows)


def test_one_layer_alone(plain: Record) -> None:
    table = bounds(plain, layer=2)
    assert all([row.layer for row in found.rows] == [2] for found in table.bounds)
    with pytest.raises(RecordError, match=r"Layer 9 has no residuals.*layers 1 to 3 have some"):
        bounds(plain, layer=9)


def test_names_choose_from_both_families(plain: Record) -> None:
    assert [one.name for one in bounds(plain, names=["collapse-proved"]).bounds] == [
        "collapse-proved"
    ]
    with pytest.raises(RecordError, match="no attention readings"):
        bounds(plain, names=["column-sum"])
    with pytest.raises(
        RecordError, match=r"no composite residuals.*--probes tokens,residual,collapse"
    ):
        bounds(attention_record(layers=2, heads=2, tokens=8), names=["collapse-proved"])
    with pytest.raises(UnknownName, match=r"colapse-proved.*Did you mean 'collapse-proved'"):
        bounds(plain, names=["colapse-proved"])


def test_which_records_have_what(plain: Record) -> None:
    assert has_collapse(plain) and not has_attention(plain)
    attention = attention_record(layers=2, heads=2, tokens=8)
    assert has_attention(attention) and not has_collapse(attention)
    assert not has_collapse(gpt2_record())
    assert not any(one.log10 for one in bounds(attention).bounds)


def test_residuals_without_ingredients_say_that_numbers_are_missing() -> None:
    record = collapse_record(*network(), probes=("residual",))
    found = result(bounds(record), "collapse-proved")
    assert found.rows[0].predicted is None and found.rows[0].measured is not None
    assert not found.applying and math.isnan(found.rows[0].ratio)


PROBES = "measure with --probes tokens,residual,collapse"


@pytest.mark.parametrize(
    ("left_out", "measures"),
    [
        (("tokens.residual",), ("frobenius",)),
        (
            ("tokens.composite_residual", "tokens.smallest_composite_residual"),
            ("composite", "smallest"),
        ),
    ],
)
def test_statements_without_a_residual_stay_and_say_which_is_missing(
    left_out: tuple[str, ...], measures: tuple[str, ...]
) -> None:
    record = without(collapse_record(*network()), *left_out)
    table = bounds(record)
    assert {one.name for one in table.bounds} == set(COLLAPSE_BOUNDS.names())
    for found in table.bounds:
        because = [row.because for row in found.rows]
        missing = f"{found.quantity} is not in the record; {PROBES}"
        assert len(because) == DEPTH
        if COLLAPSE_BOUNDS.get(found.name).measure in measures:
            assert not found.applying and all(why[0] == missing for why in because)
        else:
            assert not any(missing in why for why in because)
    assert f"{left_out[0]} is not in the record; {PROBES} (3 layers)" in full(table)


def test_ingredients_alone_name_the_probes_that_are_missing() -> None:
    record = without(
        collapse_record(*network()), "tokens.residual", "tokens.composite_residual",
        "tokens.smallest_composite_residual",
    )  # fmt: skip
    table = bounds(record)
    assert {one.name for one in table.bounds} == set(COLLAPSE_BOUNDS.names())
    assert all(PROBES in row.because[0] for one in table.bounds for row in one.rows)
    assert all(len(one.rows) == DEPTH for one in table.bounds)


def test_one_token_is_told_as_such() -> None:
    record = without(collapse_record(*network()), "tokens.residual")
    record.note("input", {"examples": 1, "longest": 1})
    why = result(bounds(record), "skip-keeps-residual").rows[0].because[0]
    assert why == "tokens.residual is about several tokens, and the input has one"


def without(record: Record, *quantities: str) -> Record:
    """The record less some quantities."""
    kept = Record()
    for name, quantity in record.quantities.items():
        kept.describe(quantity)
        if name not in quantities:
            kept.append(record.select(name))
    for key, value in record.provenance.items():
        kept.note(key, value)
    return kept


def test_where_queries_come_from_is_told_as_unknown_where_it_was_not_found() -> None:
    record = collapse_record(*network(heads=1))
    attention = record.provenance["attention"]
    attention[2]["positions"] = "unknown"
    record.note("attention", attention)
    rows = result(bounds(record), "collapse-proved").rows
    assert [row.applies for row in rows] == [True, True, False]
    assert rows[2].because == (
        "where queries and keys come from was not found, so it is not known whether positions "
        "enter the logits",
    )


def test_attention_and_collapse_stand_in_one_table_and_in_two_families() -> None:
    record = attention_record(layers=DEPTH, heads=2, tokens=8)
    attention = record.provenance["attention"]
    collapse_record(*network(), record=record)
    record.note("attention", attention + record.provenance["attention"])
    table = bounds(record)
    first, second = table.families()
    assert not any(one.log10 for one in first.bounds) and all(one.log10 for one in second.bounds)
    assert [*first.bounds, *second.bounds] == list(table.bounds)
    text = full(table)
    assert text.index("Bounds on attention") < text.index("Bounds on rank collapse")
    # The places of the first are told as if it stood alone.
    assert "layer 3 head 2" in text and "attention layer" not in text


# --- evidence ----------------------------------------------------------------------------------


def at(
    record: Record, layer: int, value: float, *, lower: float | None, upper: float | None
) -> Record:
    """The record with another composite residual after a layer, that of a second run."""
    other = collapse_record(*network(), probes=("collapse",))
    kept = [one for one in record.select("tokens.composite_residual") if one.site.layer != layer]
    new = Reading("tokens.composite_residual", Site("encoder", layer), "mean", value, lower, upper)
    other.append([*kept, new])
    return other


def test_a_residual_above_the_bound_violates_it(plain: Record) -> None:
    record = at(plain, 1, 1e9, lower=0.9e9, upper=1.1e9)
    table = bounds(record, names=["collapse-proved", "collapse-published"])
    assert table.violated
    [broken] = result(table, "collapse-proved").violations
    assert broken.layer == 1 and broken.ratio > 1
    assert not result(table, "collapse-published").violations  # two heads: it does not apply
    text = full(table)
    assert "VIOLATED: collapse-proved" in text
    assert "measured 10^9.0000 (between 10^8.9542 and 10^9.0414) at layer 1." in text


@pytest.mark.parametrize("lower", [0.0, None])
def test_what_may_be_rounding_is_no_evidence(plain: Record, lower: float | None) -> None:
    record = at(plain, 1, 1e9, lower=lower, upper=2e9)
    found = result(bounds(record), "collapse-proved")
    assert not found.violations and found.rows[0].measured == pytest.approx(9.0)
    assert found.rows[0].lower == (None if lower is None else -math.inf)


def test_what_is_at_the_floor_of_rounding_is_left_out_and_told(plain: Record) -> None:
    record = at(plain, 2, 1e15, lower=0.0, upper=2e15)
    found = result(bounds(record), "collapse-proved")
    assert found.rows[1].ratio > 1
    assert found.closest is not None and found.closest.layer == 1
    assert "No more than rounding, and left out: layer 2." in full(bounds(record))


def test_collapsed_tokens_of_low_precision_violate_nothing() -> None:
    rng = np.random.default_rng(0)
    layers = [random_layer(rng, width=5, query_key=0.01, value=0.5) for _ in range(6)]
    run = forward(rng.normal(size=(6, 5)), layers)
    # What separates tokens at the end is noise of the size of float32's.
    noisy = Run(
        [x * (1 + 1e-7 * rng.normal(size=x.shape)) for x in run.streams], run.patterns, run.writes
    )
    record = collapse_record(noisy, layers, eps=2.0**-23)
    table = bounds(record)
    proved = result(table, "collapse-proved")
    assert proved.rows[-1].measured > proved.rows[-1].predicted + 50
    assert proved.applying and not table.violated
    # The noise is a violation where nothing is known of it.
    exact = bounds(facts_of(noisy, layers))
    assert result(exact, "collapse-proved").violations


def shifted(by: float, name: str = "collapse-proved") -> BoundResult:
    """One layer whose residual stands `by` above what a bound predicts, in log10."""
    run, layers = network()
    facts = facts_of(run, layers)
    facts = replace(
        facts,
        layers=facts.layers[:1],
        log10_composite=facts.log10_composite[:2],
        log10_smallest=(),
        log10_frobenius=(),
    )
    values = COLLAPSE_BOUNDS.get(name)().log10_values(facts)
    assert values is not None
    facts = replace(facts, log10_composite=(facts.log10_composite[0], values[1] + by))
    return result(bounds(facts), name)


def test_a_millionth_is_rounding() -> None:
    assert ROUNDING == 1e-6 and LOG_ROUNDING == 1e-9
    assert not shifted(math.log10(1 + 0.9e-6)).violations
    assert shifted(math.log10(1 + 1.2e-6)).violations


def test_logarithms_of_any_size_are_compared() -> None:
    facts = replace(
        facts_of(*network()), log10_composite=(-1e17, -3e17, -9e17, -2.7e18), log10_smallest=()
    )
    found = result(bounds(facts), "collapse-proved")
    assert not found.violations and found.rows[-1].ratio == pytest.approx(1.0, abs=1)
    high = replace(facts, log10_composite=(-1e17, -2.9e17, -9e17, -2.7e18))
    broken = result(bounds(high), "collapse-proved").rows[0]
    assert broken.violated and broken.ratio == math.inf
    low = replace(facts, log10_composite=(-1e17, -3.1e17, -9e17, -2.7e18))
    assert result(bounds(low), "collapse-proved").rows[0].ratio == 0.0


def test_zero_residuals_have_a_ratio_where_there_is_one() -> None:
    facts = replace(
        facts_of(*network()),
        log10_composite=(0.0, -math.inf, -math.inf, -math.inf),
        log10_smallest=(-math.inf,) * 4,
    )
    rows = result(bounds(facts), "collapse-proved").rows
    assert rows[0].ratio == 0.0 and not rows[0].violated
    rows = result(bounds(facts), "collapse-one-layer").rows
    assert math.isnan(rows[1].ratio) and not rows[1].violated
    rows = result(bounds(facts), "collapse-smallest").rows
    assert not any(row.violated for row in rows)


def test_a_residual_where_none_may_be_is_a_violation() -> None:
    facts = facts_of(*network())
    facts = replace(facts, log10_composite=(-math.inf, -5.0, -5.0, -5.0), log10_smallest=())
    rows = result(bounds(facts), "collapse-proved").rows
    assert rows[0].violated and rows[0].ratio == math.inf


def test_the_lower_bound_is_violated_by_the_upper_end() -> None:
    rng = np.random.default_rng(1)
    layers = [random_layer(rng, width=4, value=0.0)]
    facts = facts_of(forward(rng.normal(size=(5, 4)), layers, skip=True), layers, skip=True)
    facts = replace(facts, layers=(replace(facts.layers[0], alignment=0.0),))
    assert not bounds(facts, names=["skip-keeps-residual"]).violated
    fallen = replace(facts, log10_frobenius=(0.5, 0.4))
    table = bounds(fallen, names=["skip-keeps-residual", "skip-as-written"])
    assert [one.name for one in table.bounds if one.violations] == ["skip-keeps-residual"]


def test_a_law_is_never_violated_and_its_closest_row_is_nearest_to_one() -> None:
    facts = facts_of(*network())
    laws = (-1.0, -2.0, -3.0)
    layers = [
        replace(one, cubic_law=law) for one, law in zip(facts.layers, laws, strict=True)
    ]  # fmt: skip
    facts = replace(facts, layers=tuple(layers), log10_frobenius=(0.0, 5.0, -2.1, -3.5))
    found = result(bounds(facts), "collapse-cubic-law")
    assert found.applying and not found.violations
    assert found.closest is not None and found.closest.layer == 2
    assert found.distance(found.rows[0]) == pytest.approx(6.0)


# --- exact facts -------------------------------------------------------------------------------


def test_facts_of_a_stack_take_the_place_of_a_record() -> None:
    facts = facts_of(*network())
    table = leadline.bounds(facts)
    assert table.name == "" and not table.violated
    assert {one.name for one in table.bounds} == set(COLLAPSE_BOUNDS.names())
    assert all(row.stack == "stack" for one in table.bounds for row in one.rows)
    assert full(table).startswith("Bounds\nNo bound is violated")
    assert "\nBounds on rank collapse\n" in full(table)
    assert [row.layer for row in leadline.bounds(facts, layer=3).bounds[0].rows] == [3]


def test_what_facts_cannot_answer_is_told() -> None:
    facts = facts_of(*network())
    with pytest.raises(InputError, match=r"'column-sum' is about attention matrices"):
        bounds(facts, names=["column-sum"])
    with pytest.raises(InputError, match=r"no layer 4: these facts have 1 to 3"):
        bounds(facts, layer=4)
    bare = replace(facts, log10_composite=(), log10_smallest=(), log10_frobenius=())
    assert {one.name for one in bounds(bare).bounds} == set(COLLAPSE_BOUNDS.names())
    [found] = bounds(bare, names=["collapse-proved"]).bounds
    assert [row.measured for row in found.rows] == [None] * 3 and not found.applying
    why = "log10_composite is not in the facts, or not depth + 1 numbers long"
    assert found.rows[0].because == (why,)
    short = replace(facts, log10_frobenius=(0.0,))
    assert (
        result(bounds(short), "collapse-cubic-law")
        .rows[0]
        .because[0]
        .startswith("log10_frobenius is not")
    )
    empty = replace(bare, layers=())
    with pytest.raises(InputError, match=r"These facts have no layers"):
        bounds(empty)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (None, r"was given None: .*facts=True\)` returns a record with facts\.$"),
        ("a.leadline", r"was given the path 'a\.leadline': open it with `leadline\.Record\.open`\.$"),
        (Path("b"), r"was given the path 'b'"),
        (3.5, r"was given 3\.5: give what `leadline\.measure` or `leadline\.collapse\("),
    ],
)  # fmt: skip
def test_what_is_neither_a_record_nor_facts_is_refused(given: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        leadline.bounds(given)


def test_the_smallest_residual_of_facts_is_judged_by_what_it_is_at_least() -> None:
    facts = facts_of(*network())
    stated = COLLAPSE_BOUNDS.get("collapse-smallest")().log10_values(facts)
    assert stated is not None
    # An upper estimate above the bound proves nothing while the mean-centred one is small.
    high = replace(facts, log10_smallest=(facts.log10_smallest[0], stated[1] + 1, -5.0, -9.0))
    assert not result(bounds(high), "collapse-smallest").violations
    centring = math.log10(2 * (1 - 1 / 6))
    for more, broken in ((0.01, True), (-0.01, False)):
        mean = (facts.log10_composite[0], stated[1] + centring + more, -5.0, -9.0)
        both = replace(high, log10_composite=mean)
        assert bool(result(bounds(both), "collapse-smallest").violations) is broken


# --- words -------------------------------------------------------------------------------------


def test_powers_are_written_where_numbers_are_not_handy() -> None:
    facts = facts_of(*network())
    facts = replace(
        facts,
        log10_composite=(0.5, -3.5, -545067.4, -math.inf),
        log10_smallest=(),
        log10_frobenius=(1.5306, 1.5, -4.46e18, 1.6),
    )
    table = bounds(facts, names=["collapse-one-layer", "skip-keeps-residual"])
    text = full(table)
    assert "0 to 10^-3.5" in text
    assert "33.93" in text  # 10^1.5306
    assert "10^-4.46e18 to 39.81" in text
    alone = full(bounds(facts, names=["collapse-one-layer"], layer=2))
    assert "10^-545067" in alone


def test_the_legend_says_which_ratio_is_meant(plain: Record) -> None:
    assert (
        "ratio: measured / predicted, the largest (of a lower bound the smallest, of a law the "
        "nearest to 1), and where it is."
    ) in full(bounds(plain))
    assert "ratio: measured / predicted, the nearest to 1, and" in full(
        bounds(plain, names=["collapse-cubic-law"])
    )


def test_the_order_is_upper_bounds_by_tightness_then_lower_then_laws(plain: Record) -> None:
    applying = [one for one in bounds(plain).bounds if one.applying]
    sides = [one.side for one in applying]
    assert sides == sorted(sides, key=("upper", "lower", "law").index)
    uppers = [one for one in applying if one.side == "upper"]
    gaps = [one.distance(one.closest) for one in uppers]
    assert gaps == sorted(gaps, reverse=True)


def test_the_json_says_that_numbers_are_logarithms(plain: Record) -> None:
    told = json.loads(json.dumps(bounds(plain).to_json(), allow_nan=False))
    found = {one["name"]: one for one in told["bounds"]}
    assert found["collapse-proved"]["log10"] is True
    assert found["collapse-cubic-law"]["side"] == "law"
    assert found["collapse-proved"]["rows"][0]["head"] is None
    deep = bounds(replace(facts_of(*network()), log10_composite=(0.0, -math.inf, 0.0, 0.0)))
    told = json.loads(json.dumps(deep.to_json(), allow_nan=False))
    [row] = [
        one["rows"][0] for one in told["bounds"] if one["name"] == "collapse-proved"
    ]  # fmt: skip
    assert row["measured"] == "-Infinity"


def test_the_notebook_shows_both_families(plain: Record) -> None:
    assert "Bounds: san" in bounds(plain)._repr_html_()
