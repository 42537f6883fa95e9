"""`leadline collapse`: the answer first, the record, the page, and the theorems from the file."""

from __future__ import annotations

import json

import leadline as ll
from leadline.record import Record

DESIGN = [
    word
    for setting in (
        "depth=4",
        "width=16",
        "heads=2",
        "mlp=none",
        "connection=none",
        "norm=none",
        "attention=multihead(causal=false)",
    )
    for word in ("--set", setting)
]
COMMAND = ("collapse", "--recipe", "default", *DESIGN, "--random", "1x6")


def test_bounds_work_from_the_file_that_collapse_wrote(leadline, tmp_path):
    file, page = tmp_path / "found.leadline", tmp_path / "page.html"
    said = leadline(*COMMAND, "-o", file, "--html", page)
    assert said.code == 0
    assert said.out.startswith("Tokens become equal: the relative residual falls from 0.9")
    assert f"The record is in {file}" in said.out
    assert "Rank collapse and its bounds" in page.read_text(encoding="utf-8")
    told = leadline("bounds", file)
    assert told.code == 0
    assert "collapse-proved" in told.out and "4 of 4 layers" in told.out
    with Record.open(file) as record:
        assert told.out == f"{ll.bounds(record)}\n"
        assert record.provenance["model"]["source"]


def test_bounds_of_the_file_are_those_that_collapse_showed(leadline, tmp_path):
    file = tmp_path / "found.leadline"
    shown = leadline(*COMMAND, "--bounds", "-o", file).out
    told = leadline("bounds", file).out
    assert told.strip() in shown


def test_json_is_the_result_as_before(leadline):
    data = json.loads(leadline(*COMMAND, "--json").out)
    assert data["schema"] == 1 and data["depth"] == 4
    assert len(data["log10_residual"]) == len(data["exponent"]) == 5


def test_all_shows_every_layer_and_quiet_nothing(leadline):
    everything = leadline(*COMMAND, "--all").out
    assert "step: log10 of the factor of the layer" in everything
    assert leadline(*COMMAND, "--quiet").out == ""


def test_files_of_collapse_are_compared_and_reported(leadline, tmp_path):
    files = [tmp_path / "one.leadline", tmp_path / "two.leadline"]
    for seed, file in enumerate(files):
        assert leadline(*COMMAND, "--seed", seed, "-o", file, "-q").code == 0
    said = leadline("compare", *files)
    assert said.code == 0 and "collapse.log10_residual" in said.out
    page = tmp_path / "page.html"
    assert leadline("report", files[0], "-o", page).code == 0
    assert "Logarithm of the token residual" in page.read_text(encoding="utf-8")


def test_a_page_given_as_a_record_is_refused_before_the_work(leadline, tmp_path):
    said = leadline(*COMMAND, "-o", tmp_path / "page.html")
    assert said.code == 2 and "--html" in said.err
    assert not list(tmp_path.iterdir())
