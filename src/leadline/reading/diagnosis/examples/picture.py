"""The picture of an example, as SVG: a line over depth, cells of tokens or layers, or bars.

A line over depth shows the sick model beside the same model without the fault, and the layers that the
finding names. Where the evidence is no line, cells show which tokens moved or which layers are named,
and otherwise bars set each number beside what was expected. Every picture has a light and a dark
form: by itself it follows the reader's system, inside a page it follows the page.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from leadline.reading.diagnosis.words import number_text
from leadline.reading.show.palette import DARK, THEMES, record_colour
from leadline.reading.show.svg import (
    PictureAxis,
    axis_frame,
    fit_axis,
    line_pieces,
    path_of,
    round_numbers,
    short,
    svg_text,
)

if TYPE_CHECKING:
    from leadline.reading.diagnosis.examples.example import DepthCurve, RuleExample, Strip

__all__ = ["example_picture"]

Theme = Literal["system", "page"]

_WIDTH, _LEFT, _RIGHT = 460, 72, 16
_CHART = 170
_LINE = 16
_LETTERS = 60
"""How many letters of the small font fit across."""
_STATIONS = 12
_HEALTHY, _SICK = record_colour(0), record_colour(1)
_WITH, _WITHOUT = "with the fault", "without it"


def example_picture(example: RuleExample, *, theme: Theme = "system") -> str:
    """Draw an example; `theme` says whose choice of light or dark it follows."""
    if example.curve is not None:
        title, drawing, height = _curve_chart(example.curve, _layers_of(example))
    elif example.strips:
        title, drawing, height = _strip_chart(example.strips_title, example.strips)
    else:
        title, drawing, height = _bar_chart(example.finding["evidence"])
    label = html.escape(f"{example.code}: {title}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="rule-picture" viewBox="0 0 {_WIDTH} '
        f'{short(height)}" width="{_WIDTH}" role="img" aria-label="{label}">'
        f'<style>{_style(theme)}</style><rect class="card" width="100%" height="100%"/>'
        f"{drawing}</svg>\n"
    )


def _style(theme: Theme) -> str:
    """The rules of the picture, for light and dark."""
    light, dark = THEMES["light"], THEMES["dark"]
    colours = {
        ".card": ("fill", light["card"], dark["card"]),
        "text": ("fill", light["ink"], dark["ink"]),
        ".soft": ("fill", "#55616d", "#a9b4bf"),
        ".grid": ("stroke", light["grid"], dark["grid"]),
        ".axis": ("stroke", light["axis"], dark["axis"]),
        ".sick": ("stroke", _SICK, DARK[_SICK]),
        ".healthy": ("stroke", _HEALTHY, DARK[_HEALTHY]),
        ".sick-area": ("fill", _SICK, DARK[_SICK]),
        ".healthy-area": ("fill", _HEALTHY, DARK[_HEALTHY]),
        ".empty": ("fill", light["grid"], dark["grid"]),
        ".frame": ("stroke", light["ink"], dark["ink"]),
    }
    plain = (
        ".rule-picture text{font:13px system-ui,sans-serif}.rule-picture .title{font-weight:600}"
        ".rule-picture .grid,.rule-picture .axis,.rule-picture .frame,.rule-picture path{fill:none}"
        ".rule-picture .sick,.rule-picture .healthy{stroke-width:2}"
        ".rule-picture .healthy{stroke-dasharray:5 4}.rule-picture .band{opacity:.16}"
    )

    def rules(choose: Mapping[str, str]) -> str:
        return "".join(
            f".rule-picture {name}{{{prop}:{choose[name]}}}" for name, (prop, *_) in colours.items()
        )

    if theme == "page":
        pairs = {name: f"light-dark({one},{other})" for name, (_, one, other) in colours.items()}
        return plain + rules(pairs)
    by_day = {name: one for name, (_, one, _) in colours.items()}
    by_night = {name: other for name, (_, _, other) in colours.items()}
    return f"{plain}{rules(by_day)}@media (prefers-color-scheme:dark){{{rules(by_night)}}}"


def _layers_of(example: RuleExample) -> list[int]:
    return list(example.finding["layers"])


def _heading(words: str) -> tuple[str, float]:
    """The title in as many lines as it needs, and where they end."""
    lines = textwrap.wrap(words, _LETTERS - 4)
    texts = "".join(svg_text(line, 14, 20 + _LINE * at, "title") for at, line in enumerate(lines))
    return texts, 20 + _LINE * (len(lines) - 1)


def _curve_chart(curve: DepthCurve, accused: Sequence[int]) -> tuple[str, str, float]:
    title = f"{curve.title}{f', {curve.what}' if curve.what else ''}"
    heading, end = _heading(title)
    top = end + 34
    bottom = top + _CHART
    layers = [float(at) for at in curve.layers]
    across = PictureAxis(min(layers), max(layers), _LEFT + 8, _WIDTH - _RIGHT - 8)
    lines = {"healthy": curve.healthy, "sick": curve.sick}
    values = [value for line in lines.values() for value in line if value is not None]
    up = fit_axis(
        values, start=bottom, end=top, room=0.08, scale="log" if curve.logarithmic else "linear"
    )
    step = (across.end - across.start) / max(1.0, across.high - across.low)
    half = min(step / 2, 12.0)
    bands = "".join(
        f'<rect class="sick-area band" x="{short(across.at(at) - half)}" y="{short(top)}" '
        f'width="{short(2 * half)}" height="{_CHART}"/>'
        for at in accused
        if across.low <= at <= across.high
    )
    few = len(layers) <= _STATIONS
    marks = layers if few else round_numbers(across.low, across.high, 8)
    stations = [(at, f"{at:g}") for at in marks if float(at).is_integer()]
    parts = [bands, axis_frame(across, up, stations=stations, levels=up.ticks(4), margin=8)]
    for kind, line in lines.items():
        ys = [float("nan") if value is None else value for value in line]
        pieces = line_pieces(layers[: len(ys)], ys, across, up)
        parts.append(
            f'<path class="{kind}" d="{"".join(map(path_of, pieces))}"/>' if pieces else ""
        )
        if kind == "sick":
            parts += [
                f'<circle class="sick-area" cx="{short(x)}" cy="{short(y)}" r="3"/>'
                for piece in pieces
                for x, y in piece
            ]
            parts += [
                svg_text(words, across.at(at), y, anchor="middle")
                for at, value in zip(layers, line, strict=True)
                for words, y in _beyond(value, up, top, bottom)
            ]
    parts.append(_key(end + 18, healthy=bool(curve.healthy), lost=None in curve.sick))
    parts.append(svg_text("layer", (_LEFT + _WIDTH) / 2, bottom + 34, "soft", anchor="middle"))
    return title, heading + "".join(parts), bottom + 46


def _beyond(
    value: float | None, up: PictureAxis, top: float, bottom: float
) -> list[tuple[str, float]]:
    """The sign for a value that has no place on the axis: not finite above, zero below."""
    if value is None:
        return [("×", top + 12)]
    return [] if up.shows(value) else [("0" if value == 0 else "below 0", bottom - 5)]


def _key(y: float, *, healthy: bool, lost: bool) -> str:
    """Which line is which, and what a cross means where there is one."""
    parts = [_key_line("sick", _WITH, _LEFT, y)]
    if healthy:
        parts.append(_key_line("healthy", _WITHOUT, _LEFT + 140, y))
    if lost:
        parts.append(svg_text("× not finite", _LEFT + 260, y))
    return "".join(parts)


def _key_line(kind: str, words: str, x: float, y: float) -> str:
    return f'<path class="{kind}" d="M{short(x)} {short(y - 4)}h24"/>' + svg_text(words, x + 30, y)


def _strip_chart(title: str, strips: Sequence[Strip]) -> tuple[str, str, float]:
    heading, end = _heading(title)
    parts: list[str] = [heading]
    y = end + 18
    count = max(len(strip.cells) for strip in strips)
    pitch = min(24.0, (_WIDTH - 28) / count)
    side = pitch - 3
    for strip in strips:
        parts.append(svg_text(strip.name, 14, y + 4, "soft"))
        y += 12
        for at, cell in enumerate(strip.cells):
            x = 14 + at * pitch
            sick = strip.name == _WITH
            kind = ("sick-area" if sick else "healthy-area") if cell == "1" else "empty"
            parts.append(
                f'<rect class="{kind}" x="{short(x)}" y="{short(y)}" width="{short(side)}" '
                f'height="{short(side)}" rx="2"/>'
            )
            if at in strip.marked:
                parts.append(
                    f'<rect class="frame" fill="none" stroke-width="2" x="{short(x)}" '
                    f'y="{short(y)}" width="{short(side)}" height="{short(side)}" rx="2"/>'
                )
        y += pitch + 14
    for at in [0, *range(4, count, 5)]:
        parts.append(svg_text(str(at + 1), 14 + at * pitch + side / 2, y, "soft", anchor="middle"))
    if any(strip.marked for strip in strips):
        y += 20
        parts.append(svg_text("Framed: changed. Filled: moved.", 14, y, "soft"))
    return title, "".join(parts), y + 14


def _bar_chart(evidence: Sequence[Mapping[str, Any]]) -> tuple[str, str, float]:
    title = "The evidence beside what was expected"
    heading, end = _heading(title)
    parts = [heading]
    y = end + 22
    for one in evidence:
        for line in textwrap.wrap(one["what"], _LETTERS):
            parts.append(svg_text(line, 14, y, "soft"))
            y += _LINE
        rows = [("sick", one["value"])]
        if one.get("expected") not in ("", None):
            rows.append(("healthy", one["expected"]))
        numbers = [abs(v) for _, v in rows if isinstance(v, float | int)]
        largest = max(numbers, default=0.0)
        for kind, value in rows:
            words = number_text(value)
            if isinstance(value, float | int) and largest and len(numbers) == 2:
                length = max(1.5, 250 * abs(value) / largest)
                parts.append(
                    f'<rect class="{kind}-area" x="14" y="{short(y - 10)}" '
                    f'width="{short(length)}" height="12" rx="2"/>'
                )
                more = "" if kind == "sick" else " expected"
                parts.append(svg_text(f"{words}{more}", 22 + length, y))
                y += _LINE
                continue
            said = words if kind == "sick" else f"expected: {words}"
            for at, line in enumerate(textwrap.wrap(said, _LETTERS - 3)):
                if at == 0:
                    parts.append(
                        f'<rect class="{kind}-area" x="14" y="{short(y - 10)}" width="4" '
                        'height="12"/>'
                    )
                parts.append(svg_text(line, 24, y))
                y += _LINE
        y += 10
    return title, "".join(parts), y
