"""The time that is left, by a scripted clock."""

from __future__ import annotations

import itertools

from leadline.cli.screen.forecast import Forecast


def test_before_a_step_has_ended_it_is_what_was_predicted_less_the_time_so_far():
    forecast = Forecast((2.0, 10.0, 1.0), now=100.0)
    assert forecast.left(100.0) == 13.0
    assert forecast.left(101.5) == 11.5


def test_finished_steps_correct_the_others():
    forecast = Forecast((2.0, 10.0, 1.0), now=0.0)
    forecast.reach(1, now=4.0)  # twice as slow as predicted
    assert forecast.left(4.0) == 22.0
    assert forecast.left(14.0) == 12.0


def test_a_step_that_takes_too_long_leaves_what_comes_behind_it():
    forecast = Forecast((2.0, 10.0, 1.0), now=0.0)
    forecast.reach(1, now=2.0)
    assert forecast.left(12.0) == forecast.left(50.0) == 1.0


def test_inside_of_a_step_it_never_rises_and_never_goes_below_zero():
    forecast = Forecast((3.0, 0.0, 5.0), now=0.0)
    ends = (0.0, 7.0, 7.0, 9.0)
    for step, (begin, end) in enumerate(itertools.pairwise(ends)):
        forecast.reach(step, now=begin)
        shown = [forecast.left(begin + tenth * (end - begin) / 10) for tenth in range(40)]
        assert all(after <= before for before, after in itertools.pairwise(shown))
        assert min(shown) >= 0.0
    forecast.reach(3, now=9.0)
    assert forecast.left(20.0) == 0.0


def test_a_step_that_is_told_again_or_late_is_no_news():
    forecast = Forecast((2.0, 2.0), now=0.0)
    forecast.reach(1, now=2.0)
    forecast.reach(0, now=3.0)
    forecast.reach(1, now=3.5)
    assert forecast.left(3.5) == 0.5


def test_nothing_predicted_is_nothing_left():
    assert Forecast((), now=0.0).left(5.0) == 0.0
    assert Forecast((0.0, 0.0), now=0.0).left(1.0) == 0.0
