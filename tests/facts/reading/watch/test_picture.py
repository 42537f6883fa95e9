"""The map on a page: strokes of an SVG, names and steps beside it, words for who cannot see it."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from leadline.reading.show.ramp import ramp
from leadline.reading.watch import picture
from leadline.reading.watch.heat import chosen_series, heat_map, layer_series, loss_of
from leadline.reading.watch.history import History
from leadline.reading.watch.picture import HeatFigure, heat_picture, heat_style, loss_symbol
from leadline.reading.watch.shading import LOST, shade
from leadline.record import Finding
from tests.facts.reading.watch.test_heat import NORM, group_of
from tests.synthetic_watch import Course, watch_record

SMALL = Course(layers=8, samples=60, every=10)


def figure_of(address="attention.logit_std", **options):
    record = watch_record(SMALL)
    [group] = chosen_series(layer_series(History.of(record)), address)
    return HeatFigure(group, "heat-1", (1, 590), findings=tuple(record.findings), **options)


def cells_drawn(html: str) -> dict[tuple[int, int], int]:
    """The shade of every cell, read from the strokes of the SVG."""
    cells: dict[tuple[int, int], int] = {}
    for shade_, path in re.findall(r'<path class="h(\d)" d="([^"]*)"', html):
        x = y = 0
        for command, numbers in re.findall(r"([Mmh])([\d ]+)", path):
            values = [int(one) for one in numbers.split()]
            if command == "M":
                x, y = values
            elif command == "m":
                x += values[0]
                assert values[1] == 0
            else:
                for column in range(x, x + values[0]):
                    assert ((y - 1) // 2, column) not in cells
                    cells[(y - 1) // 2, column] = int(shade_)
                x += values[0]
    return cells


def test_the_strokes_are_the_cells():
    figure = figure_of()
    made = shade(heat_map(figure.group, columns=100, span=(1, 590)), 9, steady=True)
    expected = {(row, column): int(made.shades[row, column]) for row, column in np.ndindex(8, 60)}
    assert cells_drawn(figure.to_html()) == expected
    assert (picture.COLUMNS, picture.SHADES) == (100, 9)


def test_the_figure_is_well_formed():
    html = figure_of(loss="loss-0", anchors=("finding-0-0", "finding-0-1")).to_html()
    root = ET.fromstring(html)
    assert root.tag == "figure"
    assert root.find(".//h4").text == "Spread of the attention logits, attention"


def test_the_figure_says_what_it_shows():
    root = ET.fromstring(figure_of().to_html())
    field = root.find(".//div[@class='field']")
    assert field.get("role") == "img"
    words = field.get("aria-label")
    assert "of 8 layers over steps 1 to 590." in words
    assert "Layer 6 has departed most from its past: " in words
    assert words.endswith("The attention logits of layer 6 have grown 2.4 times since step 530.")


def test_every_shade_has_a_title_with_its_value():
    html = figure_of().to_html()
    titles = re.findall(r"<title>about ([^<]*)</title>", html)
    values = [float(title) for title in titles]
    assert values == sorted(values)
    assert len(values) >= 7


def test_warnings_are_marked_on_the_axis_and_round_their_layers():
    root = ET.fromstring(figure_of(anchors=("finding-0-0", "finding-0-1")).to_html())
    marks = root.findall(".//div[@class='steps marked']/b")
    assert [mark.text for mark in marks] == ["G90▲", "▲"]
    place = float(marks[0].get("style").removeprefix("left:").removesuffix("%"))
    assert place == pytest.approx(100 * (530 - 1) / 590, abs=0.01)
    frame = root.find(".//path[@class='warned']").get("d")
    column = heat_map(figure_of().group, columns=100, span=(1, 590)).column_of(530)
    assert frame == f"M{column} 10H60V12H{column}z"  # layer 6 is the row from 10 to 12
    [link] = root.findall(".//p/a")
    assert (link.text, link.get("href")) == ("G90", "#finding-0-1")


def test_layers_side_by_side_have_one_frame():
    group = group_of(np.ones((6, 4)) * [[1.0, 2.0, 3.0, 4.0]], quantity=NORM)
    finding = Finding("v", "stream.norm", details={"layers": [1, 2, 5], "since": 1})
    html = HeatFigure(group, "k", (1, 4), findings=(finding,)).to_html()
    assert 'class="warned" d="M0 2H4V6H0zM0 10H4V12H0z"' in html


def test_what_is_not_finite_is_crossed_out():
    values = [[1.0, math.nan, 3.0]]
    html = HeatFigure(group_of(values, quantity=NORM), "k", (1, 3)).to_html()
    assert '<path class="cross" d="M1 0l1 2m-1 0l1 -2"><title>not finite</title>' in html
    assert (0, 1) not in cells_drawn(html)
    assert LOST == -2


def test_names_of_rows_stand_at_their_rows_and_never_too_near_each_other():
    assert picture.LEAST_APART == 14  # of the 260 that 49 rows are high
    group = group_of(np.ones((49, 3)) * np.arange(1, 50)[:, None], quantity=NORM)
    root = ET.fromstring(HeatFigure(group, "k", (1, 3)).to_html())
    names = root.findall(".//div[@class='layers']/span")
    places = [float(one.get("style").removeprefix("top:").removesuffix("%")) for one in names]
    assert next(one.text for one in names) == "0"
    assert [one.text for one in names][-1] == "48"
    assert min(b - a for a, b in itertools.pairwise(places)) >= 100 * 14 / 260
    for one, place in zip(names, places, strict=True):
        assert place == pytest.approx(100 * (int(one.text) + 0.5) / 49, abs=0.01)


def test_steps_are_round_numbers_at_their_places():
    root = ET.fromstring(figure_of().to_html())
    ticks = root.findall(".//div[@class='steps marked']/span")
    assert [tick.text for tick in ticks] == ["100", "200", "300", "400", "500"] or [
        tick.text for tick in ticks
    ] == ["200", "400"]
    for tick in ticks:
        place = float(tick.get("style").removeprefix("left:").removesuffix("%"))
        assert place == pytest.approx(100 * (int(tick.text) - 1) / 590, abs=0.01)


def test_the_numbers_of_a_layer_are_its_ends_and_extremes():
    values = [[2.0, 1.0, 8.0, 4.0], [5.0, 5.0, 5.0, math.nan]]
    html = HeatFigure(group_of(values, quantity=NORM), "k", (1, 4)).to_html()
    numbers = re.search(r'data-numbers="([^"]*)"', html)[1]
    assert numbers == "2.00;1.00 @2;8.00 @3;4.00|5.00;5.00 @1;5.00 @1;NaN"


def test_the_loss_is_drawn_once_and_used_by_name():
    history = History.of(watch_record(SMALL))
    symbol = loss_symbol(loss_of(history), (1, 590), "loss-0")
    points = re.findall(r"[ML]([\d.]+) ([\d.]+)", symbol)
    assert len(points) == 2 * picture.COLUMNS
    heights = [float(y) for _, y in points]
    assert heights[0] < heights[100]  # the loss falls, and y grows downwards
    assert heights[-1] < heights[-20]  # and it rises at the end
    assert min(heights) >= 3 - 1e-9
    assert max(heights) <= 97 + 1e-9
    assert 'href="#loss-0"' in figure_of(loss="loss-0").to_html()
    assert "<use" not in figure_of().to_html()


def test_24_layers_by_100_columns_take_a_few_kilobytes():
    record = watch_record(Course(layers=24, samples=200, every=5))
    groups = layer_series(History.of(record))
    sizes = [len(HeatFigure(group, "k", (1, 995)).to_html()) for group in groups]
    assert np.median(sizes) < 5000
    assert max(sizes) < 15_000


def test_a_picture_alone_brings_its_colours_and_its_loss():
    record = watch_record(SMALL)
    history = History.of(record)
    [group] = chosen_series(layer_series(history), "stream.norm")
    html = heat_picture(group, loss=loss_of(history), findings=record.findings)
    assert all(colour in heat_style() for colour in ramp(9))
    assert html == heat_picture(group, loss=loss_of(history), findings=record.findings)
    [key] = set(re.findall(r'href="#([^"]*)"', html))
    assert f'<symbol id="{key}"' in html
    assert "<use" not in heat_picture(group)


def test_texts_of_a_record_are_escaped():
    from leadline.record import Quantity

    evil = Quantity("x.y", "<script>alert(1)</script>", "<b>", "f", headline="mean")
    group = group_of([[1.0, 2.0]], quantity=evil)
    finding = Finding("<img src=x>", "x.y", code='"><i>', details={"since": 1, "layers": [0]})
    html = HeatFigure(group, "k", (1, 2), findings=(finding,)).to_html()
    assert "<script>" not in html
    assert "<img" not in html
    assert '"><i>' not in html.replace('class="h0"></i><i', "")
    ET.fromstring(html)
