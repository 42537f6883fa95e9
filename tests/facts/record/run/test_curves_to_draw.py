"""Curves of a run that went on, and curves with fewer points."""

from __future__ import annotations

import math

import numpy as np

from leadline.record import Reading, Record
from leadline.record.rows.site import RUN
from leadline.record.run.curve import Curve, joined_curve, thin_curve
from leadline.record.run.watching import LOSS


def run_of(attempts: dict[str, tuple[int, dict[int, float]]]) -> Record:
    """A watched run: for every attempt its first update and its losses by update."""
    record = Record()
    record.describe(LOSS)
    noted = [{"run": run, "first": first, "time": ""} for run, (first, _) in attempts.items()]
    record.note("watch", {"every": 1, "attempts": noted})
    for run, (_, losses) in attempts.items():
        record.append(
            Reading(LOSS.name, RUN, "value", value, run=run, step=step)
            for step, value in losses.items()
        )
    return record


def test_what_an_attempt_does_again_replaces_what_was_read_before():
    record = run_of(
        {"": (1, {1: 5.0, 2: 4.0, 3: 3.0, 4: 9.0}), "again": (3, {3: 3.5, 4: 3.0, 5: 2.5})}
    )
    curve = joined_curve(record, LOSS.name)
    assert curve.steps == (1, 2, 3, 4, 5)
    assert list(curve.values) == [5.0, 4.0, 3.5, 3.0, 2.5]


def test_what_an_attempt_has_not_reached_yet_is_not_told_from_the_one_before():
    record = run_of({"": (1, {1: 5.0, 2: 4.0, 3: 9.0}), "again": (2, {2: 3.9})})
    assert joined_curve(record, LOSS.name).steps == (1, 2)


def test_a_quantity_that_was_not_read_has_no_curve():
    assert joined_curve(run_of({"": (1, {})}), LOSS.name) is None
    assert joined_curve(Record(), LOSS.name) is None


def curve_of(values) -> Curve:
    values = np.asarray(values, dtype=float)
    return Curve("train.loss", "", None, tuple(range(1, len(values) + 1)), values)


def test_a_short_curve_stays_as_it_is():
    curve = curve_of([1.0, 2.0, 3.0])
    assert thin_curve(curve, 3) is curve


def test_a_thinned_curve_keeps_its_ends_and_every_extreme():
    values = np.sin(np.arange(1000) / 7)
    values[313], values[777] = 40.0, -40.0
    thin = thin_curve(curve_of(values), 100)
    assert len(thin) <= 102
    assert (thin.steps[0], thin.steps[-1]) == (1, 1000)
    assert thin.values[thin.steps.index(314)] == 40.0
    assert thin.values[thin.steps.index(778)] == -40.0
    assert list(thin.steps) == sorted(set(thin.steps))


def test_a_thinned_curve_has_six_digits():
    thin = thin_curve(curve_of(np.linspace(1, 2, 50) / 3), 10)
    assert thin.values[0] == 0.333333


def test_what_is_not_finite_is_still_there():
    values = np.linspace(3, 2, 1000)
    values[600:] = math.nan
    thin = thin_curve(curve_of(values), 100)
    assert math.isnan(thin.values[-1])
    assert math.isnan(thin.values[thin.steps.index(601)])
    assert np.isfinite(thin.values[thin.steps.index(600)])
