"""Bounds on rank collapse in the terminal, on the page, in lists and explanations."""

from __future__ import annotations

import io
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from leadline.cli.shelves.shelves import open_shelf
from leadline.reading.bounds.chart_lines import power, power_range
from leadline.reading.bounds.evaluate import bounds
from leadline.reading.bounds.section import bounds_topics
from leadline.reading.bounds.table import BoundsTable
from leadline.reading.page.html import render_html
from leadline.record import Record
from leadline.theory import BOUNDS, COLLAPSE_BOUNDS, LAWS
from tests.synthetic import gpt2_record
from tests.synthetic_attention import attention_record
from tests.synthetic_collapse import collapse_record, facts_of, forward, random_layer


def collapse(*, heads: int = 1, record: Record | None = None) -> Record:
    rng = np.random.default_rng(0)
    layers = [random_layer(rng, width=8, heads=heads, query_key=0.3, value=2.0) for _ in range(4)]
    return collapse_record(forward(rng.normal(size=(6, 8)), layers), layers, record=record)


def both() -> Record:
    record = attention_record(layers=4, heads=2, tokens=8)
    attention = record.provenance["attention"]
    collapse(record=record)
    record.note("attention", attention + record.provenance["attention"])
    return record


def printed(table: BoundsTable, *, width: int = 80, heads: bool = False) -> str:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    table.screen(heads=heads, everything=True).show(console)
    return console.file.getvalue()


# --- terminal ----------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("heads", [False, True])
def test_the_terminal_is_never_overrun(width: int, heads: bool) -> None:
    text = printed(bounds(both()), width=width, heads=heads)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "Bounds on attention: " in text and "Bounds on rank collapse: " in text


def test_places_of_collapse_are_layers() -> None:
    text = printed(bounds(collapse()), width=90)
    assert not re.search(r"\d/\d+ *$", text, re.MULTILINE)
    assert "10^" in text
    by_layer = printed(bounds(collapse(), layer=2), heads=True)
    assert re.search(r"layer 2 +collapse-proved", by_layer)


def test_a_table_of_attention_alone_is_as_before() -> None:
    table = bounds(attention_record(layers=2, heads=2, tokens=8))
    assert table.families() == [table]
    assert printed(table).startswith("Bounds: tiny\nNo bound is violated")
    assert "\nBounds on attention: tiny\n" in printed(table)
    assert re.search(r" \d/\d$", printed(table, width=80), re.MULTILINE)


def test_a_violation_is_told_first() -> None:
    rng = np.random.default_rng(0)
    layers = [random_layer(rng, width=4)]
    facts = facts_of(forward(rng.normal(size=(5, 4)), layers), layers)
    facts = replace(facts, log10_composite=(0.0, 400.0))
    text = printed(bounds(facts, names=["collapse-proved"]))
    assert "VIOLATED: collapse-proved" in text and "measured 10^400.0000 at layer 1" in " ".join(
        text.split()
    )


# --- page --------------------------------------------------------------------------------------


def section(record: Record) -> str:
    parts = bounds_topics([record], ["one"])
    return "".join(f"<h2>{title}</h2>{content}" for _, title, content, _, _ in parts)


def test_the_page_of_a_collapse_has_its_table_and_no_chart_of_attention() -> None:
    html = section(collapse())
    assert "Rank collapse and its bounds" in html and "Attention and its bounds" not in html
    assert "collapse-proved" in html and 'class="card chart"' not in html
    assert re.search(r"10<sup>[−\d.]+</sup>", html)
    assert html.count("<h2") == html.count("</h2>") == 1


def test_the_page_of_both_has_both() -> None:
    html = section(both())
    assert html.index("Attention and its bounds") < html.index("Rank collapse and its bounds")
    assert html.count("<h2") == html.count("</h2>") == 2
    first, second = html.split("<h2>Rank collapse")
    assert "collapse-proved" not in first and "column-sum" not in second
    assert 'class="card chart"' in first


def test_a_page_without_either_has_no_section() -> None:
    assert section(gpt2_record()) == ""


def test_the_whole_page_is_written() -> None:
    page = render_html([both(), collapse()], names=["first", "second"])
    assert page.count("<h2>Rank collapse and its bounds</h2>") == 1
    data = re.search(r'id="leadline-data">(.*?)</script>', page, re.S)
    assert data is not None and json.loads(data[1])["names"] == ["first", "second"]


def test_powers_on_the_page() -> None:
    assert power(math.log10(33.94)) == "33.9"
    assert power(-3.0) == "0.00100" and power(-3.01) == "10^{−3.0}"
    assert power(5.0) == "10^{5.0}" and power(-545067.4) == "10^{−545067.4}"
    assert power(-4.46e18) == "10^{−4.46e18}"
    assert power(-math.inf) == "0" and power(math.inf) == "∞" and power(math.nan) == "NaN"
    assert power_range([1.0, math.nan, -20.0]) == "10^{−20.0} to 10.0"
    assert power_range([0.0, 0.0]) == "1.00" and power_range([math.nan]) == "NaN"


# --- lists -------------------------------------------------------------------------------------


def test_the_shelf_of_bounds_holds_all_families() -> None:
    pages = open_shelf("bounds")
    assert set(pages) == {*BOUNDS.names(), *COLLAPSE_BOUNDS.names(), *LAWS.names()}
    page = pages["collapse-smallest"]
    assert page.facts["quantity"] == "tokens.smallest_composite_residual"
    assert page.facts["side"] == "upper" and "options" not in page.facts
    assert pages["collapse-cubic-law"].facts["side"] == "law"
    assert "Proof" in pages["collapse-proved"].text
    law = pages["xiong-stream"]
    assert law.summary == "pre-norm stream before training"
    assert law.facts["along"] == "layers" and law.facts["quantity"] == "stream.variance"
    assert pages["deepnorm"].facts["along"] == "depth" and "Assumptions" in law.text


def test_the_link_to_the_section_names_what_is_there() -> None:
    assert ">Rank collapse and its bounds</a>" in render_html([collapse()])
    page = render_html([both()])
    assert page.index(">Attention and its bounds</a>") < page.index(
        ">Rank collapse and its bounds</a>"
    )
