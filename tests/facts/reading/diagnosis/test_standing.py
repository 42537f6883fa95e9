"""What rules say of a record stands first wherever it is shown, and nothing is said twice."""

import pytest

import leadline as ll
from leadline.reading.diagnosis.standing import standing_diagnosis, standing_findings
from leadline.reading.page import as_json
from leadline.reading.page.html import render_html
from leadline.record import Finding
from tests.synthetic_diagnosis import record_of, trial_rules

__all__ = ["trial_rules"]
pytestmark = pytest.mark.usefixtures("trial_rules")


def test_rules_are_asked_once_as_long_as_the_record_stays_as_it_is():
    record = record_of(1, 0, 1)
    first = standing_diagnosis(record)
    assert standing_diagnosis(record) is first
    record.add_finding(Finding("Something else.", severity="note"))
    assert standing_diagnosis(record) is not first


def test_what_is_stored_stays_and_is_not_said_twice():
    record = record_of(1, 0, 1)
    for finding in standing_diagnosis(record).findings:
        record.add_finding(finding)
    record.add_finding(Finding("The mask was not seen.", severity="note"))
    assert [finding.code for finding in record.findings] == ["Z01", ""]
    assert [finding.code for finding in standing_findings(record)] == ["Z01", ""]


def test_a_finding_of_an_unknown_rule_is_shown_as_it_was_stored():
    record = record_of(1, 1)
    record.add_finding(Finding("Foreign.", severity="warning", code="Q99", name="foreign"))
    assert [finding.code for finding in standing_findings(record)] == ["Q99"]


def test_printing_a_record_begins_with_the_findings_and_what_to_do():
    lines = str(record_of(1, 0, 60, 1)).splitlines()
    assert lines[0].startswith("tiny")
    assert lines[1] == "serious: Z01: The mlp of decoder layer 2 writes nothing."
    assert lines[2] == "  do: Load the weights again."
    assert lines[3].startswith("warning: Z02: ")


def test_more_findings_than_fit_are_counted():
    text = str(record_of(0, 0, 0, 0, 1))
    assert text.count("serious: Z01") == 3
    assert "1 more finding: leadline.diagnose(record)" in text


def test_a_comparison_names_the_sick_record_first():
    comparison = ll.compare(record_of(1, 1, 1), record_of(1, 0, 1, name="sick"))
    lines = str(comparison).splitlines()
    assert lines[1] == "sick: serious: Z01: The mlp of decoder layer 2 writes nothing."
    healthy, sick = comparison.to_json()["findings"]
    assert healthy == [] and [finding["code"] for finding in sick] == ["Z01"]


def test_json_and_page_hold_the_findings_of_rules():
    record = record_of(1, 0, 1)
    assert [finding["code"] for finding in as_json(record)["findings"]] == ["Z01"]
    page = render_html([record])
    assert page.index('id="findings"') < page.index('id="provenance"')
    assert 'href="#finding-0-0"' in page and 'id="finding-0-0"' in page
    for words in ("Z01 trial-dead", "the nearest layers", "Its weights are zero.", "About Z01"):
        assert words in page


def test_a_page_without_findings_and_without_a_visit_has_no_such_section():
    record = record_of(1, 1, 1)
    assert 'id="findings"' not in render_html([record])
    record.note("visit", {"could_not": {}})
    page = render_html([record])
    assert ">Health</h2>" in page and "3 rules looked, 1 could not" in page


def test_texts_of_findings_are_escaped_on_the_page():
    record = record_of(1, 1)
    record.add_finding(
        Finding(
            "<b>x</b>",
            severity="warning",
            code="Q99",
            name="foreign",
            details={"cause": "<script>alert(1)</script>"},
        )
    )
    page = render_html([record])
    assert "<script>alert(1)" not in page and "&lt;script&gt;alert(1)" in page


def test_records_of_training_runs_are_not_asked():
    record = record_of(1, 0)
    record.note("sweep", {"description": "a grid"})
    assert standing_diagnosis(record).findings == ()
