"""A record that grows part by part: all or nothing of a part, and the file only when it holds rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leadline.errors import RecordError
from leadline.record import Finding, Quantity, Reading, Record, Site
from leadline.record.file.unfinished import (
    UNFINISHED,
    GrowingRecord,
    is_unfinished,
    refuse_foreign,
    refuse_unfinished,
    resume_record,
)
from leadline.record.words.unfinished import unfinished_text

NORM = Quantity("jacobian.norm", "Norm", "n", "n", lives_on="layer")
REQUEST = {"probes": ["jacobian"], "seed": 0}


def _row(layer: int) -> Reading:
    return Reading(NORM.name, Site("decoder", layer, None, "block"), "mean", float(layer))


def _begin(path: Path | None, record: Record | None = None) -> GrowingRecord:
    return GrowingRecord.begin(record or Record(), path, request=REQUEST, parts=3)


def _add(growing: GrowingRecord, layer: int, **more: Any) -> None:
    told = {"refused": [], "carried": {}, **more}
    growing.add(f"block {layer}", [NORM], [_row(layer)], **told)


def test_there_is_no_file_before_there_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "a.leadline"
    growing = _begin(path)
    assert not path.exists()
    growing.add("empty", [], [], refused=[], carried={})
    assert not path.exists()
    _add(growing, 1)
    assert path.exists() and is_unfinished(path)
    growing.close()


def test_what_a_record_holds_already_is_kept_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.leadline"
    record = Record()
    record.describe(NORM)
    record.append([_row(1)])
    growing = _begin(path, record)
    assert is_unfinished(path)
    growing.close()


def test_an_unfinished_record_goes_on_with_its_parts_refusals_and_what_was_carried(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.leadline"
    growing = _begin(path)
    refusal = (("jacobian.leak",), Site("decoder", 1, 2, "mlp"), "one token")
    _add(growing, 1, refused=[refusal], carried={"probes": {"jacobian": [0.1, 0.2]}})
    growing.close()
    record = resume_record(path, REQUEST)
    assert record is not None
    again = GrowingRecord(record, path)
    assert again.finished == {"block 1"}
    assert again.refused == [refusal]
    assert again.carried == {"probes": {"jacobian": [0.1, 0.2]}}
    _add(again, 2)
    finished = again.end({"seconds": 1.0}, [Finding("Something.")])
    assert UNFINISHED not in finished.provenance and finished.provenance["seconds"] == 1.0
    assert [r.site.layer for r in finished.select()] == [1, 2]
    assert [f.verdict for f in finished.findings] == ["Something."]
    assert [p.name for p in tmp_path.iterdir()] == ["a.leadline"]
    assert resume_record(path, REQUEST) is None


def test_a_part_that_cannot_be_kept_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.leadline"
    growing = _begin(path)
    _add(growing, 1)
    with pytest.raises(RecordError, match="Expected a Reading"):
        growing.add("block 2", [NORM], [_row(2), None], refused=[], carried={})  # pyright: ignore
    assert growing.finished == {"block 1"} and len(growing.record) == 1
    growing.close()


def test_in_memory_the_same_record_is_given_back() -> None:
    growing = _begin(None)
    _add(growing, 1)
    record = growing.end({}, [])
    assert record.path is None and len(record) == 1 and UNFINISHED not in record.provenance


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({**REQUEST, "seed": 1}, r"\(it differs in the seed\)"),
        ({"probes": ["lyapunov"], "seed": 1}, r"\(it differs in the probes, the seed\)"),
    ],
)
def test_another_request_is_refused_by_what_differs(
    tmp_path: Path, other: dict[str, Any], words: str
) -> None:
    path = tmp_path / "a.leadline"
    growing = _begin(path)
    _add(growing, 1)
    growing.close()
    with pytest.raises(RecordError, match=words):
        resume_record(path, other)
    with pytest.raises(RecordError, match="cut off"):
        refuse_unfinished(path)
    assert is_unfinished(path)


def test_what_is_no_record_or_finished_is_nothing_to_go_on_with(tmp_path: Path) -> None:
    assert resume_record(tmp_path / "none.leadline", REQUEST) is None
    foreign = tmp_path / "foreign.leadline"
    foreign.write_text("hello")
    assert resume_record(foreign, REQUEST) is None
    finished = tmp_path / "finished.leadline"
    Record().save(finished)
    assert resume_record(finished, REQUEST) is None
    refuse_unfinished(finished)


def test_a_record_says_how_far_it_has_come(tmp_path: Path) -> None:
    growing = _begin(None)
    _add(growing, 1)
    text = "unfinished, 1 of 3 parts of it are in the record"
    assert unfinished_text(growing.record.provenance) == text
    first = str(growing.record).splitlines()[0]
    assert first == "Unfinished: 1 of 3 parts are in the record."
    path = tmp_path / "grows.leadline"
    in_file = _begin(path)
    _add(in_file, 1)
    assert str(in_file.record).splitlines()[0] == (
        f"Unfinished: 1 of 3 parts are in the record; the same `leadline measure ... -o {path}` goes "
        f"on, or the same `leadline.measure(..., path={str(path)!r})`."
    )
    assert unfinished_text({}) == ""


def test_forgetting_takes_one_entry_out_of_the_provenance() -> None:
    record = Record()
    record.note("a", 1)
    record.note("b", 2)
    record.forget("a")
    record.forget("never there")
    assert record.provenance == {"b": 2}


def test_seconds_are_summed_over_the_sittings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    path = tmp_path / "a.leadline"
    now = 103.0
    growing = GrowingRecord.begin(Record(), path, request=REQUEST, parts=3, started=100.0)
    assert growing.seconds == 3.0
    now = 105.0
    _add(growing, 1)
    now = 150.0  # spent on a part that is lost
    growing.close()
    record = resume_record(path, REQUEST)
    assert record is not None
    now = 1002.0
    again = GrowingRecord(record, path, started=1000.0)
    assert again.seconds == 7.0
    now = 1004.0
    _add(again, 2)
    again.close()
    record = resume_record(path, REQUEST)
    assert record is not None
    third = GrowingRecord(record, path)
    now = 1005.0
    assert third.seconds == 10.0
    third.close()


def test_the_time_of_what_a_record_holds_already_is_kept_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.perf_counter", lambda: 108.0)
    path = tmp_path / "a.leadline"
    record = Record()
    record.describe(NORM)
    record.append([_row(1)])
    GrowingRecord.begin(record, path, request=REQUEST, parts=3, started=100.0).close()
    found = resume_record(path, REQUEST)
    assert found is not None
    again = GrowingRecord(found, path)
    assert again.seconds == 8.0
    again.close()


def test_what_is_no_record_is_not_written_over(tmp_path: Path) -> None:
    foreign = tmp_path / "notes.leadline"
    foreign.write_text("hello")
    folder = tmp_path / "folder"
    folder.mkdir()
    for path in (foreign, folder):
        with pytest.raises(RecordError, match="exists and is not a record"):
            refuse_foreign(path)
    refuse_foreign(tmp_path / "none.leadline")
    empty = tmp_path / "empty.leadline"
    empty.touch()
    refuse_foreign(empty)
    finished = tmp_path / "finished.leadline"
    Record().save(finished)
    refuse_foreign(finished)
