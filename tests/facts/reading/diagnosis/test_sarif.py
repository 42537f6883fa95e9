"""The SARIF log has the structure of version 2.1.0: one run, its rules, a result for each finding."""

import json

import pytest

from leadline import __version__
from leadline.reading.diagnosis.diagnosis import diagnose_record
from tests.synthetic_diagnosis import record_of, trial_rules

__all__ = ["trial_rules"]
pytestmark = pytest.mark.usefixtures("trial_rules")


@pytest.fixture
def run():
    log = diagnose_record(record_of(1, 0, 60)).to_sarif()
    log = json.loads(json.dumps(log, allow_nan=False))
    assert log["version"] == "2.1.0" and log["$schema"].endswith("sarif-schema-2.1.0.json")
    [only] = log["runs"]
    return only


def test_the_driver_names_the_tool_and_every_rule_that_looked(run):
    driver = run["tool"]["driver"]
    assert driver["name"] == "Leadline" and driver["version"] == __version__
    assert [rule["id"] for rule in driver["rules"]] == ["Y01", "Z01", "Z02"]
    dead = driver["rules"][1]
    assert dead["name"] == "trial-dead"
    assert dead["shortDescription"] == {"text": "A write that is zero."}
    assert dead["helpUri"].endswith("docs/rules/Z01-trial-dead.md")
    assert dead["defaultConfiguration"] == {"level": "error"}
    assert dead["properties"]["precision"] == "very-high"


def test_every_result_points_to_its_rule_and_to_a_logical_place(run):
    rules = run["tool"]["driver"]["rules"]
    assert [result["level"] for result in run["results"]] == ["error", "warning", "note"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
    dead, odd, note = run["results"]
    assert dead["locations"] == [
        {
            "logicalLocations": [
                {"name": "mlp", "fullyQualifiedName": "blocks.1.mlp", "kind": "member"}
            ]
        }
    ]
    [place] = odd["locations"]
    assert place["logicalLocations"][0]["fullyQualifiedName"] == "decoder.layer3.mlp"
    assert "locations" not in note
    assert dead["properties"]["evidence"][0]["expected"] == 2.0
    assert dead["message"]["text"].endswith("Load the weights again.")
    assert run["invocations"] == [{"executionSuccessful": True}]
