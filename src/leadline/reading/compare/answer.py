"""What a comparison answers: which record's gradients vanish, where records part, and in what most.

Sentences are made from the rows whose quantities lead their topics, and from the row in which the
records are farthest apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leadline.reading.show.wording import layer_ranges
from leadline.record.run.training import VALIDATION_LOSS
from leadline.record.words.answer import BACKWARD
from leadline.record.words.course import FAR, STEADY, course_of
from leadline.record.words.numbers import format_number
from leadline.record.words.places import opening

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.compare.compare import Comparison, ComparisonRow, ComparisonSide
    from leadline.reading.compare.parting import EndRatio, Parting
    from leadline.record import Profile

__all__ = [
    "comparison_answer",
    "differs",
    "distance",
    "most_apart",
    "nothing_in_common",
    "ratio_text",
]

SAME = 0.005
"""Below this share a difference does not show in three digits, and is none worth telling."""

_ILLS = {
    "gradient": ("vanishing gradients", "exploding gradients", "vanishing or exploding gradients"),
    "stream": (
        "a signal that vanishes",
        "a signal that explodes",
        "a signal that vanishes or explodes",
    ),
}
"""For each topic what it is to shrink, to grow, and to do either by far."""


def comparison_answer(comparison: Comparison, names: Sequence[str] | None = None) -> list[str]:
    """Say what differs: losses, gradients, the stream; where it begins, and in what most.

    Records are called by `names`, by short ones if none are given.
    """
    called = comparison.labels if names is None else names
    unfinished = [
        f"{name} is {how_far}."
        for name, how_far in zip(called, comparison.unfinished, strict=False)
        if how_far
    ]
    if comparison.shares_nothing:
        return [*unfinished, nothing_in_common(comparison, called)]
    told = _losses(comparison, called)
    for row in sorted(comparison.rows, key=lambda one: one.topic not in BACKWARD):
        if _is_told(row):
            told += _travel(row, called)
    told += _not_finite(comparison, called)
    if alike := _alike(comparison):
        return [*unfinished, alike, *told]
    differences = [_beginning(comparison, called), _largest(comparison, called)]
    words = "; ".join(one for one in differences if one)
    return [*unfinished, *told, *([f"{words[:1].upper()}{words[1:]}."] if words else [])]


def nothing_in_common(comparison: Comparison, names: Sequence[str]) -> str:
    """Say that records share no number, which command wrote each, and what to compare instead."""
    rows = (*comparison.rows, *comparison.curves)
    empty = [name for at, name in enumerate(names) if not any(row.sides[at] for row in rows)]
    if empty:
        verb = "holds" if len(empty) == 1 else "hold"
        return f"{' and '.join(empty)} {verb} no readings: there is nothing to compare."
    origins = [
        f"{name} was written by `leadline {writer}`"
        for name, writer in zip(names, comparison.writers, strict=True)
        if writer
    ]
    commands = dict.fromkeys(comparison.writers)
    same = f"`leadline {next(iter(commands))}`, with the same options,"
    wanted = (
        same if len(commands) == 1 and all(commands) else "one command, such as `leadline measure`,"
    )
    by_whom = f": {', '.join(origins)}" if origins else ""
    return f"These records have nothing in common{by_whom}; compare records that {wanted} wrote."


def most_apart(row: ComparisonRow) -> tuple[int, ComparisonSide] | None:
    """Return the number and the side of the record that stands farthest from the first one."""
    sides = [(at, side) for at, side in enumerate(row.sides) if side is not None and side.parting]
    return max(sides, key=lambda pair: _apart(pair[1], row), default=None)


def distance(row: ComparisonRow) -> float:
    """Say how far records are apart in a row, so that rows can be put in order.

    It is the logarithm of the largest factor between two records; on a linear scale, or where there
    is no factor, the largest difference over the largest size, and no more than the difference.
    """
    farthest = most_apart(row)
    return 0.0 if farthest is None else _apart(farthest[1], row)


def differs(row: ComparisonRow) -> bool:
    """Whether records differ in a row by more than three digits show, or in what is finite."""
    return distance(row) >= SAME or _lost_differ(row)


def _apart(side: ComparisonSide, row: ComparisonRow) -> float:
    parting = side.parting
    assert parting is not None
    if row.nats_per_unit:
        return abs(parting.difference) * row.nats_per_unit
    if row.scale == "log" and math.isfinite(parting.log10_ratio):
        return abs(parting.log10_ratio) * math.log(10)
    values = np.concatenate([one.profile.values for one in row.sides if one is not None])
    largest = float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))
    return abs(parting.difference) / max(largest, 1.0)


def _lost_differ(row: ComparisonRow) -> bool:
    """Whether values are not finite at other layers in one record than in another."""
    sides = [side for side in row.sides if side is not None]
    if any(side.stretch != 1 for side in sides):
        return len({bool(side.lost_layers) for side in sides}) > 1
    return len({side.lost_layers for side in sides}) > 1


def _is_told(row: ComparisonRow) -> bool:
    """Whether it is said of the row in words how it travels."""
    return row.leads and row.topic in _ILLS and row.shared


@dataclass(frozen=True, slots=True)
class _Journey:
    """How a line travels in one record, and what is wrong with that; `ill` is empty if nothing."""

    name: str
    words: str
    ill: str


def _travel(row: ComparisonRow, names: Sequence[str]) -> list[str]:
    """Say in which records a line vanishes or explodes, and how it travels in each."""
    sides = [(name, side) for name, side in zip(names, row.sides, strict=True) if side is not None]
    # A mean that few tokens carry says nothing of the others.
    robust = any(side.few_tokens for _, side in sides) and all(side.median for _, side in sides)
    lines = [(name, (robust and side.median) or side.profile) for name, side in sides]
    ways = [way for name, line in lines if (way := _way(name, line, row.topic)) is not None]
    if len(ways) < 2 and not any(way.ill for way in ways):
        return []
    stack = row.label.rpartition("/")[0]
    subject = opening(row.title) + (f" of the {stack}" if stack else "")
    subject += " (median without the first token)" if robust else ""
    verdict = _verdict(ways, row.topic, everyone=len(ways) == len(sides))
    told = [
        f"{'in' if at or verdict else 'In'} {way.name} {'it' if at else subject} {way.words}"
        for at, way in enumerate(ways)
    ]
    return [f"{verdict}{'; '.join(told)}."]


def _way(name: str, line: Profile, topic: str) -> _Journey | None:
    """Say how a line travels; None of one that has no course, such as a single value."""
    shrinking, growing, _ = _ILLS[topic]
    noun = "gradients" if topic == "gradient" else "a signal"
    verb = "are" if topic == "gradient" else "is"
    lost = [
        layer
        for layer, value in zip(line.layers, line.values, strict=True)
        if not math.isfinite(value)
    ]
    if lost:
        words = f"is not finite at {layer_ranges(lost)}"
        return _Journey(name, words, f"{noun} that {verb} not finite")
    if not np.any(line.values):
        return _Journey(name, "is 0 at every layer", f"{noun} that {verb} 0")
    course = course_of(line, backward=topic in BACKWARD)
    if course is None:
        return None
    ill = (shrinking if course.shrinks else growing) if course.size >= FAR else ""
    return _Journey(name, course.words, ill)


def _verdict(ways: Sequence[_Journey], topic: str, *, everyone: bool) -> str:
    """Say which records have the illness: `post has vanishing gradients, pre has not: `"""
    ill = [f"{way.name} has {way.ill}" for way in ways if way.ill]
    if not ill:
        # Of the stream it is said in the words that follow.
        asked = topic in BACKWARD and everyone
        return f"{'Neither' if len(ways) == 2 else 'None'} has {_ILLS[topic][2]}: " if asked else ""
    well = [way.name for way in ways if not way.ill]
    rest = f", {' and '.join(well)} {'has' if len(well) == 1 else 'have'} not" if well else ""
    return f"{', '.join(ill)}{rest}: "


def _not_finite(comparison: Comparison, names: Sequence[str]) -> list[str]:
    """Say in which other rows values are not finite, and where."""
    told: list[str] = []
    for at, name in enumerate(names):
        rows = [
            (row, side)
            for row in comparison.rows
            if row.shared and not _is_told(row) and (side := row.sides[at]) and side.lost_layers
        ]
        if rows:
            row, side = rows[0]
            where = layer_ranges(
                side.lost_layers, "hop" if side.profile.over == "hops" else "layer"
            )
            more = f", and {len(rows) - 1} other quantities have such values" if rows[1:] else ""
            told.append(f"In {name} {row.label} is not finite at {where}{more}.")
    return told


def _alike(comparison: Comparison) -> str:
    """Say that the records are identical, or differ by rounding alone; empty where they do not."""
    rows = [row for row in comparison.rows if row.shared]
    curves = [row for row in comparison.curves if row.shared]
    who = "The two" if len(comparison.names) == 2 else "All"
    count = len(comparison.rows) + len(comparison.curves)
    partly = "" if len(rows) + len(curves) == count else " in all that they share"
    if all(_same_line(row) for row in rows) and all(row.distance == 0 for row in curves):
        return f"{who} are identical{partly}."
    apart = [*map(distance, rows), *(row.distance for row in curves)]
    if any(map(differs, rows)) or not max(apart) < SAME or max(apart) == 0:
        return ""
    size = format_number(max(apart), digits=2)
    return f"Nothing{partly} differs by more than {size} of its size."


def _same_line(row: ComparisonRow) -> bool:
    first, *others = [side.profile for side in row.sides if side is not None]
    return all(
        one.layers == first.layers and np.array_equal(one.values, first.values, equal_nan=True)
        for one in others
    )


def _where(row: ComparisonRow, at: int, layer: int, names: Sequence[str]) -> str:
    """Name a place of record number `at`, and that of the first record at the same share of depth."""
    side = row.sides[at]
    assert side is not None
    if side.stretch == 1:
        return f"at {side.profile.place(layer)}"
    place = layer * side.stretch
    below = math.floor(place + 1e-9)
    exact = abs(place - round(place)) < 1e-9
    there = f"layer {round(place)}" if exact else f"between layers {below} and {below + 1}"
    first = names[row.measure_at]
    return f"at the same share of depth ({first} {there}, {names[at]} layer {layer})"


def _beginning(comparison: Comparison, names: Sequence[str]) -> str:
    """Say at which layer two records begin to differ, in a row that leads its topic."""
    if len(comparison.names) != 2:
        return ""
    starts = [
        (side.parting.begins, _where(row, 1, side.parting.begins, names), row)
        for row in comparison.rows
        if row.leads and (side := row.sides[1]) and side.parting and side.parting.begins is not None
    ]
    if not starts:
        return ""
    first = min(starts, key=lambda start: start[0])
    labels = " and ".join([row.label for *start, row in starts if start == [*first[:2]]][:2])
    inside = f", in {labels}" if ")" in first[1] else f" ({labels})"
    return f"{STEADY:g}-fold differences begin {first[1]}{inside}"


def _largest(comparison: Comparison, names: Sequence[str]) -> str:
    """Name the row in which the records are farthest apart."""
    row = max(comparison.rows, key=distance, default=None)
    farthest = None if row is None else most_apart(row)
    if row is None or farthest is None or distance(row) < SAME:
        return ""
    at, side = farthest
    parting = side.parting
    assert parting is not None
    where = _where(row, at, parting.layer, names)
    first = names[row.measure_at]
    if math.isfinite(parting.log10_ratio):
        how = f"{where} {names[at]} has {ratio_text(parting)} times the value of {first}"
    else:
        size = format_number(abs(parting.difference), digits=3)
        how = f"{where} {names[at]} is {size} {'above' if parting.difference > 0 else 'below'} {first}"
    return f"the largest difference is in {row.label}: {how}"


def ratio_text(place: Parting | EndRatio) -> str:
    """Write a ratio in three digits; far from 1 as a power of ten: `10^27.3`."""
    if abs(place.log10_ratio) >= 5:
        return f"10^{float(f'{place.log10_ratio:.1f}'):g}"
    return format_number(place.ratio, digits=3)


def _losses(comparison: Comparison, names: Sequence[str]) -> list[str]:
    """Say where the validation losses of single training runs end."""
    row = next((one for one in comparison.curves if one.label == VALIDATION_LOSS.name), None)
    if row is None or not row.shared:
        return []
    ends = [
        f"{name} diverged at step {side.steps[-1] if ending is None else ending.steps}"
        if row.lost(side)
        else f"{name} {format_number(side.last, digits=3)} at step {side.steps[-1]}"
        for name, side, ending in zip(names, row.sides, comparison.endings, strict=True)
        if side is not None
    ]
    return [f"Validation loss at the end: {'; '.join(ends)}."]
