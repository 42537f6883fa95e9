"""The page of every rule: its example was run, its picture is small and well formed, its place is real."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from leadline.reading.diagnosis.examples.example import (
    DepthCurve,
    RemedyTrial,
    RuleExample,
    Strip,
    kept_examples,
    write_examples,
)
from leadline.reading.diagnosis.examples.picture import example_picture
from leadline.reading.diagnosis.examples.words import (
    character_picture,
    example_sentences,
    trial_sentences,
)
from leadline.reading.diagnosis.page import example_of, find_rule, page_file, rule_entries
from leadline.reading.diagnosis.rule import RULES
from leadline.reading.diagnosis.sarif import help_address
from leadline.reading.page.rule_page import rule_html
from leadline.record import Finding

ROOT = Path(__file__).parents[4]
# Not those that tests have entered: a page is made of the rules of the package.
RULE_LIST = [rule for _, rule in RULES.items() if not rule.name.startswith("trial-")]
MOST_BYTES = 12_000

EXAMPLE = RuleExample(
    code="W01",
    fault="mlp-zero",
    fault_words="The last matrix of one MLP is zero.",
    model="GPT2LMHeadModel, 4 decoder layers, weights as they are drawn",
    host="gpt2",
    seed=0,
    means="",
    finding={
        "code": "W01",
        "severity": "serious",
        "verdict": "The MLP of decoder layer 3 is cut off.",
        "layers": [3],
        "evidence": [{"what": "rms", "value": 0.0, "expected": 0.02, "source": "neighbours"}],
        "remedy": {"words": "Load it again."},
    },
    beside=("D04", "D04"),
    first=True,
    explained_by="",
    trial=RemedyTrial("by hand"),
    curve=DepthCurve(
        "Spread", "mlp.weight", (1, 2, 3, 4), (1.0, 4.0, 0.0, 8.0), (1.0, 4.0, 4.0, None)
    ),
)


@pytest.mark.parametrize("rule", RULE_LIST, ids=lambda rule: rule.code)
def test_every_rule_has_an_example_in_which_it_spoke(rule):
    example = example_of(rule)
    assert example is not None, f"run `make rules`: {rule.code} has no example"
    assert example.finding["code"] == rule.code
    assert example.finding["name"] == rule.name
    assert not (example.first and example.explained_by)
    picture = example_picture(example)
    assert len(picture.encode()) < MOST_BYTES
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert all(len(line) <= 78 for line in character_picture(example)), character_picture(example)
    titles = [title for title, _ in rule_entries(rule)]
    assert titles[:6] == [
        "What it looks for",
        "Why it is bad",
        "What it is not",
        "Example",
        "Known false alarms",
        "Remedy",
    ]


@pytest.mark.parametrize("rule", RULE_LIST, ids=lambda rule: rule.code)
def test_the_page_of_a_finding_is_there(rule):
    finding = Finding("x", code=rule.code, name=rule.name)
    command, verb, code = finding.page.split()
    assert (command, verb, find_rule(code)) == ("leadline", "explain", rule)
    _, _, path = help_address(rule).partition("/blob/HEAD/")
    assert (ROOT / path).is_file()
    assert (ROOT / "docs" / "rules" / page_file(rule)).is_file()


def test_an_example_survives_its_file(tmp_path):
    strips = (Strip("with the fault", "0110", (1,)),)
    others = [replace(EXAMPLE, code="A01", curve=None, strips=strips, strips_title="Moved")]
    path = tmp_path / "kept.json"
    write_examples([EXAMPLE, *others], path)
    data = json.loads(path.read_text(encoding="utf-8"))
    assert [RuleExample.from_json(one) for one in data] == [*others, EXAMPLE]


def test_the_picture_marks_the_accused_layer_and_follows_light_and_dark():
    picture = example_picture(EXAMPLE)
    root = ElementTree.fromstring(picture)
    bands = [one for one in root if "band" in one.get("class", "")]
    dots = [one for one in root if one.tag.endswith("circle")]
    assert (len(bands), len(dots)) == (1, 4)
    # The band stands around the dot of the third of four layers.
    middle = float(bands[0].get("x")) + float(bands[0].get("width")) / 2
    assert middle == pytest.approx(float(dots[2].get("cx")), abs=0.2)
    # Zero is the lowest of the values, so its dot is the lowest of the dots.
    assert max(float(one.get("cy")) for one in dots) == float(dots[2].get("cy"))
    assert "prefers-color-scheme:dark" in picture
    inside = example_picture(EXAMPLE, theme="page")
    assert "light-dark(" in inside and "prefers-color-scheme" not in inside


def test_a_zero_on_a_logarithmic_axis_is_written_and_not_left_out():
    assert EXAMPLE.curve is not None
    picture = example_picture(replace(EXAMPLE, curve=replace(EXAMPLE.curve, logarithmic=True)))
    texts = [one.text for one in ElementTree.fromstring(picture) if one.tag.endswith("text")]
    assert "0" in texts
    lost = replace(EXAMPLE.curve, sick=(1.0, 4.0, None, 8.0))
    assert "not finite" in example_picture(replace(EXAMPLE, curve=lost))


def test_the_picture_in_characters():
    assert character_picture(EXAMPLE) == [
        "Spread, mlp.weight; layers 1 to 4",
        "with the fault  ▂▂▅▅▁▁██  0 to 8",
        "without it      ▂▂▅▅▅▅··  1 to 4",
        "                    ^^    layer 3",
    ]
    moved = replace(
        EXAMPLE, curve=None, strips=(Strip("with the fault", "0110", (1,)),), strips_title="Moved"
    )
    assert character_picture(moved) == [
        "Moved",
        "with the fault  ·██·",
        "                 ^ changed",
    ]
    bars = replace(EXAMPLE, curve=None)
    assert character_picture(bars)[0] == "rms"
    assert character_picture(bars)[2].count("█") == 30


def test_the_words_of_an_example():
    sentences = example_sentences(EXAMPLE)
    assert sentences[0].endswith("(the fault `mlp-zero` of `leadline.testing.faults`).")
    assert "It says: The MLP of decoder layer 3 is cut off." in sentences
    assert sentences[-1] == "It is first of the findings; beside it: D04."
    hidden = replace(EXAMPLE, explained_by="R01", first=False, means="--train 12", host="")
    assert "Given beside it: --train 12." in example_sentences(hidden)[0]
    assert "leadline.testing.faults" not in example_sentences(hidden)[0]
    assert "R01" in example_sentences(hidden)[-1]


@pytest.mark.parametrize(
    ("trial", "told"),
    [
        (RemedyTrial("by hand"), "by hand"),
        (RemedyTrial("gone", {"edit": "tie"}), "the finding is gone"),
        (RemedyTrial("gone", {"edit": "tie"}), "Nothing else is unusual"),
        (RemedyTrial("gone", {"edit": "tie"}, new=("Ouch.",)), "New on the copy: Ouch."),
        (RemedyTrial("still there", {"edit": "tie"}, left=("W01",)), "still there"),
        (RemedyTrial("failed", {"edit": "tie"}, why="No such tensor."), "No such tensor."),
        (
            RemedyTrial("gone", {"edit": "scale-tensors", "parameters": list("abcde")}),
            '["a", "b", "and 3 more"]',
        ),
    ],
)
def test_the_page_says_whether_the_remedy_helped(trial, told):
    assert told in " ".join(trial_sentences(replace(EXAMPLE, trial=trial)))


def test_the_page_of_a_rule_as_html_holds_its_picture_and_asks_for_nothing():
    rule = find_rule("W01")
    page = rule_html(rule)
    assert page.count('class="rule-picture"') == 1
    assert "default-src 'none'" in page
    for title, _ in rule_entries(rule):
        assert f"<h2>{title}</h2>" in page
    assert not re.search(r'(?:src|<link[^>]*href)="http', page)


@pytest.mark.slow
@pytest.mark.parametrize("code", ["W01", "R01", "N06", "A04", "S04", "I01"])
def test_what_is_kept_of_an_example_is_what_a_run_gives(code):
    from leadline.testing.faults.examples import run_example

    kept = kept_examples()[code]
    run = run_example(find_rule(code), kept)
    for name in ("verdict", "layers", "sublayer", "parameter"):
        assert run.finding[name] == kept.finding[name]
    assert (run.first, run.beside, run.trial.outcome) == (
        kept.first,
        kept.beside,
        kept.trial.outcome,
    )
    assert (run.curve is None) == (kept.curve is None)
    if run.curve is not None and kept.curve is not None:
        assert run.curve.sick == pytest.approx(kept.curve.sick, rel=1e-2)
        assert run.curve.healthy == pytest.approx(kept.curve.healthy, rel=1e-2)
    assert run.strips == kept.strips
