"""What can be turned on the playground: kinds, ranges and the options of parts, from the catalogs.

A part that somebody else registers, by an entry point or a plug-in, is a choice like any other.
"""

from __future__ import annotations

import dataclasses
import inspect
from functools import cache
from typing import Any

from leadline.web.playground.curves import quantities
from leadline.web.playground.design import (
    LIMITS,
    MASKS,
    MOST_GAIN,
    MOST_OF_OPTION,
    MOST_OF_OTHERS,
    MOST_SEED,
    MOST_TOKENS,
    PART_KNOBS,
    Design,
)

__all__ = ["knob_list", "knobs_json", "quantity_list"]

_LABELS = {
    "connection": "Connection",
    "placement": "Placement of norms",
    "norm": "Norm",
    "init": "Initial weights",
    "mask": "Mask",
    "mlp": "MLP",
    "positions": "Positions",
    "depth": "Layers",
    "width": "Width",
    "heads": "Heads",
    "gain": "Gain of the branches",
    "text": "Text",
    "seed": "Seed",
}
_MASKS = {
    "causal": "No token sees a later one.",
    "full": "Every token sees every token.",
}
_OPTION_KINDS = {bool: "flag", int: "integer", float: "number", str: "text"}
_STEPS = {"gain": 0.05}
_ABOUT_WIDTH = 16
"""The width is moved in steps of so many."""


def knobs_json() -> dict[str, Any]:
    """Return knobs, presets and quantities: everything that a page needs before its first curve."""
    from leadline.web.playground.presets import preset_list

    return {"knobs": knob_list(), "presets": preset_list(), "quantities": quantity_list()}


@cache
def _part_choices(field: str) -> tuple[dict[str, Any], ...]:
    from leadline.parts.recipe import PARTS

    catalog = PARTS[field]
    return tuple(
        {
            "name": name,
            "summary": _summary(entry),
            "options": [
                _option(option, parameter) for option, parameter in catalog.options(name).items()
            ],
        }
        for name, entry in catalog.items()
    )


def knob_list() -> list[dict[str, Any]]:
    """Return every knob, in the order of a design."""
    knobs: list[dict[str, Any]] = []
    for field in dataclasses.fields(Design):
        knob: dict[str, Any] = {
            "name": field.name,
            "label": _LABELS[field.name],
            "default": field.default,
        }
        if field.name in PART_KNOBS:
            choices = list(_part_choices(field.name))
            if field.name == "init":
                choices.insert(0, _AUTO)
            knob |= {"kind": "choice", "choices": choices}
        elif field.name == "mask":
            choices = [{"name": n, "summary": _MASKS[n], "options": []} for n in MASKS]
            knob |= {"kind": "choice", "choices": choices}
        elif field.name == "text":
            knob |= {"kind": "text", "min": 2, "max": MOST_TOKENS}
        elif field.name == "gain":
            knob |= {"kind": "number", "min": 0.0, "max": MOST_GAIN, "step": _STEPS["gain"]}
        else:
            least, most = LIMITS.get(field.name, (0, MOST_SEED))
            step = _ABOUT_WIDTH if field.name == "width" else 1
            knob |= {"kind": "integer", "min": least, "max": most, "step": step}
        knobs.append(knob)
    return knobs


_AUTO = {
    "name": "auto",
    "summary": "The init that belongs to the connection; GPT-2's where it has none of its own.",
    "options": [],
}


def quantity_list() -> list[dict[str, Any]]:
    """Return the quantities in the order in which a page draws them."""
    # Residuals span thousands of powers of ten; nothing of a collapse would be seen on a line of them.
    logarithmic = {"tokens.relative_residual"}
    return [
        {
            "name": one.name,
            "label": one.title,
            "symbol": one.symbol,
            "unit": one.unit,
            "scale": "log" if one.name in logarithmic else one.scale,
            "about": one.meaning,
            "formula": one.formula,
            "high": one.high,
            "low": one.low,
            "source": one.source,
            "over": "blocks" if one.lives_on != "stream" else "sites",
        }
        for one in quantities()
    ]


def _summary(entry: Any) -> str:
    """The first sentence of a part's docstring."""
    lines = (inspect.getdoc(entry) or "").split("\n\n")[0]
    return " ".join(lines.split())


def _option(name: str, parameter: inspect.Parameter) -> dict[str, Any]:
    default = parameter.default
    option: dict[str, Any] = {
        "name": name,
        "kind": _OPTION_KINDS.get(type(default), "text"),
        "default": None if default is parameter.empty else default,
    }
    if option["kind"] == "integer":
        option |= {"min": 0, "max": MOST_OF_OPTION.get(name, MOST_OF_OTHERS)}
    annotation = str(parameter.annotation)
    if default is None:
        option["kind"] = "integer" if "int" in annotation else "number"
    # A number that may also be a word, such as 1 / sqrt(depth) for "depth".
    if "str" in annotation and option["kind"] != "text":
        option["words"] = True
    return option
