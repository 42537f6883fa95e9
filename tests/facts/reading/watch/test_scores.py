"""What `explain` says about an alarm is what the page of scores says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leadline.cli.shelves.shelves import open_shelf
from leadline.reading.watch.alarm import ALARMS
from leadline.reading.watch.scores import KEPT, score_sentence

PAGE = (Path(__file__).parents[4] / "docs" / "watch-scores.md").read_text()
SCORES = json.loads(KEPT.read_text())
SCORED = [alarm for _, alarm in ALARMS.items() if alarm.severity != "note"]


@pytest.mark.parametrize("alarm", SCORED, ids=lambda one: one.code)
def test_the_page_and_the_package_have_the_same_numbers(alarm) -> None:
    row = next(
        line for line in PAGE.splitlines() if line.startswith(f"| {alarm.code} {alarm.name} |")
    )
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    one = SCORES["alarms"][alarm.code]
    assert cells[1:5] == [
        f"{count} of {SCORES['failed'][kind]}" for kind, count in one["warned"].items()
    ]
    assert cells[6] == ("" if one["median_lead"] is None else str(one["median_lead"]))
    assert cells[7] == str(one["false"])
    assert float(cells[8]) == pytest.approx(
        1000 * one["false"] / SCORES["healthy_updates"], abs=0.005
    )


def test_every_warning_is_scored_and_no_other() -> None:
    assert set(SCORES["alarms"]) == {alarm.code for alarm in SCORED}


def test_the_sentence_of_an_alarm_that_spoke() -> None:
    assert score_sentence("G05") == (
        "It warned before the loss failed in 8 of 10 runs whose rate was too large, 3 of 9 runs with a stale "
        "second moment and 10 of 10 runs whose attention logits grew, with a median lead of 38 updates. No "
        "false alarm in 6,700 healthy updates."
    )
    assert score_sentence("G04").endswith(
        "False alarms: 2 in 6,700 healthy updates (0.3 per 1,000)."
    )


def test_the_sentence_of_an_alarm_that_never_spoke() -> None:
    assert score_sentence("G01").startswith(
        "It warned of none of the 37 failures of the trial in time."
    )


def test_a_note_is_not_scored() -> None:
    assert score_sentence("G10").startswith("Not scored")


def test_an_alarm_that_came_later_says_so() -> None:
    assert "added after the trial" in score_sentence("G99")


def test_explain_gives_it() -> None:
    page = open_shelf("alarms")["attention-logits-growing"]
    assert page.facts["How early, and how often wrong"] == score_sentence("G05")
