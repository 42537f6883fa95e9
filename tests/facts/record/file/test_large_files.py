"""Lines of a file that is too large to keep in memory are those of a small one."""

from __future__ import annotations

import math

import pytest

from leadline.record import Quantity, Reading, Record, Site
from leadline.record.file import reader
from tests.synthetic import gpt2_record, t5_record
from tests.synthetic_attention import attention_record


def lines_of(record: Record) -> dict[str, list]:
    return {name: record.profiles(name) for name in record.quantities}


@pytest.mark.parametrize("make", [gpt2_record, t5_record, attention_record])
def test_lines_are_the_same_whichever_way_rows_are_read(make, tmp_path, monkeypatch):
    path = make().save(tmp_path / "a.leadline")
    small = lines_of(Record.open(path))
    monkeypatch.setattr(reader, "MOST_ROWS_KEPT", 0)
    assert lines_of(Record.open(path)) == small
    assert any(small.values())


def test_a_large_file_gives_the_first_run_and_its_last_step(monkeypatch):
    monkeypatch.setattr(reader, "MOST_ROWS_KEPT", 0)
    record = Record()
    record.describe(Quantity("a.b", "A", "a", "a"))
    record.append(
        Reading("a.b", Site("decoder", layer), "mean", value, run=run, step=step)
        for run, step, value in (("x", 0, 1.0), ("x", 7, 2.0), ("y", 9, 3.0))
        for layer in (1, 2)
    )
    [line] = record.profiles("a.b")
    assert line.values.tolist() == [2.0, 2.0]


def test_where_some_place_has_no_summary_its_parts_are_averaged(monkeypatch):
    monkeypatch.setattr(reader, "MOST_ROWS_KEPT", 0)
    record = Record()
    record.describe(Quantity("a.b", "A", "a", "a", axes=("head",)))
    record.append(
        [
            Reading("a.b", Site("decoder", 1), "mean", 5.0),
            Reading("a.b", Site("decoder", 1, head=1), "mean", 1.0),
            Reading("a.b", Site("decoder", 2, head=1), "mean", 2.0),
            Reading("a.b", Site("decoder", 2, head=2), "mean", 4.0),
        ]
    )
    [line] = record.profiles("a.b")
    assert line.values.tolist() == [5.0, 3.0]


def wild_record() -> Record:
    """Heads without a summary, NaN among them, several seeds, exponents, and paths by length."""
    record = Record()
    values = [0.1, 0.2, 0.7, 1e300, math.nan, 3.0, -0.3]
    for name, words in {
        "heads": {},
        "seeds": {},
        "exact": {},
        "paths": {"lives_on": "path"},
    }.items():
        record.describe(Quantity(name, "T", "t", "t", **words))
    sites = [(layer, head) for layer in (1, 2, 3) for head in range(1, 6)]
    record.append(
        Reading("heads", Site("decoder", layer, head=head), "mean", values[(layer * head) % 7])
        for layer, head in sites
    )
    record.append(
        Reading("seeds", Site("decoder", layer), "mean", values[layer + seed], seed=seed)
        for layer in (1, 0)
        for seed in range(3)
    )
    record.append(
        Reading("exact", Site("decoder", layer, head=head), "mean", 0.5, exponent=layer + head)
        for layer, head in sites
    )
    record.append(
        Reading("paths", Site("decoder", layer, head=head, hops=hops), "mean", layer + 0.1 * hops)
        for layer, head in sites
        for hops in range(head)
    )
    return record


def test_odd_lines_are_the_same_whichever_way_rows_are_read(monkeypatch):
    small = {name: repr(lines) for name, lines in lines_of(wild_record()).items()}
    monkeypatch.setattr(reader, "MOST_ROWS_KEPT", 0)
    assert {name: repr(lines) for name, lines in lines_of(wild_record()).items()} == small


def test_what_stands_at_one_place_becomes_one_reading(monkeypatch):
    monkeypatch.setattr(reader, "MOST_ROWS_KEPT", 0)
    record = wild_record()
    rows = record._read_once.readings_of_lines({"quantity": "heads"})
    assert [row.site for row in rows] == [Site("decoder", layer) for layer in (1, 2, 3)]
    # By hand, layer 2: heads 1 to 5 hold the values at 2, 4, 6, 1 and 3 of the list above.
    assert math.isnan(rows[1].value)
    # Layer 3: those at 3, 6, 2, 5 and 1.
    assert rows[2].value == pytest.approx((1e300 - 0.3 + 0.7 + 3.0 + 0.2) / 5)
