"""The command that draws the map of a sweep."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from leadline.cli.map import MARGIN, SHARE
from leadline.reading.map import trainability as rule
from tests.synthetic import gpt2_record
from tests.synthetic_sweep import sweep_record


@pytest.fixture
def file(tmp_path):
    return sweep_record().save(tmp_path / "sweep.leadline")


def test_the_rule_of_the_command_is_that_of_the_analysis():
    assert (MARGIN, SHARE) == (rule.MARGIN, rule.SHARE)


def test_the_map_is_printed(leadline, file):
    said = leadline("map", file)
    assert said.code == 0
    assert said.out.startswith("What trains: made")
    assert "12, not 24" in said.out


def test_json_is_printed_alone(leadline, file):
    said = leadline("map", file, "--json")
    assert json.loads(said.out)["rows"][1]["usable_depth"]["fails_at"] == 24
    assert said.err == ""


def test_margin_and_share_are_handed_on(leadline, file):
    found = json.loads(leadline("map", file, "--json", "--margin", "0.9", "--share", "1").out)
    assert (found["margin"], found["share"]) == (0.9, 1.0)
    assert all(row["usable_depth"]["depth"] == 0 for row in found["rows"])


def test_the_picture_is_written(leadline, file, tmp_path):
    said = leadline("map", file, "-o", tmp_path / "map.svg")
    assert f"The map is in {tmp_path / 'map.svg'}" in said.out
    assert ET.parse(tmp_path / "map.svg").getroot().tag.endswith("svg")


def test_the_page_follows_the_margin_that_was_asked(leadline, file, tmp_path):
    said = leadline("map", file, "-o", tmp_path / "map.html", "--margin", "0.9", "--quiet")
    assert (said.code, said.out) == (0, "")
    page = (tmp_path / "map.html").read_text(encoding="utf-8")
    assert "is 0.9 nats or more below the unigram entropy" in page
    assert "None of pre; post; plain trains within 200 steps, even at depth 6." in page


def test_html_writes_the_page_beside_a_picture(leadline, file, tmp_path):
    picture, page = tmp_path / "map.svg", tmp_path / "map.html"
    said = leadline("map", file, "-o", picture, "--html", page)
    assert said.out.endswith(f"The map is in {picture}\nThe report is in {page}\n")
    assert picture.exists() and "Sweep report" in page.read_text(encoding="utf-8")


def test_report_shows_a_sweep_too(leadline, file, tmp_path):
    assert "12, not 24" in leadline("report", file).out
    assert leadline("report", file, "-o", tmp_path / "page.html").code == 0


def test_a_record_that_is_no_sweep_is_refused_in_a_sentence(leadline, tmp_path):
    gpt2_record().save(tmp_path / "a.leadline")
    said = leadline("map", tmp_path / "a.leadline")
    assert said.code == 2
    assert "is not that of a sweep, so there is no map of it" in said.err


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("map.png", "its name must end in .svg or .html"),
        ("nowhere/map.svg", "does not exist"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused(leadline, file, tmp_path, name, sentence):
    said = leadline("map", file, "-o", tmp_path / name)
    assert said.code == 2
    assert sentence in said.err


def test_the_map_is_drawn_without_torch(file):
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from leadline.reading.map.trainability import trainability\n"
        "from leadline.record import Record\n"
        "from leadline.reading.map.picture import trainability_picture\n"
        f"print(len(trainability_picture(trainability(Record.open({str(file)!r})))))"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    assert int(said.stdout) > 1000
