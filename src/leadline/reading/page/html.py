"""One self-contained HTML file: style, script, data and Plotly itself stand inside it.

The page makes no request. Its content security policy forbids all of them, and allows only the
scripts whose SHA-256 is in the policy, so that no text of a record can become a program.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.errors import RecordError, check_path, join_words, require
from leadline.reading.bounds.section import AttentionPart, attention_parts, attention_section
from leadline.reading.page import sections
from leadline.reading.page.cards import chart_card, controls
from leadline.reading.page.figures import Chart, draw_charts, record_names
from leadline.reading.page.map_section import MapPart, map_parts, map_section
from leadline.reading.page.schema import as_json
from leadline.reading.page.training_curves import CurveChart, draw_training_charts
from leadline.reading.page.training_section import training_section
from leadline.reading.show.palette import DARK, THEMES
from leadline.record.file.text_files import write_text_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from leadline.reading.map.trainability import Trainability
    from leadline.record import Record

__all__ = ["render_html", "write_html"]

# Runs before the page is painted, so that a chosen theme does not flash.
_EARLY = """\
try { const t = localStorage.getItem("leadline-theme"); if (t === "dark" || t === "light") document.documentElement.dataset.theme = t; } catch { }"""
_LOGO = (
    '<svg viewBox="0 0 20 20" aria-hidden="true" fill="none" stroke="currentColor" '
    'stroke-width="1.8" stroke-linecap="round"><path d="M10 1v9M6.5 3.5h7M7.5 6.5h5"/>'
    '<path d="M10 10l3.2 8H6.8z" fill="currentColor" stroke-linejoin="round"/></svg>'
)


@dataclass(frozen=True)
class _Content:
    """What the page shows: maps of sweeps, curves over steps, charts over depth, attention."""

    maps: list[MapPart]
    curves: list[CurveChart]
    charts: list[Chart]
    attention: list[AttentionPart]
    texts: list[str]
    """What records print that have neither depth nor steps, such as bounds under attack."""

    @property
    def over_steps(self) -> list[CurveChart]:
        """All charts over steps, in their order on the page."""
        return [chart for part in self.maps for chart in part.charts] + self.curves

    @property
    def trained(self) -> bool:
        """Whether any record is of training."""
        return bool(self.maps or self.curves)

    @property
    def over_depth(self) -> bool:
        """Whether there is anything to show over depth; a record of training alone has nothing."""
        return bool(self.charts) or not (self.trained or self.texts)


def write_html(
    records: Sequence[Record],
    path: str | PathLike[str],
    *,
    names: Sequence[str] | None = None,
    title: str | None = None,
    training_map: Trainability | None = None,
) -> Path:
    """Write the report of one record, or the comparison of several, in one step."""
    place = check_path(path)
    text = render_html(
        records, names=names, title=title, file=place.stem, training_map=training_map
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
) -> str:
    """Return the page as text. `file` names the files that the page offers for download.

    `training_map` is the map of a single sweep, if it was computed already.
    """
    if not records:
        raise RecordError("A report needs at least one record, but got none.")
    titles = record_names(records, names)
    heading = title or join_words(titles)
    texts = [str(record) for record in records if record.instrument and not record.stacks]
    content = _Content(
        maps=map_parts(records, training_map),
        curves=[] if texts else draw_training_charts(records, titles),
        charts=draw_charts(records, names=titles),
        attention=attention_parts(records),
        texts=texts,
    )
    data = _embed(_payload(records, titles, content, file=file))
    scripts = [_EARLY, _plotly(), _asset("report.js")]
    policy = "; ".join(
        [
            "default-src 'none'",
            "script-src " + " ".join(_fingerprint(script) for script in scripts),
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
        ]
    )
    early, plotly, page = scripts
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="generator" content="leadline">\n'
        f"<title>{html.escape(heading)} – Leadline</title>\n"
        f"<style>{_asset('report.css')}</style>\n<script>{early}</script>\n</head>\n<body>\n"
        f"{_top(content, anatomy=_has_anatomy(records))}\n"
        f"<main>\n{_main(records, titles, content, heading=heading)}\n</main>\n"
        "<footer>Made by Leadline, the depth gauge for Transformers. "
        "This file is complete: it loads nothing.</footer>\n"
        f'<script type="application/json" id="leadline-data">{data}</script>\n'
        f"<script>{plotly}</script>\n<script>{page}</script>\n</body>\n</html>\n"
    )


def _main(
    records: Sequence[Record], names: Sequence[str], content: _Content, *, heading: str
) -> str:
    return "\n".join(
        [
            sections.summary(
                records,
                names,
                heading,
                training_map=content.maps[0].training_map if content.maps else None,
            ),
            map_section(content.maps, names),
            training_section(content.curves),
            *(_text_section(text) for text in content.texts),
            *(_over_depth(records, names, content) if content.over_depth else ()),
            attention_section(content.attention, names),
            sections.provenance(records, names),
        ]
    )


def _text_section(text: str) -> str:
    """What a record prints below its answer, which is the headline."""
    return (
        '<section aria-label="Numbers"><div class="card scroll">'
        f'<pre class="small">{html.escape(text.partition(chr(10))[2].strip())}</pre></div></section>'
    )


def _over_depth(
    records: Sequence[Record], names: Sequence[str], content: _Content
) -> tuple[str, ...]:
    differ = len({record.depth(stack) for record in records for stack in record.stacks}) > 1
    cards = "\n".join(chart_card(chart, names) for chart in content.charts)
    drawn = _has_anatomy(records) or not content.trained
    return (
        sections.anatomy(records, names) if drawn else "",
        sections.glance(content.charts, names),
        '<section id="charts" aria-labelledby="charts-title">',
        '<h2 id="charts-title">Over depth</h2>',
        "<noscript><p>The charts need JavaScript; the rest of the page does not.</p></noscript>",
        controls(content.charts, depths_differ=differ),
        f'<div class="charts">{cards}</div></section>',
    )


def _has_anatomy(records: Sequence[Record]) -> bool:
    return any("anatomy" in record.provenance for record in records)


def _top(content: _Content, *, anatomy: bool) -> str:
    depth = {
        **({"anatomy": "Anatomy"} if anatomy or not content.trained else {}),
        "glance": "At a glance",
        "charts": "Over depth",
    }
    places = {
        **({"map": "What trains"} if content.maps else {}),
        **({"training": "Over training"} if content.curves else {}),
        **(depth if content.over_depth else {}),
        **({"attention": _section_name(content.attention)} if content.attention else {}),
        "provenance": "Provenance",
    }
    links = "".join(f'<a href="#{place}">{word}</a>' for place, word in places.items())
    first = "charts" if content.over_depth else next(iter(places))
    return (
        f'<a class="skip" href="#{first}">Skip to the charts</a>'
        f'<header class="top"><div><span class="brand">{_LOGO}Leadline</span>'
        f'<nav aria-label="Sections">{links}</nav><div class="tools">'
        '<button type="button" data-download="json" aria-label="Download as JSON">↓ JSON</button>'
        '<button type="button" data-download="csv" aria-label="Download as CSV">↓ CSV</button>'
        '<button type="button" data-action="theme" aria-label="Switch between dark and light">Theme</button></div></div></header>'
    )


def _section_name(parts: Sequence[AttentionPart]) -> str:
    if any(part.table.bounds for part in parts):
        return "Attention"
    return "Rank collapse" if any(part.collapse.bounds for part in parts) else "Laws of depth"


def _payload(
    records: Sequence[Record], names: Sequence[str], content: _Content, *, file: str
) -> dict[str, Any]:
    return {
        "file": re.sub(r"[^\w.-]+", "_", file) or "leadline",
        "names": list(names),
        "themes": THEMES,
        "dark": DARK,
        "charts": [
            {
                "id": chart.key,
                "scale": chart.quantity.scale,
                "suited": chart.quantity.scale,
                "panels": [""],
                "across": "step",
                "figure": chart.figure,
            }
            for chart in content.over_steps
        ]
        + [
            {
                "id": chart.key,
                "scale": chart.quantity.scale,
                "suited": chart.quantity.scale,
                "panels": list(chart.panels),
                "figure": chart.figure,
            }
            for chart in content.charts
        ]
        + [
            {
                "id": chart.key,
                "scale": chart.scale,
                "suited": chart.scale,
                "panels": [""],
                "limits": list(chart.limits),
                "figure": chart.figure,
            }
            for part in content.attention
            for chart in part.charts
        ],
        "records": [as_json(record) for record in records],
    }


def _embed(payload: dict[str, Any]) -> str:
    """JSON that cannot end its script block: no <, > or & stands in it as such."""
    text = json.dumps(payload, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _asset(name: str) -> str:
    return resources.files("leadline.reading.page").joinpath(name).read_text(encoding="utf-8")


def _plotly() -> str:
    """The plotting library as the installed Python package carries it."""
    require("plotly", extra="report")
    source = resources.files("plotly").joinpath("package_data", "plotly.min.js")
    return re.sub(r"</(?=script)", r"<\\/", source.read_text(encoding="utf-8"), flags=re.IGNORECASE)


def _fingerprint(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
