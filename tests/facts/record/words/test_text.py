"""Numbers, bars, addresses, and the text and notebook forms of a record."""

from __future__ import annotations

import math
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.errors import RecordError
from leadline.record import Finding, Quantity, Reading, Record, Site
from leadline.record.rows.address import Address, parse_address
from leadline.record.rows.quantity import AxisScale
from leadline.record.words.notebook import svg_sparkline
from leadline.record.words.numbers import BARS, format_count, format_number, sparkline
from leadline.record.words.shape import shape_text
from leadline.record.words.summary import passes_text, summarize
from tests.synthetic import RECORDS, broken_record, gpt2_record, t5_record


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (12.3456, "12.35"),
        (-0.0012345, "-0.001234"),
        (0.00099, "9.90e-4"),
        (1.23456e-7, "1.23e-7"),
        (9999.4, "9999"),
        (12345.6, "12346"),
        (99999.6, "1.00e5"),
        (3.2e38, "3.20e38"),
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert format_number(value) == text


@given(st.floats(-1e300, 1e300))
def test_short_numbers_are_right_to_three_digits(value: float) -> None:
    text = format_number(value)
    assert float(text) == pytest.approx(value, rel=6e-3, abs=1e-320)
    assert len(text.lstrip("-")) <= 9


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (950, "950"),
        (9_999, "9,999"),
        (60_000, "60.0 k"),
        (124_439_808, "124.4 M"),
        (7.24e9, "7.2 G"),
    ],
)
def test_counts_are_short(count: float, text: str) -> None:
    assert format_count(count) == text


def test_bars_rise_with_the_values() -> None:
    assert sparkline(range(8)) == BARS
    assert sparkline(range(7, -1, -1)) == BARS[::-1]


def test_bars_of_a_log_scale_rise_with_the_logarithm() -> None:
    assert sparkline([2.0**l for l in range(8)], scale="log") == BARS
    assert sparkline([-1.0, 0.0, 1e9], scale="log") == "▁▁█"


def test_what_is_not_finite_has_its_own_sign() -> None:
    assert sparkline([0.0, math.nan, math.inf, -math.inf, 1.0]) == "▁·∞∞█"
    assert sparkline([math.nan] * 3) == "···"
    assert sparkline([]) == ""


def test_nearly_constant_line_looks_nearly_constant() -> None:
    bars = sparkline([1.00, 1.01, 0.99, 1.0])
    assert {BARS.index(bar) for bar in bars} <= {3, 4}
    assert len(set(sparkline([5.0] * 6))) == 1


def test_long_lines_are_averaged_in_groups() -> None:
    steps = np.repeat(np.arange(8.0), 12)
    assert sparkline(steps, width=8) == BARS
    assert len(sparkline(np.arange(1000.0), width=24)) == 24
    steps[30] = math.nan
    assert sparkline(steps, width=8) == "▁▂·▄▅▆▇█"


def test_given_ends_fix_the_scale() -> None:
    assert sparkline([0.0, 1.0], ends=(0.0, 8.0)) == "▁▂"


@given(st.lists(st.floats(), max_size=50), st.sampled_from(["linear", "log"]))
def test_any_values_can_be_drawn(values: list[float], scale: str) -> None:
    drawn = sparkline(values, scale=scale, width=20)  # pyright: ignore[reportArgumentType]
    assert len(drawn) == min(len(values), 20)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("stream.norm", Address("stream.norm")),
        ("encoder/stream.norm", Address("stream.norm", "encoder")),
        ("update.norm[cross-attention]", Address("update.norm", None, "cross-attention")),
        ("vision/update.norm[mlp 3]", Address("update.norm", "vision", "mlp", 3)),
    ],
)
def test_address_is_read_as_it_is_written(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize("point", ["from site 0", "from site 12", "mlp 3", "block", "a b"])
def test_a_point_of_the_record_is_read_whole(point: str) -> None:
    address = Address("jacobian.singular", "vision", point)
    assert parse_address(str(address), points=[point]) == address


def test_every_label_that_is_printed_is_an_address_of_its_line() -> None:
    record = Record()
    record.describe(Quantity("j.singular", "S", "s", "s", lives_on="layer", headline="value"))
    record.describe(Quantity("u.norm", "N", "n", "n", lives_on="sublayer", headline="value"))
    points = ("block", "from site 0", "from site 2")
    record.append(
        Reading("j.singular", Site("decoder", 4, point=point), "value", float(at))
        for at, point in enumerate(points)
    )
    record.append(
        Reading("u.norm", Site("decoder", layer, write, "mlp"), "value", float(write))
        for layer in (1, 2)
        for write in (1, 2)
    )
    labels = [row.label for row in summarize(record)]
    assert "j.singular[from site 2]" in labels and "u.norm[mlp 2]" in labels
    assert record["j.singular"].values.tolist() == [0.0]  # the block, which a label leaves out
    assert record["j.singular[from site 0]"].values.tolist() == [1.0]
    assert record["j.singular[from site 2]"].values.tolist() == [2.0]
    assert record["u.norm[mlp 2]"].values.tolist() == [2.0, 2.0]
    with pytest.raises(RecordError, match="no line with point='from site', sublayer=7"):
        _ = record["j.singular[from site 7]"]


@pytest.mark.parametrize("text", ["", "a[b", "a]", "a/b/c", "a[b][c]", "a[]"])
def test_what_is_no_address_is_not_read(text: str) -> None:
    assert parse_address(text) is None


def test_text_of_a_record_begins_with_the_model_and_ends_with_its_proof() -> None:
    lines = str(gpt2_record(massive=False)).splitlines()
    assert lines[0] == "gpt2: GPT2LMHeadModel, 124.4 M parameters, float32, random init"
    assert lines[-3:] == [
        "12 layers, 24 sublayers, pre-norm; anatomy: discovery, balance 0.42 eps",
        "input: random tokens, 4 examples, 512 tokens, seed 0; loss: next-token 10.93",
        "1 forward and 1 backward pass, and 6 forward passes to read the anatomy",
    ]


def test_text_has_a_line_per_quantity_and_role() -> None:
    lines = str(gpt2_record(massive=False)).splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("quantity"))
    found = {line.split()[0]: line for line in lines[start + 1 : lines.index("", start)]}
    assert list(found) == [
        "stream.norm",
        "stream.variance",
        "tokens.residual",
        "tokens.cosine",
        "update.norm[attention]",
        "update.norm[mlp]",
        "update.ratio[attention]",
        "update.ratio[mlp]",
        "gradient.stream",
        "block.influence",
    ]
    # 4, then 12 l^0.55 with 2 % noise; 0.02 x 0.9^l with 2 % noise; a constant with 2 % noise
    assert "jumps ×2.96 at layer 1, then grows in square by" in found["stream.norm"]
    assert "×0.90" in found["gradient.stream"]
    assert "flat" in found["update.norm[mlp]"]


def test_massive_first_token_is_told_with_the_median_without_it() -> None:
    text = str(gpt2_record())
    assert "  median_without_first" in text
    # 127 tokens at 1 and one at 900, against a median of 0.98: (127 + 900) / 128 / 0.98
    assert "the mean is 8.2 times the median without the first token" in text
    assert "stream.norm: the first token dominates: at layer" in text
    assert "dominate" not in str(gpt2_record(massive=False))


def _tokenwise(
    mean: list[float], median: list[float], without: list[float], scale: AxisScale = "log"
) -> Record:
    record = Record()
    record.describe(Quantity("q", "Q", "q", "q", scale=scale))
    for statistic, values in (
        ("mean", mean),
        ("median_without_first", median),
        ("mean_without_first", without),
    ):
        record.append(
            Reading("q", Site("d", l), statistic, value) for l, value in enumerate(values)
        )
    return record


def test_heavy_tokens_that_are_not_the_first_are_called_a_few_tokens() -> None:
    [row, companion] = summarize(_tokenwise([1, 5, 1], [1, 1, 1], [1, 5, 1]))
    assert row.remark.startswith("a few tokens dominate: at layer 1 the mean is 5 times")
    assert (companion.companion, companion.profile.statistic) == (True, "median_without_first")


def test_factor_of_two_is_not_yet_remarkable() -> None:
    assert len(summarize(_tokenwise([2, 2, 2], [1, 1, 1], [1, 1, 1]))) == 1
    assert len(summarize(_tokenwise([2.1, 2, 2], [1, 1, 1], [1, 1, 1]))) == 2


def test_where_zero_is_ordinary_no_token_dominates() -> None:
    assert len(summarize(_tokenwise([1, 5, 1], [1, 1, 1], [1, 5, 1], scale="linear"))) == 1


def test_large_ratio_near_zero_is_not_remarkable() -> None:
    # A cosine that passes through zero: ten times of nearly nothing is nearly nothing.
    assert len(summarize(_tokenwise([0.9, 0.001, 0.8], [0.9, 0.0001, 0.8], [0.9, 0.001, 0.8]))) == 1


def test_text_names_the_stack_where_there_are_several() -> None:
    text = str(t5_record())
    assert "encoder 6 layers, decoder 12 layers, 48 sublayers" in text
    assert "\nencoder/stream.norm " in text
    assert "\nstream.norm " not in text
    assert "\ndecoder/update.norm[cross-attention] " in text


def test_text_of_a_broken_record_shows_where_it_breaks() -> None:
    text = str(broken_record(first_bad=5))
    assert "▁▃▅▇█∞·······" in text
    assert "8 layers not finite" in text


@pytest.mark.parametrize("form", [str, Record._repr_html_])
def test_findings_stand_below_the_name_the_worst_first(form) -> None:
    record = gpt2_record()  # has a note
    record.add_finding(Finding("The house burns.", severity="serious"))
    text = form(record)
    marks = [
        "gpt2: GPT2LMHeadModel",
        "serious: The house burns.",
        "note: ",
        "The first token carries",
        "stream.norm",
        "12 layers, 24",
    ]
    assert [text.count(mark) for mark in marks[:3]] == [1, 1, 1]
    assert sorted(marks, key=text.index) == marks


def test_what_was_refused_is_told_with_its_reason() -> None:
    record = gpt2_record(massive=False)
    refused = [{"what": "stack vision", "why": "its blocks do not balance"}]
    record.note("coverage", {"measured": [], "refused": refused})
    sentence = "not measured: stack vision: its blocks do not balance"
    assert str(record).endswith(sentence)
    assert sentence in record._repr_html_()


def test_text_of_an_empty_record_counts_to_zero() -> None:
    assert str(Record()) == "Record with 0 readings"


class _Tags(HTMLParser):
    """Collects text and fails on a tag that is closed out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.mark.parametrize("name", RECORDS)
def test_notebook_form_is_whole_and_shows_every_row(name: str) -> None:
    record = RECORDS[name]()
    page = _Tags()
    page.feed(record._repr_html_())
    page.close()
    assert page.open == []
    rows = summarize(record)
    assert page.seen.count("tr") == len(rows) + 1
    assert page.seen.count("svg") == len(rows)
    for row in rows:
        assert shape_text(row.profile, scale=row.scale) in page.words


def test_notebook_form_runs_no_script_of_a_model() -> None:
    record = gpt2_record(name="<script>alert(1)</script>")
    record.add_finding(Finding("<img src=x onerror=alert(1)>"))
    html = record._repr_html_()
    assert "<script" not in html
    assert "<img" not in html
    assert "&lt;script&gt;" in html


def test_drawn_line_breaks_where_values_are_not_finite() -> None:
    svg = svg_sparkline([1.0, 2.0, math.nan, 3.0, 4.0, math.inf, 5.0])
    assert svg.count("<polyline") == 2
    assert svg.count("<circle") == 1
    assert svg_sparkline([math.nan]) == ""
    assert "nan" not in svg_sparkline([5.0])


@pytest.mark.parametrize(
    ("passes", "sentence"),
    [
        (
            {"forward": 1, "backward": 1, "anatomy_forward": 4},
            "1 forward and 1 backward pass, and 4 forward passes to read the anatomy",
        ),
        (
            {"forward": 1, "backward": 1, "anatomy_forward": 4, "head_forward": 2},
            "1 forward and 1 backward pass, and 4 forward passes to read the anatomy, and "
            "2 forward passes to see what the model returns",
        ),
        (
            {"forward": 1, "backward": 0, "anatomy_forward": 1},
            "1 forward pass, and 1 forward pass to read the anatomy",
        ),
        (
            {"forward": 1, "backward": 1, "anatomy_forward": 0, "ablation_forward": 5},
            "1 forward and 1 backward pass, and 5 forward passes with a part left out",
        ),
        ({}, ""),
    ],
)
def test_the_passes_are_counted_with_what_they_were_for(passes, sentence) -> None:
    assert passes_text({"passes": passes}) == sentence


@pytest.mark.filterwarnings("error")
def test_a_mean_and_a_median_that_are_both_infinite_are_printed_without_a_warning() -> None:
    record = Record()
    record.describe(Quantity("stream.norm", "n", "n", "n", scale="log"))
    for layer, value in enumerate((1.0, 2.0, math.inf, math.nan)):
        for statistic in ("mean", "median_without_first"):
            record.append([Reading("stream.norm", Site("decoder", layer), statistic, value)])
    assert "∞" in str(record)


@pytest.mark.parametrize(
    ("dtype", "precision", "words"),
    [
        ("float16", None, "float16 (by hand)"),
        ("float32", "bfloat16", "float32, products in bfloat16 (by hand)"),
        ("float32", None, "float32, partly in half precision (by hand)"),
    ],
)
def test_half_precision_is_said_as_it_was_used(dtype, precision, words) -> None:
    record = gpt2_record()
    record.note("model", {"name": "small", "dtype": dtype, "half_precision": "by hand"})
    if precision is not None:
        record.note("precision", precision)
    assert words in str(record)


def constants_record(count: int) -> Record:
    """A record of two lines that change and `count` quantities with one value each."""
    record = Record()
    moving = [("m.a", [1.0, 2.0, 4.0]), ("m.b", [3.0, 3.0, 9.0])]
    for name, values in [(f"c.q{at}", [float(at)]) for at in range(count)] + moving:
        record.describe(Quantity(name, "T", "t", "t", headline="value", topic="other"))
        record.append(
            Reading(name, Site("decoder", layer), "value", value)
            for layer, value in enumerate(values)
        )
    return record


def test_rows_that_do_not_change_are_not_among_those_that_change_most():
    text = str(constants_record(20))
    assert "m.a" in text and "m.b" in text
    assert "c.q" not in text
    assert "2 of 22 rows, those that change most" in text


def test_rows_that_do_not_change_stand_where_all_rows_have_room():
    text = str(constants_record(3))
    assert all(name in text for name in ("m.a", "m.b", "c.q0", "c.q1", "c.q2"))
    assert "those that change most" not in text
