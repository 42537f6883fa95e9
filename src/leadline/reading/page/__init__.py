"""How a record is shown: in the terminal, as JSON, as one page of HTML. Never needs torch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from leadline.errors import check_path
from leadline.record import Record, check_record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike
    from pathlib import Path

    from leadline.reading.page.schema import as_json
    from leadline.reading.page.terminal import screen_of

__all__ = ["as_json", "report", "screen_of"]

# Imported when they are asked for: a page needs no terminal, and most records no bounds or maps.
_PLACES = {
    "as_json": "leadline.reading.page.schema",
    "screen_of": "leadline.reading.page.terminal",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def report(
    records: Record | Sequence[Record],
    path: str | PathLike[str],
    *,
    names: Sequence[str] | None = None,
    title: str | None = None,
) -> Path:
    """Write one self-contained HTML page about a record, or several laid over each other."""
    from leadline.reading.page.html import write_html

    place = check_path(path)
    several: list[Any] = list(records) if isinstance(records, list | tuple) else [records]
    for record in several:
        check_record(record)
    write_html(several, place, names=names, title=title)
    return place
