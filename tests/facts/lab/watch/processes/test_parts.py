"""What several processes read together: sums of sums, never averages of ratios."""

import math

import pytest

from leadline.lab.watch.processes.parts import (
    RankPart,
    joined_layers,
    joined_losses,
    joined_sums,
    same_gradients,
)
from leadline.lab.watch.weights.optimizers import GroupSums
from leadline.record import Reading, Site
from leadline.record.rows.site import RUN

FIRST, SECOND = Site("decoder", 1, 1, "attention"), Site("decoder", 1, 2, "mlp")
SITES = [FIRST, SECOND]


def _read(quantity, value, site=FIRST, step=0):
    return Reading(quantity, site, "mean", value, step=step)


def _message(part):
    return part.message(SITES, ["a note"])


def test_sums_of_squares_are_added_up():
    own = {FIRST: GroupSums(gradient=9.0, change=1.0, weight=4.0)}
    other = RankPart(sums={FIRST: GroupSums(gradient=16.0, surprise=2.0, surprised=3.0)})
    whole = joined_sums(own, [_message(other)], SITES)
    assert whole == {
        FIRST: GroupSums(gradient=25.0, surprise=2.0, surprised=3.0, change=1.0, weight=4.0)
    }


def test_sums_of_other_groups_and_missing_sums_are_not_added():
    own = {FIRST: GroupSums(gradient=9.0)}
    elsewhere = RankPart(sums=own).message([SECOND], [])
    assert joined_sums(own, [elsewhere], SITES) is None
    assert joined_sums(own, [_message(RankPart())], SITES) is None


def test_means_are_weighted_by_how_many_they_are_of():
    own = RankPart(layers=[_read("stream.norm", 2.0)], counts={("stream.norm", FIRST): 10.0})
    other = RankPart(layers=[_read("stream.norm", 5.0)], counts={("stream.norm", FIRST): 20.0})
    (whole,) = joined_layers(own, [_message(other)])
    assert whole.value == pytest.approx((2.0 * 10 + 5.0 * 20) / 30)


@pytest.mark.parametrize(
    ("quantity", "values", "whole"),
    [
        ("stream.largest", (3.0, 7.0), 7.0),
        ("stream.largest", (3.0, math.nan), math.nan),
        ("stream.largest", (math.nan, 3.0), math.nan),
        ("stream.float16_room", (3.0, 7.0), 3.0),
        # Two losses whose mean is the loss: each gradient is twice as large as its part.
        ("gradient.stream", (3.0, 4.0), 2.5),
        # Of the first example: that of the first process.
        ("update.bf16_loss", (0.25, 0.5), 0.25),
        ("attention.entropy", (1.0, 2.0), 1.0),
    ],
)
def test_what_is_no_mean_is_joined_in_its_own_way(quantity, values, whole):
    own, other = (RankPart(layers=[_read(quantity, value)]) for value in values)
    (joined,) = joined_layers(own, [_message(other)])
    assert joined.value == pytest.approx(whole, nan_ok=True)


def test_layers_of_different_readings_are_not_joined():
    own, other = (
        RankPart(layers=[_read("stream.norm", 1.0)]),
        RankPart(layers=[_read("update.norm", 1.0)]),
    )
    assert joined_layers(own, [_message(other)]) is None


def test_losses_are_the_means_of_all_processes_where_all_know_them():
    own = [_read("train.loss", value, RUN, step) for step, value in ((1, 4.0), (2, 3.0))]
    other = RankPart(losses=[_read("train.loss", 2.0, RUN, 1)])
    assert [one.value for one in joined_losses(own, [_message(other)])] == [3.0, 3.0]


@pytest.mark.parametrize(
    ("theirs", "same"),
    [(9.0, True), (9.0 * (1 + 1e-7), True), (9.0 * (1 + 1e-5), False), (math.nan, False)],
)
def test_replicas_took_the_same_gradient(theirs, same):
    own = {FIRST: GroupSums(gradient=9.0)}
    other = RankPart(sums={FIRST: GroupSums(gradient=theirs)})
    assert same_gradients(own, [_message(other)], SITES) is same


def test_gradients_that_are_broken_everywhere_are_the_same():
    own = {FIRST: GroupSums(gradient=math.nan)}
    assert same_gradients(own, [_message(RankPart(sums=own))], SITES)
    assert not same_gradients(None, [_message(RankPart(sums=own))], SITES)
    assert not same_gradients(own, [_message(RankPart())], SITES)


def test_all_parts_of_a_message_are_told_apart():
    own = RankPart(
        {FIRST: GroupSums(gradient=1.0), SECOND: GroupSums(weight=2.0)},
        [_read("stream.norm", 3.0), _read("stream.norm", 4.0, SECOND)],
        {("stream.norm", FIRST): 5.0, ("stream.norm", SECOND): 6.0},
        [_read("train.loss", 7.0, RUN, 8)],
    )
    message = _message(own)
    assert joined_sums(own.sums, [message], SITES)[SECOND].weight == 4.0
    assert [one.value for one in joined_layers(own, [message])] == [3.0, 4.0]
    assert [one.value for one in joined_losses(own.losses, [message])] == [7.0]
    assert message.facts["notes"] == ["a note"]
