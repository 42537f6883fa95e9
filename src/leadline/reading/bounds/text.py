"""Bounds in words: ranges over heads, where a bound is closest, why it does not apply.

Bounds on attention, those on rank collapse and laws of depth have tables of their own. Residuals
are kept as log10 and written as plain numbers where they are of a handy size, otherwise as powers:
10^-545067.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from leadline.record.words.numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leadline.reading.bounds.table import BoundAtHead, BoundFamily, BoundResult, BoundsTable

__all__ = [
    "applies_text",
    "bounds_answer",
    "differing_places",
    "head_count",
    "legend",
    "measured_range",
    "place_text",
    "predicted_range",
    "ratio_text",
    "reasons",
    "reasons_of",
    "size_text",
    "tightness",
    "title_of",
    "violations",
    "which_places_differ",
]

_MOST_REASONS, _MOST_NAMES = 2, 3
"""How many reasons and how many bounds of each the answer names; `reasons` gives all of them."""
_HANDY = (-3.0, 5.0)
"""Between which logarithms a number is written as such."""
_LONG, _LONGEST = 1e4, 1e7
"""From which sizes on an exponent is written as a whole number, and as a power itself."""
_NUMBER = re.compile(r"(?<![\w.^])[-−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w^])")
_TITLES: dict[BoundFamily, str] = {
    "attention": "Bounds on attention",
    "collapse": "Bounds on rank collapse",
    "depth": "Laws of depth",
}
_OVER_EXAMPLES = {
    "max": "the largest over the examples",
    "min": "the smallest over the examples",
    "mean": "the mean over the examples",
    "value": "the value",
}


def bounds_answer(table: BoundsTable, *, idle: bool = True) -> list[str]:
    """Say whether a bound is violated, which is tight, and with `idle` which do not apply and why."""
    if not table.bounds:
        return ["There are no bounds to compare with."]
    applying = [bound for bound in table.bounds if bound.applying]
    count = len(table.bounds)
    broken = sum(bool(bound.violations) for bound in table.bounds)
    if not applying:
        sentences = [f"None of the {count} bounds applies here."]
    elif broken:
        sentences = [
            f"{broken} of the {len(applying)} bounds that apply here {_are(broken)} violated."
        ]
    else:
        which = f"all {count}" if len(applying) == count else f"{len(applying)} of {count}"
        sentences = [f"No bound is violated; {which} apply somewhere in this record."]
    tight = min(applying, key=tightness, default=None)
    if tight is not None and tight.closest is not None and math.isfinite(tightness(tight)):
        place = place_text(tight.closest, differing_places([tight]))
        ratio = ratio_text(tight, tight.closest)
        sentences.append(
            f"The tightest is {tight.label}: measured / predicted is {ratio} at {place}."
        )
    elsewhere = [bound for bound in table.bounds if not bound.applying]
    if idle and elsewhere:
        sentences.append(f"{_idle(elsewhere)}.")
    return sentences


def tightness(bound: BoundResult) -> float:
    """Return how far what was measured is from a bound at its closest, as |ln ratio|; 0 is tight."""
    row = bound.closest
    if row is None or row.measured is None or row.predicted is None:
        return math.inf
    if bound.log10:
        apart = abs(row.measured - row.predicted) * math.log(10)
    else:
        apart = abs(math.log(row.ratio)) if row.ratio > 0 else math.inf
    return math.inf if math.isnan(apart) else apart


def _idle(bounds: Sequence[BoundResult]) -> str:
    """Say which bounds apply nowhere, the most frequent reason first."""
    names_by_reason: dict[str, list[str]] = {}
    for bound in bounds:
        first = next(iter(reasons_of(bound.rows, counted=False)), "nothing says why")
        names = names_by_reason.setdefault(first, [])
        names += [bound.name] if bound.name not in names else []
    order = sorted(names_by_reason.items(), key=lambda pair: -len(pair[1]))
    words = [f"{_few(names)} ({reason})" for reason, names in order[:_MOST_REASONS]]
    more = sum(len(names) for _, names in order[_MOST_REASONS:])
    listed = "; ".join(words) + (f"; and {more} more" if more else "")
    return f"Not applicable here: {listed}"


def _few(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    if more < 2:
        return ", ".join(names)
    return f"{', '.join(names[:_MOST_NAMES])} and {more} more"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def title_of(table: BoundsTable) -> str:
    """Name the table."""
    first: BoundFamily = table.bounds[0].family if table.bounds else "attention"
    about = _TITLES[first]
    return f"{about}: {table.name}" if table.name else about


def violations(table: BoundsTable) -> list[str]:
    """Say of every bound that is violated where, and by how much."""
    sentences: list[str] = []
    differing = which_places_differ(table)
    for bound in table.bounds:
        if not bound.violations:
            continue
        worst = (max if bound.side == "upper" else min)(bound.violations, key=bound.distance)
        more = len(bound.violations) - 1
        others = f", and {more} more {_noun(bound.rows, more)}" if more else ""
        sentences.append(
            f"VIOLATED: {bound.label}, {bound.statement}. Predicted "
            f"{_text(bound, worst.predicted)}, measured {_text(bound, worst.measured)}"
            f"{_interval(bound, worst)} at "
            f"{place_text(worst, differing)}{others}. The assumptions hold, as far as the record says: "
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
    return _range((row.predicted for row in bound.applying or bound.rows), log10=bound.log10)


def measured_range(bound: BoundResult) -> str:
    """Write what was measured at the same heads."""
    return _range((row.measured for row in bound.applying or bound.rows), log10=bound.log10)


def ratio_text(bound: BoundResult, row: BoundAtHead | None) -> str:
    """Write measured / predicted."""
    if row is None or math.isnan(row.ratio):
        return "-"
    if not bound.log10 or row.measured is None or row.predicted is None:
        return format_number(row.ratio, digits=3)
    return size_text(row.measured - row.predicted, log10=True, digits=3)


def size_text(value: float, *, log10: bool, digits: int = 4) -> str:
    """Write a number, or one that is given by its logarithm: `33.93`, `10^-3.5`, `0`."""
    if not log10 or math.isnan(value) or value == math.inf:
        return format_number(value, digits=digits)
    if value == -math.inf:
        return "0"
    if _HANDY[0] <= value < _HANDY[1]:
        return format_number(10.0**value, digits=digits)
    if abs(value) >= _LONGEST:
        return f"10^{format_number(value)}"
    if abs(value) >= _LONG:
        return f"10^{value:.0f}"
    return f"10^{value:.{1 if digits <= 4 else 4}f}"


def place_text(row: BoundAtHead, differing: tuple[bool, bool], *, brief: bool = False) -> str:
    """Name the place of a row: `decoder layer 3 head 5`, or `decoder 3/5` if `brief`.

    `differing` says whether stack and point are part of the name (`which_places_differ`).
    """
    words = [row.stack] if differing[0] else []
    if differing[1]:
        words.append(row.point)
    if brief:
        words.append(f"{row.layer}" if row.head is None else f"{row.layer}/{row.head}")
    else:
        words.append(f"layer {row.layer}")
        words += [] if row.head is None else [f"head {row.head}"]
    return " ".join(words)


def which_places_differ(table: BoundsTable) -> tuple[bool, bool]:
    """Return whether rows differ in their stack, and in their point, so that these must be named."""
    return differing_places(table.bounds)


def differing_places(bounds: Sequence[BoundResult]) -> tuple[bool, bool]:
    """Return the same of some bounds of a table."""
    rows = [row for bound in bounds for row in bound.rows]
    return len({row.stack for row in rows}) > 1, len({row.point for row in rows}) > 1


def legend(table: BoundsTable) -> str:
    """Say what the columns mean."""
    if not table.bounds:
        return ""
    sides = {bound.side for bound in table.bounds}
    usual = next((b.statistic for b in table.bounds if b.side == "upper"), "")
    usual = usual or table.bounds[0].statistic
    tokens = table.bounds[0].family == "depth"
    words = [f"measured: {_over_examples(usual, tokens=tokens)}"]
    for statistic in dict.fromkeys(bound.statistic for bound in table.bounds):
        names = dict.fromkeys(b.name for b in table.bounds if b.statistic == statistic)
        if statistic != usual:
            words.append(f"for {', '.join(names)}: {_over_examples(statistic, tokens=tokens)}")
    order = {
        "upper": "the largest",
        "lower": "the smallest" if len(sides) == 1 else "of a lower bound the smallest",
        "law": "the nearest to 1" if len(sides) == 1 else "of a law the nearest to 1",
    }
    first, *more = (order[side] for side in order if side in sides)
    ratio = f"{first} ({', '.join(more)})" if more else first
    sentence = f"{'; '.join(words)}. ratio: measured / predicted, {ratio}, and where it is."
    if tokens:
        sentence += (
            " A band is that of the mean over random weights, so one model may lie a little "
            "outside; residual-product holds for every model."
        )
    return f"{sentence} {floor}" if (floor := _floor(table)) else sentence


def _floor(table: BoundsTable) -> str:
    """Say where residuals are no larger than rounding."""
    stacks: dict[str, set[int]] = {}
    for bound in table.bounds:
        for row in bound.rows:
            if bound.at_floor(row):
                stacks.setdefault(row.stack, set()).add(row.layer)
    named = which_places_differ(table)[0]
    places = [f"{stack} {_layers(layers)}" if named else _layers(layers)
              for stack, layers in stacks.items()]  # fmt: skip
    return f"No more than rounding, and left out: {', '.join(places)}." if places else ""


def _layers(layers: set[int]) -> str:
    """Name layers, runs of them by their ends: `layers 2, 5 to 12`."""
    runs: list[list[int]] = []
    for layer in sorted(layers):
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    words = [f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(words)}"


def reasons(table: BoundsTable) -> list[str]:
    """Say why bounds do not apply everywhere; those with equal reasons stand together."""
    names_by_reason: dict[str, list[str]] = {}
    for bound in table.bounds:
        failing = [row for row in bound.rows if not row.applies]
        if failing:
            how = "not everywhere" if bound.applying else "no"
            why = f"{how}, because {'; '.join(reasons_of(failing))}"
            names_by_reason.setdefault(why, []).append(bound.name)
    # Both ends of a law have one name.
    return [f"{', '.join(dict.fromkeys(names))}: {why}" for why, names in names_by_reason.items()]


def reasons_of(rows: Sequence[BoundAtHead], *, counted: bool = True) -> list[str]:
    """Group the reasons of rows; those that differ in numbers alone become a range."""
    numbers: dict[tuple[str, ...], list[list[str]]] = {}
    having: dict[tuple[str, ...], list[BoundAtHead]] = {}
    for row in rows:
        for reason in row.because:
            words = tuple(_NUMBER.split(reason))
            numbers.setdefault(words, []).append(_NUMBER.findall(reason))
            rows_of_reason = having.setdefault(words, [])
            if not rows_of_reason or rows_of_reason[-1] is not row:
                rows_of_reason.append(row)
    return [
        _merged(words, values) + (f" ({head_count(having[words])})" if counted else "")
        for words, values in numbers.items()
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


def _range(values: Iterable[float | None], *, log10: bool) -> str:
    """Write the lowest and the highest value; NaN are counted beside them."""
    known = [value for value in values if value is not None]
    nan_count = sum(math.isnan(value) for value in known)
    numbers = [value for value in known if not math.isnan(value)]
    if not numbers:
        return "nan" if nan_count else "-"
    low, high = size_text(min(numbers), log10=log10), size_text(max(numbers), log10=log10)
    span = low if low == high else f"{low} to {high}"
    return f"{span} ({nan_count} nan)" if nan_count else span


def _interval(bound: BoundResult, row: BoundAtHead) -> str:
    if row.lower is None or row.upper is None:
        return ""
    return f" (between {_text(bound, row.lower)} and {_text(bound, row.upper)})"


def _text(bound: BoundResult, value: float | None) -> str:
    return "-" if value is None else size_text(value, log10=bound.log10, digits=6)


def _over_examples(statistic: str, *, tokens: bool = False) -> str:
    """Say what a statistic is; the mean of a stream is one over all its tokens."""
    if tokens and statistic == "mean":
        return "the mean over the tokens"
    return _OVER_EXAMPLES.get(statistic, statistic)


def _noun(rows: Sequence[BoundAtHead], count: int) -> str:
    noun = "layer" if all(row.head is None for row in rows) else "head"
    return noun if count == 1 else f"{noun}s"
