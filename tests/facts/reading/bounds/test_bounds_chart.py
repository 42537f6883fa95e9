"""The chart of attention and its bounds, and the part of the page around it."""

from __future__ import annotations

import json
import math
import re

import pytest

from leadline.catalog import Catalog
from leadline.reading.bounds import evaluate as module
from leadline.reading.bounds.chart import draw_bounds_charts
from leadline.reading.bounds.evaluate import bounds
from leadline.reading.bounds.head_map import head_map
from leadline.reading.compare.compare import compare
from leadline.reading.page.figures import draw_charts
from leadline.reading.page.html import render_html
from leadline.reading.show.chart import Chart, ChartLine, chart_json
from leadline.record import Quantity, Reading, Record, Site
from leadline.record.words.summary import summarize
from leadline.theory import AttentionFacts, Bound, Condition
from tests.synthetic import gpt2_record
from tests.synthetic_attention import attention_record, seen

NORM = "attention.spectral_norm"
APPLIES = "Bounds that apply"


@pytest.fixture(scope="module")
def record() -> Record:
    return attention_record(layers=5, heads=3, tokens=16)


def chart_of(record: Record) -> Chart:
    [chart] = draw_bounds_charts(record, bounds(record), key="c")
    return chart


def line_of(chart: Chart, name: str) -> ChartLine:
    [found] = [one for one in chart.lines if one.heading == name]
    return found


def head_values(record: Record, statistic: str, layer: int) -> list[Reading]:
    found = record.select(NORM, statistic=statistic, layer=layer)
    return [one for one in found if one.site.head is not None]


# ---- what is drawn ----------------------------------------------------------------------------


def test_the_mean_line_is_the_summary_over_the_heads(record: Record) -> None:
    line = line_of(chart_of(record), "mean over heads")
    assert line.x == (1, 2, 3, 4, 5)
    for layer, value in zip(line.x, line.values, strict=True):
        heads = [one.value for one in head_values(record, "mean", layer)]
        assert value == pytest.approx(sum(heads) / 3)


def test_without_a_summary_the_heads_are_averaged() -> None:
    bare = Record()
    bare.describe(Quantity(NORM, "Norm", "x", "x", lives_on="sublayer"))
    site = [Site("decoder", 1, 1, "attention", head=head) for head in (1, 2)]
    bare.append([Reading(NORM, site[0], "mean", 1.0), Reading(NORM, site[1], "mean", 2.0)])
    bare.note("attention", [seen("decoder", 1, heads=2, tokens=4)])
    line = line_of(chart_of(bare), "mean over heads")
    assert line.values == (1.5,)


def test_the_band_reaches_from_the_smallest_to_the_largest_head(record: Record) -> None:
    chart = chart_of(record)
    low, high = line_of(chart, "smallest head"), line_of(chart, "largest head")
    for at, layer in enumerate(low.x):
        heads = {one.site.head: one.value for one in head_values(record, "mean", layer)}
        assert (low.values[at], high.values[at]) == (min(heads.values()), max(heads.values()))
        widest = max(heads, key=lambda head: heads[head])
        assert high.notes[at] == f"head {widest}"
    assert chart.rows[high.series].band
    places = [one.heading for one in chart.lines]
    assert places.index("largest head") == places.index("smallest head") + 1
    assert low.series == high.series


def test_the_largest_head_carries_its_certified_interval(record: Record) -> None:
    line = line_of(chart_of(record), "largest head and example")
    for at, layer in enumerate(line.x):
        top = max(head_values(record, "max", layer), key=lambda one: one.value)
        assert top.lower is not None
        assert top.upper is not None
        assert line.values[at] == top.value
        assert line.above[at] == top.upper - top.value
        assert line.below[at] == top.value - top.lower
        assert f"head {top.site.head}, certified" in line.notes[at]


def test_another_quantity_that_a_bound_is_about_has_its_own_line(record: Record) -> None:
    line = line_of(chart_of(record), "Norm of the product")
    expected = record.by_layer("attention.product_norm", statistic="max")
    assert line.values == tuple(expected.values.tolist())


def test_a_bound_that_applies_is_drawn_with_its_largest_prediction(record: Record) -> None:
    chart = chart_of(record)
    line = line_of(chart, "column-sum")
    for at, layer in enumerate(line.x):
        sums = [
            one.value
            for one in record.select("attention.column_sum", statistic="max", layer=layer)
            if one.site.head is not None
        ]
        assert line.values[at] == pytest.approx(math.sqrt(max(sums)))
        assert line.notes[at].endswith("applies")
    row = chart.rows[line.series]
    assert row.shown
    assert row.dash != "dot"
    root = line_of(chart, "sqrt-queries")
    assert root.values == (4.0,) * 5
    assert (root.words, line_of(chart, "one").words) == ("≤", "≥")


def test_a_bound_that_does_not_apply_is_dotted_and_waits_with_its_reason(record: Record) -> None:
    chart = chart_of(record)
    line = line_of(chart, "pre-norm-as-written")
    row = chart.rows[line.series]
    assert (row.label, row.group, row.shown) == (
        "pre-norm-as-written", "Bounds that do not", False
    )  # fmt: skip
    assert row.dash == "dot"
    assert row.width < chart.rows[line_of(chart, "causal").series].width
    assert "does not apply: the mask is causal; |beta| = " in line.notes[0]
    assert "the mask is causal and " in row.details[0]


def test_every_line_is_strict_json_and_belongs_to_the_key(record: Record) -> None:
    chart = chart_of(record)
    for one in chart.lines:
        assert len(one.notes) == len(one.x) == len(one.values)
        assert one.series < len(chart.rows)
    found = json.loads(json.dumps(chart_json(chart, {}), allow_nan=False))
    assert [line["heading"] for line in found["lines"]] == [one.heading for one in chart.lines]


def test_no_two_bounds_look_the_same(record: Record) -> None:
    looks = [(row.colour, row.dash) for row in chart_of(record).rows if row.group == APPLIES]
    assert len(looks) > 5
    assert len(set(looks)) == len(looks)


# ---- the axis ---------------------------------------------------------------------------------


class Huge(Bound):
    """10^20 at every head but the first layer, where it is void."""

    title, statement, source = "huge", "x <= 10^20", "by hand"

    def conditions(self, facts: AttentionFacts) -> list[Condition]:
        return []

    def value(self, facts: AttentionFacts) -> float | None:
        return math.inf if facts.column_sum and facts.column_sum > 1e6 else 1e20


@pytest.fixture
def huge(monkeypatch: pytest.MonkeyPatch) -> None:
    known: Catalog[type[Bound]] = Catalog("bound")
    known.register("huge")(Huge)
    monkeypatch.setattr(module, "BOUNDS", known)


@pytest.mark.usefixtures("huge")
def test_a_huge_bound_does_not_flatten_the_rest(record: Record) -> None:
    chart = chart_of(record)
    # 16 queries: no norm is above 4; the axis ends 6 % above it.
    assert chart.limits[1] == pytest.approx(1.06 * 4.0)
    assert line_of(chart, "huge").values == (1e20,) * 5
    assert "The axis ends at 4.24, a little above √m = 4.00" in chart.cut
    assert "m = 16 queries" in chart.cut
    assert "huge (1.00×10²⁰)" in chart.cut
    assert chart.cut in render_html([record])


@pytest.mark.usefixtures("huge")
def test_an_infinite_bound_is_a_gap_and_told() -> None:
    infinite = attention_record(layers=2, heads=2, tokens=8)
    place = Site("decoder", 1, 1, "attention", head=1)
    infinite.append([Reading("attention.column_sum", place, "max", 1e9, seed=1)])
    chart = chart_of(infinite)
    assert line_of(chart, "huge").values == (math.inf, 1e20)
    assert "huge (∞)" in chart.cut


def test_nothing_is_said_of_an_axis_that_holds_everything(record: Record) -> None:
    assert chart_of(record).cut == ""


def test_the_axis_holds_what_was_measured_even_above_the_square_root() -> None:
    wrong = attention_record(layers=2, heads=2, tokens=4)
    place = Site("decoder", 1, 1, "attention", head=1)
    wrong.append([Reading(NORM, place, "max", 100.0, seed=1)])
    chart = chart_of(wrong)
    assert chart.limits[1] == pytest.approx(106.0)


@pytest.mark.parametrize(("tokens", "scale"), [(16, "linear"), (36, "log")])
def test_the_scale_is_logarithmic_from_a_factor_of_five_on(tokens: int, scale: str) -> None:
    # From 1, the lower bound, to 1.06 sqrt(n): 4.24 and 6.36.
    chart = chart_of(attention_record(layers=2, heads=2, tokens=tokens))
    assert chart.scale == scale
    assert chart.limits[0] == pytest.approx(1 / 1.06)


# ---- places -----------------------------------------------------------------------------------


def both_roles() -> Record:
    record = attention_record(layers=3, heads=2, tokens=8)
    other = attention_record(layers=3, heads=2, tokens=8, causal=False, point="cross-attention")
    for quantity in record.quantities:
        record.append(other.select(quantity))
    record.note("attention", record.provenance["attention"] + other.provenance["attention"])
    return record


def test_every_role_of_a_stack_has_its_chart() -> None:
    record = both_roles()
    charts = draw_bounds_charts(record, bounds(record), key="c")
    assert [chart.title for chart in charts] == ["decoder, attention", "decoder, cross-attention"]
    assert [chart.key for chart in charts] == ["c-1", "c-2"]
    groups = [{row.label: row.group for row in chart.rows} for chart in charts]
    assert groups[0]["sqrt-queries"] == APPLIES
    assert groups[0]["bidirectional-measured"] == "Bounds that do not"
    assert groups[1]["bidirectional-measured"] == APPLIES


def test_two_writes_of_one_role_are_told_apart() -> None:
    record = attention_record(layers=2, heads=1, tokens=4)
    entries = record.provenance["attention"]
    record.note("attention", [*entries, *(entry | {"sublayer": 3} for entry in entries)])
    titles = [chart.title for chart in draw_bounds_charts(record, bounds(record), key="c")]
    assert titles == ["decoder, attention (write 1)", "decoder, attention (write 3)"]


def test_two_attentions_of_one_sublayer_are_one_line() -> None:
    record = attention_record(layers=2, heads=2, tokens=4)
    entries = record.provenance["attention"]
    halves = [entry | {"heads": 1, "first_head": at} for entry in entries for at in (1, 2)]
    record.note("attention", halves)
    chart = chart_of(record)
    assert line_of(chart, "mean over heads").x == (1, 2)
    assert line_of(chart, "sqrt-queries").x == (1, 2)


def test_a_bound_that_applies_to_some_heads_is_drawn_for_these() -> None:
    record = attention_record(layers=2, heads=2, tokens=8)
    entries = record.provenance["attention"]
    record.note("attention", [entries[0] | {"mask": "none"}, entries[1]])
    row = next(row for row in chart_of(record).rows if row.label == "causal-measured")
    assert row.group == APPLIES
    assert "not at 2 of 4: there is no mask" in row.details[0]


# ---- the page ---------------------------------------------------------------------------------


def words(page: str) -> str:
    body = page.partition("<main>")[2].partition("</main>")[0]
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


def test_the_page_shows_attention_only_where_it_was_measured(record: Record) -> None:
    without = render_html([gpt2_record()])
    assert "Attention and its bounds" not in without
    assert 'href="#attention-bounds"' not in without
    page = render_html([record])
    assert "Attention and its bounds" in words(page)
    assert 'href="#attention-bounds"' in page


def test_the_page_has_the_table_and_the_reasons(record: Record) -> None:
    text = words(render_html([record]))
    table = bounds(record)
    for bound in table.bounds:
        assert bound.name in text
    assert "5 attention sublayers, 15 heads, 16 queries, mask: causal" in text
    assert (
        "recomputed from queries and keys; A V equals the output of the model to 1.30 eps" in text
    )
    assert "15 of 15 heads" in text
    assert "pre-norm-as-written: no, because the mask is causal (15 heads)" in text
    assert "measured: the largest over the examples" in text


def test_the_page_tells_of_loose_intervals_and_of_several_lengths() -> None:
    record = attention_record(layers=1, heads=1, tokens=8)
    [entry] = record.provenance["attention"]
    shapes = [entry["shapes"][0], entry["shapes"][0] | {"queries": 5, "keys": 5}]
    record.note("attention", [entry | {"loose": 3, "seen": "weights", "shapes": shapes}])
    text = words(render_html([record]))
    assert "5 to 8 queries" in text
    assert "as the model returns it" in text
    assert "3 certified intervals are loose." in text


def test_a_violated_bound_stands_out_on_the_page() -> None:
    record = attention_record(layers=1, heads=2, tokens=4)
    place = Site("decoder", 1, 1, "attention", head=2)
    record.append([Reading(NORM, place, "max", 9.0, lower=8.9, upper=9.1, seed=1)])
    page = render_html([record])
    assert '<li class="serious"><b>Violated</b>' in page
    assert '<tr class="violated">' in page
    assert "measured 9 (between 8.9 and 9.1) at layer 1 head 2" in words(page)


def test_every_chart_has_its_card_and_its_limits(record: Record) -> None:
    page = render_html([record, gpt2_record(), attention_record(layers=2, name="other")])
    found = re.search(r'id="leadline-data">(.*?)</script>', page, re.DOTALL)
    assert found
    charts = json.loads(found[1])["charts"]
    mine = [chart for chart in charts if "limits" in chart]
    assert [chart["id"] for chart in mine] == ["attention-1-1", "attention-3-1"]
    for chart in mine:
        assert f'id="{chart["id"]}"' in page
        assert 0 < chart["limits"][0] < chart["limits"][1]
        card = page.partition(f'id="{chart["id"]}"')[2].partition("</article>")[0]
        pressed = re.findall(r'data-series="(\d+)" aria-pressed="(\w+)"', card)
        assert {int(at) for at, _ in pressed} == {one["series"] for one in chart["lines"]}
        assert {on for _, on in pressed} == {"true", "false"}


def test_names_of_models_and_modules_enter_the_page_as_text() -> None:
    harm = "<img src=x onerror=alert(1)>"
    record = attention_record(layers=1, heads=2, tokens=4, name=harm, stack=harm)
    [entry] = record.provenance["attention"]
    record.note("attention", [entry | {"module": harm, "seen": harm}])
    page = render_html([record, attention_record(layers=1)])
    assert "<img" not in page.partition("<main>")[2].partition("<script>")[0]


def test_attention_is_left_out_of_the_list_of_provenance(record: Record) -> None:
    page = render_html([record])
    provenance = page.partition('id="provenance"')[2].partition("</section>")[0]
    assert "run-length" not in provenance
    assert "proof_eps" not in provenance


# ---- the map of heads -------------------------------------------------------------------------


def test_the_map_has_a_cell_per_head_and_the_largest_is_darkest() -> None:
    drawn = head_map({(1, 1): 1.0, (1, 2): 2.0, (2, 1): 1.5, (2, 2): 3.0}, spoken="all")
    shades = {
        title: float(shade)
        for shade, title in re.findall(r'fill-opacity="([\d.]+)"><title>(.*?)</title>', drawn)
    }
    assert shades == {
        "layer 1, head 1: 1.000": 0.06,
        "layer 1, head 2: 2.000": 0.53,
        "layer 2, head 1: 1.500": 0.295,
        "layer 2, head 2: 3.000": 1.0,
    }


def test_a_head_that_is_no_number_is_crossed_and_equal_ones_are_half_dark() -> None:
    drawn = head_map({(1, 1): math.nan, (1, 2): 2.0}, spoken="all")
    assert 'class="lost"' in drawn
    assert "layer 1, head 1: NaN" in drawn
    assert 'fill-opacity="0.530"' in drawn


@pytest.mark.parametrize(("count", "labels"), [(24, 24), (25, 6)])
def test_of_many_layers_every_fifth_is_labelled(count: int, labels: int) -> None:
    drawn = head_map({(layer, 1): 1.0 for layer in range(1, count + 1)}, spoken="all")
    assert drawn.count('text-anchor="middle"') == labels


def test_the_map_tells_its_ends(record: Record) -> None:
    text = words(render_html([record]))
    found = [one for layer in range(1, 6) for one in head_values(record, "max", layer)]
    top = max(found, key=lambda one: one.value)
    assert f"to {top.value:.2f} (layer {top.site.layer}, head {top.site.head}, darkest)" in text


# ---- ingredients ------------------------------------------------------------------------------


def test_ingredients_are_neither_charts_nor_rows(record: Record) -> None:
    inside = {name for name, one in record.quantities.items() if one.ingredient_of}
    assert len(inside) == 7
    charts = {chart.name for chart in draw_charts([record])}
    assert charts == set(record.quantities) - inside
    rows = {row.profile.quantity for row in summarize(record)}
    assert rows == set(record.quantities) - inside
    compared = {row.quantity for row in compare(record, record).rows}
    assert compared == set(record.quantities) - inside


def test_what_is_measured_of_heads_is_charted_by_its_summary(record: Record) -> None:
    chart = next(one for one in draw_charts([record]) if one.name == NORM)
    [row] = chart.rows
    assert row.headline.values.tolist() == [
        one.value for one in record.select(NORM, statistic="mean") if one.site.head is None
    ]
