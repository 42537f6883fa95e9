"""The commands that only read records: report and compare."""

import json

import pytest

from leadline.record import Record
from tests.synthetic import gpt2_record, t5_record


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / "a.leadline", tmp_path / "b.leadline"]
    for path, record in zip(paths, (gpt2_record(), t5_record()), strict=True):
        record.save(path)
    return paths


def test_report_prints_every_quantity(leadline, files):
    said = leadline("report", files[0])
    assert said.code == 0
    assert all(name in said.out for name in Record.open(files[0]).quantities)


def test_report_prints_json_alone(leadline, files):
    said = leadline("report", files[0], "--json")
    assert json.loads(said.out)["schema"] == 1
    assert said.err == ""


@pytest.mark.parametrize("option", ["-o", "--output", "--html"])
def test_report_writes_a_page_and_says_where(leadline, files, tmp_path, option):
    page = tmp_path / "page.html"
    said = leadline("report", files[0], option, page)
    assert said.out.strip() == f"The report is in {page}"
    assert "<html" in page.read_text(encoding="utf-8")[:200]


def test_report_is_silent_when_asked(leadline, files, tmp_path):
    said = leadline("report", files[0], "-o", tmp_path / "page.html", "--quiet")
    assert (said.code, said.out, said.err) == (0, "", "")


def test_compare_shows_both_and_writes_one_page(leadline, files, tmp_path):
    page = tmp_path / "both.html"
    said = leadline("compare", *files, "--names", "left,right", "-o", page)
    assert said.code == 0
    assert "left" in said.out
    assert "right" in said.out
    assert page.exists()


def test_compare_prints_json_alone(leadline, files):
    said = leadline("compare", *files, "--json")
    assert json.loads(said.out)
    assert said.err == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["report", "{nothing}"], "no such file"),
        (["report", "{text}"], "is not a Leadline record"),
        (["report", "{a}", "-o", "{missing}/x.html"], "does not exist"),
        (["report", "{a}", "-o", "{a}"], "must end in .html"),
        (["compare", "{a}"], "takes two records or more"),
        (["compare", "{a}", "{b}", "--names", "one"], "--names has 1 names for 2 records"),
        (["compare", "{a}", "{text}"], "is not a Leadline record"),
    ],
)
def test_what_cannot_be_read_or_written_is_one_sentence(
    leadline, files, tmp_path, arguments, sentence
):
    text = tmp_path / "notes.txt"
    text.write_text("no record")
    before = sorted(path.name for path in tmp_path.iterdir())
    paths = {
        "a": files[0],
        "b": files[1],
        "text": text,
        "nothing": tmp_path / "nothing",
        "missing": tmp_path / "missing",
    }
    said = leadline(*(argument.format(**paths) for argument in arguments))
    assert said.code == 2
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == before
