"""The report as one self-contained HTML file: the answer, the picture, the rest folded by topic.

The numbers of the records stand in the page once, as their JSON; the script draws the charts from
there (`reading.show.chart`), with uPlot, which comes with the package (`vendor/`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.errors import RecordError, check_path, join_words
from leadline.reading.compare.names import short_names
from leadline.reading.page.figures import record_names
from leadline.reading.page.schema import as_json
from leadline.reading.page.section import PageSubject, write_parts
from leadline.reading.show.chart import MOST_POINTS, chart_json
from leadline.reading.show.markup import safe
from leadline.reading.show.palette import DARK, DASHES, THEMES
from leadline.reading.show.shell import BRAND, FOOTER, page_asset, page_shell
from leadline.record.file.text_files import write_text_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from leadline.reading.diagnosis.diagnosis import Diagnosis
    from leadline.reading.map.trainability import Trainability
    from leadline.reading.page.section import PagePart
    from leadline.reading.show.chart import HeldLine, LineAddress
    from leadline.record import Record

__all__ = ["render_html", "write_html"]

_HERE = "leadline.reading.page"
_VENDOR = "leadline.reading.page.vendor"


def write_html(
    records: Sequence[Record],
    path: str | PathLike[str],
    *,
    names: Sequence[str] | None = None,
    title: str | None = None,
    training_map: Trainability | None = None,
    diagnoses: Sequence[Diagnosis] = (),
) -> Path:
    """Write the report of one record, or the comparison of several, in one step."""
    place = check_path(path)
    text = render_html(
        records,
        names=names,
        title=title,
        file=place.stem,
        training_map=training_map,
        diagnoses=diagnoses,
    )
    write_text_file(place, text, problem=f"The report cannot be written to {place}")
    return place


def render_html(
    records: Sequence[Record],
    *,
    names: Sequence[str] | None = None,
    title: str | None = None,
    file: str = "leadline",
    training_map: Trainability | None = None,
    diagnoses: Sequence[Diagnosis] = (),
) -> str:
    """Return the page as text. `file` names the files that the page offers for download.

    `training_map` is the map of a single sweep, and `diagnoses` what the rules say of each record,
    if these were computed already.
    """
    if not records:
        raise RecordError("A report needs at least one record, but got none.")
    titles = record_names(records, names)
    labels = short_names(titles) if len(titles) > 1 else titles
    explained = "; ".join(f"{label}: {one}" for label, one in zip(labels, titles, strict=True))
    shortened = tuple(labels) != tuple(titles)
    subject = PageSubject(
        records,
        labels,
        title or (explained if shortened else join_words(titles)),
        full_names=titles if shortened else (),
        training_maps={} if training_map is None else {0: training_map},
        diagnoses=dict(enumerate(diagnoses)),
    )
    parts = write_parts(subject)
    body = "\n".join(part.to_html() for part in parts)
    return page_shell(
        title=f"<title>{safe(subject.title)} – Leadline</title>",
        body=f"{_top(parts)}\n<main>\n{body}\n</main>\n<footer>{FOOTER}</footer>",
        styles=[page_asset(_VENDOR, "uplot.min.css"), page_asset(_HERE, "report.css")],
        scripts=[page_asset(_VENDOR, "uplot.min.js"), page_asset(_HERE, "report.js")],
        data=_payload(subject, parts, file=file),
    )


def _top(parts: Sequence[PagePart]) -> str:
    linked = [part for part in parts if part.title]
    links = "".join(f'<a href="#{part.key}">{safe(part.title)}</a>' for part in linked)
    first = next((part.key for part in linked if part.charts), linked[0].key if linked else "")
    return (
        f'<a class="skip" href="#{first}">Skip to the charts</a>'
        f'<header class="top"><div>{BRAND}<nav aria-label="Sections">{links}</nav>'
        '<div class="tools with">'
        '<button type="button" data-download="json" aria-label="Download as JSON">↓ JSON</button>'
        '<button type="button" data-download="csv" aria-label="Download as CSV">↓ CSV</button>'
        '<button type="button" data-action="theme" aria-label="Switch between dark and light">'
        "Theme</button></div></div></header>"
    )


def _payload(subject: PageSubject, parts: Sequence[PagePart], *, file: str) -> dict[str, Any]:
    records = [as_json(record, most_points=MOST_POINTS) for record in subject.records]
    held: dict[LineAddress, HeldLine] = {}
    for at, record in enumerate(records):
        for place, line in enumerate(record["series"]):
            keys = ("quantity", "statistic", "stack", "point", "sublayer")
            address = at, "series", tuple(line[key] for key in keys)
            held[address] = place, line["layers"], line["values"]
        for place, line in enumerate(record["curves"]):
            address = at, "curves", (line["quantity"], line["run"], line["seed"])
            held[address] = place, line["steps"], line["values"]
    return {
        "file": re.sub(r"[^\w.-]+", "_", file) or "leadline",
        "names": list(subject.full_names or subject.names),
        "themes": THEMES,
        "dark": DARK,
        "dashes": {name: [float(n) for n in dash.split()] for name, dash in DASHES.items()},
        "charts": [chart_json(chart, held) for part in parts for chart in part.charts],
        "records": records,
    }
