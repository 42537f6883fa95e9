"""The curves of a design in few characters, and back.

A page asks for parts (`playground.answer`): curves, verdict, laws. A file of the export holds those of
one design at all depths of the grid:

    words    every label, name and source once; elsewhere their places in this list
    depths   {"24": {"c": curves, "f": facts, "v": verdict, "l": laws}, ...}

    curve    [quantity, [line, ...]]                 line     [label, layers, values, exponents or 0]
    law      [quantity, name, label, kind, formula, source, layers, values, exponents or 0]
    layers   [first, last, step] where the steps are even, the layers in a list of their own otherwise
    values   a number where all are equal, else a list; six significant digits

`decoded_parts` is the same as what the page's script does (`pages/modules/grid_data.js`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

__all__ = ["DIGITS", "LabelList", "decoded_parts", "encoded_parts", "rounded"]

_HEADS = ("quantity", "name", "label", "kind", "formula", "source")
"""The texts of a law, in the order in which they stand."""
DIGITS = 6
"""Significant digits of a number in the export."""


class LabelList:
    """Texts that occur often, each once."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        """Return the place of a text, which is added if it is new."""
        return self._places.setdefault(text, len(self._places))

    def to_json(self) -> list[str]:
        """Return the texts in their order."""
        return list(self._places)


def rounded(value: float | None) -> float | int | None:
    """Round to the digits of the export; what is not finite is None."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short == int(short) and abs(short) < 10**DIGITS else short


def encoded_parts(parts: Iterable[Mapping[str, Any]], words: LabelList) -> dict[str, Any]:
    """Return curves, facts, verdict and laws of one design in the short form."""
    short: dict[str, Any] = {}
    for part in parts:
        if part["part"] == "curves":
            short["c"] = [_curve(curve, words) for curve in part["curves"]]
            # How long it took, on another machine, is no fact of the design.
            short["f"] = {
                name: rounded(value) if isinstance(value, float) else value
                for name, value in part["facts"].items()
                if name != "seconds"
            }
        elif part["part"] == "verdict":
            short["v"] = part["verdict"]
        elif part["part"] == "laws":
            short["l"] = [_law(law, words) for law in part["laws"]]
    return short


def decoded_parts(
    short: Mapping[str, Any], words: Sequence[str], design: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the parts that a page gets, in the order of the server."""
    curves = [
        {"quantity": words[quantity], "series": [_line_back(line, words) for line in lines]}
        for quantity, lines in short["c"]
    ]
    laws = [
        {name: words[place] for name, place in zip(_HEADS, law[: len(_HEADS)], strict=True)}
        | _numbers_back(*law[len(_HEADS) :])
        for law in short["l"]
    ]
    return [
        {"part": "curves", "design": dict(design), "curves": curves, "facts": short["f"]},
        {"part": "verdict", "verdict": short["v"]},
        {"part": "laws", "laws": laws},
        {"part": "end"},
    ]


def _curve(curve: Mapping[str, Any], words: LabelList) -> list[Any]:
    lines = [[words.place(line["label"]), *_numbers(line)] for line in curve["series"]]
    return [words.place(curve["quantity"]), lines]


def _law(law: Mapping[str, Any], words: LabelList) -> list[Any]:
    return [*(words.place(law[head]) for head in _HEADS), *_numbers(law)]


def _numbers(line: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    exponents = line.get("exponents")
    short = 0 if exponents is None else _values([rounded(one) for one in exponents])
    # An exponent of zero throughout would read as none at all.
    short = [short] * len(line["layers"]) if exponents is not None and short == 0 else short
    return _layers(line["layers"]), _values([rounded(one) for one in line["values"]]), short


def _layers(layers: Sequence[int]) -> list[Any]:
    steps = {two - one for one, two in pairwise(layers)}
    if len(layers) > 1 and len(steps) == 1:
        return [layers[0], layers[-1], steps.pop()]
    return [list(layers)]


def _values(values: Sequence[float | int | None]) -> Any:
    if values and values[0] is not None and all(one == values[0] for one in values):
        return values[0]
    return list(values)


def _line_back(line: Sequence[Any], words: Sequence[str]) -> dict[str, Any]:
    return {"label": words[line[0]]} | _numbers_back(*line[1:])


def _numbers_back(layers: list[Any], values: Any, exponents: Any) -> dict[str, Any]:
    if isinstance(layers[0], list):
        every = layers[0]
    else:
        first, last, step = layers
        every = list(range(first, last + (1 if step > 0 else -1), step))
    back = {"layers": every, "values": _spread(values, len(every))}
    return back if exponents == 0 else back | {"exponents": _spread(exponents, len(every))}


def _spread(values: Any, count: int) -> list[Any]:
    return values if isinstance(values, list) else [values] * count
