"""A comparison on one screen: the answer first, then the rows in which records differ most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from leadline.reading.compare.answer import comparison_answer, distance, most_apart
from leadline.reading.compare.training_curves import change_text
from leadline.record.words.numbers import format_number
from leadline.record.words.shape import axis_text
from leadline.record.words.table import Row, Screen, Sentence, TableCell, TableColumn, TextTable
from leadline.record.words.text import LEAST_ROWS, MOST_ROWS, shape_cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from leadline.reading.compare.compare import Comparison, ComparisonRow
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
    order = sorted(range(len(rows)), key=lambda at: (not rows[at].leads, -distance(rows[at])))
    shown = rows if everything else [rows[at] for at in sorted(order[:most])]
    parts: list[Sentence | TextTable] = [Sentence(_title(comparison), "bold")]
    parts += [Sentence(sentence) for sentence in comparison_answer(comparison)]
    if shown_curves:
        parts += [Sentence(), _curve_table(comparison, shown_curves)]
        parts.append(Sentence(f"change: to {comparison.labels[0]} at the last step", "dim"))
    if shown:
        parts += [Sentence(), depth_table(comparison, shown)]
        parts.append(Sentence(_legend(comparison), "dim"))
    count = len(curves) + len(rows)
    hidden = count - len(shown_curves) - len(shown)
    if hidden:
        more = f"{count - hidden} of {count} rows, those that differ most; every row: --all, or "
        parts.append(Sentence(f"{more}print(comparison.table())", "dim"))
    below = [*about_the_runs(comparison), *what_is_not_shared(comparison)]
    parts += [Sentence(), *(Sentence(sentence) for sentence in below)]
    return Screen(tuple(parts))


def depth_table(comparison: Comparison, rows: Sequence[ComparisonRow]) -> TextTable:
    """Return a row per line over depth: first and last value in every record, and how far apart."""
    axis = axis_text(side.profile for row in rows for side in row.sides if side is not None)
    columns = (
        TableColumn("quantity", style="bold"),
        *_record_columns(comparison.labels),
        TableColumn("ratio", right=True, gives_way=(3,)),
        TableColumn(f"widest @{axis}", right=True),
    )
    return TextTable(columns, tuple(_depth_row(comparison, row) for row in rows))


def _record_columns(names: Sequence[str]) -> list[TableColumn]:
    return [
        column
        for name in names
        for column in (
            TableColumn(name, right=True, gives_way=(5,), stays=True),
            TableColumn("", style="cyan", gives_way=(1, 2, 4)),
        )
    ]


def _depth_row(comparison: Comparison, row: ComparisonRow) -> Row:
    sides = [None if side is None else side.profile for side in row.sides]
    cells = _line_cells(
        [
            None if one is None else (one.first, format_number(one.last), one.values)
            for one in sides
        ],
        row.scale,
    )
    farthest = most_apart(row)
    ratio = widest = ""
    if farthest is not None:
        at, side = farthest
        assert side.parting is not None
        many = f"{comparison.labels[at]} " if len(comparison.names) > 2 else ""
        ratio = many + _ratio_text(side.ratio_at_last)
        apart = side.parting.ratio
        how = _ratio_text(apart) if np.isfinite(apart) else f"{side.parting.difference:+.3g}"
        widest = f"{many}{how} @{side.parting.layer}"
    return Row((row.label, *cells, ratio, widest))


def _curve_table(comparison: Comparison, rows: Sequence[CurveComparison]) -> TextTable:
    """Return a row per curve over steps: first and last value in every record, and the change."""
    columns = (
        TableColumn("of the run", style="bold"),
        *_record_columns(comparison.labels),
        TableColumn("change", right=True),
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
) -> list[str | TableCell]:
    """Return first and last value and the shape of each record, drawn on one scale."""
    values = np.concatenate([line[2] for line in lines if line is not None])
    finite = values[np.isfinite(values)]
    ends = (float(finite.min()), float(finite.max())) if len(finite) else None
    cells: list[str | TableCell] = []
    for line in lines:
        if line is None:
            cells += ["-", ""]
            continue
        first, last, points = line
        cells.append(TableCell((f"{format_number(first)} → {last}", last)))
        cells.append(shape_cell(points, scale, ends=ends, along=along))
    return cells


def _title(comparison: Comparison) -> str:
    names = [
        name if label == name else f"{name} ({label})"
        for name, label in zip(comparison.names, comparison.labels, strict=True)
    ]
    return " against ".join(names)


def _legend(comparison: Comparison) -> str:
    first = comparison.labels[0]
    return (
        f"values: first → last layer; ratio: to {first} at the last layer; widest: where the two "
        "are farthest apart"
    )


def shared_rows(comparison: Comparison) -> list[ComparisonRow]:
    """Return the rows that at least two records have."""
    return [row for row in comparison.rows if _count(row) > 1]


def shared_curves(comparison: Comparison) -> list[CurveComparison]:
    """Return the curves over steps that at least two records have."""
    return [row for row in comparison.curves if row.shared]


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


def _ratio_text(ratio: float) -> str:
    """Write a ratio as a factor; a dash where there is none."""
    return f"×{format_number(ratio, digits=3)}" if np.isfinite(ratio) else "-"


def _listed(labels: list[str]) -> str:
    """Join labels; those of runs have commas of their own."""
    return ("; " if any("," in label for label in labels) else ", ").join(labels)


def _count(row: ComparisonRow) -> int:
    return sum(side is not None for side in row.sides)
