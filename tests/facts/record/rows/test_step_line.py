"""Lines over steps: what a record holds of each quantity and site."""

from __future__ import annotations

import math

from leadline.record import Record, Site
from leadline.record.rows.step_line import STEP_COLUMNS, StepLine, group_by_site
from tests.synthetic import gpt2_record
from tests.synthetic_watch import Course, watch_record

SMALL = Course(layers=3, samples=6, every=5)


def row(step, value, *, layer=1, run="", quantity="stream.norm"):
    return (quantity, run, "decoder", layer, None, "stream", None, step, value)


def test_rows_of_one_site_are_a_line_in_the_order_of_its_steps():
    assert len(STEP_COLUMNS) == len(row(1, 2.0))
    lines = group_by_site([row(5, 2.0), row(1, 1.0), row(3, 9.0, layer=2), row(5, 4.0)])
    assert lines == [
        StepLine("stream.norm", "", Site("decoder", 1), (1, 5), (1.0, 4.0)),
        StepLine("stream.norm", "", Site("decoder", 2), (3,), (9.0,)),
    ]


def test_runs_and_quantities_are_told_apart_and_a_missing_value_is_not_a_number():
    lines = group_by_site([row(1, 1.0), row(1, None, run="again"), row(1, 1.0, quantity="x")])
    assert [(line.quantity, line.run) for line in lines] == [
        ("stream.norm", ""), ("stream.norm", "again"), ("x", ""),
    ]  # fmt: skip
    assert math.isnan(lines[1].values[0])


def test_the_lines_of_a_record_are_its_readings():
    record = watch_record(SMALL)
    for line in record.step_lines():
        headline = record.quantities[line.quantity].headline
        readings = [
            reading
            for reading in record.select(line.quantity, statistic=headline)
            if reading.site == line.site
        ]
        assert line.steps == tuple(sorted(reading.step for reading in readings))
        by_step = {reading.step: reading.value for reading in readings}
        assert line.values == tuple(by_step[step] for step in line.steps)


def test_every_summary_is_in_a_line():
    record = watch_record(SMALL)
    count = sum(
        reading.statistic == record.quantities[reading.quantity].headline
        and reading.site.head is None
        for reading in record.select()
    )
    assert sum(len(line.steps) for line in record.step_lines()) == count


def test_a_record_of_one_measurement_has_a_line_for_every_site():
    record = Record()
    assert record.step_lines() == []
    # Five quantities between 12 blocks and one inside of each, two of every write, one of each block.
    assert len(gpt2_record().step_lines()) == 5 * 13 + 12 + 2 * 24 + 12
