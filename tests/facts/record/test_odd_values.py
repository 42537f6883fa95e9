"""What a record refuses at the door, and what it hands out."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import leadline as ll
from leadline.errors import RecordError, UnknownName
from leadline.record import Finding, Quantity, Reading, Record, Site

PLAIN = Quantity("q", "q", "x", "f")


def record() -> Record:
    made = Record()
    made.describe(PLAIN)
    return made


@pytest.mark.parametrize(
    "fields",
    [
        {"axes": ("foo",)},
        {"axes": "rank"},
        {"lives_on": "moon"},
        {"scale": "cubic"},
        {"better": "worse"},
        {"requires": ("luck",)},
        {"title": "\ud800"},
        {"unit": 3},
    ],
)
def test_a_definition_that_no_reader_could_read_is_refused_before_it_is_written(fields):
    made = record()
    with pytest.raises(RecordError):
        made.describe(
            Quantity(**{"name": "bad", "title": "b", "symbol": "x", "formula": "f"} | fields)
        )
    assert list(made.quantities) == ["q"]


@pytest.mark.parametrize(
    "finding",
    [
        Finding("v", severity="fatal"),
        Finding("\ud800"),
        Finding("v", site="x"),
        Finding("v", details=[1, 2]),
        Finding("v", details=None),
    ],
)
def test_a_finding_that_no_reader_could_read_is_refused(finding):
    made = record()
    with pytest.raises(RecordError):
        made.add_finding(finding)
    assert made.findings == []


@pytest.mark.parametrize(
    "reading",
    [
        Reading("q", Site("s", 1), "mean", 1.0, run="\ud800"),
        Reading("q", Site("s", 2**63), "mean", 1.0),
        Reading("q", Site("s", 1), "mean", 1.0, step=2**64),
        Reading("q", Site("s", 1), "mean", "x"),
        Reading("q", Site("s", 1), "mean", None),
        Reading("q", Site("s", 1), "mean", 10**400),
        Reading("q", Site("s", 1.5), "mean", 1.0),
        Reading("q", Site("s", 1), "mean", 1.0, exponent=1.7),
        Reading("q", Site("s", 1), "mean", 1.0, exponent=10**5000),
        Reading("q", Site("s", 1), b"mean", 1.0),
    ],
)
def test_a_reading_that_no_file_can_hold_is_refused_and_nothing_is_written(reading):
    made = record()
    with pytest.raises(RecordError):
        made.append([Reading("q", Site("s", 1), "mean", 1.0), reading])
    assert len(made) == 0


def test_inside_of_together_readings_are_all_added_or_none():
    made = record()
    with made.together():
        made.append([Reading("q", Site("s", 1), "mean", 1.0)])
        with pytest.raises(UnknownName):
            made.append(
                [Reading("q", Site("s", 2), "mean", 2.0), Reading("zz", Site("s", 1), "mean", 1.0)]
            )
        with made.together():
            made.append([Reading("q", Site("s", 3), "mean", 3.0)])
    assert [one.value for one in made.select("q")] == [1.0, 3.0]


def test_what_is_handed_out_is_the_callers_own():
    made = record()
    made.note("a", {"b": [1]})
    made.add_finding(Finding("v", details={"x": [1]}))
    made.provenance["a"]["b"].append(2)
    made.findings[0].details["x"].append(2)
    assert made.provenance["a"] == {"b": [1]}
    assert made.findings[0].details == {"x": [1]}


def test_the_numbers_of_a_view_are_the_callers_own():
    model = ll.Transformer(depth=2, width=8, heads=2)
    made = ll.jacobian(model, ll.random_tokens(model, examples=1, length=4, seed=0), layer=1, k=1)
    made.jacobian.values[:] = 0
    assert np.all(made.jacobian.values > 0)


def test_a_record_can_be_looked_over_like_any_object():
    made = record()
    assert not hasattr(made, "jacobian")
    assert not hasattr(made, "foo")
    assert "provenance" in dict(inspect.getmembers(made))


def test_an_instrument_of_a_later_version_is_printed_and_reported_by_its_rows(tmp_path):
    made = record()
    made.append(Reading("q", Site("s", layer), "mean", 1.0 + layer) for layer in range(4))
    made.note("instrument", {"name": "piano"})
    assert not hasattr(made, "foo")
    assert "q" in str(made)
    ll.report(made, tmp_path / "x.html")
    with pytest.raises(UnknownName):
        made.view("piano")
