"""Layers by steps: the groups of a history, and the cells of their maps."""

from __future__ import annotations

import math

import numpy as np
import pytest

from leadline.reading.watch import heat
from leadline.reading.watch.heat import (
    chosen_series,
    heat_map,
    layer_series,
    loss_of,
    merge_rows,
    row_parts,
    series_by_column,
)
from leadline.reading.watch.history import History
from leadline.record import Quantity, Reading, Site
from leadline.record.rows.site import RUN
from tests.synthetic_watch import Course, watch_record

NORM = Quantity("stream.norm", "Stream norm", "|x|", "formula", scale="log")
SHIFT = Quantity("stream.mean", "Stream mean", "m", "formula")
RATIO = Quantity("update.ratio", "Update over stream", "r", "formula", lives_on="sublayer")


def history_of(values, quantity=SHIFT, steps=None, sites=None):
    """A history of one quantity: a list of values by step for each site."""
    history = History([quantity])
    rows = np.asarray(values, dtype=float)
    steps = range(1, rows.shape[1] + 1) if steps is None else steps
    sites = [Site("decoder", layer) for layer in range(len(rows))] if sites is None else sites
    for at, step in enumerate(steps):
        history.add(
            Reading(quantity.name, site, quantity.headline, float(rows[row, at]), step=step)
            for row, site in enumerate(sites)
        )
    return history


def group_of(values, **options):
    [group] = layer_series(history_of(values, **options))
    return group


def test_a_group_is_one_quantity_at_one_point_of_every_layer():
    groups = layer_series(History.of(watch_record(Course(layers=3, samples=4, every=5))))
    names = [str(group.address) for group in groups]
    assert "stream.norm" in names
    assert {"update.ratio[attention]", "update.ratio[mlp]"} <= set(names)
    assert "model/optimizer.surprise" in names
    assert "train.loss" not in names
    by_name = dict(zip(names, groups, strict=True))
    assert by_name["stream.norm"].labels == ("0", "1", "2", "3")
    assert by_name["update.ratio[mlp]"].title == "Update over stream, mlp"
    assert by_name["update.ratio[mlp]"].labels == ("1", "2", "3")
    outside = by_name["model/optimizer.surprise"]
    assert outside.outside
    assert outside.labels == ("transformer.wte.weight",)
    assert outside.title.endswith(", outside of the blocks")


def test_heads_are_not_rows():
    groups = layer_series(History.of(watch_record(Course(layers=3, samples=4, every=5))))
    [logits] = chosen_series(groups, "attention.logit_std")
    assert len(logits.series) == 3


def test_a_quantity_that_was_read_once_has_no_map():
    assert layer_series(history_of([[1.0], [2.0]])) == []


def test_stacks_are_told_apart_and_the_first_needs_no_name():
    sites = [Site("encoder", 1), Site("decoder", 1)]
    groups = layer_series(history_of([[1, 2], [3, 4]], sites=sites))
    assert {str(group.address) for group in groups} == {"stream.mean", "decoder/stream.mean"}
    [other] = chosen_series(groups, "decoder/stream.mean")
    assert other.title == "Stream mean, decoder"


def test_two_writes_of_one_role_in_a_block_are_two_groups():
    sites = [Site("decoder", 1, write, "mlp") for write in (1, 3)]
    groups = layer_series(history_of([[1, 2], [3, 4]], quantity=RATIO, sites=sites))
    assert [str(group.address) for group in groups] == [
        "update.ratio[mlp 1]",
        "update.ratio[mlp 3]",
    ]
    assert groups[1].title == "Update over stream, mlp, write 3"
    [third] = chosen_series(groups, "update.ratio[mlp 3]")
    assert third is groups[1]


def test_an_address_chooses_all_of_a_quantity_or_one_point():
    groups = layer_series(History.of(watch_record(Course(layers=3, samples=4, every=5))))
    assert len(chosen_series(groups, "update.ratio")) == 2
    assert len(chosen_series(groups, "update.ratio[mlp]")) == 1
    assert len(chosen_series(groups, "decoder/update.ratio[mlp]")) == 1
    assert chosen_series(groups, "update.ratio[nothing]") == []
    assert chosen_series(groups, "]not an address[") == []


def test_with_room_every_sample_is_a_column():
    values = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    cells = heat_map(group_of(values), columns=10)
    assert cells.values.tolist() == values
    assert cells.known.all()
    assert cells.edges.tolist() == [1, 2, 3, 4]
    assert cells.labels == ("0", "1")


def test_a_column_shows_the_sample_nearest_to_the_median_of_its_samples():
    quiet = [1.0, 1.1, 1.2, 1.1, 1.0, 1.2, 1.1, 1.0, 1.2]
    cells = heat_map(group_of([quiet]), columns=3)
    assert cells.values.tolist() == [[1.1, 1.1, 1.1]]


@pytest.mark.parametrize("spike", [9.0, -9.0])
def test_a_spike_of_one_sample_is_shown(spike):
    noise = np.random.default_rng(0).normal(0, 0.1, 400)
    noise[123] = spike
    cells = heat_map(group_of([noise]), columns=20)
    assert (np.abs(cells.values) > 1).sum() == 1
    assert cells.values[0, 123 // 20] == spike


def test_noise_alone_never_stands_out():
    assert heat.STANDS_OUT == 6.0
    noise = np.random.default_rng(1).normal(0, 1.0, (10, 1000))
    cells = heat_map(group_of(noise), columns=25)
    # Of 40 samples in a column the one nearest to their median: far from the extremes.
    assert np.abs(cells.values).max() < 1.0


def test_a_sample_is_compared_with_four_neighbours_on_either_side():
    assert heat.NEIGHBOURS == 4
    step = np.concatenate([np.zeros(50), np.full(50, 5.0)]) + np.tile([0.0, 0.01], 50)
    cells = heat_map(group_of([step]), columns=10)
    # A level that stays is no spike: columns on both sides show their own.
    assert np.round(cells.values[0]).tolist() == [0.0] * 5 + [5.0] * 5


def test_a_value_that_is_not_finite_is_always_shown():
    values = np.ones(100)
    values[37] = math.nan
    values[81] = math.inf
    cells = heat_map(group_of([values]), columns=10)
    assert math.isnan(cells.values[0, 3])
    assert math.isinf(cells.values[0, 8])
    assert np.isfinite(cells.values[0, [0, 1, 2, 4, 5, 6, 7, 9]]).all()


def test_columns_are_equally_long_in_steps_and_hold_the_sample_before():
    cells = heat_map(group_of([[1.0, 2.0, 3.0, 4.0]], steps=[1, 2, 3, 100]), columns=4)
    assert cells.edges.tolist() == [1.0, 26.0, 51.0, 76.0, 101.0]
    assert cells.values.tolist() == [[2.0, 2.0, 2.0, 4.0]]


def test_what_was_not_read_yet_is_not_known():
    history = history_of([[1.0, 2.0, 3.0, 4.0]])
    history.add([Reading("stream.mean", Site("decoder", 1), "mean", 7.0, step=3)])
    [group] = layer_series(history)
    cells = heat_map(group, columns=4)
    assert cells.known.tolist() == [[True] * 4, [False, False, True, True]]
    assert cells.values[1, 2:].tolist() == [7.0, 7.0]


def test_a_step_stands_in_a_column():
    cells = heat_map(group_of([[1.0, 2.0]], steps=[1, 100]), columns=2)
    assert [cells.column_of(step) for step in (0, 1, 50, 51, 100, 500)] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("count", "most", "sizes"), [(5, 9, [1] * 5), (24, 12, [2] * 12), (25, 12, [3] * 7 + [2] * 2)]
)
def test_rows_are_shared_among_parts_as_evenly_as_can_be(count, most, sizes):
    parts = row_parts(count, most)
    assert [len(part) for part in parts] == sizes
    assert [at for part in parts for at in part] == list(range(count))


def test_a_merged_cell_shows_the_layer_that_stands_out():
    rng = np.random.default_rng(0)
    values = rng.normal(0, 0.01, (6, 50))
    values[4, 40] = 3.0
    cells = merge_rows(heat_map(group_of(values), columns=50), 2)
    assert cells.labels == ("0-2", "3-5")
    assert cells.values.shape == (2, 50)
    assert cells.values[1, 40] == 3.0
    assert cells.values[0, 40] == values[1, 40]  # the middle one of its part
    assert merge_rows(cells, 2) is cells


def test_a_merged_cell_shows_a_value_that_is_not_finite():
    values = np.ones((4, 10))
    values[3, 7] = math.nan
    cells = merge_rows(heat_map(group_of(values), columns=10), 1)
    assert math.isnan(cells.values[0, 7])
    assert np.isfinite(cells.values[0, :7]).all()


def test_a_curve_over_the_map_has_its_columns():
    history = History([Quantity("train.loss", "Loss", "L", "f", lives_on="run", headline="value")])
    history.add(Reading("train.loss", RUN, "value", float(step), step=step) for step in range(1, 9))
    loss = loss_of(history)
    assert series_by_column(loss, np.array([1.0, 5.0, 9.0])).tolist() == [2.5, 6.5]
    assert series_by_column(loss, np.array([7.0, 9.0, 20.0])).tolist() == [7.5, 7.5]


def test_a_loss_that_was_lost_is_never_hidden_in_a_column():
    history = History([Quantity("train.loss", "Loss", "L", "f", lives_on="run", headline="value")])
    history.add(
        Reading("train.loss", RUN, "value", math.nan if step == 3 else 1.0, step=step)
        for step in range(1, 9)
    )
    columns = series_by_column(loss_of(history), np.array([1.0, 5.0, 9.0]))
    assert math.isnan(columns[0])
    assert columns[1] == 1.0


def test_the_loss_of_updates_comes_before_that_of_validation():
    def quantity(name):
        return Quantity(name, "Loss", "L", "f", lives_on="run", headline="value")

    history = History([quantity("validation.loss"), quantity("train.loss")])
    assert loss_of(history) is None
    history.add([Reading("validation.loss", RUN, "value", 2.0, step=1)])
    assert loss_of(history).quantity == "validation.loss"
    history.add([Reading("train.loss", RUN, "value", 2.0, step=1)])
    assert loss_of(history).quantity == "train.loss"
