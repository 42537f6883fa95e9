"""The map of what trains: its rule, its places, its usable depths, its holes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import pytest

from leadline.errors import RecordError
from leadline.reading.map.cells import is_sweep, read_sweep
from leadline.reading.map.terminal import map_screen
from leadline.reading.map.text import (
    map_title,
    notes,
    place_text,
    prediction_sentence,
    rules,
    spread_text,
    spread_title,
    usable_text,
)
from leadline.reading.map.trainability import MARGIN, SHARE, Trainability, trainability
from leadline.record import Record
from tests.synthetic import gpt2_record
from tests.synthetic_sweep import UNIGRAM, cell_entry, sweep_record, training_record

POST12 = "design=post, depth=12, seed={}"


def changed(run: str, **fields: object) -> dict[str, dict[str, object]]:
    return {run: fields}


def test_the_rule_is_three_tenths_of_a_nat_in_two_of_three_seeds() -> None:
    assert (MARGIN, SHARE) == (0.3, 2 / 3)


def test_a_cell_trains_from_the_margin_below_the_unigram_entropy_on() -> None:
    limit = UNIGRAM - 0.3
    for loss, trains in ((limit, True), (limit + 1e-9, False), (limit - 1.0, True)):
        record = sweep_record(changes=changed(POST12.format(0), loss=loss))
        (cell,) = [c for c in read_sweep(record, margin=0.3).cells if c.run == POST12.format(0)]
        assert cell.trains is trains


def test_two_of_three_seeds_suffice_and_one_does_not() -> None:
    for failing, trains in ((1, True), (2, False)):
        changes = {POST12.format(seed): {"loss": 3.2} for seed in range(failing)}
        place = trainability(sweep_record(changes=changes)).row("post").places[1]
        assert place is not None
        assert (place.trained, place.seeds, place.trains) == (3 - failing, 3, trains)


@pytest.mark.parametrize("share", [2 / 3, 0.667, 0.67, 0.66])
def test_a_share_is_compared_to_two_digits(share: float) -> None:
    changes = changed(POST12.format(0), loss=3.2)
    place = trainability(sweep_record(changes=changes), share=share).row("post").places[1]
    assert place is not None
    assert place.trains


def test_a_larger_share_asks_for_all_seeds() -> None:
    changes = changed(POST12.format(0), loss=3.2)
    place = trainability(sweep_record(changes=changes), share=0.7).row("post").places[1]
    assert place is not None
    assert place.trains is False


def test_rows_are_designs_and_columns_are_depths() -> None:
    found = trainability(sweep_record())
    assert found.depths == (6, 12, 24, 48)
    assert [row.name for row in found.rows] == ["pre", "post", "plain"]
    assert [usable_text(row) for row in found.rows] == ["48 or more", "12, not 24", "below 6"]


def test_an_axis_with_one_label_is_left_out_of_the_names() -> None:
    found = trainability(sweep_record(axes={"width": [64]}))
    assert [row.name for row in found.rows] == ["pre", "post", "plain"]
    assert found.rows[0].labels == {"design": "pre", "width": 64}


def test_numbers_stand_with_the_name_of_their_axis() -> None:
    found = trainability(sweep_record(axes={"warmup": [300, 0]}))
    assert [row.name for row in found.rows][:2] == ["pre, warmup 300", "pre, warmup 0"]


def test_yes_and_no_stand_with_the_name_of_their_axis() -> None:
    found = trainability(sweep_record(axes={"warm-up": ["no", "yes"]}))
    assert [row.name for row in found.rows][:2] == ["pre, warm-up no", "pre, warm-up yes"]


def test_words_that_two_axes_share_stand_with_the_name_of_their_axis() -> None:
    record = sweep_record(axes={"norm": ["pre", "late"]}, seeds=(0,))
    names = [row.name for row in trainability(record).rows]
    assert names[:2] == ["design pre, norm pre", "design pre, norm late"]


def test_a_sweep_of_depths_alone_is_one_row_of_its_name() -> None:
    found = trainability(sweep_record(limits={"pre": 12}, name="only"))
    assert [row.name for row in found.rows] == ["only"]


def test_columns_may_be_another_axis_of_numbers() -> None:
    record = sweep_record(axes={"width": [64, 32]}, depths=(6, 12), seeds=(0,))
    found = trainability(record, depth="width")
    assert found.depths == (32, 64)
    assert found.rows[0].name == "pre, depth 6"
    with pytest.raises(RecordError, match=r"no axis 'design' whose labels are numbers"):
        trainability(record, depth="design")


def test_without_an_axis_of_depths_the_depth_of_the_model_counts() -> None:
    record = sweep_record(depths=(6,))
    sweep = record.provenance["sweep"]
    sweep["axes"] = [axis for axis in sweep["axes"] if axis["name"] != "depth"]
    del sweep["description"]
    record.note("sweep", sweep)
    assert trainability(record).depths == (6,)


def test_the_usable_depth_ends_before_the_first_depth_that_fails() -> None:
    # Depth 48 trains again behind a failure at 24: it is said, and not counted.
    changes = {f"design=post, depth=48, seed={seed}": {"loss": 2.0} for seed in range(3)}
    found = trainability(sweep_record(changes=changes))
    usable = found.row("post").usable
    assert usable is not None
    assert (usable.depth, usable.fails_at, usable.again) == (12, 24, (48,))
    assert any("post: trains again at 48" in note for note in notes(found))


def test_every_seed_has_a_usable_depth_of_its_own() -> None:
    changes = {
        "design=post, depth=6, seed=0": {"loss": 3.2},
        "design=post, depth=24, seed=2": {"loss": 2.0},
    }
    usable = trainability(sweep_record(changes=changes)).row("post").usable
    assert usable is not None
    assert usable.by_seed == {0: 0, 1: 12, 2: 24}
    assert (usable.smallest, usable.median, usable.largest) == (0, 12, 24)


def test_the_middle_of_two_seeds_is_the_lower_one() -> None:
    changes = {"design=post, depth=12, seed=0": {"loss": 3.2}}
    usable = trainability(sweep_record(changes=changes, seeds=(0, 1))).row("post").usable
    assert usable is not None
    assert usable.median == 6


@pytest.mark.parametrize("status", ["failed", "impossible"])
def test_holes_count_neither_way(status: str) -> None:
    changes = {
        f"design=post, depth=12, seed={seed}": {"status": status, "loss": None, "reason": "why"}
        for seed in range(3)
    }
    found = trainability(sweep_record(changes=changes))
    row = found.row("post")
    assert row.places[1] is not None
    assert (row.places[1].trains, row.places[1].seeds, row.places[1].holes) == (None, 0, 3)
    assert place_text(row.places[1]) == f"· {status}"
    assert row.usable is not None
    assert (row.usable.depth, row.usable.fails_at, row.usable.holes) == (6, 24, (12,))
    assert any(f"3 cells {status}" in note for note in notes(found))
    assert any("post: nothing was measured at 12" in note for note in notes(found))


def test_one_hole_leaves_the_other_seeds_their_say() -> None:
    changes = changed(POST12.format(0), status="failed", loss=None, reason="why")
    place = trainability(sweep_record(changes=changes)).row("post").places[1]
    assert place is not None
    assert (place.trains, place_text(place)) == (True, "✓ 2.31 2/2?")


def test_cells_that_were_not_run_are_holes() -> None:
    missing = [f"design=post, depth=24, seed={seed}" for seed in range(3)]
    found = trainability(sweep_record(missing=missing))
    row = found.row("post")
    assert found.unrun == 3
    assert place_text(row.places[2]) == "· not run"
    assert row.usable is not None
    assert (row.usable.depth, row.usable.fails_at) == (12, 48)


def test_a_sweep_of_which_nothing_has_ended_is_all_holes() -> None:
    record = sweep_record(limits={"pre": 12}, depths=(6,), seeds=(0,))
    run = "design=pre, depth=6, seed=0"
    empty = sweep_record(limits={"pre": 12}, depths=(6,), seeds=(0,), missing=[run])
    assert trainability(record).rows[0].usable is not None
    found = trainability(empty)
    assert found.rows[0].usable is None
    assert usable_text(found.rows[0]) == "not measured"
    assert prediction_sentence(found) == ""


def test_a_cell_that_diverged_does_not_train_and_is_the_worst_of_its_place() -> None:
    changes = {
        POST12.format(0): {"status": "diverged", "loss": None},
        POST12.format(1): {"status": "diverged", "loss": math.nan},
    }
    place = trainability(sweep_record(changes=changes)).row("post").places[1]
    assert place is not None
    assert (place.trained, place.seeds, place.trains) == (1, 3, False)
    assert math.isnan(place.loss)
    assert place_text(place) == "✗ diverged 1/3"


def test_the_loss_of_a_place_is_the_median_of_its_seeds() -> None:
    changes = {POST12.format(seed): {"loss": loss} for seed, loss in enumerate((2.0, 2.6, 2.1))}
    place = trainability(sweep_record(changes=changes)).row("post").places[1]
    assert place is not None
    assert place.loss == 2.1


def test_a_place_tells_how_surely_it_trains() -> None:
    place = trainability(sweep_record()).row("post").places[1]
    assert place is not None
    assert place.interval == pytest.approx((0.2924, 1.0), abs=1e-4)


def test_the_shown_gauge_is_the_best_predictor_and_places_have_its_median() -> None:
    record = sweep_record()
    found = trainability(record)
    assert found.shown is not None
    best = max(found.predictions, key=lambda one: (one.auc, -one.step))
    assert (found.shown.gauge, found.shown.step) == (best.gauge, best.step)
    values = sorted(
        record.select(best.gauge, step=best.step, run=f"design=pre, depth=6, seed={seed}")[0].value
        for seed in range(3)
    )
    place = found.row("pre").places[0]
    assert place is not None
    assert place.gauges[best.gauge] == values[1]


@pytest.mark.parametrize(
    ("limits", "words"), [({"pre": 96}, "All cells train"), ({"plain": 0}, "No cell trains")]
)
def test_where_all_cells_are_alike_no_gauge_is_judged(limits: dict[str, int], words: str) -> None:
    found = trainability(sweep_record(limits=limits))
    assert prediction_sentence(found).startswith(words)
    assert found.shown is not None
    assert math.isnan(found.shown.auc)
    assert (found.shown.gauge, found.shown.step) == ("gauge.token_cosine", 0)


def test_a_map_without_gauges_says_so() -> None:
    record = sweep_record()
    bare = Record()
    for key, value in record.provenance.items():
        bare.note(key, value)
    found = trainability(bare)
    assert found.shown is None
    assert prediction_sentence(found) == "No gauge was recorded, so none can be judged."


def test_the_text_holds_rule_entropies_rows_and_gauges() -> None:
    found = trainability(sweep_record())
    text = map_screen(found, everything=True).text()
    assert str(found) == map_screen(found).text()
    for words in (
        "at least 67% of the seeds is 0.3 nats or more below",
        "unigram entropy 3.14, bigram entropy 2.4; trains at 2.840 or less",
        "✓ 2.30 3/3",
        "✗ 3.13 0/3",
        "12, not 24",
        "Gradient ratio",
        "over 18 cells that fail and 18 that train",
        "It is the best of 12 pairs of gauge and step, chosen on the same cells, so it flatters.",
    ):
        assert words in text
    assert rules(found)[0] in text


def test_the_map_is_strict_json() -> None:
    changes = changed(POST12.format(0), status="diverged", loss=None)
    found = trainability(sweep_record(changes=changes))
    read = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert read["rows"][1]["usable_depth"]["depth"] == 12
    assert read["rows"][1]["places"][1]["cells"][0]["loss"] is None
    assert read["rows"][1]["places"][1]["trained"] == 2


@pytest.mark.parametrize("make", [gpt2_record, training_record, Record])
def test_what_is_no_sweep_has_no_map(make) -> None:
    assert not is_sweep(make())
    with pytest.raises(RecordError, match="is not that of a sweep"):
        trainability(make())


def test_a_task_without_entropies_is_named() -> None:
    with pytest.raises(RecordError, match="trained on 'copy', and the record does not hold"):
        trainability(sweep_record(changes=changed(POST12.format(0), task="copy")))


@pytest.mark.parametrize("share", [0.0, 1.2, -1.0])
def test_an_impossible_share_is_refused(share: float) -> None:
    with pytest.raises(RecordError, match="above 0 and up to 1"):
        trainability(sweep_record(), share=share)


def test_an_impossible_margin_is_refused() -> None:
    with pytest.raises(RecordError, match="give a finite number"):
        trainability(sweep_record(), margin=math.nan)


def test_a_row_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(RecordError, match="It has: pre; post; plain"):
        trainability(sweep_record()).row("prenorm")


@pytest.mark.parametrize("share", [0.004, 0.005, 1e-9])
def test_at_least_one_seed_must_train_whatever_the_share(share: float) -> None:
    found = trainability(sweep_record(), share=share)
    assert [usable_text(row) for row in found.rows] == ["48 or more", "12, not 24", "below 6"]
    assert rules(found)[0].startswith(
        "A place trains when the validation loss of at least one seed"
    )


def test_a_share_of_one_means_all_seeds_however_many() -> None:
    seeds = range(240)
    one = {"design=pre, depth=6, seed=7": {"loss": 9.0}}
    record = sweep_record(limits={"pre": 6}, depths=(6,), seeds=seeds, changes=one)
    found = trainability(record, share=1, margin=-1.0)
    (place,) = found.rows[0].places
    assert place is not None
    assert (place.trained, place.seeds, place.trains) == (239, 240, False)
    assert "validation loss of all seeds is" in rules(found)[0]


def sizes(*, ended: Sequence[str], fixed: int | None = None) -> Record:
    """A sweep whose depth is set inside an axis of sizes: small 2, large 8, usual not at all."""
    record = Record()
    settings = [
        {"label": "small", "changes": {"depth": 2}},
        {"label": "large", "changes": {"depth": 8, "width": 64}},
        {"label": "usual", "changes": {}},
    ]
    grid = {"axes": [{"name": "size", "settings": settings}], "fixed": {}}
    description = {"grids": [grid], "fixed": {} if fixed is None else {"depth": fixed}}
    axes = [{"name": "size", "labels": ["small", "large", "usual"]}]
    record.note(
        "sweep",
        {"name": "s", "axes": axes, "seeds": [0, 1], "cells": 6, "description": description},
    )
    record.note("tasks", {"stdlib": {"unigram": UNIGRAM, "bigram": 2.4}})
    depths = {"small": 2, "large": 8, "usual": 6}
    for run in ended:
        size, seed = run.split()
        entry = cell_entry({"size": size}, int(seed), loss=2.0)
        record.note(f"cell:{run}", {**entry, "depth": depths[size]})
    return record


def places(found: Trainability) -> dict[str, list[tuple[float, int, int]]]:
    return {
        row.name: [(p.depth, p.seeds, p.missing) for p in row.places if p is not None]
        for row in found.rows
    }


def test_a_cell_that_was_not_run_stands_at_its_own_depth() -> None:
    found = trainability(sizes(ended=["small 0", "usual 1"]))
    assert found.depths == (2, 6, 8)
    assert places(found) == {"small": [(2, 1, 1)], "large": [(8, 0, 2)], "usual": [(6, 1, 1)]}


def test_a_depth_that_is_fixed_for_all_is_that_of_the_cells_that_set_none() -> None:
    found = trainability(sizes(ended=["small 0"], fixed=5))
    assert places(found) == {"small": [(2, 1, 1)], "large": [(8, 0, 2)], "usual": [(5, 0, 2)]}


def test_a_cell_of_unknown_depth_has_no_column_and_is_counted_as_not_run() -> None:
    found = trainability(sizes(ended=["small 0"]))
    assert places(found) == {"small": [(2, 1, 1)], "large": [(8, 0, 2)]}
    assert found.unrun == 5


def test_there_are_no_more_numbers_by_seed_than_seeds() -> None:
    for seeds, text in (((0,), "12"), ((0, 1), "6 12"), ((0, 1, 2, 3), "6 12 12")):
        changes = changed(POST12.format(0), loss=3.2) if len(seeds) > 1 else None
        found = trainability(sweep_record(seeds=seeds, changes=changes))
        assert spread_text(found.row("post")) == text
        assert (
            spread_title(found)
            == {
                1: "the only seed",
                2: "the worst and the best seed",
                4: "the worst, the middle and the best seed",
            }[len(seeds)]
        )


def test_cells_that_ended_by_the_clock_counted_as_they_stood() -> None:
    for count, words in (
        (1, "1 cell ended by the clock and counted as it stood then."),
        (2, "2 cells ended by the clock and counted as they stood then."),
    ):
        changes = {POST12.format(seed): {"status": "seconds"} for seed in range(count)}
        assert words in notes(trainability(sweep_record(changes=changes)))


def test_a_sweep_without_a_name_is_not_called_sweep_sweep() -> None:
    for name, title, heading in (
        ("sweep", "What trains", "Sweep: design (3) x depth (4)"),
        ("", "What trains", "Sweep: design (3) x depth (4)"),
        ("made", "What trains: made", "Sweep made: design (3) x depth (4)"),
    ):
        record = sweep_record(name=name)
        assert map_title(trainability(record)) == title
        assert str(record).splitlines()[0] == heading
    alone = trainability(sweep_record(name="sweep", limits={"pre": 6}))
    assert [row.name for row in alone.rows] == ["all cells"]


def test_a_sweep_of_one_row_speaks_of_its_cells() -> None:
    from leadline.reading.map.text import _reach_sentence

    rest = " within 4 steps, even at depth 1"
    assert _reach_sentence(("does not train", rest), ["all cells"]) == f"No cell trains{rest}."
    assert _reach_sentence(("trains", " up to depth 3"), ["all cells"]) == (
        "All cells train up to depth 3."
    )
    assert _reach_sentence(("does not train", rest), ["pre"]) == f"pre does not train{rest}."


def test_the_map_says_in_how_many_cells_which_alarms_rang() -> None:
    rang = {"warnings": [{"code": "G03"}, {"code": "G03"}, {"code": "G10"}]}
    again = {"warnings": [{"code": "G03"}]}
    record = sweep_record(depths=(6, 12), changes={POST12.format(0): rang, POST12.format(1): again})
    (line,) = [note for note in notes(trainability(record)) if "Alarms" in note]
    assert line.startswith("Alarms rang in 2 of 18 cells: G03 in 2, G10 in 1")
