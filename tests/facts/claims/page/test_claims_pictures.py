"""Pictures of claims: medians and bands over seeds, and strips that say where a number may lie."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from leadline.claims.claim import Check, Picture
from leadline.claims.page.pictures import curves, strip, swatch
from leadline.claims.ruling import judge
from leadline.reading.show.svg import PictureAxis


def picture(*values: float, x: tuple[float, ...] | None = None, **more: object) -> Picture:
    places = x or tuple(float(k) for k in range(len(values)))
    return Picture("layer", "norm", {"one": (places, values)}, **more)  # type: ignore[arg-type]


def numbers(path: str) -> list[float]:
    return [float(v) for v in re.findall(r"-?\d+(?:\.\d+)?", path)]


def test_seeds_over_the_same_places_become_median_and_range() -> None:
    found = curves([picture(1.0, 2.0), picture(3.0, 9.0), picture(2.0, 4.0)])
    (one,) = found.series
    assert (one.middle, one.low, one.high) == ((2.0, 4.0), (1.0, 2.0), (3.0, 9.0))
    assert found.seeds == 3
    assert 'class="band c0"' in found.svg


def test_seeds_at_different_places_are_not_mixed() -> None:
    found = curves([picture(1.0, 2.0), picture(3.0, 9.0, x=(0.0, 5.0))])
    assert found.seeds == 1
    assert found.series[0].middle == (1.0, 2.0)
    assert "band" not in found.svg


def test_a_line_is_broken_where_a_value_has_no_place() -> None:
    found = curves([picture(1.0, 10.0, 0.0, 100.0, 1000.0, math.nan, 5.0, 4.0, y_log=True)])
    path = re.search(r'class="line c0" d="([^"]*)"', found.svg)
    assert path is not None
    assert path[1].count("M") == 3
    assert found.lost == 2


def test_a_logarithmic_axis_gives_equal_factors_equal_steps() -> None:
    found = curves([picture(1.0, 10.0, 100.0, y_log=True)])
    line = numbers(re.search(r'class="line c0" d="([^"]*)"', found.svg)[1])
    ys = line[1::2]
    assert ys[0] - ys[1] == pytest.approx(ys[1] - ys[2], abs=0.11)


def test_equal_axes_have_one_unit() -> None:
    around = [2 * math.pi * k / 40 for k in range(41)]
    circle = (tuple(map(math.cos, around)), tuple(3 * math.sin(a) for a in around))
    found = curves([Picture("x", "y", {"tall": circle}, equal=True)])
    line = numbers(re.search(r'class="line c0" d="([^"]*)"', found.svg)[1])
    width = max(line[::2]) - min(line[::2])
    height = max(line[1::2]) - min(line[1::2])
    assert height / width == pytest.approx(3, rel=0.01)


def test_points_are_drawn_without_a_line_and_what_is_compared_as_a_dashed_one() -> None:
    both = {"drawn": ((1.0, 2.0), (1.0, 4.0)), "theory": ((1.0, 2.0), (1.5, 3.0))}
    found = curves([Picture("x", "y", both, points=True, faint=("theory",))])
    assert found.svg.count('class="dot c0"') == 2
    assert 'class="line c0' not in found.svg
    assert 'class="line c1 dash' in found.svg


def test_a_line_that_another_covers_is_broad() -> None:
    both = {"below": ((1.0, 2.0), (1.0, 4.0)), "above": ((1.0, 2.0), (1.0, 4.0))}
    found = curves([Picture("x", "y", both)])
    assert 'class="line c0 broad"' in found.svg
    assert 'class="line c1"' in found.svg


def test_lines_differ_in_more_than_colour() -> None:
    lines = {f"line {k}": ((1.0, 2.0), (1.0 * k, 2.0 * k)) for k in range(9)}
    found = curves([Picture("x", "y", lines)])
    drawn = [re.sub(r"c\d", "", swatch(one)) for one in found.series]
    assert len(set(drawn[:4])) == 4
    assert swatch(found.series[0]) != swatch(found.series[7])


def test_no_word_stands_in_a_picture() -> None:
    found = curves([picture(1.0, 2.0), picture(3.0, 9.0)])
    words = re.sub(r"<[^>]*>", " ", found.svg)
    assert re.search("[A-Za-z]", words) is None


@pytest.mark.parametrize(
    ("low", "high", "log", "expected"),
    [
        (0.0, 1.0, False, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (0.5e-6, 2e6, True, ["10⁻⁶", "10⁻⁴", "0.01", "1", "100", "10⁴", "10⁶"]),
        (0.9, 6.0, True, ["1", "2", "5"]),
        (-3e-5, 3e-5, False, ["−2×10⁻⁵", "0", "2×10⁻⁵"]),
    ],
)
def test_ticks_are_round(low: float, high: float, log: bool, expected: list[str]) -> None:
    axis = PictureAxis(low, high, 0, 100, "log" if log else "linear")
    ticks = axis.ticks()
    assert set(expected) <= {text for _, text in ticks}
    assert all(-1e-6 <= axis.at(value) <= 100 + 1e-6 for value, _ in ticks)


# --- strips ----------------------------------------------------------------------------------


def check(relation: str, limit: float, **more: object) -> Check:
    return Check("n", "claim", relation, limit, label="n", because="for the test", **more)  # type: ignore[arg-type]


def edges(svg: str) -> tuple[float, float]:
    found = re.search(r'class="allowed" x="([\d.]+)" y="3" width="([\d.]+)"', svg)
    assert found is not None
    return float(found[1]), float(found[1]) + float(found[2])


def mark(svg: str) -> float:
    found = re.search(r'class="mark (?:good|bad|open)" (?:cx="|d="M)([\d.]+)', svg)
    assert found is not None
    shift = 4.5 if 'class="mark bad"' in svg else 0.0
    return float(found[1]) + shift


@pytest.mark.parametrize(
    ("asked", "value"),
    [
        (check("at most", 1.0), 0.4),
        (check("at most", 1.0), 1.6),
        (check("at least", 1e3, log=True), 1e9),
        (check("at least", 1e3, log=True), 2.0),
        (check("near", 2.0, within=0.5), 2.3),
        (check("near", 2.0, within=0.5), 7.0),
        (check("at most", 0.0), 0.0),
        (check("at most", -1.0), -3.0),
    ],
)
def test_the_mark_stands_on_the_shaded_side_where_the_check_holds(
    asked: Check, value: float
) -> None:
    checked = judge(asked, [value])
    svg = strip(checked)
    left, right = edges(svg)
    assert (left - 0.2 <= mark(svg) <= right + 0.2) == (checked.outcome == "holds")


def test_outcomes_differ_in_shape() -> None:
    good = strip(judge(check("at most", 1.0), [0.5, 0.6]))
    bad = strip(judge(check("at most", 1.0), [1.5, 1.6]))
    undecided = strip(judge(check("at most", 1.0, over="mean"), [0.5, 1.6]))
    assert '<circle class="mark good"' in good
    assert 'l9 9m0-9l-9 9"' in bad
    assert 'class="mark open"' in undecided
    assert 'class="interval open"' in undecided


def test_what_is_not_finite_is_an_arrow_or_a_cross() -> None:
    asked = check("at least", 1e3)
    assert "arrow good" in strip(judge(asked, [math.inf, math.inf]))
    assert "arrow bad" in strip(judge(asked, [-math.inf, 5.0]))
    assert 'class="mark bad"' in strip(judge(asked, [math.nan, 1e4]))
    mean = replace(asked, over="mean")
    assert "arrow good" in strip(judge(mean, [math.inf, math.inf]))


def test_far_positive_numbers_get_a_logarithmic_strip_unasked() -> None:
    assert 'class="tick"' in strip(judge(check("at most", 1e-9), [1e-16]))
    assert 'class="tick"' not in strip(judge(check("at most", 1.0), [0.5]))
