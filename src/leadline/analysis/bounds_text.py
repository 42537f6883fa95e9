"""Bounds in words: ranges over heads, where a bound is closest, why it does not apply."""

from __future__ import annotations

import math
import re
from html import escape
from typing import TYPE_CHECKING

from leadline.record.notebook import html_table
from leadline.record.numbers import align, format_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leadline.analysis.bounds_table import BoundAtHead, BoundResult, BoundsTable

__all__ = [
    "applies_text",
    "bounds_html",
    "bounds_text",
    "head_count",
    "legend",
    "measured_range",
    "place_text",
    "predicted_range",
    "ratio_text",
    "reasons",
    "reasons_of",
    "title_of",
    "violations",
    "which_places_differ",
]

HEADERS = ("bound", "statement", "applies to", "predicted", "measured", "ratio", "at")
_NUMBER = re.compile(r"(?<![\w.^])[-−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w^])")
_OVER_EXAMPLES = {
    "max": "the largest over the examples",
    "min": "the smallest over the examples",
    "mean": "the mean over the examples",
    "value": "the value",
}


def bounds_text(table: BoundsTable) -> str:
    """Write the violations, a line per bound, and why bounds do not apply."""
    lines = [title_of(table)]
    if table.violated:
        lines += ["", *violations(table)]
    if table.bounds:
        lines += ["", *align([HEADERS, *_rows(table)], right=(3, 4, 5)), "", legend(table)]
    if told := reasons(table):
        lines += ["", *told]
    return "\n".join(lines)


def bounds_html(table: BoundsTable) -> str:
    """Write the table as a fragment of HTML."""
    cells = [[escape(cell) for cell in row] for row in _rows(table)]
    broken = "".join(f"<p><strong>{escape(line)}</strong></p>" for line in violations(table))
    told = "".join(f"<li>{escape(line)}</li>" for line in reasons(table))
    return (
        f"<div><strong>{escape(title_of(table))}</strong>{broken}"
        f"{html_table(HEADERS, cells) if cells else ''}<p>{escape(legend(table))}</p>"
        f"{f'<ul>{told}</ul>' if told else ''}</div>"
    )


def title_of(table: BoundsTable) -> str:
    """Name the table."""
    return f"Bounds on attention: {table.name}" if table.name else "Bounds on attention"


def violations(table: BoundsTable) -> list[str]:
    """Say of every bound that is violated where, and by how much."""
    sentences: list[str] = []
    told = which_places_differ(table)
    for bound in table.bounds:
        if not bound.violations:
            continue
        worst = (max if bound.side == "upper" else min)(bound.violations, key=lambda r: r.ratio)
        more = len(bound.violations) - 1
        others = f", and {more} more {_noun(bound.rows, more)}" if more else ""
        sentences.append(
            f"VIOLATED: {bound.name}, {bound.statement}. Predicted {_text(worst.predicted)}, "
            f"measured {_text(worst.measured)}{_interval(worst)} at "
            f"{place_text(worst, told)}{others}. The assumptions hold as far as the record tells: "
            "the measurement or a number in the record is wrong."
        )
    return sentences


def applies_text(bound: BoundResult) -> str:
    """Say to how many heads a bound applies: `270 of 270 heads`."""
    return f"{len(bound.applying)} of {head_count(bound.rows)}"


def head_count(rows: Sequence[BoundAtHead]) -> str:
    """Count heads, or layers where there are none: `270 heads`."""
    return f"{len(rows)} {_noun(rows, len(rows))}"


def predicted_range(bound: BoundResult) -> str:
    """Write what is predicted, over the heads to which the bound applies if there are any."""
    return _range(row.predicted for row in bound.applying or bound.rows)


def measured_range(bound: BoundResult) -> str:
    """Write what was measured at the same heads."""
    return _range(row.measured for row in bound.applying or bound.rows)


def ratio_text(row: BoundAtHead | None) -> str:
    """Write measured / predicted."""
    return "-" if row is None or math.isnan(row.ratio) else format_number(row.ratio, digits=3)


def place_text(row: BoundAtHead, told: tuple[bool, bool], *, brief: bool = False) -> str:
    """Say where a row stands: `decoder layer 3 head 5`, or `decoder 3/5` if `brief`."""
    words = [row.stack] if told[0] else []
    if told[1]:
        words.append(row.point)
    if brief:
        words.append(f"{row.layer}" if row.head is None else f"{row.layer}/{row.head}")
    else:
        words.append(f"layer {row.layer}")
        words += [] if row.head is None else [f"head {row.head}"]
    return " ".join(words)


def which_places_differ(table: BoundsTable) -> tuple[bool, bool]:
    """Say whether stacks, and points, must be told to tell rows apart."""
    rows = [row for bound in table.bounds for row in bound.rows]
    return len({row.stack for row in rows}) > 1, len({row.point for row in rows}) > 1


def legend(table: BoundsTable) -> str:
    """Say what the columns mean."""
    if not table.bounds:
        return ""
    sides = {bound.side for bound in table.bounds}
    usual = next((b.statistic for b in table.bounds if b.side == "upper"), "")
    usual = usual or table.bounds[0].statistic
    words = [f"measured: {_over_examples(usual)}"]
    for statistic in dict.fromkeys(bound.statistic for bound in table.bounds):
        names = [bound.name for bound in table.bounds if bound.statistic == statistic]
        if statistic != usual:
            words.append(f"for {', '.join(names)}: {_over_examples(statistic)}")
    ratio = "the largest" if "upper" in sides else "the smallest"
    if len(sides) > 1:
        ratio += " (of a lower bound the smallest)"
    return f"{'; '.join(words)}. ratio: measured / predicted, {ratio}, and where it is."


def reasons(table: BoundsTable) -> list[str]:
    """Say why bounds do not apply everywhere; those with equal reasons stand together."""
    told: dict[str, list[str]] = {}
    for bound in table.bounds:
        failing = [row for row in bound.rows if not row.applies]
        if failing:
            how = "not everywhere" if bound.applying else "no"
            why = f"{how}, because {'; '.join(reasons_of(failing))}"
            told.setdefault(why, []).append(bound.name)
    return [f"{', '.join(names)}: {why}" for why, names in told.items()]


def reasons_of(rows: Sequence[BoundAtHead], *, counted: bool = True) -> list[str]:
    """Group the reasons of rows; those that differ in numbers alone become a range."""
    numbers: dict[tuple[str, ...], list[list[str]]] = {}
    having: dict[tuple[str, ...], list[BoundAtHead]] = {}
    for row in rows:
        for reason in row.because:
            words = tuple(_NUMBER.split(reason))
            numbers.setdefault(words, []).append(_NUMBER.findall(reason))
            told = having.setdefault(words, [])
            if not told or told[-1] is not row:
                told.append(row)
    return [
        _merged(words, found) + (f" ({head_count(having[words])})" if counted else "")
        for words, found in numbers.items()
    ]


def _merged(words: Sequence[str], numbers: Sequence[Sequence[str]]) -> str:
    """Put ranges where the numbers of one reason differ."""
    spans = [_span(column) for column in zip(*numbers, strict=True)]
    return "".join(part for pair in zip(words, [*spans, ""], strict=True) for part in pair)


def _span(texts: Sequence[str]) -> str:
    def size(text: str) -> float:
        return float(text.replace("−", "-"))

    low, high = min(texts, key=size), max(texts, key=size)
    return low if size(low) == size(high) else f"{low} to {high}"


def _rows(table: BoundsTable) -> list[tuple[str, ...]]:
    told = which_places_differ(table)
    return [
        (
            bound.name,
            bound.statement,
            applies_text(bound),
            predicted_range(bound),
            measured_range(bound),
            ratio_text(bound.closest),
            "" if bound.closest is None else place_text(bound.closest, told),
        )
        for bound in table.bounds
    ]


def _range(values: Iterable[float | None]) -> str:
    """Write the lowest and the highest value; NaN are counted beside them."""
    known = [value for value in values if value is not None]
    lost = sum(math.isnan(value) for value in known)
    numbers = [value for value in known if not math.isnan(value)]
    if not numbers:
        return "nan" if lost else "-"
    low, high = format_number(min(numbers)), format_number(max(numbers))
    told = low if low == high else f"{low} to {high}"
    return f"{told} ({lost} nan)" if lost else told


def _interval(row: BoundAtHead) -> str:
    if row.lower is None or row.upper is None:
        return ""
    return f" (between {_text(row.lower)} and {_text(row.upper)})"


def _text(value: float | None) -> str:
    return "-" if value is None else format_number(value, digits=6)


def _over_examples(statistic: str) -> str:
    return _OVER_EXAMPLES.get(statistic, statistic)


def _noun(rows: Sequence[BoundAtHead], count: int) -> str:
    noun = "layer" if all(row.head is None for row in rows) else "head"
    return noun if count == 1 else f"{noun}s"
