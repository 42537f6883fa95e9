"""`leadline lab --export DIR`, with a grid of one design."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leadline.web.export import site
from leadline.web.export.folder import files_of
from leadline.web.export.grid import GridFamily

RECORDS = Path(__file__).parents[2] / "fixtures" / "schema1"


@pytest.fixture(autouse=True)
def one_design(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "site_grid", lambda: [GridFamily((), (2,))])
    monkeypatch.setattr(site, "_check_stories", lambda entries: None)


def test_the_end_says_where_the_site_is_and_how_large(leadline, tmp_path: Path):
    folder = tmp_path / "site"
    said = leadline("lab", RECORDS / "measure.leadline", "--export", folder)
    assert said.code == 0, said.err
    size = sum((folder / name).stat().st_size for name in files_of(folder))
    assert f"{size / 1e6:.1f} MB" in said.out
    assert "index.html" in said.out
    assert "records/measure.html" in files_of(folder)


def test_nothing_is_in_a_site_that_was_not_named(leadline, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(RECORDS)
    said = leadline("lab", "--export", tmp_path / "site", "--json")
    told = json.loads(said.out)
    assert told["records"] == 0
    assert told["bytes"] == sum(
        (tmp_path / "site" / name).stat().st_size for name in files_of(tmp_path / "site")
    )


def test_a_folder_of_somebody_else_is_refused_before_anything_is_computed(
    leadline, tmp_path: Path, monkeypatch
):
    monkeypatch.setattr(site, "site_grid", lambda: pytest.fail("the grid was made"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("all of it", "utf-8")
    said = leadline("lab", "--export", tmp_path / "mine")
    assert said.code != 0
    assert "not an export" in said.err
    assert files_of(tmp_path / "mine") == ["thesis.tex"]
