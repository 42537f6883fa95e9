"""Which designs an export holds: families that differ in depth alone, and the depths of each.

    the default design with every connection, before and after (pre and post), every placement, norm,
    mask, MLP, init and some gains, at all of `DEPTHS`
    both sides of every preset and of every figure in the lessons, at their own depth as well
    what the knobs of those figures can be turned to, at `FEW_DEPTHS`: a quarter of the room

A family that cannot be built is left out here; a depth that cannot be built is left out when it is
computed. A plug-in's parts are in the catalogs, so they are in the grid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from leadline.web.lessons.lesson import SIDES, LessonPart
from leadline.web.lessons.reading import lesson_ids, read_lesson
from leadline.web.playground.design import PART_KNOBS, Design, DesignError
from leadline.web.playground.knobs import knob_list
from leadline.web.playground.presets import STORIES

__all__ = [
    "DEPTHS",
    "FEW_DEPTHS",
    "GridFamily",
    "figure_designs",
    "preset_designs",
    "site_grid",
]

DEPTHS = (2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
FEW_DEPTHS = (6, 12, 24, 48, 96)
GAINS = (0.0, 0.1, 0.2, 0.5, 2.0, 4.0)
"""Beside 1, the default."""
WIDTHS = (16, 32, 64, 128, 256)
_STATED = {"gain": (*GAINS, 1.0), "width": WIDTHS}
_LEFT_OUT = ("connection", "positions")
"""Choices that a family does not vary by itself: the first is varied with the placement."""


@dataclass(frozen=True)
class GridFamily:
    """Designs that differ in depth alone. `knobs` is what differs from the default, without depth."""

    knobs: tuple[tuple[str, Any], ...]
    depths: tuple[int, ...]

    def design(self, depth: int) -> Design:
        """Return one of them; DesignError where it cannot be built."""
        return Design.from_json({**dict(self.knobs), "depth": depth})

    @property
    def knobs_json(self) -> dict[str, Any]:
        """The knobs as a design's JSON."""
        return dict(self.knobs)


def site_grid() -> list[GridFamily]:
    """Return every family of a whole export, the default design first."""
    depths: dict[tuple[tuple[str, Any], ...], set[int]] = {}

    def add(fields: dict[str, Any], at: tuple[int, ...]) -> None:
        stated = fields.get("depth", 24)
        try:
            design = Design.from_json(fields)
        except DesignError:
            return
        knobs = design.difference()
        knobs.pop("depth", None)
        depths.setdefault(tuple(knobs.items()), set()).update((*at, stated))

    add({}, DEPTHS)
    for fields in _around_the_default():
        add(fields, DEPTHS)
    for design in preset_designs():
        add(design.difference(), DEPTHS)
    for part in _figures():
        for side in SIDES:
            if side not in part.facts:
                continue
            base = part.facts[side]
            turned = {name: _values_of(name, base, part) for name in part.facts["knobs"]}
            turned.pop("depth", None)
            add(base, DEPTHS)
            for values in product(*turned.values()):
                add({**base, **dict(zip(turned, values, strict=True))}, FEW_DEPTHS)
    for design in figure_designs():
        add(design.difference(), ())
    return [GridFamily(knobs, tuple(sorted(at))) for knobs, at in depths.items()]


def preset_designs() -> list[Design]:
    """Both sides of every preset."""
    return [design for story in STORIES for design in story.designs()]


def figure_designs() -> list[Design]:
    """Every design that a figure of the lessons shows first, or that its caption speaks of."""
    designs: list[Design] = []
    for part in _figures():
        designs += [Design.from_json(part.facts[side]) for side in SIDES if side in part.facts]
        for check in part.facts["checks"]:
            base = part.facts[check.get("side", "base")]
            designs.append(Design.from_json({**base, **check.get("turned", {})}))
    return designs


def _figures() -> Iterator[LessonPart]:
    for name in lesson_ids():
        yield from (part for part in read_lesson(name, "en").parts if part.kind == "figure")


def _around_the_default() -> Iterator[dict[str, Any]]:
    choices = _choices()
    for connection, placement in product(choices["connection"], ("pre", "post")):
        yield {"connection": connection, "placement": placement}
    for name, values in choices.items():
        if name not in _LEFT_OUT:
            yield from ({name: value} for value in values)
    yield from ({"gain": gain} for gain in GAINS)


def _choices() -> dict[str, list[str]]:
    return {
        knob["name"]: [choice["name"] for choice in knob["choices"]]
        for knob in knob_list()
        if knob["name"] in (*PART_KNOBS, "mask")
    }


def _values_of(name: str, base: dict[str, Any], part: LessonPart) -> list[Any]:
    """What a figure's knob can be turned to: a range in some steps, every choice of a short list."""
    spoken = [
        check["turned"][name] for check in part.facts["checks"] if name in check.get("turned", {})
    ]
    values = [*_STATED.get(name, ()), *spoken]
    if name in ("mask", "placement"):
        values += _choices()[name]
    if name == "mlp":
        values += ["none", "gelu_tanh"]
    if name in base:
        values.append(base[name])
    elif name == "text":
        values.append(Design().text)
    return list(dict.fromkeys(values))
