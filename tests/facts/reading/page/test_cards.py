"""What stands beside a chart: the key, the laws, the switches."""

from __future__ import annotations

import re

import pytest

from leadline.reading.page.figures import draw_charts
from leadline.reading.show.card import chart_card, controls
from leadline.record import Quantity, Reading, Record, Site
from tests.synthetic import gpt2_record, t5_record


def two_statistics(apart: float) -> Record:
    """A record whose robust median stands `apart` times above the mean at its last layer."""
    record = Record()
    record.describe(Quantity("q", "Q", "q", "q"))
    for at in range(5):
        value = 1.0 if at < 4 else 1.0 + apart
        record.append(
            [
                Reading("q", Site("decoder", at), "mean", 1.0),
                Reading("q", Site("decoder", at), "median_without_first", value),
            ]
        )
    return record


@pytest.mark.parametrize(("apart", "laws"), [(0.19, 1), (-0.19, 1), (0.21, 2), (-0.21, 2)])
def test_a_second_law_is_told_where_it_leaves_the_first_by_a_fifth(apart: float, laws: int) -> None:
    (chart,) = draw_charts([two_statistics(apart)])
    (told,) = re.findall(r'class="law">(.*?)</span>', chart_card(chart))
    assert len(told.split("<br>")) == laws


def test_a_power_law_has_a_raised_exponent() -> None:
    record = Record()
    record.describe(Quantity("block.size", "Size", "s", "q", scale="log", lives_on="layer"))
    record.append(
        Reading("block.size", Site("decoder", l, None, "block"), "value", l**0.7)
        for l in range(1, 13)
    )
    (chart,) = draw_charts([record])
    assert "grows as <i>l</i>\u200a<sup>0.70</sup>" in chart_card(chart)


def test_every_line_has_a_button_and_every_stack_its_own_list() -> None:
    charts = {c.name: c for c in draw_charts([t5_record()])}
    card = chart_card(charts["update.norm"])
    assert re.findall(r'data-series="(\d)"', card) == ["0", "1", "2", "3", "4"]
    assert card.index(">encoder</li>") < card.index(">decoder</li>")


def test_a_switch_for_all_stands_as_most_charts_stand() -> None:
    page = controls(draw_charts([gpt2_record()]), depths_differ=False)
    pressed = dict(re.findall(r'data-statistic-all="(\w+)" aria-pressed="(\w+)"', page))
    assert pressed == {
        "mean": "true",
        "median": "false",
        "mean_without_first": "false",
        "median_without_first": "true",
    }
