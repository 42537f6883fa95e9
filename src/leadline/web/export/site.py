"""The whole site: the page, the grid, lessons, claims and reports, in a folder of its own.

index.html lab.css lab.js early.js   the page
claims.html                          the page of claims
records/NAME.html                    the reports
data/base.js                         knobs, presets, quantities, words, and which designs there are
data/lessons-LANGUAGE.js             the lessons
data/design-NUMBER.js                one family of designs at all its depths
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import leadline
from leadline.errors import InputError, MachineError, Progress, check_progress, shown
from leadline.web.export.computing import MOST_PROCESSES, computed_families
from leadline.web.export.folder import check_place, files_of, written_in_full
from leadline.web.export.grid import GridFamily, figure_designs, preset_designs, site_grid
from leadline.web.export.page import LANGUAGES, page_files, page_words, script_data
from leadline.web.export.shelf import write_reports
from leadline.web.playground.design import Design

__all__ = ["MOST_BYTES", "ExportedSite", "export_site"]

MOST_BYTES = 15_000_000
"""What a site may weigh without its reports, whose size is that of the records that were chosen."""


@dataclass(frozen=True)
class ExportedSite:
    """A site that was written."""

    folder: Path
    bytes: int
    files: int
    designs: int
    """Designs with their depth, each with all of its curves."""
    records: int
    report_bytes: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return fields | {"folder": str(self.folder)}

    def __str__(self) -> str:
        reports = f", {_size(self.report_bytes)} of it reports" if self.records else ""
        return (
            f"The site is in {self.folder}: {_size(self.bytes)} in {self.files} files{reports}, with "
            f"{self.designs:,} designs and {self.records} records.\nOpen "
            f"{self.folder / 'index.html'}, or put the folder on any web host."
        )


def export_site(
    folder: str | PathLike[str],
    *,
    records: Sequence[str | PathLike[str]] = (),
    language: str | None = None,
    progress: Progress | None = None,
    plugins: Sequence[str | PathLike[str]] = (),
    grid: Sequence[GridFamily] | None = None,
    processes: int = MOST_PROCESSES,
) -> ExportedSite:
    """Write the lab as a site that needs no server, complete or not at all.

    An older export in this folder is replaced, anything else refused. `records` are files whose
    reports are part of the site, `language` is that of readers who have not chosen one, `plugins` are
    the files that were loaded. `grid` holds other designs than the usual ones; with 0 `processes`
    everything is computed in this one, as a script without `if __name__ == "__main__"` needs it.
    """
    started = time.monotonic()
    tell = check_progress(progress)
    if language is not None and language not in LANGUAGES:
        raise InputError(f"The lab speaks {', '.join(LANGUAGES)}, but not {shown(language)}.")
    place = check_place(Path(folder))
    files = [Path(record) for record in records]
    families = site_grid() if grid is None else list(grid)
    mark: dict[str, object] = {"leadline": leadline.__version__, "what": "leadline lab --export"}
    with written_in_full(place, mark=mark) as draft:
        for name in ("data", "records"):
            (draft / name).mkdir()
        for name, text in page_files(language).items():
            (draft / name).write_text(text, "utf-8")
        _write_words_and_lessons(draft)
        listed = write_reports(draft / "records", files, tell)
        entries = _write_designs(
            draft, families, tell, processes=processes, plugins=[str(path) for path in plugins]
        )
        if grid is None:
            _check_stories(entries)
        base = _base(entries, listed)
        (draft / "data" / "base.js").write_text(script_data("base", base), "utf-8")
    every = files_of(place)
    return ExportedSite(
        folder=Path(folder),
        bytes=sum((place / name).stat().st_size for name in every),
        files=len(every),
        designs=sum(len(entry["depths"]) for entry in entries),
        records=len(listed),
        report_bytes=sum(
            (place / name).stat().st_size for name in every if name.startswith("records/")
        ),
        seconds=round(time.monotonic() - started, 1),
    )


def _write_words_and_lessons(draft: Path) -> None:
    from leadline.web.lessons.serving import lesson_json, lessons_json
    from leadline.web.server.documents import claims_page_text

    for language in LANGUAGES:
        listed = lessons_json(language)
        lessons = {one["id"]: lesson_json(one["id"], language) for one in listed}
        content = {"list": listed, "lessons": lessons}
        name = f"lessons-{language}"
        (draft / "data" / f"{name}.js").write_text(script_data(name, content), "utf-8")
    (draft / "claims.html").write_text(claims_page_text(), "utf-8")


def _write_designs(
    draft: Path,
    families: Sequence[GridFamily],
    tell: Progress,
    *,
    processes: int,
    plugins: Sequence[str],
) -> list[dict[str, Any]]:
    """Write a file for every family; return what the page must know of each."""
    entries: list[dict[str, Any]] = []
    total = len(families)
    tell("Computing the designs", 0, total)
    computed = computed_families(families, processes=processes, plugins=plugins)
    for number, one in enumerate(computed, 1):
        tell("Computing the designs", number, total)
        if one.depths:
            name = f"design-{number}"
            (draft / "data" / f"{name}.js").write_text(script_data(name, one.text), "utf-8")
            depths = list(one.depths)
            entries.append({"file": name, "knobs": one.family.knobs_json, "depths": depths})
    return entries


def _check_stories(entries: Sequence[dict[str, Any]]) -> None:
    """Refuse a site whose presets or figures would lack their curves."""
    known = {(_key(entry["knobs"]), depth) for entry in entries for depth in entry["depths"]}
    for design in [*preset_designs(), *figure_designs()]:
        if (_key(design.difference()), design.depth) not in known:
            raise MachineError(
                f"The design {design.difference()}, which a preset or a lesson shows, could not be "
                "computed; please report this."
            )


def _key(knobs: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((name, value) for name, value in knobs.items() if name != "depth"))


def _base(entries: Sequence[dict[str, Any]], records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the page needs before its first curve."""
    from leadline.web.playground.knobs import knobs_json

    spec = knobs_json()
    # Every spelling that the page sends is the one that the grid was made from.
    for preset in spec["presets"]:
        for side in ("a", "b"):
            preset[side] = Design.from_json(preset[side]).difference()
    return {
        "session": {"version": leadline.__version__, "flags": {}, "languages": LANGUAGES},
        "spec": spec,
        "grid": entries,
        "words": {language: page_words(language) for language in LANGUAGES},
        "records": list(records),
    }


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
