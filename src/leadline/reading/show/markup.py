"""Small pieces of HTML. Every text of a record enters the page through `safe`."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from leadline.reading.show.palette import DASHES, css_colour
from leadline.reading.show.wording import with_indices
from leadline.record.words.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["definitions", "dot", "formula", "law", "marker", "safe", "segmented"]

_SHAPES = {
    "circle": '<circle cx="13" cy="8" r="4.2"/>',
    "square": '<rect x="9" y="4" width="8" height="8"/>',
    "diamond": '<path d="M13 2.5l5.5 5.5-5.5 5.5-5.5-5.5z"/>',
    "triangle-up": '<path d="M13 3l5.5 9.5h-11z"/>',
    "triangle-down": '<path d="M13 13l5.5-9.5h-11z"/>',
}


def safe(text: object) -> str:
    """Escape a text for HTML; control characters, which it cannot hold, are spelled out."""
    return html.escape(printable(str(text), keep="\n\t"))


def formula(text: str) -> str:
    """Escape a text with indices and exponents, and set them as such."""
    return with_indices(safe(text))


def law(text: str) -> str:
    """Escape a sentence with laws of growth, and raise the exponent of l^0.5; names stay."""
    escaped = safe(text).replace("best R²", "best\u00a0R²").replace("R² ", "R²\u00a0")
    return re.sub(r"\bl\^([-−]?\d+(?:\.\d+)?)", "<i>l</i>\u200a<sup>\\1</sup>", escaped)


def dot(colour: str) -> str:
    """A dot in the colour of a record."""
    return f'<span class="dot" style="--c:{css_colour(colour)}"></span>'


def marker(symbol: str, *, dash: str = "solid", width: float = 2.0, band: bool = False) -> str:
    """A short line with the marker of a series, as the charts draw it; an area for a `band`."""
    shape = _SHAPES.get(symbol.removesuffix("-open"), "")
    if symbol.endswith("-open"):
        shape = shape.replace("/>", ' class="hollow"/>')
    line = (
        '<path d="M1 2h24v12h-24z" fill-opacity="0.2" stroke-width="0.5"/>'
        if band
        else f'<path d="M1 8h24" stroke-width="{width:g}" stroke-dasharray="{DASHES[dash]}"/>'
    )
    return f'<svg class="marker" viewBox="0 0 26 16" aria-hidden="true">{line}{shape}</svg>'


def definitions(
    pairs: Iterable[tuple[str, str]], *, kind: str, text: Callable[[str], str] = safe
) -> str:
    """A list of words and what they mean, set by `text`; pairs without a meaning are left out."""
    rows = "".join(
        f"<dt>{safe(word)}</dt><dd>{text(meaning)}</dd>" for word, meaning in pairs if meaning
    )
    return f'<dl class="{kind}">{rows}</dl>' if rows else ""


def segmented(
    kind: str, options: Mapping[str, str], *, chosen: str, barred: Mapping[str, str] | None = None
) -> str:
    """Buttons of which one is pressed. `barred` maps an option to why it cannot be chosen."""
    buttons: list[str] = []
    for value, label in options.items():
        why = (barred or {}).get(value)
        bar = f' disabled title="{html.escape(why)}"' if why else ""
        on = str(value == chosen).lower()
        buttons.append(
            f'<button type="button" data-{kind}="{value}" aria-pressed="{on}"{bar}>{label}</button>'
        )
    return f'<div class="segmented">{"".join(buttons)}</div>'
