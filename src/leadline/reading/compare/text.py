"""A comparison in words and in a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from leadline.reading.compare.training_curves import change_text
from leadline.record.words.notebook import html_table, svg_sparkline
from leadline.record.words.numbers import BARS, align, format_number, sparkline

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from leadline.reading.compare.compare import Comparison, ComparisonRow, ComparisonSide
    from leadline.reading.compare.training_curves import CurveComparison
    from leadline.record.run.curve import Curve

__all__ = [
    "about_the_runs",
    "apart",
    "comparison_html",
    "comparison_text",
    "present_sides",
    "ratio_text",
    "shared_curves",
    "shared_rows",
    "shown_curves",
    "what_is_not_shared",
]


def comparison_text(comparison: Comparison) -> str:
    """Write a line per quantity and record: first -> last, shape, law, ratio to the first."""
    cells: list[tuple[str, ...]] = []
    for row in shared_rows(comparison):
        cells.append((row.label, "", "", "", "", "", ""))
        cells += [
            (
                f"  {name}",
                format_number(side.first),
                "->",
                format_number(side.last),
                shape,
                side.growth.text,
                apart(side, comparison.names[0]),
            )
            for name, side, shape in present_sides(comparison, row)
        ]
    lines = [" against ".join(comparison.names)]
    steps: list[tuple[str, ...]] = []
    for row in shared_curves(comparison):
        steps.append((row.label, "", "", "", "", ""))
        steps += [
            (
                f"  {name}",
                format_number(curve.first),
                "->",
                row.last_text(curve),
                shape,
                _change(row, curve, comparison.names),
            )
            for name, curve, shape in shown_curves(comparison, row)
        ]
    lines += ["", *align(steps, right=(1, 3))] if steps else []
    lines += ["", *align(cells, right=(1, 3))] if cells else []
    below = [*about_the_runs(comparison), *what_is_not_shared(comparison)]
    return "\n".join([*lines, "", *below] if below else lines)


def comparison_html(comparison: Comparison) -> str:
    """Write a comparison as a fragment of HTML."""
    cells = [
        (
            escape(row.label) if at == 0 else "",
            escape(name),
            format_number(side.first),
            format_number(side.last),
            svg_sparkline(side.profile.values, scale=row.scale, ends=_ends(row)),
            escape(side.growth.text),
            escape(apart(side, comparison.names[0])),
        )
        for row in shared_rows(comparison)
        for at, (name, side, _) in enumerate(present_sides(comparison, row))
    ]
    headers = ("quantity", "record", "first", "last", "over depth", "growth", "difference")
    steps = [
        (
            escape(row.label) if at == 0 else "",
            escape(name),
            format_number(curve.first),
            row.last_text(curve),
            svg_sparkline(curve.values, scale=row.scale, ends=_curve_ends(row), along="steps"),
            escape(_change(row, curve, comparison.names)),
        )
        for row in shared_curves(comparison)
        for at, (name, curve, _) in enumerate(shown_curves(comparison, row))
    ]
    over_steps = ("of the run", "record", "first", "last", "over steps", "difference")
    below = [*about_the_runs(comparison), *what_is_not_shared(comparison)]
    paragraphs = "".join(f"<p>{escape(line)}</p>" for line in below)
    tables = [
        html_table(over_steps, steps) if steps else "",
        html_table(headers, cells) if cells else "",
    ]
    return f"<div>{''.join(tables)}{paragraphs}</div>"


def shared_rows(comparison: Comparison) -> list[ComparisonRow]:
    """Return the rows that at least two records have."""
    return [row for row in comparison.rows if _count(row) > 1]


def shared_curves(comparison: Comparison) -> list[CurveComparison]:
    """Return the curves over steps that at least two records have."""
    return [row for row in comparison.curves if row.shared]


def shown_curves(
    comparison: Comparison, row: CurveComparison, *, width: int = 24, bars: str = BARS
) -> list[tuple[str, Curve, str]]:
    """Return name, curve and shape of each record that has it, drawn on one scale."""
    ends = _curve_ends(row)
    return [
        (name, side, sparkline(side.values, scale=row.scale, width=width, ends=ends, bars=bars))
        for name, side in zip(comparison.names, row.sides, strict=True)
        if side is not None
    ]


def about_the_runs(comparison: Comparison) -> list[str]:
    """Say which runs did not finish, and where last values are of different steps."""
    endings = list(zip(comparison.names, comparison.endings, strict=True))
    sentences = [
        f"{name}: {ending.sentence}"
        for name, ending in endings
        if ending is not None and ending.status != "finished"
    ]
    differ = [row for row in shared_curves(comparison) if row.steps_differ]
    # Where records hold several runs, a row is a run; else it is a quantity of the one run.
    runs = [row.label for row in differ if row.label != row.quantity]
    if runs:
        sentences.append(f"The last steps differ in {len(runs)} of the runs: {_listed(runs)}.")
    elif differ:
        steps = [
            f"{name} at step {side.steps[-1] if ending is None else ending.steps:,}"
            for (name, ending), side in zip(endings, differ[0].sides, strict=True)
            if side is not None
        ]
        sentences.append(f"The last steps differ: {', '.join(steps)}.")
    return sentences


def what_is_not_shared(comparison: Comparison) -> list[str]:
    """Say for each record what it alone has, and what it lacks that others share."""
    sentences: list[str] = []
    for at, name in enumerate(comparison.names):
        alone = [row.label for row in comparison.rows if row.sides[at] and _count(row) == 1]
        alone += [row.label for row in comparison.curves if row.sides[at] and not row.shared]
        lacking = [row.label for row in shared_rows(comparison) if row.sides[at] is None]
        lacking += [row.label for row in shared_curves(comparison) if row.sides[at] is None]
        if alone:
            sentences.append(f"Only in {name}: {_listed(alone)}.")
        if lacking:
            sentences.append(f"Not in {name}: {_listed(lacking)}.")
    return sentences


def present_sides(
    comparison: Comparison, row: ComparisonRow, *, width: int = 24, bars: str = BARS
) -> list[tuple[str, ComparisonSide, str]]:
    """Return name, numbers and shape of each record that has the row, drawn on one scale."""
    ends = _ends(row)
    return [
        (
            name,
            side,
            sparkline(side.profile.values, scale=row.scale, width=width, ends=ends, bars=bars),
        )
        for name, side in zip(comparison.names, row.sides, strict=True)
        if side is not None
    ]


def apart(side: ComparisonSide, first_name: str) -> str:
    """Say how far a record is from the first: at its last layer, and where it is farthest."""
    if side.parting is None:
        return ""
    words = [f"{ratio_text(side.ratio_at_last)} {first_name} at the end"]
    layer = side.parting.layer
    hops = f"{layer} hop{'' if layer == 1 else 's'}"
    at = hops if side.profile.over == "hops" else f"layer {layer}"
    most = f"most at {at}"
    if np.isfinite(side.parting.ratio):
        words.append(f"{most}: {ratio_text(side.parting.ratio)}")
    else:
        words.append(f"{most}: {side.parting.difference:+.3g}")
    return ", ".join(words)


def ratio_text(ratio: float) -> str:
    """Write a ratio as a factor; a dash where there is none."""
    return f"×{format_number(ratio, digits=3)}" if np.isfinite(ratio) else "-"


def _change(row: CurveComparison, curve: Curve, names: tuple[str, ...]) -> str:
    change = change_text(row, curve)
    measure = next(n for n, side in zip(names, row.sides, strict=True) if side is row.measure)
    if change in ("", "-"):
        return change
    joined = f"{change} {measure}" if change.startswith("×") else f"{change} to {measure}"
    return f"{joined} at the end"


def _listed(labels: list[str]) -> str:
    """Join labels; those of runs have commas of their own."""
    return ("; " if any("," in label for label in labels) else ", ").join(labels)


def _ends(row: ComparisonRow) -> tuple[float, float] | None:
    """Return the lowest and highest value of all records, so that drawings compare."""
    return _span([side.profile.values for side in row.sides if side is not None])


def _curve_ends(row: CurveComparison) -> tuple[float, float] | None:
    return _span([side.values for side in row.sides if side is not None])


def _span(lines: list[NDArray[np.float64]]) -> tuple[float, float] | None:
    values = np.concatenate(lines)
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if len(finite) else None


def _count(row: ComparisonRow) -> int:
    return sum(side is not None for side in row.sides)
