"""What changes over checkpoints: found where it was put, and nowhere else."""

import math

import numpy as np
import pytest

from leadline.reading.scan.changes import (
    FEWEST,
    FEWEST_STEADY,
    LEAST,
    STEADY,
    SURE,
    cut_in_two,
    find_changes,
)
from leadline.reading.scan.scan import read_scan
from tests.synthetic_scan import broken_run, run_record


def changes_of(record):
    (series,) = read_scan(record).series
    return find_changes(series)


def only(name, value):
    """Numbers of one quantity; all others are one."""
    return lambda quantity, layer, at: value(layer, at) if quantity == name else 1.0


def test_a_jump_is_found_with_its_layer_step_and_factor():
    (change,) = changes_of(broken_run())
    assert change.group.quantity.name == "stream.norm"
    assert change.labels == ("3",)
    assert change.since == 900
    assert change.before == pytest.approx(1, rel=0.02)
    assert change.after == pytest.approx(10, rel=0.02)
    assert change.factor == pytest.approx(10, rel=0.02)
    assert change.others == pytest.approx(1, rel=0.02)
    assert change.local and not change.everywhere


def test_the_cut_is_the_one_of_least_absolute_deviation_by_brute_force():
    chance = np.random.default_rng(0)
    for _ in range(50):
        levels = chance.normal(size=9)
        rests = {
            at: np.abs(levels[:at] - np.median(levels[:at])).sum()
            + np.abs(levels[at:] - np.median(levels[at:])).sum()
            for at in range(2, 8)
        }
        at, before, after = (found.item() for found in cut_in_two(levels[None]))
        assert rests[at] == pytest.approx(min(rests.values()))
        assert (before, after) == (np.median(levels[:at]), np.median(levels[at:]))


def test_one_wild_checkpoint_is_no_change():
    assert (
        changes_of(run_record(12, only("stream.norm", lambda _, at: 50.0 if at == 5 else 1))) == []
    )
    assert (
        changes_of(run_record(12, only("stream.norm", lambda _, at: 50.0 if at == 11 else 1))) == []
    )


def test_two_checkpoints_at_the_end_are_one():
    (change,) = changes_of(run_record(12, only("stream.norm", lambda _, at: 3.0 if at > 9 else 1)))
    assert change.since == 1100
    assert change.everywhere and not change.local
    assert math.isnan(change.others)


def test_a_slow_drift_is_a_change_with_its_cut_in_the_middle():
    (change,) = changes_of(run_record(8, only("stream.norm", lambda _, at: 1.2**at)))
    assert change.since in (400, 500)  # both leave the same deviation
    assert change.factor == pytest.approx(1.2**4)


def test_a_change_below_one_half_more_is_none():
    assert math.log(1.5) == LEAST
    for factor, count in ((1.49, 0), (1.51, 1)):
        record = run_record(8, only("stream.norm", lambda _, at, f=factor: f if at > 3 else 1))
        assert len(changes_of(record)) == count


def test_a_change_is_five_times_the_noise_or_steady():
    assert (SURE, STEADY, FEWEST_STEADY) == (5.0, 0.9, 6)
    # Neighbours differ by d throughout: the noise is 1.4826 d / sqrt(2) of the first differences
    # and twice that, over sqrt(6), of the second ones, which is the larger one.
    noise = 1.4826 * 2 * 0.4 / math.sqrt(6)
    zigzag = [0.0, 0.4] * 5
    for times, count in ((4.8, 0), (5.2, 1)):
        step = times * noise - 0.4  # the median before is 0, and after it 0.4 and the step
        record = run_record(
            10,
            only("stream.norm", lambda _, at, s=step: math.exp(zigzag[at] + (s if at > 4 else 0))),
        )
        assert len(changes_of(record)) == count, times


def test_of_a_quantity_without_logarithm_the_least_change_is_a_share_of_its_level():
    for after, count in ((0.84, 0), (0.86, 1)):
        record = run_record(8, only("tokens.cosine", lambda _, at, a=after: a if at > 3 else 0.5))
        assert len(changes_of(record)) == count
    assert pytest.approx(1 - 0.5 / 0.841, rel=1e-2) == LEAST


@pytest.mark.parametrize("count", [4, 8, 12])
def test_noise_is_hardly_ever_taken_for_a_change(count):
    chance = np.random.default_rng(1)
    values = np.exp(chance.normal(size=(400, count)))
    record = run_record(
        count, only("stream.norm", lambda layer, at: float(values[layer - 1, at])), layers=400
    )
    wrong = sum(len(change.labels) for change in changes_of(record))
    assert wrong <= 3  # the docstring says two in a thousand at most


def test_what_is_no_number_any_more_comes_first():
    def number(name, layer, at):
        if name == "gradient.stream" and layer == 2 and at >= 6:
            return math.nan
        return 100.0 if name == "stream.norm" and layer == 1 and at >= 3 else 1.0

    first, second = changes_of(run_record(9, number))
    assert (first.group.quantity.name, first.labels, first.since) == (
        "gradient.stream",
        ("2",),
        700,
    )
    assert math.isnan(first.after) and math.isnan(first.factor)
    assert second.labels == ("1",)


def test_what_never_was_a_number_or_is_one_again_is_no_change():
    def number(name, layer, at):
        never = name == "tokens.cosine" and layer == 1
        again = name == "stream.norm" and layer == 2 and at == 4
        return math.nan if never or again else 1.0

    assert changes_of(run_record(9, number)) == []


def test_a_quantity_that_becomes_zero_is_a_change():
    (change,) = changes_of(run_record(9, only("stream.norm", lambda _, at: float(at < 5))))
    assert (change.before, change.after, change.since) == (1.0, 0.0, 600)


def test_of_many_checkpoints_a_hundred_cuts_are_tried():
    record = run_record(301, only("stream.norm", lambda _, at: 9.0 if at >= 200 else 1), layers=1)
    (change,) = changes_of(record)
    assert abs(change.since - 20100) <= 400


def test_what_began_together_is_told_from_the_first_layer_on():
    def number(_, layer, at):
        return {2: 20.0, 5: 80.0}.get(layer, 1.0) if at >= 5 else 1.0

    labels = [change.labels for change in changes_of(run_record(10, number))]
    assert labels[0] == ("2", "5")  # layers of one quantity that go the same way are one change

    def apart(name, layer, at):
        if at < 5:
            return 1.0
        return {("gradient.stream", 2): 20.0, ("stream.norm", 5): 80.0}.get((name, layer), 1.0)

    assert [change.labels for change in changes_of(run_record(10, apart))] == [("2",), ("5",)]


def test_three_checkpoints_are_too_few():
    assert FEWEST == 4
    assert changes_of(run_record(3, only("stream.norm", lambda _, at: 10.0**at))) == []


def test_what_changes_its_sign_near_zero_does_not_come_before_a_jump():
    def number(name, layer, at):
        if name == "tokens.cosine" and layer == 1:
            return -6e-4 if at < 4 else 2e-4
        return 8.0 if name == "stream.norm" and layer == 3 and at >= 6 else 1.0

    jump, turned = changes_of(run_record(12, number))
    assert (jump.group.quantity.name, jump.labels, jump.since) == ("stream.norm", ("3",), 700)
    assert math.isnan(turned.factor)
    assert turned.size == pytest.approx(8 / 6)


def test_a_jump_of_one_layer_is_told_apart_from_the_drift_of_the_others():
    drift = [1.07**at for at in range(12)]
    jump, slow = changes_of(
        run_record(
            12,
            only("stream.norm", lambda layer, at: drift[at] * (9.0 if layer == 2 < at - 2 else 1)),
        )
    )
    assert (jump.labels, jump.since) == (("2",), 600)
    assert jump.others == pytest.approx(1.07**6)
    assert jump.local
    assert slow.labels == ("1", "3", "4", "5", "6")
    assert slow.factor == pytest.approx(1.07**6)


def test_what_drifts_in_an_earlier_layer_comes_after_what_broke_at_the_same_step():
    def number(name, layer, at):
        if name == "gradient.stream" and layer == 1:
            return 1.6 if at >= 6 else 1.0
        return 9.0 if name == "stream.norm" and layer == 3 and at >= 6 else 1.0

    assert [change.labels for change in changes_of(run_record(12, number))] == [("3",), ("1",)]


def test_a_layer_that_changes_less_than_the_others_names_no_place():
    def value(layer, at):
        return 1.0 if at < 6 else 2.0 if layer == 4 else 12.0

    far, less = changes_of(run_record(12, only("stream.norm", value)))
    assert (far.labels, less.labels) == (("1", "2", "3", "5", "6"), ("4",))
    assert not far.local and not less.local
