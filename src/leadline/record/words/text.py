"""What is shown of a record: the answer first, then the rows that matter most, then its facts.

One screen has three renderings: what `print(record)` shows, a terminal, a notebook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from leadline.record.run.curve import curve_rows
from leadline.record.words.answer import answer
from leadline.record.words.notebook import svg_sparkline
from leadline.record.words.numbers import format_number, sparkline
from leadline.record.words.screen import MOST_ROWS, Screen, Sentence
from leadline.record.words.shape import axis_text, shape_text
from leadline.record.words.summary import cotangent_text, heading, remarks, summarize
from leadline.record.words.table import Row, TableCell, TableColumn, TextTable
from leadline.record.words.unfinished import unfinished_sentence
from leadline.record.words.watch_answer import below_warning

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike

    from leadline.record.record import Record
    from leadline.record.rows.finding import Finding
    from leadline.record.rows.profile import Profile
    from leadline.record.rows.quantity import AxisScale
    from leadline.record.run.curve import CurveRow
    from leadline.record.words.screen import Drawing
    from leadline.record.words.summary import SummaryRow

__all__ = [
    "SEVERITY",
    "curve_table",
    "depth_table",
    "finding_sentences",
    "finding_text",
    "record_screen",
    "rows_that_matter",
    "shape_cell",
]

MOST_FINDINGS = 3
"""How many findings stand before the answer; `leadline diagnose` shows all with their evidence."""
LEAST_ROWS = 5
"""How many rows over depth there are at least beside those of a run."""
SEVERITY = {"note": "yellow", "warning": "bold yellow", "serious": "bold red"}
_SHAPES = (24, 12, 8)


def record_screen(
    record: Record,
    *,
    findings: Sequence[Finding] | None = None,
    everything: bool = False,
    in_place_of_runs: Iterable[Sentence | TextTable | Drawing] | None = None,
    by_step: Iterable[Sentence | Drawing] = (),
) -> Screen:
    """Return the findings, the answer, the rows that matter most, and the facts.

    That the record is unfinished, or its gradients are of no loss, is said first of all, and what
    is unusual about the model before the answer.
    `findings` are those that are stored in the record unless they are given.
    With `everything` every row is shown. Numbers of a run come before the others, over its steps;
    `in_place_of_runs` stands for them if it is given. `by_step` are maps of layers by steps, which
    come right after the answer.
    """
    title, *facts = heading(record)
    rows = summarize(record)
    runs = [] if in_place_of_runs is not None else curve_rows(record)
    shown_runs = runs if everything else runs[:MOST_ROWS]
    most = max(MOST_ROWS - len(shown_runs), LEAST_ROWS)
    shown = rows if everything else rows_that_matter(rows, most)
    warning = cotangent_text(record)
    unfinished = unfinished_sentence(record)
    parts: list[Sentence | TextTable | Drawing] = [
        Sentence(one, "bold yellow") for one in (unfinished, warning) if one
    ]
    parts.append(Sentence(title, "bold"))
    parts += finding_sentences(
        record.findings if findings is None else findings, everything=everything
    )
    sentences = [one for one in answer(record) if one not in (unfinished, warning)]
    unusual = [fact for fact in facts if fact.startswith("unusual: ")]
    parts += [Sentence(one) for one in (*unusual, *sentences)]
    parts += [Sentence(), *by_step, Sentence(), *(in_place_of_runs or ())]
    if shown_runs:
        parts += [curve_table(shown_runs, several=len(record.runs) > 1), Sentence()]
    if shown:
        parts += [depth_table(shown), Sentence()]
    hidden = len(runs) - len(shown_runs) + len(rows) - len(shown)
    if hidden:
        parts.append(_how_to_see_more(hidden, len(runs) + len(rows)))
    said = {*unusual, *sentences, warning}
    parts += [Sentence(fact, "dim") for fact in facts if fact not in said]
    parts += [Sentence(), *(Sentence(remark) for remark in remarks(record, shown))]
    return Screen(tuple(parts))


def rows_that_matter(rows: Sequence[SummaryRow], most: int = MOST_ROWS) -> list[SummaryRow]:
    """Choose the rows that lead their topics and those that change most; they keep their order.

    Where not all rows have room, those that do not change at all are left out.
    """
    if len(rows) <= most:
        return list(rows)
    order = sorted(range(len(rows)), key=lambda at: (not rows[at].leads, -rows[at].change))
    moving = [at for at in order if rows[at].leads or rows[at].change > 0]
    return [rows[at] for at in sorted((moving or order)[:most])]


def _how_to_see_more(hidden: int, count: int) -> Sentence:
    """Say how many rows are not shown, and how to see them."""
    shown = f"{count - hidden} of {count} rows, those that change most; all: "
    call = "print(record.table())"
    return Sentence(f"{shown}--all or {call}", "dim", in_python=f"{shown}{call}")


def depth_table(rows: Sequence[SummaryRow]) -> TextTable:
    """Return a row per line over depth: first and last value, its extremes, its shape."""
    statistic = any(not row.companion for row in rows)
    axis = axis_text(row.profile for row in rows)
    columns = (
        TableColumn("quantity", style="bold"),
        TableColumn("stat" if statistic else "", gives_way=(5, 8)),
        TableColumn("first", right=True),
        TableColumn("last", right=True),
        TableColumn(f"lowest @{axis}", right=True, gives_way=(2,)),
        TableColumn(f"highest @{axis}", right=True, gives_way=(2,)),
        TableColumn(f"by {axis}", style="cyan", gives_way=(1, 3, 10)),
        TableColumn("shape", gives_way=(4, 9)),
    )
    return TextTable(columns, tuple(Row(_depth_cells(row)) for row in rows))


def _depth_cells(row: SummaryRow) -> tuple[str | TableCell, ...]:
    line = row.profile
    name = line.statistic
    return (
        f"  {name}" if row.companion else row.label,
        "" if row.companion else TableCell((name, name.replace("_without_first", "*"))),
        format_number(line.first),
        format_number(line.last),
        _extreme(line, lowest=True),
        _extreme(line, lowest=False),
        shape_cell(row.profile.values, row.scale),
        TableCell(
            (
                shape_text(line, scale=row.scale, logarithm=row.logarithm),
                shape_text(line, scale=row.scale, logarithm=row.logarithm, brief=True),
            )
        ),
    )


def curve_table(rows: Sequence[CurveRow], *, several: bool) -> TextTable:
    """Return a row per curve over steps; `several` says that the rows are runs."""
    columns = (
        TableColumn("run" if several else "of the run", style="bold"),
        TableColumn("first", right=True),
        TableColumn("last", right=True),
        TableColumn("by step", style="cyan", gives_way=(1, 2, 4)),
        TableColumn(gives_way=(3,)),
    )
    return TextTable(
        columns,
        tuple(
            Row(
                (
                    row.label,
                    format_number(row.curve.first),
                    row.last,
                    shape_cell(row.curve.values, row.scale, along="steps"),
                    row.remark,
                )
            )
            for row in rows
        ),
    )


def shape_cell(
    values: ArrayLike,
    scale: AxisScale,
    *,
    ends: tuple[float, float] | None = None,
    along: str = "depth",
) -> TableCell:
    """Return a line in bars of several widths, and drawn for a page."""
    return TableCell(
        tuple(sparkline(values, scale=scale, width=width, ends=ends) for width in _SHAPES),
        html=svg_sparkline(values, scale=scale, ends=ends, along=along),
    )


def finding_text(finding: Finding) -> str:
    """Write a finding in one line, with the code of its rule where it has one."""
    return ": ".join(word for word in (finding.severity, finding.code, finding.verdict) if word)


def finding_sentences(
    findings: Sequence[Finding], *, of: str = "", everything: bool = False
) -> list[Sentence]:
    """Return the worst findings in a line each, what to do below them, and how many more there are.

    `of` is the name of the record where there are several.
    """
    shown = findings if everything else findings[:MOST_FINDINGS]
    lines: list[Sentence] = []
    for one in shown:
        text = finding_text(one)
        lines.append(Sentence(f"{of}: {text}" if of else text, SEVERITY[one.severity], hang=2))
        lines += below_warning(one)
    hidden = len(findings) - len(shown)
    if hidden:
        more = f"{hidden} more finding{'' if hidden == 1 else 's'}"
        lines.append(Sentence(f"{more}: --all or `leadline diagnose`", "dim",
                              in_python=f"{more}: leadline.diagnose(record)"))  # fmt: skip
    return lines


def _extreme(line: Profile, *, lowest: bool) -> str:
    """Write the lowest or highest finite value and its layer: `4.01 @3`."""
    finite = np.isfinite(line.values)
    if not bool(np.any(finite)):
        return ""
    filled = np.where(finite, line.values, np.inf if lowest else -np.inf)
    at = int(np.argmin(filled) if lowest else np.argmax(filled))
    return f"{format_number(float(line.values[at]))} @{line.layers[at]}"
