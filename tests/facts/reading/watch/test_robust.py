"""What is usual in a run: medians, slopes, and a sample beside its own past."""

import numpy as np
import pytest

from leadline.reading.watch import robust
from leadline.reading.watch.history import Series
from leadline.record.rows.site import OUTSIDE, Site


def series(values, *, every=5, layer=1, stack="stack", point="stream"):
    one = Series("stream.norm", Site(stack, layer, point=point))
    for index, value in enumerate(values, start=1):
        one.put(index * every, value)
    return one


def test_the_spread_of_a_normal_past_is_its_standard_deviation():
    drawn = np.random.default_rng(0).normal(3.0, 0.7, 200_001)
    level, around = robust.level_and_spread(drawn)
    assert level == pytest.approx(3.0, abs=0.01)
    assert around == pytest.approx(0.7, rel=0.01)


def test_the_spread_by_hand():
    # median 2, distances 1 1 0 1 8: their median is 1
    assert robust.spread(np.array([1.0, 3.0, 2.0, 3.0, 10.0])) == pytest.approx(1.4826)


def test_a_wild_point_does_not_change_the_slope():
    x = np.arange(21.0)
    y = 0.5 * x + 1.0
    y[7] = 1e6
    assert robust.slope(x, y) == pytest.approx(0.5)


def test_the_slope_is_the_median_over_pairs():
    # pairs: (1-0)/1, (4-0)/3, (4-1)/2
    assert robust.slope([0.0, 1.0, 3.0], [0.0, 1.0, 4.0]) == pytest.approx(4 / 3)
    assert robust.slope([2.0, 2.0], [0.0, 1.0]) == 0.0
    assert robust.slope([2.0], [0.0]) == 0.0


def test_steadiness_counts_pairs():
    assert robust.steadiness([1.0, 2.0, 3.0]) == 1.0
    assert robust.steadiness([3.0, 2.0, 1.0]) == -1.0
    # of 1 3 2 two pairs rise and one falls
    assert robust.steadiness([1.0, 3.0, 2.0]) == pytest.approx(1 / 3)
    assert robust.steadiness([1.0, 1.0]) == 0.0
    assert robust.steadiness([1.0]) == 0.0


def test_a_running_median_is_that_of_every_window():
    values = np.array([5.0, 1.0, 4.0, 2.0, 9.0])
    expected = [np.median(values[at : at + 3]) for at in range(3)]
    assert robust.running_median(values, 3).tolist() == expected
    assert len(robust.running_median(values, 6)) == 0


@pytest.mark.parametrize(
    ("samples", "every", "early"),
    [(11, 5, False), (10, 5, True), (11, 4, True), (49, 1, True), (50, 1, False)],
)
def test_a_run_is_not_judged_before_eleven_samples_and_fifty_updates(samples, every, early):
    one = series(np.ones(samples), every=every)
    assert robust.is_early(one) is early
    assert (robust.panel([one]) is None) is early


def test_the_past_is_twenty_samples():
    values = [100.0] * 30 + [1.0] * 20 + [4.0]
    change = robust.change(robust.panel([series(values)]))
    assert change.usual == pytest.approx([1.0])
    assert change.factors == pytest.approx([4.0])
    # with 19 in the window of 20 the median is the same; 9 of 20 would not be
    later = robust.change(robust.panel([series([100.0] * 11 + [1.0] * 9 + [4.0])]))
    assert later.usual == pytest.approx([100.0])


def test_a_quiet_past_has_a_spread_of_fifteen_percent():
    change = robust.change(robust.panel([series([1.0] * 20 + [np.e])]))
    assert change.deviations == pytest.approx([1 / 0.15])


def test_deviations_are_logarithms_over_the_spread_of_the_past():
    past = [np.exp(0.4), np.exp(-0.4)] * 10
    change = robust.change(robust.panel([series([*past, np.exp(3.0)])]))
    assert change.deviations == pytest.approx([3.0 / (1.4826 * 0.4)])


def test_a_change_says_where_it_began():
    change = robust.change(robust.panel([series([1.0] * 17 + [7.0, 9.0, 8.0, 8.0])]))
    assert (change.since, change.before) == (18 * 5, 17 * 5)
    fresh = robust.change(robust.panel([series([1.0] * 20 + [8.0])]))
    assert (fresh.since, fresh.before) == (21 * 5, 20 * 5)


def test_the_middle_of_several_sites_ignores_one():
    sites = [series([1.0] * 20 + [last], layer=layer) for layer, last in ((1, 2), (2, 3), (3, 999))]
    change = robust.change(robust.panel(sites))
    assert change.factor == pytest.approx(3.0)
    assert change.deviation == pytest.approx(np.log(3.0) / 0.15)


def test_zero_counts_as_the_smallest_number():
    change = robust.change(robust.panel([series([0.0] * 20 + [1.0])]))
    assert change.factors == pytest.approx([1e30])


def test_a_panel_leaves_out_what_cannot_be_compared():
    good = series([1.0] * 21)
    broken = series([1.0] * 20 + [np.nan], layer=2)
    stopped = series([1.0] * 19, layer=3)
    table = series([1.0] * 21, layer=0, stack=OUTSIDE, point="embedding.weight")
    panel = robust.panel([good, broken, stopped, table])
    assert [site.layer for site in panel.sites] == [1]
    assert len(robust.panel([good, table], outside=True).sites) == 2
    assert robust.panel([]) is None


def test_places_are_the_layers_of_one_stack():
    sites = [Site("decoder", 3), Site("encoder", 1), Site("decoder", 2), Site("decoder", 3)]
    assert robust.place_of(sites, "decoder") == (2, 3)


@pytest.mark.parametrize(
    ("value", "rounded"), [(1234.0, 1200.0), (0.012345, 0.012), (0.0, 0.0), (-3.456, -3.5)]
)
def test_evidence_has_two_digits(value, rounded):
    assert robust.round_to(value) == rounded
    assert robust.round_to(float("inf")) == float("inf")
