"""An example in words: the model, its fault, what the rule said, whether the remedy helped."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from leadline.errors import join_words
from leadline.reading.diagnosis.words import evidence_text, layers_text, number_text
from leadline.record.words.numbers import format_number, sparkline

if TYPE_CHECKING:
    from leadline.reading.diagnosis.examples.example import DepthCurve, RuleExample, Strip

__all__ = ["character_picture", "example_sentences", "trial_sentences"]

_BAR = 30
_COLUMN = 16
"""How wide the names before the characters of a picture are."""


def example_sentences(example: RuleExample) -> list[str]:
    """The model and its fault, the verdict, the evidence, what else was found."""
    where = f" (the fault `{example.fault}` of `leadline.testing.faults`)" if example.host else ""
    given = f" Given beside it: {example.means}." if example.means else ""
    sentences = [f"{example.fault_words} {example.model}{where}.{given}".strip()]
    if example.thread:
        sentences.append(f"Somebody really had it: {example.thread}.")
    sentences.append(f"It says: {example.finding['verdict']}")
    shows = [evidence_text(one) for one in example.finding["evidence"]]
    if shows:
        sentences.append(f"It shows: {'; '.join(shows)}.")
    if example.explained_by:
        sentences.append(
            f"A diagnosis puts it under {example.explained_by}, from which it follows; --all shows it."
        )
    elif others := list(dict.fromkeys(example.beside)):
        place = "first" if example.first else "not first"
        sentences.append(f"It is {place} of the findings; beside it: {join_words(others)}.")
    elif example.finding["severity"] == "note":
        sentences.append("It is a note: nothing worse was found.")
    else:
        sentences.append("It is the only finding that is more than a note.")
    return sentences


def trial_sentences(example: RuleExample) -> list[str]:
    """What is to be done in the example, and whether it helped when it was tried."""
    trial = example.trial
    words = str(example.finding["remedy"].get("words", ""))
    told = [f"In the example: {words}"] if words else []
    if trial.outcome == "by hand":
        return [*told, "It has to be done by hand, so it was not tried on the example."]
    edit = json.dumps(_shortened(trial.edit), ensure_ascii=False)
    if trial.outcome == "failed":
        return [*told, f"The edit {edit} could not be applied to the example: {trial.why}"]
    gone = "the finding is gone" if trial.outcome == "gone" else "the finding is still there"
    told.append(f"Applied to a copy of the example and measured again, {gone}: {edit}.")
    if trial.new:
        told.append(f"New on the copy: {' '.join(trial.new)}")
    elif trial.left:
        told.append(f"Still found on the copy: {join_words(trial.left)}.")
    else:
        told.append("Nothing else is unusual on the copy.")
    return told


def _shortened(edit: Mapping[str, Any]) -> dict[str, Any]:
    """An edit whose long lists are cut."""

    def cut(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        names = list(cast("Sequence[Any]", value))
        return names if len(names) <= 3 else [*names[:2], f"and {len(names) - 2} more"]

    return {key: cut(value) for key, value in edit.items()}


def character_picture(example: RuleExample) -> list[str]:
    """The picture of the example in lines of characters that fit a terminal of 80 columns."""
    if example.curve is not None:
        return _curve_lines(example.curve, example.finding["layers"])
    if example.strips:
        return _strip_lines(example.strips_title, example.strips)
    return _bar_lines(example.finding["evidence"])


def _curve_lines(curve: DepthCurve, accused: Sequence[int]) -> list[str]:
    rows = {"with the fault": curve.sick, "without it": curve.healthy}
    wide = 2 if len(curve.layers) <= 16 else 1
    shown = [value for row in rows.values() for value in row if value is not None]
    positive = [value for value in shown if value > 0]
    logarithmic = curve.logarithmic and bool(positive)
    # A logarithm has no place for zero: it stands with the lowest.
    floor = min(positive, default=0.0) if logarithmic else -math.inf
    ends = (max(floor, min(shown)), max(shown)) if shown else None
    what = f", {curve.what}" if curve.what else ""
    lines = [f"{curve.title}{what}; layers {min(curve.layers)} to {max(curve.layers)}"]
    for name, row in rows.items():
        if not row:
            continue
        values = [math.nan if value is None else max(value, floor) for value in row]
        bars = sparkline(
            values, scale="log" if logarithmic else "linear", width=len(row), ends=ends
        )
        finite = [value for value in row if value is not None]
        span = (
            f"{format_number(min(finite))} to {format_number(max(finite))}"
            if finite
            else "not finite"
        )
        lines.append(f"{name:<{_COLUMN}}{''.join(bar * wide for bar in bars)}  {span}")
    if named := [at for at in curve.layers if at in set(accused)]:
        marks = "".join(("^" if at in named else " ") * wide for at in curve.layers)
        lines.append(f"{'':<{_COLUMN}}{marks}  {layers_text(named)}")
    return lines


def _strip_lines(title: str, strips: Sequence[Strip]) -> list[str]:
    lines = [title]
    for strip in strips:
        cells = "".join("█" if cell == "1" else "·" for cell in strip.cells)
        lines.append(f"{strip.name:<{_COLUMN}}{cells}")
    marked = next((strip.marked for strip in strips if strip.marked), ())
    if marked:
        width = max(len(strip.cells) for strip in strips)
        arrows = "".join("^" if at in marked else " " for at in range(width))
        lines.append(f"{'':<{_COLUMN}}{arrows.rstrip()} changed")
    return lines


def _bar_lines(evidence: Sequence[Mapping[str, Any]]) -> list[str]:
    lines: list[str] = []
    for one in evidence:
        value, expected = one["value"], one.get("expected")
        if not all(isinstance(number, float | int) for number in (value, expected)):
            continue
        largest = max(abs(value), abs(expected or 0.0))
        if not largest:
            continue
        lines.append(str(one["what"]))
        for name, number in (("with the fault", value), ("expected", expected or 0.0)):
            bar = "█" * max(1, round(_BAR * abs(number) / largest))
            lines.append(f"{name:<{_COLUMN}}{bar} {number_text(number)}")
    return lines
