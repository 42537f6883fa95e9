"""The text form of a record: what `print(record)` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.record.numbers import align, format_number, sparkline
from leadline.record.summary import heading, remarks, summarize

if TYPE_CHECKING:
    from leadline.record.finding import Finding
    from leadline.record.record import Record

__all__ = ["finding_text", "record_text"]


def record_text(record: Record) -> str:
    """Write the heading, a line per quantity (first -> last, shape, law) and the findings."""
    rows = summarize(record)
    lines = heading(record)
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
    below = remarks(record, rows)
    below += [finding_text(finding) for finding in record.findings]
    if below:
        lines += ["", *below]
    return "\n".join(lines)


def finding_text(finding: Finding) -> str:
    """Write a finding in one line."""
    return f"{finding.severity}: {finding.verdict}"
