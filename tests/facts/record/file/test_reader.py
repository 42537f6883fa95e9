"""A record is read once, is never stale, and cannot be changed through what it hands out."""

from __future__ import annotations

import dataclasses
import gc
import math
import sqlite3
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import leadline
from leadline.record import Finding, Quantity, Reading, Record, Site
from leadline.record.file import reader
from tests.damage import read_all, record_of_every_column, write_sources
from tests.synthetic import gpt2_record
from tests.synthetic_attention import attention_record

if TYPE_CHECKING:
    from collections.abc import Callable

NORM = Quantity("stream.norm", "Norm", "|x|", "sqrt(sum x^2)")
DEEP = Quantity("deep", "Deep", "d", "d")


def reading(layer: int = 1, value: float = 1.0, **rest: Any) -> Reading:
    return Reading("stream.norm", Site("decoder", layer), "mean", value, **rest)


def statements(record: Record) -> list[str]:
    """The list to which every SQL statement of a record is added from now on."""
    noted: list[str] = []
    record._connection.set_trace_callback(noted.append)
    return noted


def ask_everything(record: Record) -> None:
    _ = record.provenance, record.quantities, record.findings, record.stacks, record.runs
    _ = len(record), record.depth(), record.instrument, "stream.norm" in record
    for name in record.quantities:
        record.select(name)
        record.profiles(name)
    _ = record["stream.norm"]


# --- read once -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [gpt2_record, attention_record])
def test_the_report_of_a_finished_record_needs_at_most_40_queries(
    tmp_path: Path, make: Callable[[], Record]
) -> None:
    path = make().save(tmp_path / "r.leadline")
    with Record.open(path) as record:
        noted = statements(record)
        leadline.report(record, tmp_path / "page.html")
    assert 0 < len(noted) <= 40


def test_a_finished_record_does_no_input_or_output_after_the_first_access(tmp_path: Path) -> None:
    path = gpt2_record().save(tmp_path / "r.leadline")
    with Record.open(path) as record:
        ask_everything(record)
        noted = statements(record)
        ask_everything(record)
        assert noted == []


def test_a_record_in_memory_is_read_once_until_it_is_written_to() -> None:
    with gpt2_record() as record:
        ask_everything(record)
        noted = statements(record)
        ask_everything(record)
        assert noted == []
        record.append([reading(1, 5.0, run="another")])
        assert record.runs[-1] == "another"


# --- never stale ---------------------------------------------------------------------------------


def change(record: Record) -> None:
    """Change everything that a record can be asked for."""
    record.describe(DEEP)
    record.append([Reading("deep", Site("encoder", 9), "mean", 2.0, run="later")])
    record.note("added", [1, 2])
    record.add_finding(Finding("Added.", severity="serious"))


def assert_changed(record: Record) -> None:
    assert record.quantities["deep"] == DEEP and "deep" in record
    assert record.select("deep")[0].value == 2.0
    assert record.profiles("deep")[0].values.tolist() == [2.0]
    assert record.provenance["added"] == [1, 2]
    assert record.findings[0].verdict == "Added."
    assert record.stacks[-1] == "encoder" and record.runs[-1] == "later"


def test_a_record_that_this_process_writes_is_never_stale(tmp_path: Path) -> None:
    with Record.create(tmp_path / "r.leadline") as record:
        record.describe(NORM)
        record.append([reading()])
        ask_everything(record)
        change(record)
        assert_changed(record)
        assert len(record) == 2


def test_what_is_written_together_and_rolled_back_is_not_remembered(tmp_path: Path) -> None:
    def failing(record: Record) -> None:
        with record.together():
            change(record)
            assert_changed(record)  # inside, it is there
            raise ZeroDivisionError

    with Record.create(tmp_path / "r.leadline") as record:
        record.describe(NORM)
        record.append([reading()])
        with pytest.raises(ZeroDivisionError):
            failing(record)
        assert "deep" not in record and len(record) == 1
        assert (record.provenance, record.findings, record.runs) == ({}, [], [""])


def test_a_reader_of_a_growing_record_sees_what_its_writer_adds(tmp_path: Path) -> None:
    path = tmp_path / "r.leadline"
    with Record.create(path) as writer:
        writer.describe(NORM)
        writer.append([reading()])
        with Record.open(path) as record:
            ask_everything(record)
            change(writer)
            assert_changed(record)


def test_a_reader_sees_what_another_process_writes(tmp_path: Path, start: Any) -> None:
    path = tmp_path / "r.leadline"
    program = (
        "import sys; from leadline.record import Record;"
        "from tests.facts.record.file.test_reader import NORM, change, reading;"
        "record = Record.create(sys.argv[1]); record.describe(NORM); record.append([reading()]);"
        "print('begun', flush=True); input(); change(record);"
        "print('changed', flush=True); input(); record.close()"
    )
    command = [sys.executable, "-c", program, str(path)]
    pipe = subprocess.PIPE
    writer = start(command, stdin=pipe, stdout=pipe, text=True)
    assert writer.stdout.readline() == "begun\n"
    with Record.open(path) as record:
        ask_everything(record)
        writer.stdin.write("\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "changed\n"
        assert_changed(record)
    writer.communicate("\n")
    assert writer.returncode == 0


def test_a_writer_sees_what_a_program_that_asks_for_no_lock_writes(tmp_path: Path) -> None:
    path = tmp_path / "r.leadline"
    with Record.create(path) as writer:
        writer.note("who", "leadline")
        assert writer.provenance == {"who": "leadline"}
        with sqlite3.connect(path) as foreign:
            foreign.execute("INSERT INTO provenance (key, json) VALUES ('more', '1')")
        foreign.close()
        assert writer.provenance == {"who": "leadline", "more": 1}


def test_a_finished_record_that_is_written_again_never_mixes_two_states(tmp_path: Path) -> None:
    path = tmp_path / "r.leadline"
    with Record() as first:
        first.describe(NORM)
        first.append([reading()])
        first.save(path)
    with Record.open(path) as record:
        assert list(record.quantities) == ["stream.norm"]  # kept from now on
        with Record.reopen(path) as writer:
            change(writer)
        # The rows were not read before, so all of it is that of the file as it is now.
        assert {row.quantity for row in record.select()} == set(record.quantities)
    with Record.open(path) as again:
        assert_changed(again)


# --- what is handed out ----------------------------------------------------------------------------


def test_what_a_record_hands_out_can_be_changed_without_changing_the_record() -> None:
    with gpt2_record() as record:
        before = read_all(record)
        for mapping in (record.provenance, record.quantities):
            mapping.clear()
        for several in (record.findings, record.stacks, record.runs, record.select("stream.norm")):
            several.clear()
        record.profiles("stream.norm").clear()
        with pytest.raises(ValueError, match="read-only"):
            np.asarray(record["stream.norm"])[0] = 0
        assert read_all(record) == before


# --- larger records --------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 10, 1_000])
def test_a_record_too_large_to_keep_gives_the_same_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    for path in write_sources(tmp_path):
        with Record.open(path) as record:
            expected = read_all(record)
        with monkeypatch.context() as patch, Record.open(path) as record:
            patch.setattr(reader, "MOST_ROWS_KEPT", limit)
            assert read_all(record) == expected
            kept = record._reader._kept
            assert ("rows" in kept) == (len(record) <= limit)


# --- findings and exponents ------------------------------------------------------------------------


def test_findings_come_back_whole_and_the_worst_first(tmp_path: Path) -> None:
    site = Site("decoder", 3, 1, "mlp", head=2, example=4, hops=5)
    details = {"evidence": {"values": [1.0, math.inf, None]}, "remedy": "Scale it."}
    findings = [
        Finding("One.", severity="note"),
        Finding("Two.", "q", site, "warning", "LL012", "growing-stream", details),
        Finding("Three.", "q", site, "serious", "LL001", "dead", {}),
        Finding("Four.", severity="warning", code="LL002"),
        Finding("Five.", None, None, "serious"),
    ]
    with Record() as record:
        for finding in findings:
            record.add_finding(finding)
        record.save(tmp_path / "r.leadline")
    with Record.open(tmp_path / "r.leadline") as record:
        assert record.findings == [findings[at] for at in (2, 4, 1, 3, 0)]
        text = record.screen(everything=True).text()
        places = [text.index(word) for word in ("Three.", "Five.", "Two.", "Four.", "One.")]
        assert places == sorted(places)
        assert "warning: LL012: Two.\n  do: Scale it." in text


def test_a_finding_whose_details_are_no_json_is_refused() -> None:
    with Record() as record:
        with pytest.raises(leadline.RecordError, match="details of a finding"):
            record.add_finding(Finding("One.", details={"x": object()}))
        assert record.findings == []


EXPONENTS = [
    # value, exponent, number, logarithm
    (0.75, -(10**18), 0.0, -3.010299956639812e17),
    (1.0, 10**30, math.inf, 3.010299956639812e29),
    (-1.0, 10**30, -math.inf, math.nan),
    (0.0, 10**30, 0.0, -math.inf),
    (0.0, -(10**30), 0.0, -math.inf),
    (math.nan, 10**30, math.nan, math.nan),
    (math.inf, -(10**30), math.inf, math.inf),
    (1.5, -1074, 1e-323, -323.13012408406),
    (1.25, 3, 10.0, 1.0),
    (0.5, None, 0.5, -0.3010299956639812),
]


def exponent_record() -> Record:
    record = Record()
    record.describe(NORM)
    record.append(
        reading(layer, value, exponent=exponent)
        for layer, (value, exponent, _, _) in enumerate(EXPONENTS)
    )
    return record


def test_exponents_are_exact_in_the_file_and_numbers_beyond_float64_are_zero_or_infinite(
    tmp_path: Path,
) -> None:
    exponent_record().save(tmp_path / "r.leadline")
    with Record.open(tmp_path / "r.leadline") as record:
        rows = record.select()
        assert [row.exponent for row in rows] == [exponent for _, exponent, _, _ in EXPONENTS]
        np.testing.assert_array_equal([row.value for row in rows], [one[0] for one in EXPONENTS])
        numbers = [number for _, _, number, _ in EXPONENTS]
        np.testing.assert_array_equal([row.number for row in rows], numbers)
        np.testing.assert_array_equal(np.asarray(record["stream.norm"]), numbers)
        np.testing.assert_allclose(
            [row.log10 for row in rows], [one[3] for one in EXPONENTS], rtol=1e-6
        )


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-1100, 1100))
def test_the_number_is_the_value_times_the_power_of_two(value: float, exponent: int) -> None:
    exact = Fraction(value) * Fraction(2) ** exponent
    try:
        expected = float(exact)
    except OverflowError:
        expected = math.copysign(math.inf, value)
    assert reading(1, value, exponent=exponent).number == expected


def test_exponents_are_texts_in_tables_and_logarithms_in_cubes(tmp_path: Path) -> None:
    record = exponent_record()
    texts = [None if exponent is None else str(exponent) for _, exponent, _, _ in EXPONENTS]
    record.to_csv(tmp_path / "r.csv")
    header, *lines = (tmp_path / "r.csv").read_text().splitlines()
    assert header.endswith(",value,lower,upper,exponent")
    assert [line.split(",")[-1] or None for line in lines] == texts
    pytest.importorskip("pandas")
    assert [cell if isinstance(cell, str) else None for cell in record.to_pandas()["exponent"]] == (
        texts
    )
    pytest.importorskip("pyarrow")
    assert record.to_arrow()["exponent"].to_pylist() == texts
    pytest.importorskip("xarray")
    cube = record.to_xarray()
    np.testing.assert_array_equal(
        cube["stream.norm"].sel(statistic="mean").values, [one[2] for one in EXPONENTS]
    )
    np.testing.assert_allclose(
        cube["stream.norm.log10"].sel(statistic="mean").values,
        [one[3] for one in EXPONENTS],
        rtol=1e-6,
    )


def test_intervals_have_the_factor_of_their_number() -> None:
    pytest.importorskip("xarray")
    with Record() as record:
        record.describe(NORM)
        record.append([reading(1, 3.0, lower=2.0, upper=4.0, exponent=-1)])
        cube = record.to_xarray()
        assert [
            float(cube[f"stream.norm{end}"].values.item()) for end in (".lower", "", ".upper")
        ] == [1.0, 1.5, 2.0]


def test_every_column_of_every_table_comes_back(tmp_path: Path) -> None:
    with record_of_every_column() as record:
        path = record.save(tmp_path / "r.leadline")
        expected = read_all(record)
        rows = repr(record.select())
    gc.collect()
    with Record.open(path) as record:
        assert read_all(record) == expected
        assert repr(record.select()) == rows
        quantity = record.quantities["q.q"]
        assert all(getattr(quantity, field.name) for field in dataclasses.fields(quantity))
        [row, *_] = record.select("q.q")
        assert None not in dataclasses.astuple(row.site)
