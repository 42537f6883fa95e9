"""The chosen records: a report each, and what the list says of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from leadline.errors import InputError, Progress

__all__ = ["write_reports"]

_OTHER = re.compile(r"[^\w.-]+")


def write_reports(folder: Path, files: Sequence[Path], tell: Progress) -> list[dict[str, Any]]:
    """Write the report of every record that can be read; return the entries of the list.

    A damaged record is listed with the reason and has no report, as in the lab.
    """
    from leadline.web.server.documents import report_page_text
    from leadline.web.server.summaries import summary_of

    entries: list[dict[str, Any]] = []
    names: set[str] = set()
    for number, path in enumerate(files):
        tell("Writing the reports", number, len(files))
        if not path.is_file():
            raise InputError(f"There is no record {path}; name files that are there.")
        name = _free_name(path, names)
        summary = summary_of(str(path))
        page = None
        if summary["status"] != "damaged":
            page = f"records/{name}.html"
            text = report_page_text([str(path)], [path.stem])
            (folder / f"{name}.html").write_text(text, "utf-8")
        entries.append({"id": name, "name": path.stem, "page": page, **summary})
    return entries


def _free_name(path: Path, names: set[str]) -> str:
    """A name for the file, without what an address spells otherwise."""
    plain = _OTHER.sub("-", path.stem.encode("ascii", "ignore").decode()).strip("-.") or "record"
    name, number = plain, 2
    while name.lower() in names:  # some systems take two names that differ in case for one
        name, number = f"{plain}-{number}", number + 1
    names.add(name.lower())
    return name
