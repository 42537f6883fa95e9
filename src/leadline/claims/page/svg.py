"""The picture of one claim as a file: its curves with their key, and its checks as strips.

The drawings are those of the page of claims; here they stand in one SVG with words and colours of
its own, so that any program shows it.
"""

from __future__ import annotations

import html
import re
import textwrap
from typing import TYPE_CHECKING

from leadline.claims.page.pictures import curves, strip, swatch
from leadline.claims.page.terminal import asked, measured, readable

if TYPE_CHECKING:
    from leadline.claims.ruling import Checked, Ruling

__all__ = ["claim_svg"]

_WIDTH, _MARGIN = 720, 20
_LETTERS = 92
"""So many letters fit into a line of text."""
_COLOURS = {
    "c0": "#0072b2", "c1": "#d55e00", "c2": "#00875f", "c3": "#b14e87",
    "c4": "#8a6d00", "c5": "#18202a", "c6": "#6b7782",
}  # fmt: skip
_KINDS = {"good": "#006b4b", "bad": "#a8321a", "open": "#8b3a68"}
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#18202a}.title{font-size:15px;font-weight:600}"
    ".soft,.curves text{fill:#55616d}.curves text{font-size:8.5px}.e{text-anchor:end}.m{text-anchor:middle}"
    ".grid{stroke:#e3e7ea;fill:none}.axis{stroke:#8b959e;fill:none}.line{fill:none;stroke-width:2}"
    ".broad{stroke-width:6;opacity:.4}.dash{stroke-dasharray:6 4;stroke-width:1.6}"
    ".dots{stroke-dasharray:2 3}.band{opacity:.17}.allowed{fill:#006b4b;opacity:.14}"
    ".base{stroke:#dde2e6}.tick{stroke:#a0acb8;fill:none}.limit{stroke:#18202a;stroke-width:1.5}"
    ".interval{stroke-width:3;opacity:.55}.seed{opacity:.55}"
    ".mark.bad{fill:none;stroke-width:2.6;stroke-linecap:round}"
    + "".join(
        f".line.{name}{{stroke:{colour}}}.dot.{name},.band.{name}{{fill:{colour}}}"
        for name, colour in _COLOURS.items()
    )
    + "".join(
        f".mark.{name}{{fill:{'none' if name == 'bad' else colour}}}.interval.{name},"
        f".mark.bad.{name}{{stroke:{colour}}}.arrow.{name}{{fill:{colour};stroke:none}}"
        for name, colour in _KINDS.items()
    )
)


def claim_svg(ruling: Ruling) -> str:
    """One picture that stands on its own."""
    sheet = _Sheet()
    for line in textwrap.wrap(readable(ruling.claim.title), _LETTERS - 15):
        sheet.text(line, style="title")
    sheet.text(f"{ruling.claim.name}: {ruling.verdict}", style="soft")
    if ruling.pictures:
        _own(ruling, sheet)
    for one in ruling.checked:
        _check(one, sheet)
    return sheet.finish()


class _Sheet:
    """What was drawn so far, from top to bottom."""

    def __init__(self) -> None:
        self.y = 12.0
        self.parts: list[str] = []

    def text(self, words: str, *, style: str = "", x: float = _MARGIN, room: float = 20) -> None:
        self.y += room
        self.write(words, x=x, style=style)

    def write(self, words: str, *, x: float, style: str = "") -> None:
        kind = f' class="{style}"' if style else ""
        self.parts.append(f'<text x="{x:g}" y="{self.y:g}"{kind}>{html.escape(words)}</text>')

    def place(self, svg: str, *, x: float, width: float) -> None:
        """Put a drawing in, as wide as asked, and go below it."""
        found = re.search(r'viewBox="0 0 (\d+) (\d+)"', svg)
        assert found is not None
        height = width * int(found[2]) / int(found[1])
        kind = re.search(r'class="([^"]*)"', svg)
        assert kind is not None
        inside = svg[svg.index(">") + 1 :].removesuffix("</svg>")
        self.parts.append(
            f'<svg class="{kind[1]}" x="{x:g}" y="{self.y:g}" width="{width:g}" '
            f'height="{height:g}" viewBox="0 0 {found[1]} {found[2]}">{inside}</svg>'
        )
        self.y += height

    def finish(self) -> str:
        height = self.y + 24
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height:g}" '
            f'viewBox="0 0 {_WIDTH} {height:g}"><style>{_STYLE}</style>'
            f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(self.parts)}</svg>\n'
        )


def _own(ruling: Ruling, sheet: _Sheet) -> None:
    drawn = curves(ruling.pictures)
    first = ruling.pictures[0]
    sheet.text(readable(first.y_label), style="soft", room=30)
    sheet.y += 6
    width = 360.0 if first.equal else 520.0
    sheet.place(drawn.svg, x=_MARGIN, width=width)
    sheet.text(readable(first.x_label), style="soft e", x=_MARGIN + width, room=14)
    for one in drawn.series:
        sheet.y += 4
        top = sheet.y
        sheet.place(swatch(one), x=_MARGIN, width=30)
        sheet.y = top + 10
        sheet.write(readable(one.name), x=_MARGIN + 40)
        sheet.y += 4
    if drawn.seeds > 1:
        sheet.text(
            f"Median of {drawn.seeds} seeds, from the smallest to the largest.", style="soft"
        )


def _check(one: Checked, sheet: _Sheet) -> None:
    sheet.text(f"{one.check.part}: {readable(one.check.label)}", room=34)
    sheet.y += 6
    top = sheet.y
    sheet.place(strip(one), x=_MARGIN, width=300)
    sheet.y = top + 16
    found = f"{measured(one)} asked {asked(one)}: {one.outcome}"
    sheet.write(found, x=_MARGIN + 320, style="soft")
    sheet.y = top + 24
