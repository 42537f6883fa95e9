"""Colours, marker symbols and dashes: the same in charts, keys and drawings.

The colours are those of Okabe and Ito (2008), which stay apart for colour-blind readers, darkened
for the light page and lightened for the dark one until each has a contrast of at least 3 to 1
against its page. No meaning rests on colour alone: points also differ in their markers,
statistics in their dashes.
"""

from __future__ import annotations

__all__ = [
    "DARK",
    "DASHES",
    "THEMES",
    "css_colour",
    "dash_of",
    "point_colour",
    "record_colour",
    "symbol_of",
]

_BLUE, _VERMILION, _GREEN, _PURPLE = "#0072B2", "#D55E00", "#00875F", "#B14E87"
_OCHRE, _GREY, _BLACK = "#8A6D00", "#6B7782", "#18202A"

_RECORDS = (_BLUE, _VERMILION, _GREEN, _PURPLE, _OCHRE, _BLACK, _GREY)
_POINTS = {
    "stream": _BLUE,
    "block": _BLUE,
    "attention": _VERMILION,
    "mlp": _GREEN,
    "cross-attention": _PURPLE,
    "mixer": _OCHRE,
    "branch": _GREY,
}
# What each colour becomes on the dark page.
DARK = {
    _BLUE: "#56B4E9",
    _VERMILION: "#F58B4C",
    _GREEN: "#2CC295",
    _PURPLE: "#E59AC3",
    _OCHRE: "#E3C545",
    _GREY: "#A9B4BF",
    _BLACK: "#E7EBEF",
}
THEMES = {
    "light": {"ink": "#18202a", "grid": "#e8ecef", "axis": "#b9c2ca", "card": "#ffffff"},
    "dark": {"ink": "#e7ebef", "grid": "#27303a", "axis": "#55616d", "card": "#161c23"},
}
_SYMBOLS = {
    "attention": "circle",
    "mlp": "square",
    "cross-attention": "diamond",
    "mixer": "triangle-up",
    "branch": "triangle-down",
}
# The name of a dash in Plotly and its pattern in SVG.
DASHES = {
    "solid": "",
    "dash": "7 4",
    "dot": "2 3",
    "dashdot": "8 3 2 3",
    "longdash": "12 4",
}
_STATISTIC_DASHES = {
    "mean": "longdash",
    "median": "dash",
    "mean_without_first": "dot",
    "median_without_first": "dashdot",
}


def is_point(point: str) -> bool:
    """Whether a point of a model has a colour of its own."""
    return point in _POINTS


def point_colour(point: str) -> str:
    """The colour of a point where there is one record."""
    return _POINTS.get(point, _GREY)


def record_colour(index: int) -> str:
    """The colour of a record where there are several."""
    return _RECORDS[index % len(_RECORDS)]


def symbol_of(point: str, *, lane: int | None = None) -> str:
    """The marker of a point, or of a lane of the stream."""
    if lane is not None:
        shapes = list(_SYMBOLS.values())
        return shapes[(lane - 1) % len(shapes)]
    return _SYMBOLS.get(point, "circle")


def dash_of(statistic: str, *, headline: str) -> str:
    """The dash of a statistic in a chart; its headline is always solid."""
    return "solid" if statistic == headline else _STATISTIC_DASHES.get(statistic, "longdash")


def css_colour(colour: str) -> str:
    """A colour for the light page and its partner for the dark one, as CSS."""
    return f"light-dark({colour}, {DARK.get(colour, colour)})"
