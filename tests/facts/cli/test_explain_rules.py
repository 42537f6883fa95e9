"""`leadline explain` of rules: the example that was run, its picture, its page."""

import json

from leadline.reading.diagnosis.examples.example import kept_examples


def test_explain_shows_the_example_of_a_rule_with_its_picture(leadline, tmp_path):
    example = kept_examples()["W01"]
    said = leadline("explain", "w01").out
    assert example.finding["verdict"] in said
    assert "with the fault" in said and "without it" in said
    told = json.loads(leadline("explain", "W01", "--json").out)["rules"]
    assert told["example"] == json.loads(json.dumps(example.to_json()))
    page = tmp_path / "page.html"
    assert leadline("explain", "W01", "--html", page).out.strip() == f"The page is in {page}"
    assert 'class="rule-picture"' in page.read_text(encoding="utf-8")


def test_explain_writes_pages_of_rules_alone(leadline, tmp_path):
    page = tmp_path / "page.html"
    said = leadline("explain", "rank-collapse", "--html", page)
    assert said.code == 2 and "is none; `leadline list rules`" in said.err
    assert not page.exists()
