"""Laws of depth on the page and in the terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

import leadline
from leadline.reading.bounds.evaluate import bounds
from leadline.reading.page.html import render_html
from leadline.record import Record
from tests.synthetic import gpt2_record


def measured(probes: str | None = None, **fields: Any) -> Record:
    small = {"depth": 2, "width": 16, "heads": 2, "context": 16, "vocabulary": 20}
    model = leadline.Transformer(**(small | {"init": "xavier"} | fields))
    inputs = leadline.random_tokens(model, examples=2, length=6, seed=0)
    return leadline.measure(model, inputs, probes=probes or "stream")


def test_the_page_of_a_default_record_shows_the_law_of_its_design() -> None:
    page = render_html([measured()])
    assert "<h2>Laws of depth</h2>" in page
    assert ">Laws of depth</a>" in page
    assert "xiong-stream ≤" in page
    assert "xiong-stream ≥" in page
    assert "it is not known whether the weights are as they were drawn" in page


def test_laws_stand_behind_attention_on_the_page() -> None:
    page = render_html([measured("stream,attention")])
    first = page.index("<h2>Attention and its bounds</h2>")
    assert first < page.index("<h2>Laws of depth</h2>")
    assert ">Attention and its bounds</a>" in page


@pytest.mark.parametrize("record", [gpt2_record(), measured(placement="post")])
def test_a_design_without_a_law_has_no_section(record: Record) -> None:
    assert "Laws of depth" not in render_html([record])


@pytest.mark.parametrize("width", [200, 100, 60])
@pytest.mark.parametrize("heads", [False, True])
def test_the_terminal_shows_both_ends_at_any_width(width: int, heads: bool) -> None:
    file = io.StringIO()
    console = Console(file=file, width=width)
    bounds(measured(), initial=True).screen(heads=heads, everything=True).show(console)
    said = file.getvalue()
    assert "Laws of depth" in said
    assert "xiong-stream ≤" in said
    assert "xiong-stream ≥" in said
