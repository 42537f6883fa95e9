"""Charts draw every number of the record, once, where it belongs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from leadline.errors import LeadlineError, UnknownName
from leadline.reading.page.figures import draw_charts, quantity_figure, record_names
from leadline.reading.show.chart import Chart
from leadline.record import Quantity, Reading, Record, Site
from tests.synthetic import RECORDS, broken_record, gpt2_record, t5_record


def chart_of(records: list[Record], name: str, names: list[str] | None = None) -> Chart:
    return next(chart for chart in draw_charts(records, names=names) if chart.name == name)


def traces(records: list[Record], name: str, names: list[str] | None = None) -> list[Any]:
    return quantity_figure(records, name, names=names)["data"]


def record_with(readings: list[Reading], **quantity: Any) -> Record:
    record = Record()
    record.describe(Quantity(readings[0].quantity, "Title", "q", "q", **quantity))
    record.append(readings)
    return record


@pytest.mark.parametrize("name", RECORDS)
def test_plotly_takes_every_figure(name: str) -> None:
    record = RECORDS[name]()
    for chart in draw_charts([record]):
        assert go.Figure(quantity_figure([record], chart.name)).data


@pytest.mark.parametrize("name", RECORDS)
def test_every_profile_of_the_record_is_a_line(name: str) -> None:
    record = RECORDS[name]()
    for chart in draw_charts([record]):
        profiles = record.profiles(chart.name)
        assert len(chart.lines) == len(profiles)
        for profile in profiles:
            assert any(
                line.x == profile.layers
                and np.array_equal(line.values, profile.values, equal_nan=True)
                and line.statistic == profile.statistic
                for line in chart.lines
            )


def test_the_headline_and_the_robust_median_are_drawn_at_first() -> None:
    chart = chart_of([gpt2_record()], "stream.norm")
    assert chart.statistics[0] == "mean"
    assert set(chart.shown) == {"mean", "median_without_first"}
    found = traces([gpt2_record()], "stream.norm")
    visible = {t["meta"]["statistic"] for t in found if t["visible"] is True}
    assert visible == set(chart.shown)


def test_the_mean_without_the_first_token_stands_in_for_a_missing_median() -> None:
    readings = [
        Reading("q", Site("decoder", at), statistic, 1.0)
        for at in range(3)
        for statistic in ("mean", "mean_without_first")
    ]
    (chart,) = draw_charts([record_with(readings)])
    assert chart.shown == ("mean", "mean_without_first")


def test_two_records_begin_with_the_headline_alone() -> None:
    chart = chart_of([gpt2_record(), gpt2_record(seed=1)], "stream.norm")
    assert chart.shown == ("mean",)


def test_one_record_has_a_colour_and_a_marker_per_role() -> None:
    chart = chart_of([gpt2_record()], "update.norm")
    looks = {row.label: (row.colour, row.symbol) for row in chart.rows}
    assert set(looks) == {"attention", "mlp"}
    assert looks["attention"][0] != looks["mlp"][0]
    assert looks["attention"][1] != looks["mlp"][1]


def test_several_records_have_a_colour_each_and_a_marker_per_role() -> None:
    chart = chart_of([gpt2_record(), gpt2_record(seed=1)], "update.norm")
    colours = [{row.colour for row in chart.rows if row.record == at} for at in (0, 1)]
    assert [len(one) for one in colours] == [1, 1]
    assert colours[0] != colours[1]
    symbols = {row.label.rpartition(", ")[2]: row.symbol for row in chart.rows}
    assert symbols["attention"] != symbols["mlp"]


def test_a_statistic_has_one_dash_in_all_lines() -> None:
    chart = chart_of([gpt2_record(), gpt2_record(seed=1)], "update.norm")
    dashes: dict[str, set[str]] = {}
    for line in chart.lines:
        dashes.setdefault(line.statistic, set()).add(line.dash)
    assert all(len(found) == 1 for found in dashes.values())
    assert len({found.copy().pop() for found in dashes.values()}) == 4
    assert dashes["mean"] == {"solid"}


def test_hover_tells_layer_role_statistic_value_and_module() -> None:
    trace = next(t for t in traces([gpt2_record()], "update.norm") if "mlp" in t["name"])
    layer, value, module = trace["customdata"][6]
    assert (layer, module) == ("layer 7", "transformer.h.6.mlp")
    assert float(value) == pytest.approx(trace["y"][6], rel=1e-3)
    assert "mlp" in trace["hovertemplate"]
    assert "mean" in trace["hovertemplate"]
    assert all(f"customdata[{at}]" in trace["hovertemplate"] for at in (0, 1, 2))


def test_the_stream_that_enters_has_no_module() -> None:
    trace = traces([gpt2_record()], "stream.norm")[0]
    assert trace["customdata"][0][2] == "what enters the first block"
    assert trace["customdata"][1][2] == "transformer.h.0"


def test_a_value_that_is_not_finite_is_a_gap_and_a_cross_on_the_edge() -> None:
    record = broken_record(depth=8, first_bad=5)
    chart, figure = chart_of([record], "stream.norm"), quantity_figure([record], "stream.norm")
    line, crosses = figure["data"]
    assert line["y"][5:] == [None] * 4
    assert line["connectgaps"] is False
    assert crosses["x"] == [5, 6, 7, 8]
    assert [hover[1] for hover in crosses["customdata"]] == ["∞", "NaN", "NaN", "NaN"]
    # +∞ stands at the top, NaN at the bottom of an axis from 0 to 1
    assert crosses["y"][0] > 0.9
    assert max(crosses["y"][1:]) < 0.1
    axis = figure["layout"][f"yaxis{crosses['yaxis'][1:]}"]
    assert axis["range"] == [0, 1]
    assert axis["overlaying"] == line["yaxis"]
    assert chart.gaps == ("stream, mean: ∞ at layer 5.", "stream, mean: NaN at layers 6 to 8.")


def test_single_layers_and_runs_of_layers_are_told_apart() -> None:
    values = [math.nan, 1.0, math.nan, math.nan, 1.0, math.nan]
    readings = [Reading("q", Site("decoder", at), "value", v) for at, v in enumerate(values)]
    (chart,) = draw_charts([record_with(readings)])
    assert chart.gaps == ("stream, value: NaN at layers 0, 2 to 3, 5.",)


def test_two_stacks_have_a_panel_each_on_one_vertical_scale() -> None:
    chart = chart_of([t5_record()], "stream.norm")
    figure = quantity_figure([t5_record()], "stream.norm")
    layout = figure["layout"]
    assert chart.panels == ("encoder", "decoder")
    assert [line.panel for line in chart.lines] == [0, 1]
    assert layout["yaxis2"]["matches"] == "y"
    assert layout["xaxis"]["domain"][1] < layout["xaxis2"]["domain"][0]
    assert [t["xaxis"] for t in figure["data"]] == ["x", "x2"]
    assert layout["xaxis2"]["title"]["text"] == "decoder layer"


def test_one_stack_each_shares_a_panel_whatever_its_name() -> None:
    decoder = record_with([Reading("q", Site("decoder", at), "mean", 1.0) for at in range(3)])
    encoder = record_with([Reading("q", Site("encoder", at), "mean", 2.0) for at in range(3)])
    (chart,) = draw_charts([decoder, encoder])
    assert chart.panels == ("",)
    assert len(chart.rows) == 2


def test_stacks_stand_in_the_order_of_the_record() -> None:
    record = Record()
    record.describe(Quantity("forward", "F", "f", "f"))
    record.describe(Quantity("backward", "B", "b", "b"))
    for name, order in (("forward", ("encoder", "decoder")), ("backward", ("decoder", "encoder"))):
        record.append(
            Reading(name, Site(stack, at), "mean", 1.0) for stack in order for at in (0, 1)
        )
    assert [chart.panels for chart in draw_charts([record])] == [("encoder", "decoder")] * 2


def test_every_lane_is_a_line() -> None:
    readings = [
        Reading("lane.norm", Site("decoder", at, lane=lane), "mean", float(10 * lane + at))
        for at in range(4)
        for lane in (1, 2, 3)
    ]
    (chart,) = draw_charts([record_with(readings, axes=("lane",))])
    assert [row.label for row in chart.rows] == ["lane 1", "lane 2", "lane 3"]
    assert [line.values[0] for line in chart.lines] == [10.0, 20.0, 30.0]
    assert len({row.colour for row in chart.rows}) == 3


def test_two_writes_of_one_role_are_told_apart() -> None:
    readings = [
        Reading("q", Site("decoder", at, write, "mlp"), "mean", float(write))
        for at in (1, 2)
        for write in (1, 2)
    ]
    (chart,) = draw_charts([record_with(readings, lives_on="sublayer")])
    assert [row.label for row in chart.rows] == ["mlp (write 1)", "mlp (write 2)"]
    assert chart.rows[0].symbol != chart.rows[1].symbol


def test_relative_depth_has_the_depth_of_the_stack_to_divide_by() -> None:
    chart = chart_of([gpt2_record(depth=6), gpt2_record(depth=48)], "stream.norm")
    assert {line.depth for line in chart.lines} == {6, 48}


def test_a_quantity_that_one_record_lacks_is_drawn_for_the_other() -> None:
    chart = chart_of([broken_record(), gpt2_record()], "update.norm")
    assert {row.record for row in chart.rows} == {1}


def test_a_chart_without_positive_values_says_so() -> None:
    below = record_with([Reading("q", Site("decoder", at), "mean", -1.0) for at in range(3)])
    assert not draw_charts([below])[0].any_positive
    assert chart_of([gpt2_record()], "stream.norm").any_positive


def test_names_cannot_break_out_of_a_hover_text() -> None:
    names = ["<a href='x'>%{y}</a>", "b"]
    found = traces([gpt2_record(), gpt2_record()], "stream.norm", names)
    template = found[0]["hovertemplate"]
    assert "&lt;a href='x'&gt;" in template
    assert "<a" not in template
    assert "%{y}" not in template


@pytest.mark.parametrize(("depth", "step"), [(1, 1), (12, 1), (24, 2), (96, 10), (500, 50)])
def test_ticks_fall_on_whole_layers(depth: int, step: int) -> None:
    figure = quantity_figure([gpt2_record(depth=depth)], "stream.norm")
    assert figure["layout"]["xaxis"]["dtick"] == step


def test_keys_are_distinct_and_plain() -> None:
    record = Record()
    for name in ("a.b", "a-b", "<script>", "é"):
        record.describe(Quantity(name, name, "q", "q"))
        record.append([Reading(name, Site("decoder", 0), "mean", 1.0)])
    keys = [chart.key for chart in draw_charts([record])]
    assert len(set(keys)) == 4
    assert all(key.replace("-", "").isalnum() and key.isascii() for key in keys)


def test_an_unknown_quantity_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"Did you mean 'stream\.norm'"):
        quantity_figure([gpt2_record()], "stream.nrm")


def test_names_are_those_of_the_models_and_distinct() -> None:
    records = [gpt2_record(), gpt2_record(seed=1), broken_record(), Record()]
    assert record_names(records) == ["gpt2", "gpt2 (2)", "broken", "record 4"]
    assert record_names(records[:3], ["a", "a (2)", "a"]) == ["a", "a (2)", "a (3)"]


def test_there_must_be_a_name_for_every_record() -> None:
    with pytest.raises(LeadlineError, match="1 records came with 2 names"):
        record_names([gpt2_record()], ["a", "b"])


def _ranked(name: str, ranks: int) -> Record:
    """Rank by rank, and without a rank the first, at three blocks."""
    places = [(layer, rank) for layer in (1, 2, 3) for rank in (None, *range(1, ranks + 1))]
    return record_with(
        [
            Reading(
                name, Site("decoder", layer, None, "block", rank=rank), "mean", 9.0 - (rank or 1)
            )
            for layer, rank in places
        ],
        lives_on="layer",
        axes=("rank",),
    )


def test_the_first_ranks_of_singular_values_are_lines_of_one_chart() -> None:
    chart = chart_of([_ranked("jacobian.singular", 6)], "jacobian.singular")
    found = {row.label: row.headline.values.tolist() for row in chart.rows}
    assert found == {
        "block": [8.0] * 3,
        "rank 2": [7.0] * 3,
        "rank 3": [6.0] * 3,
        "rank 4": [5.0] * 3,
    }
    assert len({row.colour for row in chart.rows}) == 4
    # Of several records the first rank alone is compared.
    twice = [_ranked("jacobian.singular", 6), _ranked("jacobian.singular", 6)]
    assert len(chart_of(twice, "jacobian.singular").rows) == 2


def test_the_product_of_norms_stands_beside_the_norm_of_the_product() -> None:
    record = Record()
    for name, title, beside in (
        ("jacobian.through", "Norm of the product", "jacobian.product_of_norms"),
        ("jacobian.product_of_norms", "Product of the norms", ""),
    ):
        record.describe(Quantity(name, title, "q", "q", scale="log", beside=beside))
        factor = 2.0 if "through" in name else 5.0
        record.append([Reading(name, Site("decoder", n), "mean", factor**n) for n in range(1, 4)])
    chart = chart_of([record], "jacobian.through")
    assert [row.label for row in chart.rows] == ["stream", "product of the norms"]
    assert chart.rows[1].headline.values.tolist() == [5.0, 25.0, 125.0]
    assert len(chart_of([record], "jacobian.product_of_norms").rows) == 1


def test_ranks_of_a_stretch_are_named_with_it() -> None:
    places = [("block", layer, None) for layer in (1, 2)]
    places += [("from-site-0", 2, rank) for rank in (None, 1, 2)]
    record = record_with(
        [
            Reading("s", Site("decoder", layer, None, point, rank=rank), "mean", 2.0)
            for point, layer, rank in places
        ],
        axes=("rank",),
        lives_on="layer",
    )
    labels = [row.label for row in chart_of([record], "s").rows]
    assert labels == ["block", "from-site-0", "from-site-0, rank 2"]


def test_a_single_value_has_no_law_and_no_second_value() -> None:
    record = record_with([Reading("s", Site("decoder", 3), "value", 1.296)])
    (row,) = chart_of([record], "s").rows
    assert row.details == ("1.30 at layer 3",)


def test_logarithms_that_rise_are_said_to_rise_by_a_difference() -> None:
    values = [-0.273, -0.3, -0.2, -0.28, -0.26, -0.249]
    readings = [Reading("s", Site("decoder", at), "value", x) for at, x in enumerate(values)]
    (row,) = chart_of([record_with(readings, unit="log10")], "s").rows
    assert row.details == ("−0.273 → −0.249, rises by 0.024",)


@pytest.mark.parametrize("name", RECORDS)
def test_no_line_is_said_to_have_no_law(name: str) -> None:
    for chart in draw_charts([RECORDS[name]()]):
        said = [chart.spoken, *(detail for row in chart.rows for detail in row.details)]
        assert not [one for one in said if "no simple law" in one or "for a law" in one]
