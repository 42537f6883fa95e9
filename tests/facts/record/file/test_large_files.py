"""Lines of a file that is too large to keep in memory are those of a small one."""

from __future__ import annotations

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
