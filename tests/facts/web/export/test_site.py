"""An export of a small grid: its files, its size, and that it is complete or untouched."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from leadline.errors import InputError
from leadline.web.export import ExportedSite, export_site
from leadline.web.export import folder as folder_module
from leadline.web.export.computing import computed_families
from leadline.web.export.folder import MARK, check_place, files_of, written_in_full
from leadline.web.export.grid import GridFamily, site_grid
from leadline.web.export.page import LANGUAGES, STATIC_PAGES, page_files, page_words
from leadline.web.export.site import MOST_BYTES
from leadline.web.lessons.reading import lesson_ids

GRID = (GridFamily((), (2, 4)), GridFamily((("placement", "post"),), (2,)))
RECORDS = Path(__file__).parents[3] / "fixtures" / "schema1"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> ExportedSite:
    folder = tmp_path_factory.mktemp("export") / "site"
    records = [RECORDS / "measure.leadline", RECORDS / "jacobian.leadline"]
    return export_site(folder, grid=GRID, processes=0, records=records)


def data(site: ExportedSite, name: str):
    text = (site.folder / "data" / f"{name}.js").read_text("utf-8")
    match = re.fullmatch(r'leadlineData\("([\w-]+)",(.*)\);\n', text, re.DOTALL)
    assert match is not None
    assert match[1] == name
    return json.loads(match[2])


def test_a_site_has_its_page_its_data_and_its_reports(site: ExportedSite):
    designs = {"data/design-1.js", "data/design-2.js"}
    lessons = {f"data/lessons-{language}.js" for language in LANGUAGES}
    page = {"index.html", "lab.css", "lab.js", "early.js", "claims.html", MARK, "data/base.js"}
    reports = {"records/measure.html", "records/jacobian.html"}
    assert set(files_of(site.folder)) == designs | lessons | page | reports


def test_the_size_is_the_sum_of_the_files(site: ExportedSite):
    sizes = {name: (site.folder / name).stat().st_size for name in files_of(site.folder)}
    assert site.bytes == sum(sizes.values())
    reports = [name for name in sizes if name.startswith("records/")]
    assert site.report_bytes == sum(sizes[name] for name in reports)
    assert (site.files, site.records, site.designs) == (len(sizes), 2, 3)
    assert f"{site.bytes / 1e6:.1f} MB" in str(site)


def test_a_whole_site_weighs_less_than_is_allowed(site: ExportedSite):
    """A family of a whole site has 31 kB in the mean; here with room for longer verdicts."""
    rest = site.bytes - site.report_bytes
    assert rest + len(site_grid()) * 40_000 < MOST_BYTES


def test_the_page_holds_no_script_of_its_own_and_may_load_only_its_files(site: ExportedSite):
    document = (site.folder / "index.html").read_text("utf-8")
    assert not re.search(
        r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|type=\"module\"", document
    )
    linked = re.findall(r'(?:src|href)="([^"#][^"]*)"', document)
    files = {link for link in linked if not link.startswith("data:")}
    assert files == {"lab.css", "lab.js", "early.js"}
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', document)
    assert policy is not None
    assert policy[1].startswith("default-src &#x27;none&#x27;; script-src &#x27;self&#x27; file:;")
    assert "unsafe" not in policy[1]


def test_data_tell_the_page_which_designs_there_are(site: ExportedSite):
    base = data(site, "base")
    assert base["grid"] == [
        {"file": "design-1", "knobs": {}, "depths": [2, 4]},
        {"file": "design-2", "knobs": {"placement": "post"}, "depths": [2]},
    ]
    assert [one["name"] for one in base["records"]] == ["measure", "jacobian"]
    assert set(base["words"]) == set(LANGUAGES)
    assert set(data(site, "design-1")["depths"]) == {"2", "4"}


def test_lessons_are_there_in_every_language(site: ExportedSite):
    for language in LANGUAGES:
        content = data(site, f"lessons-{language}")
        assert [one["id"] for one in content["list"]] == list(lesson_ids())
        assert set(content["lessons"]) == set(lesson_ids())
        assert any("verdict" in part for part in content["lessons"]["bounds"]["parts"])


def test_an_older_export_is_replaced_as_a_whole(tmp_path: Path):
    folder = tmp_path / "site"
    export_site(folder, grid=GRID, processes=0)
    export_site(folder, grid=GRID[:1], processes=0)
    assert "data/design-2.js" not in files_of(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


@pytest.mark.parametrize("name", ["mine.txt", "deep/mine.txt", ".hidden"])
def test_a_folder_with_something_else_is_refused_and_left_alone(tmp_path: Path, name: str):
    file = tmp_path / "site" / name
    file.parent.mkdir(parents=True)
    file.write_text("mine", "utf-8")
    with pytest.raises(InputError, match="not an export"):
        export_site(tmp_path / "site", grid=GRID, processes=0)
    assert files_of(tmp_path / "site") == [name]


def test_an_export_into_which_something_was_put_is_refused(tmp_path: Path):
    place = tmp_path / "site"
    with written_in_full(place, mark={}) as draft:
        (draft / "index.html").write_text("page", "utf-8")
    assert check_place(place) == place
    (place / "CNAME").write_text("mine", "utf-8")
    with pytest.raises(InputError, match="CNAME"):
        check_place(place)


def test_files_and_marks_of_something_else_are_refused(tmp_path: Path):
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(InputError, match="is a file"):
        check_place(tmp_path / "file")
    for number, text in enumerate(("", "[]", "{}", '{"files": 3}')):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / MARK).write_text(text, "utf-8")
        with pytest.raises(InputError, match="not an export"):
            check_place(folder)


def test_a_folder_without_the_mark_is_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("mine", "utf-8")
    monkeypatch.setattr(folder_module, "files_of", lambda _: pytest.fail("it may be a whole disk"))
    with pytest.raises(InputError, match="not an export"):
        check_place(tmp_path)


def interrupted(place: Path) -> None:
    with written_in_full(place, mark={}) as draft:
        (draft / "index.html").write_text("new", "utf-8")
        raise KeyboardInterrupt


def test_what_fails_on_the_way_leaves_nothing_behind(tmp_path: Path):
    with pytest.raises(InputError, match="no record"):
        export_site(tmp_path / "site", grid=GRID, processes=0, records=[tmp_path / "none.leadline"])
    assert list(tmp_path.iterdir()) == []

    place = tmp_path / "site"
    with written_in_full(place, mark={}) as draft:
        (draft / "index.html").write_text("old", "utf-8")
    with pytest.raises(KeyboardInterrupt):
        interrupted(place)
    assert (place / "index.html").read_text("utf-8") == "old"
    assert list(tmp_path.iterdir()) == [place]


def test_a_depth_that_cannot_be_built_is_left_out():
    family = GridFamily((("width", 64),), (2, 1000))
    (computed,) = computed_families([family], processes=0)
    assert computed.depths == (2,)


def test_two_processes_compute_what_one_does(tmp_path: Path):
    apart = [one.text for one in computed_families(GRID, processes=2)]
    here = [one.text for one in computed_families(GRID, processes=0)]
    assert [json.loads(text)["words"] for text in apart] == [json.loads(t)["words"] for t in here]
    assert [len(text) for text in apart] == pytest.approx([len(text) for text in here], rel=0.02)


def test_a_language_is_that_of_readers_who_chose_none():
    assert '<html lang="en" data-language="ru">' in page_files("ru")["index.html"]
    assert "data-language" not in page_files()["index.html"]
    with pytest.raises(InputError, match="en, zh, ru"):
        export_site("site", language="xx")


def test_every_language_has_every_word_of_the_static_modules():
    texts = [path.read_text("utf-8") for path in (STATIC_PAGES / "modules").rglob("*.js")]
    used = {key for text in texts for key in re.findall(r'"((?:export|play)\.\w+)"', text)}
    for language in LANGUAGES:
        words = page_words(language)
        assert {key for key in words if key.startswith("export.")} == {
            key for key in page_words("en") if key.startswith("export.")
        }
        assert used <= set(words)
