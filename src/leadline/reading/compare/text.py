"""A comparison on one screen: the answer first, then the rows in which records differ most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from leadline.reading.compare.answer import (
    comparison_answer,
    differs,
    distance,
    most_apart,
    ratio_text,
)
from leadline.reading.compare.training_curves import change_text
from leadline.record.words.answer import BACKWARD
from leadline.record.words.numbers import format_number
from leadline.record.words.screen import MOST_ROWS, Screen, Sentence
from leadline.record.words.shape import axis_text
from leadline.record.words.table import Row, TableCell, TableColumn, TextTable
from leadline.record.words.text import LEAST_ROWS, finding_sentences, shape_cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from leadline.reading.compare.compare import Comparison, ComparisonRow, ComparisonSide
    from leadline.reading.compare.training_curves import CurveComparison
    from leadline.record.rows.quantity import AxisScale

__all__ = [
    "about_the_runs",
    "comparison_screen",
    "depth_table",
    "shared_curves",
    "shared_rows",
    "what_is_not_shared",
]


def comparison_screen(comparison: Comparison, *, everything: bool = False) -> Screen:
    """Return the answer, the rows in which the records differ most, and what is not shared."""
    curves, rows = shared_curves(comparison), shared_rows(comparison)
    shown_curves = curves if everything else curves[:MOST_ROWS]
    most = max(MOST_ROWS - len(shown_curves), LEAST_ROWS)
    order = sorted(range(len(rows)), key=lambda at: _place(rows[at]))
    shown = rows if everything else [rows[at] for at in sorted(order[:most])]
    parts: list[Sentence | TextTable] = [Sentence(_title(comparison), "bold")]
    for name, findings in zip(comparison.labels, comparison.findings, strict=False):
        # What passes store of values that are not finite, the answer says in its own words.
        rules = [finding for finding in findings if finding.code]
        faults = [finding for finding in rules if finding.severity != "note" or everything]
        parts += finding_sentences(faults, of=name, everything=everything)
    parts += [Sentence(sentence) for sentence in comparison_answer(comparison)]
    if shown_curves:
        parts += [Sentence(), _curve_table(comparison, shown_curves)]
    if shown:
        parts += [Sentence(), depth_table(comparison, shown)]
    count = len(curves) + len(rows)
    hidden = count - len(shown_curves) - len(shown)
    if hidden:
        which = ", those that differ most" if any(map(differs, rows)) or curves else ""
        more = f"{count - hidden} of {count} rows{which}; all: --all or "
        parts.append(Sentence(f"{more}print(comparison.table())", "dim"))
    below = [*about_the_runs(comparison), *what_is_not_shared(comparison)]
    parts += [Sentence(), *(Sentence(sentence) for sentence in below)]
    return Screen(tuple(parts))


def _place(row: ComparisonRow) -> tuple[bool, bool, float]:
    """Return what rows are ordered by: those that lead, then those that differ most."""
    return not row.leads, not differs(row), -distance(row)


def depth_table(comparison: Comparison, rows: Sequence[ComparisonRow]) -> TextTable:
    """Return a row per line over depth: first and last value in every record, and how far apart."""
    first = comparison.labels[0]
    axis = axis_text(side.profile for row in rows for side in row.sides if side is not None)
    backward = any(row.topic in BACKWARD for row in rows)
    end = f"last {axis}" + (", of gradients at the first" if backward else "")
    shared = f"at the last {axis} of both" + (", of gradients at the first" if backward else "")
    widest = "widest: where the two are farthest apart"
    if any(side is not None and side.stretch != 1 for row in rows for side in row.sides):
        widest += f"; @l|m: layer l of {first} and layer m of the other, at the same share of depth"
    columns = (
        TableColumn("quantity", style="bold"),
        *_record_columns(comparison.labels, axis, end),
        TableColumn("ratio", right=True, gives_way=(3,), notes=(f"ratio: to {first}, {shared}",)),
        TableColumn(f"widest @{axis}", right=True, notes=(widest,)),
    )
    return TextTable(columns, tuple(_depth_row(comparison, row) for row in rows))


def _record_columns(names: Sequence[str], axis: str, end: str) -> list[TableColumn]:
    notes = (f"values: first → last {axis}", f"values: at the {end}")
    return [
        column
        for name in names
        for column in (
            TableColumn(name, right=True, gives_way=(5,), stays=True, notes=notes),
            TableColumn("", style="cyan", gives_way=(1, 2, 4)),
        )
    ]


def _depth_row(comparison: Comparison, row: ComparisonRow) -> Row:
    sides = [None if side is None else side.profile for side in row.sides]
    backward = row.topic in BACKWARD
    cells = _line_cells(
        [
            None if one is None else (one.first, format_number(one.last), one.values)
            for one in sides
        ],
        row.scale,
        first_counts=backward,
    )
    farthest = most_apart(row)
    ratio = widest = ""
    if farthest is not None:
        at, side = farthest
        many = f"{comparison.labels[at]} " if len(comparison.names) > 2 else ""
        end = side.ends[0 if backward else -1] if side.ends else None
        known = end is not None and np.isfinite(end.log10_ratio)
        ratio = many + (f"×{ratio_text(end)}" if end is not None and known else "-")
        widest = many + _widest(side)
    lost = [
        f"{name} {format_number(value)} @{layer}"
        for name, side in zip(comparison.labels, row.sides, strict=True)
        if side is not None and row.shared
        for layer, value in zip(side.profile.layers, side.profile.values, strict=True)
        if not np.isfinite(value)
    ]
    return Row((row.label, *cells, ratio, lost[0] if lost else widest))


def _widest(side: ComparisonSide) -> str:
    """Say how far a record stands from the first one at its farthest, and where."""
    parting = side.parting
    assert parting is not None
    if parting.difference == 0:
        return "same"
    has_ratio = np.isfinite(parting.log10_ratio)
    how = f"×{ratio_text(parting)}" if has_ratio else f"{parting.difference:+.3g}"
    if how == "×1":  # rounding has no place worth naming
        return how
    place = parting.layer_of_first
    return f"{how} @{parting.layer}" if side.stretch == 1 else f"{how} @{place:.3g}|{parting.layer}"


def _curve_table(comparison: Comparison, rows: Sequence[CurveComparison]) -> TextTable:
    """Return a row per curve over steps: first and last value in every record, and the change."""
    columns = (
        TableColumn("of the run", style="bold"),
        *_record_columns(comparison.labels, "step", "last step"),
        TableColumn(
            "change", right=True, notes=(f"change: to {comparison.labels[0]} at the last step",)
        ),
    )
    table_rows: list[Row] = []
    for row in rows:
        cells = _line_cells(
            [
                None if one is None else (one.first, row.last_text(one), one.values)
                for one in row.sides
            ],
            row.scale,
            along="steps",
        )
        changes = [change_text(row, side) for side in row.sides if side is not None]
        table_rows.append(Row((row.label, *cells, ", ".join(one for one in changes if one))))
    return TextTable(columns, tuple(table_rows))


def _line_cells(
    lines: Sequence[tuple[float, str, NDArray[np.float64]] | None],
    scale: AxisScale,
    *,
    along: str = "depth",
    first_counts: bool = False,
) -> list[str | TableCell]:
    """Return first and last value and the shape of each record, drawn on one scale.

    In little room the last value stands alone, or the first where it counts more.
    """
    values = np.concatenate([line[2] for line in lines if line is not None])
    finite = values[np.isfinite(values)]
    ends = (float(finite.min()), float(finite.max())) if len(finite) else None
    cells: list[str | TableCell] = []
    for line in lines:
        if line is None:
            cells += ["-", ""]
            continue
        first, last, points = line
        if len(points) == 1:  # a single value is no line
            cells += [last, ""]
            continue
        start = format_number(first)
        cells.append(TableCell((f"{start} → {last}", start if first_counts else last)))
        cells.append(shape_cell(points, scale, ends=ends, along=along))
    return cells


def _title(comparison: Comparison) -> str:
    """Name the records; letters that stand for them are explained."""
    if any(len(label) == 1 != len(name) for name, label in _calls(comparison)):
        return "; ".join(f"{label}: {name}" for name, label in _calls(comparison))
    return " against ".join(comparison.names)


def _calls(comparison: Comparison) -> list[tuple[str, str]]:
    return list(zip(comparison.names, comparison.labels, strict=True))


def shared_rows(comparison: Comparison) -> list[ComparisonRow]:
    """Return the rows that at least two records have."""
    return [row for row in comparison.rows if row.shared]


def shared_curves(comparison: Comparison) -> list[CurveComparison]:
    """Return the curves over steps that at least two records have."""
    return [row for row in comparison.curves if row.shared]


def about_the_runs(comparison: Comparison) -> list[str]:
    """Say which runs did not finish, and where last values are of different steps."""
    endings = list(zip(comparison.labels, comparison.endings, strict=True))
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
    for at, name in enumerate(comparison.labels):
        alone = [row.label for row in comparison.rows if row.sides[at] and not row.shared]
        alone += [row.label for row in comparison.curves if row.sides[at] and not row.shared]
        lacking = [row.label for row in shared_rows(comparison) if row.sides[at] is None]
        lacking += [row.label for row in shared_curves(comparison) if row.sides[at] is None]
        if alone:
            sentences.append(f"Only in {name}: {_listed(alone)}.")
        if lacking:
            sentences.append(f"Not in {name}: {_listed(lacking)}.")
    return sentences


def _listed(labels: list[str]) -> str:
    """Join labels; those of runs have commas of their own."""
    return ("; " if any("," in label for label in labels) else ", ").join(labels)
