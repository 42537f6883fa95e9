"""The file that keeps what was measured."""

from __future__ import annotations

import json
import math

import pytest

from leadline.claims.ledger import Ledger, LedgerLine, default_ledger
from leadline.errors import RecordError

NAME = "power-of-nine-tenths"


def line(seed=0, *, code="c1", vanishing=2.66e-5, time="2026-01-01T00:00:00+0000", **others):
    numbers = {"vanishing": vanishing, "exploding": 13780.0}
    return LedgerLine("claim", NAME, seed, code, 0.5, numbers, time=time, **others)


def test_what_was_added_is_there_when_the_file_is_read_again(tmp_path):
    path = tmp_path / "claims.jsonl"
    Ledger(path).add(line(vanishing=math.nan))
    Ledger(path).add(LedgerLine("trial", "cell", 3, "c2", 1.0, result={"loss": math.inf}))
    found = Ledger(path)
    assert len(found) == 2
    assert math.isnan(found.get("claim", NAME, 0, code="c1").numbers["vanishing"])
    assert found.get("trial", "cell", 3, code="c2").result == {"loss": "Infinity"}


def test_a_line_with_a_second_digest_still_opens(tmp_path):
    """Ledgers of earlier versions have one, of the claim's own module."""
    path = tmp_path / "claims.jsonl"
    older = {**line().to_json(), "own": "0cef3e627313ebf7"}
    path.write_text(json.dumps(older) + "\n")
    assert Ledger(path).get("claim", NAME, 0, code="c1") == line()


def test_other_code_measured_something_else(tmp_path):
    ledger = Ledger(tmp_path / "claims.jsonl")
    ledger.add(line(code="c1"))
    assert ledger.get("claim", NAME, 0, code="c2") is None
    assert ledger.get("claim", NAME, 1, code="c1") is None
    assert ledger.get("claim", NAME, 0, code="c1") is not None


def test_only_what_the_newest_code_measured_is_ruled_on(tmp_path):
    ledger = Ledger(tmp_path / "claims.jsonl")
    ledger.add(line(0, code="old", vanishing=1.0, time="2026-01-01"))
    ledger.add(line(1, code="new", time="2026-01-02"))
    assert [one.seed for one in ledger.lines(NAME)] == [1]
    assert ledger.ruling(NAME).verdict == "holds"


def test_a_later_line_of_the_same_measurement_replaces_the_earlier(tmp_path):
    path = tmp_path / "claims.jsonl"
    ledger = Ledger(path)
    ledger.add(line(vanishing=1.0))
    assert ledger.ruling(NAME).verdict == "false as stated"
    ledger.add(line())
    assert Ledger(path).ruling(NAME).verdict == "holds"
    assert len(path.read_text().splitlines()) == 2


def test_a_torn_last_line_is_left_out(tmp_path):
    path = tmp_path / "claims.jsonl"
    Ledger(path).add(line(0))
    with path.open("a") as file:
        file.write('{"kind": "claim", "na')
    assert len(Ledger(path)) == 1


def test_what_is_added_after_a_torn_line_is_whole(tmp_path):
    path = tmp_path / "claims.jsonl"
    Ledger(path).add(line(0))
    with path.open("a") as file:
        file.write('{"kind": "claim", "na')
    Ledger(path).add(line(1))
    assert [one.seed for one in Ledger(path).lines(NAME)] == [0, 1]


def test_what_is_no_ledger_is_refused(tmp_path):
    path = tmp_path / "claims.jsonl"
    path.write_text("hello\nworld\n")
    with pytest.raises(RecordError, match="is no ledger of claims"):
        Ledger(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordError, match="is no ledger of claims"):
        Ledger(path)
    with pytest.raises(RecordError, match="is no file; choose another ledger"):
        Ledger(tmp_path)
    with pytest.raises(RecordError, match="There is no ledger"):
        default_ledger(tmp_path / "none.jsonl")
    path.write_text(
        json.dumps(line().to_json()) + "\nrubbish\n" + json.dumps(line().to_json()) + "\n"
    )
    with pytest.raises(RecordError, match="Line 2 of the ledger"):
        Ledger(path)


def test_curves_are_kept_with_six_digits_and_numbers_with_all(tmp_path):
    picture = {
        "x_label": "x", "y_label": "y", "lines": {"a": [[1.0], [1 / 3]]},
        "x_log": False, "y_log": False, "points": False, "equal": False, "faint": [],
    }  # fmt: skip
    ledger = Ledger(tmp_path / "claims.jsonl")
    ledger.add(line(vanishing=1 / 3, picture=picture))
    (found,) = ledger.lines(NAME)
    assert found.picture["lines"]["a"][1] == [0.333333]
    assert found.numbers["vanishing"] == 1 / 3


def test_numbers_of_checks_that_have_changed_since_do_not_count(tmp_path):
    ledger = Ledger(tmp_path / "claims.jsonl")
    ledger.add(LedgerLine("claim", NAME, 0, "c", 0.1, {"vanishing": 2.6e-5}))
    assert ledger.ruling(NAME).verdict == "not measured"
