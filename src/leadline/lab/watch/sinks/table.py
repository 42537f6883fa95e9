"""The form of the files that sinks write: one row per number, `step, name, value, text`.

A long table never changes its columns, whatever a later sample reads. A warning is a row, too: its
name is `leadline/warning/CODE`, its text the sentence. A run that goes on appends to the file; where
it does steps again, the later rows count.
"""

from __future__ import annotations

from collections.abc import Mapping

from leadline.lab.watch.sinks.sink import warning_text
from leadline.record import Finding

__all__ = ["COLUMNS", "Row", "rows_of", "warning_row"]

COLUMNS = ("step", "name", "value", "text")
Row = tuple[int, str, float | None, str | None]


def rows_of(step: int, values: Mapping[str, float]) -> list[Row]:
    """Return the rows of one sample."""
    return [(step, name, value, None) for name, value in values.items()]


def warning_row(finding: Finding) -> Row:
    """Return the row of a warning."""
    step = int(finding.details.get("step", 0))
    return step, f"leadline/warning/{finding.code}", None, warning_text(finding)
