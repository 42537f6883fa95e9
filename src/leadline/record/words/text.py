"""The text form of a record: what `print(record)` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.record.run.curve import curve_rows
from leadline.record.words.numbers import align, format_number, sparkline
from leadline.record.words.summary import cotangent_text, heading, remarks, summarize

if TYPE_CHECKING:
    from leadline.record.record import Record
    from leadline.record.rows.finding import Finding

__all__ = ["MOST_RUNS", "finding_text", "record_text", "runs_left_out"]

MOST_RUNS = 40
"""How many runs a record prints."""


def record_text(record: Record) -> str:
    """Write the heading with the findings, and a line per quantity (first -> last, shape, law).

    That gradients are of no loss is said first of all. Findings stand below the model, the worst
    first. Numbers of a run come before the others, over its steps; the others go over depth.
    """
    rows = summarize(record)
    title, *facts = heading(record)
    lines = [title, *(finding_text(finding) for finding in record.findings), *facts]
    if warning := cotangent_text(record):
        lines.insert(0, warning)
    if runs := curve_rows(record):
        cells = [
            (
                row.label,
                format_number(row.curve.first),
                "->",
                row.last,
                sparkline(row.curve.values, scale=row.scale),
                row.remark,
            )
            for row in runs[:MOST_RUNS]
        ]
        lines += ["", *align(cells, right=(1, 3)), *runs_left_out(len(runs))]
    if rows:
        cells = [
            (
                f"  {row.profile.statistic}" if row.companion else row.label,
                "" if row.companion else row.profile.statistic,
                format_number(row.profile.first),
                "->",
                format_number(row.profile.last),
                sparkline(row.profile.values, scale=row.scale),
                row.growth.text,
            )
            for row in rows
        ]
        lines += ["", *align(cells, right=(2, 4))]
    if below := remarks(record, rows):
        lines += ["", *below]
    return "\n".join(lines)


def runs_left_out(count: int) -> list[str]:
    """Say how many runs are not printed."""
    return [f"... and {count - MOST_RUNS} more runs"] if count > MOST_RUNS else []


def finding_text(finding: Finding) -> str:
    """Write a finding in one line."""
    return f"{finding.severity}: {finding.verdict}"
