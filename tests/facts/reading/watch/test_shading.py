"""From values to shades."""

from __future__ import annotations

import math

import pytest

from leadline.reading.watch import shading
from leadline.reading.watch.heat import heat_map
from leadline.reading.watch.shading import LOST, UNKNOWN, shade
from leadline.record import Reading, Site
from tests.facts.reading.watch.test_heat import NORM, group_of, history_of


def shades_of(values, count=4, *, quantity=None, **options):
    group = group_of(values) if quantity is None else group_of(values, quantity=quantity)
    return shade(heat_map(group, columns=99), count, **options)


def test_shades_are_equal_steps_from_the_lowest_to_the_highest_value():
    made = shades_of([[0.0, 0.24, 0.26, 0.49], [0.51, 0.74, 0.76, 1.0]])
    assert made.shades.tolist() == [[0, 0, 1, 1], [2, 2, 3, 3]]
    assert (made.low, made.high) == (0.0, 1.0)
    assert made.limits(1) == (0.25, 0.5)
    assert made.words(1) == "about 0.38"


def test_on_a_logarithmic_scale_they_are_equal_factors():
    made = shades_of([[1.0, 9.9, 10.1, 99.0], [101.0, 999.0, 1001.0, 10_000.0]], quantity=NORM)
    assert made.shades.tolist() == [[0, 0, 1, 1], [2, 2, 3, 3]]
    assert made.limits(2) == pytest.approx((100.0, 1000.0))
    assert made.words(0) == "about 3.2"  # sqrt(1 * 10)


def test_zero_on_a_logarithmic_scale_has_the_lowest_shade():
    made = shades_of([[0.0, 1.0, 100.0]], quantity=NORM)
    assert made.shades.tolist() == [[0, 0, 3]]
    assert made.low == pytest.approx(1.0)


def test_zeros_of_a_logarithmic_scale_are_known_as_such():
    assert shades_of([[1.0, 2.0]], quantity=NORM).zeros == "none"
    assert shades_of([[0.0, 2.0]], quantity=NORM).zeros == "some"
    made = shades_of([[0.0, 0.0]], quantity=NORM)
    assert (made.zeros, made.words(0)) == ("all", "0")
    assert shades_of([[0.0, 1.0]]).zeros == "none"  # a linear scale shows them as any number


def test_factors_beyond_the_range_of_float64_have_the_last_shade():
    assert shading.FARTHEST == 700.0
    made = shades_of([[1e-300, 1.0, 1e300]], quantity=NORM, relative=True)
    assert made.high == pytest.approx(math.exp(690.7755), rel=1e-3)
    made = shades_of([[5e-324, 1e-300, 1e300, 1e308]], quantity=NORM, relative=True)
    assert made.high <= math.exp(700.0)
    assert made.shades.tolist()[0][-1] == 3


def test_what_hardly_changes_is_not_stretched():
    made = shades_of([[1.0, 1.001, 1.002, 1.001]], count=9, quantity=NORM)
    assert set(made.shades.ravel().tolist()) == {4}
    made = shades_of([[1.0, 1.001, 1.002, 1.001]], count=9)
    assert set(made.shades.ravel().tolist()) == {4}


def test_what_is_not_finite_or_not_read_has_a_shade_of_its_own():
    history = history_of([[1.0, math.nan, math.inf, 2.0]])
    history.add([Reading("stream.mean", Site("decoder", 1), "mean", 7.0, step=4)])
    from leadline.reading.watch.heat import layer_series

    [group] = layer_series(history)
    made = shade(heat_map(group, columns=4), 4)
    assert made.shades.tolist() == [[0, LOST, LOST, 0], [UNKNOWN] * 3 + [3]]
    assert made.words(LOST) == "not finite"


def test_a_map_without_a_finite_value_is_still_a_map():
    made = shades_of([[math.nan, math.nan]])
    assert made.shades.tolist() == [[LOST, LOST]]
    assert made.low < made.high


def test_relative_shades_compare_every_row_with_its_own_median():
    values = [[1.0, 1.0, 1.0, 4.0], [100.0, 100.0, 100.0, 25.0]]
    made = shades_of(values, count=3, quantity=NORM, relative=True)
    assert made.shades.tolist() == [[1, 1, 1, 2], [1, 1, 1, 0]]
    assert (made.low, made.high) == (pytest.approx(0.25), pytest.approx(4.0))
    assert made.number(made.high) == "×4"


def test_relative_shades_of_a_linear_scale_are_differences():
    made = shades_of([[1.0, 1.0, 3.0]], count=3, relative=True)
    assert (made.low, made.high) == (-2.0, 2.0)
    assert made.number(2.0) == "+2"
    assert made.number(-2.0) == "-2"


def test_steady_shades_do_not_flicker_at_an_edge():
    assert shading.MARGIN == 0.3
    # Steps of the scale are 0.25: 0.26 is beyond the edge by 0.04 steps, 0.33 by 0.32.
    values = [[0.0, 0.24, 0.26, 0.24, 0.33, 0.24, 1.0]]
    assert shades_of(values).shades.tolist() == [[0, 0, 1, 0, 1, 0, 3]]
    assert shades_of(values, steady=True).shades.tolist() == [[0, 0, 0, 0, 1, 1, 3]]
