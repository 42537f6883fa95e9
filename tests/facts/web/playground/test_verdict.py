"""One sentence: placement, depth, what happens where, what to do; its level is that of the rules."""

from __future__ import annotations

import json

import pytest

import leadline
from leadline.web.playground.curves import curves_of
from leadline.web.playground.design import Design
from leadline.web.playground.verdict import PlayVerdict, verdict_on


def verdict(**fields: object) -> PlayVerdict:
    found = verdict_on(curves_of(Design.from_json(fields)))
    json.dumps(found.to_json(), allow_nan=False)
    assert found.sentence.endswith(".") and "\n" not in found.sentence
    return found


@pytest.mark.parametrize(
    ("fields", "level", "words"),
    [
        ({"placement": "post", "init": "xavier", "depth": 48}, "serious",
         ["Post-norm, 48 layers: tokens become equal by layer", "warm-up"]),
        ({"placement": "post", "depth": 48}, "warning", ["does not fall with depth", "warm-up"]),
        ({"placement": "post", "depth": 12}, "healthy", ["Post-norm, 12 layers: healthy"]),
        ({"connection": "none"}, "serious", ["no shortcut", "equal", "add a shortcut"]),
        ({"connection": "none", "norm": "none", "init": "xavier", "depth": 12, "gain": 0.2}, "serious",
         ["gradient vanishes", "layer 1 gets 2.1×10⁻¹⁹ of the last layer's, in its weights"]),
        ({"norm": "none", "init": "xavier", "depth": 24}, "serious",
         ["No norms, 24 layers", "gradient explodes", "norm before every branch"]),
        ({"norm": "none", "init": "xavier(gain=4.0)", "depth": 96, "gain": 4.0}, "serious",
         ["leaves the range of float32"]),
        ({}, "healthy", ["Pre-norm, 24 layers: healthy", "%"]),
        ({"connection": "rezero"}, "healthy", ["connection rezero", "silent"]),
        ({"connection": "deepscalelm(k=9.5)", "gain": 0.0, "depth": 50}, "note", ["silent", "3.3×10⁻⁵"]),
        ({"connection": "deepnorm", "placement": "post", "depth": 96}, "healthy", ["deepnorm", "96"]),
    ],
)  # fmt: skip
def test_the_sentence_says_what_the_rules_found(
    fields: dict[str, object], level: str, words: list[str]
) -> None:
    found = verdict(**fields)
    assert found.level == level, found.sentence
    for word in words:
        assert word in found.sentence


@pytest.mark.parametrize(
    "fields",
    [
        {"placement": "post", "init": "xavier", "depth": 24},
        {"placement": "post", "depth": 20},
        {"connection": "none", "norm": "none", "init": "xavier", "depth": 12},
        {"norm": "none", "init": "xavier", "depth": 24},
        {"depth": 8},
    ],
)
def test_the_findings_are_those_of_the_diagnosis_of_the_same_design(
    fields: dict[str, object],
) -> None:
    design = Design.from_json(fields)
    shown = {one.code for one in verdict(**fields).findings}
    diagnosis = leadline.diagnose(design.model(), design.inputs())
    looked = {"D01", "D02", "D03", "D05", "D09"}
    full = {one.code for one in diagnosis.findings} | {one.code for _, one in diagnosis.explained}
    assert shown & looked <= full
    assert full & looked <= shown | {one.code for _, one in diagnosis.explained}
