"""Sliders and keys of the pictures that a reader can move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leadline.claims.page.words import Words

__all__ = ["key_list", "piece", "slider"]


def piece(kind: str) -> str:
    """A short piece of a line."""
    return (
        '<svg class="swatch" viewBox="0 0 30 12" aria-hidden="true">'
        f'<path class="line {kind}" d="M1 6H29"/></svg>'
    )


def key_list(words: Words, names: Sequence[tuple[str, str]]) -> str:
    """What the lines of a picture are, by their kinds."""
    rows = "".join(
        f"<li>{_spot(kind) if kind == 'raw' else piece(kind)}{words.page(name)}</li>"
        for kind, name in names
    )
    return f'<ul class="key">{rows}</ul>'


def _spot(kind: str) -> str:
    return (
        '<svg class="swatch" viewBox="0 0 30 12" aria-hidden="true">'
        f'<circle class="dot {kind}" cx="15" cy="6" r="3.4"/></svg>'
    )


def slider(
    words: Words, key: str, name: str, *, low: float, high: float, step: float, value: float
) -> str:
    """A slider with its name and its value; a name without Latin letters is a symbol."""
    label = words.page(name) if any(sign.isascii() and sign.isalpha() for sign in name) else name
    return (
        f'<label class="slider" for="{key}"><span>{label}</span>'
        f'<output id="{key}-value" for="{key}">{value:g}</output>'
        f'<input type="range" id="{key}" min="{low:g}" max="{high:g}" step="{step:g}" '
        f'value="{value:g}"></label>'
    )
