"""Bounds under attack as a record: rows, the way back to the bit, and every reader of records."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import leadline as ll
from leadline.instruments.attacks.result import AttackRow, AttackTable
from leadline.instruments.attacks.rows import attacks_record, read_attacks
from leadline.record import Record
from leadline.theory import StackFacts

_numbers = st.floats(width=64).map(lambda number: number + 0.0)
_words = st.text(st.characters(codec="ascii"), max_size=8)
_counts = st.integers(0, 2**53)
_facts = st.dictionaries(
    _words, _numbers | st.none() | st.booleans() | _words | st.tuples(_numbers, st.tuples(_numbers))
)


@st.composite
def tables(draw: st.DrawFn) -> AttackTable:
    names = draw(st.lists(_words, unique=True, max_size=4))
    rows = tuple(
        AttackRow(
            name=name,
            title=draw(_words),
            statement=draw(_words),
            source=draw(_words),
            random=draw(_counts),
            optimised=draw(_counts),
            ratio=draw(_numbers),
            outside=draw(_counts),
            outside_ratio=draw(_numbers),
            because=tuple(draw(st.lists(_words, max_size=2))),
            facts=draw(_facts),
        )
        for name in names
    )
    numbers = {
        name: draw(st.integers(0, 10**30))
        for name in ("asked_random", "asked_optimised", "drawn", "climbed")
    }
    laws = tuple(draw(st.lists(_words, max_size=2)))
    return AttackTable(rows=rows, seed=draw(st.integers(0, 2**62)), laws=laws, **numbers)


@given(tables())
@settings(max_examples=60, deadline=None)
def test_a_table_comes_back_to_the_bit(table):
    with attacks_record(table) as record:
        assert repr(read_attacks(record)) == repr(table)  # NaN is not equal to itself


@pytest.fixture(scope="module")
def record() -> Record:
    return ll.bounds(
        attack=True, attacks=6, optimised=0, names=["one", "collapse-proved", "skip-as-written"]
    )


def test_the_record_holds_a_row_per_bound(record, tmp_path):
    assert record.instrument == "attacks"
    assert record.runs == [row.name for row in record.attacks.rows]
    for row in record.attacks.rows:
        [ratio] = record.select("attack.ratio", run=row.name)
        [met] = record.select("attack.random", run=row.name)
        assert (ratio.value, met.value) == (row.ratio, row.random)
    assert record.attacks.rows[0].verdict == "held" and not record.attacks.violated
    record.save(tmp_path / "attacks.leadline")
    with Record.open(tmp_path / "attacks.leadline") as again:
        assert repr(again.attacks) == repr(record.attacks)


def test_the_facts_of_the_worst_network_can_be_asked_again(record, tmp_path):
    # The bound itself, asked with the facts of the file, gives the ratio of the file.
    from leadline.theory import COLLAPSE_BOUNDS, LayerFacts

    row = next(one for one in record.attacks.rows if one.name == "collapse-proved")
    layers = tuple(LayerFacts(**one) for one in row.facts["layers"])
    facts = StackFacts(**{**row.facts, "layers": layers})
    values = COLLAPSE_BOUNDS.build("collapse-proved").log10_values(facts)
    worst = max(
        there - predicted
        for there, predicted in zip(facts.log10_composite[1:], values[1:], strict=True)
    )
    assert 10.0**worst == pytest.approx(row.ratio, rel=1e-9)


def test_the_answer_comes_first(record):
    first, second, *_ = str(record).splitlines()
    near = sum(row.ratio >= 0.999 for row in record.attacks.rows)
    assert near == 1
    assert first.startswith("No bound is violated: 2 held, 1 of them met to a thousandth")
    assert second.startswith("Every bound was to meet 6 random and 0 optimised networks")
    false = AttackRow("false", "", "(false)", "", 0, 0, 0.0, 3, 2.0, ("the statement is false",))
    text = str(attacks_record(AttackTable((false,), 3, 0, 3, 0, 0)))
    assert "1 statement is false, as known: false." in text.splitlines()[0]
    broken = AttackRow("bad", "", "|A| <= 1", "", 3, 0, math.inf)
    table = AttackTable((broken,), 3, 0, 3, 0, 0)
    text = str(attacks_record(table))
    assert text.startswith("A bound is violated where the assumptions hold: bad.")


def test_records_of_attacks_are_compared_reported_and_exported(record, tmp_path):
    other = ll.bounds(attack=True, attacks=6, optimised=0, names=["one"], seed=1)
    assert "one" in str(ll.compare(record, other))
    page = ll.report(record, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "No bound is violated" in page and "Over training" not in page
    assert "Over depth</h2>" not in page
    frame = record.to_pandas()
    assert len(frame) == len(record) == 15
    assert set(frame["run"]) == {"one", "collapse-proved", "skip-as-written"}
    assert record.to_arrow().num_rows == 15
    assert "attack.ratio" in record.to_xarray()
    record.to_csv(tmp_path / "rows.csv")
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 16


def test_what_does_not_go_together_is_refused(record):
    with pytest.raises(ll.InputError, match="takes no record"):
        ll.bounds(record, attack=True)
    with pytest.raises(ll.InputError, match="takes no record, layer"):
        ll.bounds(attack=True, layer=2)
    with pytest.raises(ll.RecordError, match="holds bounds under attack and no model"):
        ll.bounds(record)
    with pytest.raises(ll.RecordError, match=r"leadline\.collapse\(model\)"):
        _ = record.collapse
    with pytest.raises(ll.InputError, match="was given None"):
        ll.bounds()


def test_reading_a_saved_record_loads_no_torch(record, tmp_path):
    file = tmp_path / "attacks.leadline"
    record.save(file)
    program = (
        "import sys; from leadline import Record, bounds\n"
        f"record = Record.open({str(file)!r})\n"
        "print(record, record.attacks.violated)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
