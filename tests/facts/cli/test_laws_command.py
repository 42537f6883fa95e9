"""`leadline bounds`, `list` and `explain` with laws of depth, and `leadline reproduce ode-view`."""

import json

import pytest

from leadline.theory import LAWS

SMALL = ("--set", "depth=3", "--set", "width=32", "--set", "heads=2", "--quiet")


@pytest.fixture
def record(leadline, tmp_path):
    path = tmp_path / "small.leadline"
    said = leadline("measure", "--recipe", "default", *SMALL, "--set", "init=xavier", "-o", path)
    assert said.code == 0, said.err
    return path


def test_a_record_of_the_default_probes_has_a_law_that_applies(leadline, record):
    said = leadline("bounds", record)
    assert (said.code, said.err) == (0, "")
    assert "xiong-stream ≤" in said.out
    assert "3 of 3 layers" in said.out
    assert "not given" not in said.out


def test_whether_a_model_was_trained_can_be_said(leadline, tmp_path):
    """The two models of the demo are trained: their record does not call them drawn."""
    path = tmp_path / "pre.leadline"
    measured = leadline(
        "measure", "leadline.lab.pair:pre", "--random", "1x16", "--probes", "stream", "-o", path
    )
    assert measured.code == 0, measured.err
    known, said = (leadline("bounds", path, *more, "--json") for more in ((), ("--initial",)))
    first, second = (
        [one for one in json.loads(found.out)["bounds"] if one["name"] == "xiong-stream"]
        for found in (known, said)
    )
    assert not any(row["applies"] for one in first for row in one["rows"])
    reasons = [why for one in first for row in one["rows"] for why in row["because"]]
    told = [why for one in second for row in one["rows"] for why in row["because"]]
    assert any("drawn" in why for why in reasons)
    assert not any("drawn" in why for why in told)


def test_a_law_can_be_asked_for_by_name_and_layer(leadline, record):
    said = leadline("bounds", record, "--bound", "gpt2-scaling", "--layer", "2", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)["bounds"]
    assert [(one["name"], one["side"]) for one in found] == [
        ("gpt2-scaling", "upper"),
        ("gpt2-scaling", "lower"),
    ]
    assert [row["layer"] for one in found for row in one["rows"]] == [2, 2]
    assert "a write keeps 1 of the stream" in found[0]["rows"][0]["because"][0]


def test_a_law_over_depth_is_refused_in_one_sentence(leadline, record):
    said = leadline("bounds", record, "--bound", "xiong-last-gradient")
    assert said.code == 2
    assert "several depths" in said.err
    assert said.err.count("\n") == 1


def test_laws_are_listed_and_explained(leadline):
    listed = leadline("list", "bounds").out
    for name, law in LAWS.items():
        assert f"{name} " in listed
        assert law.title in listed
    told = leadline("explain", "xiong-stream").out
    assert "1 + l/2 <= E m_l <= 1 + 3 l/2" in told
    assert "2002.04745" in told


def test_the_view_as_an_equation_writes_its_picture(leadline, tmp_path):
    said = leadline(
        "reproduce", "ode-view", "--width", "4", "--tokens", "2", "--seeds", "1", "-o", tmp_path
    )
    assert (said.code, said.err) == (0, "")
    assert "step T/L, normed" in said.out
    assert "eigenvalues" in (tmp_path / "picture.svg").read_text(encoding="utf-8")
    assert (tmp_path / "table.csv").exists()


def test_a_network_that_cannot_be_followed_is_refused(leadline):
    said = leadline("reproduce", "ode-view", "--tokens", "0")
    assert said.code == 2
    assert "tokens is 0" in said.err
