"""What a comparison answers: which record's gradients vanish, where records part, and in what most.

Sentences are made from the rows whose quantities lead their topics, and from the row in which the
records are farthest apart.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from leadline.record.run.training import VALIDATION_LOSS
from leadline.record.words.answer import BACKWARD, FAR, opening
from leadline.record.words.numbers import format_number
from leadline.record.words.shape import STEADY, course_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.compare.compare import Comparison, ComparisonRow, ComparisonSide
    from leadline.record.words.shape import Course

__all__ = ["comparison_answer", "distance", "most_apart"]

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
    sentences = _losses(comparison, called)
    for row in sorted(comparison.rows, key=lambda one: one.topic not in BACKWARD):
        if row.leads and row.topic in _ILLS:
            sentences += _travel(row, called)
    differences = [_beginning(comparison), _largest(comparison, called)]
    told = "; ".join(one for one in differences if one)
    return [*sentences, *([f"{told[:1].upper()}{told[1:]}."] if told else [])]


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


def _apart(side: ComparisonSide, row: ComparisonRow) -> float:
    parting = side.parting
    assert parting is not None
    if row.scale == "log" and math.isfinite(parting.ratio):
        return abs(math.log(parting.ratio))
    values = np.concatenate([one.profile.values for one in row.sides if one is not None])
    largest = float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))
    return abs(parting.difference) / max(largest, 1.0)


def _travel(row: ComparisonRow, names: Sequence[str]) -> list[str]:
    """Say in which records a line vanishes or explodes, and how it travels in each."""
    sides = [(name, side) for name, side in zip(names, row.sides, strict=True) if side is not None]
    # A mean that few tokens carry says nothing of the others.
    robust = any(side.few_tokens for _, side in sides) and all(side.median for _, side in sides)
    courses: list[tuple[str, Course]] = []
    for name, side in sides:
        line = side.median if robust and side.median is not None else side.profile
        course = course_of(line, backward=row.topic in BACKWARD)
        if course is not None:
            courses.append((name, course))
    if len(courses) < 2:
        return []
    stack = row.label.rpartition("/")[0]
    subject = opening(row.title) + (f" of the {stack}" if stack else "")
    subject += " (median without the first token)" if robust else ""
    verdict = _verdict(courses, row.topic)
    ways = [
        f"{'in' if at or verdict else 'In'} {name} {'it' if at else subject} {course.words}"
        for at, (name, course) in enumerate(courses)
    ]
    return [f"{verdict}{'; '.join(ways)}."]


def _verdict(courses: Sequence[tuple[str, Course]], topic: str) -> str:
    """Say which records have the illness: `post has vanishing gradients, pre has not: `"""
    shrinking, growing, either = _ILLS[topic]
    ill = [
        f"{name} has {shrinking if course.shrinks else growing}"
        for name, course in courses
        if course.size >= FAR
    ]
    if not ill:
        asked = topic in BACKWARD  # of the stream it is said in the words that follow
        return f"{'Neither' if len(courses) == 2 else 'None'} has {either}: " if asked else ""
    well = [name for name, course in courses if course.size < FAR]
    rest = f", {' and '.join(well)} {'has' if len(well) == 1 else 'have'} not" if well else ""
    return f"{', '.join(ill)}{rest}: "


def _beginning(comparison: Comparison) -> str:
    """Say at which layer two records begin to differ, in a row that leads its topic."""
    if len(comparison.names) != 2:
        return ""
    starts = [
        (side.parting.begins, side.profile.place(side.parting.begins), row)
        for row in comparison.rows
        if row.leads and (side := row.sides[1]) and side.parting and side.parting.begins is not None
    ]
    if not starts:
        return ""
    first = min(starts, key=lambda start: start[0])
    labels = " and ".join([row.label for *start, row in starts if start == [*first[:2]]][:2])
    return f"{STEADY:g}-fold differences begin at {first[1]} ({labels})"


def _largest(comparison: Comparison, names: Sequence[str]) -> str:
    """Name the row in which the records are farthest apart."""
    row = max(comparison.rows, key=distance, default=None)
    farthest = None if row is None else most_apart(row)
    if row is None or farthest is None or distance(row) == 0:
        return ""
    at, side = farthest
    parting = side.parting
    assert parting is not None
    where = f"at {side.profile.place(parting.layer)}"
    if math.isfinite(parting.ratio):
        times = format_number(parting.ratio, digits=3)
        how = f"{where} {names[at]} has {times} times the value of {names[0]}"
    else:
        how = f"{where} {names[at]} has {parting.difference:+.3g} beside {names[0]}"
    return f"the largest difference is in {row.label}: {how}"


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
