"""A CSV file that grows with the run: `step,name,value,text`, one row per number."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from typing import Any

from leadline.errors import LabError, check_path
from leadline.lab.watch.sinks.sink import SINKS
from leadline.lab.watch.sinks.table import COLUMNS, Row, rows_of, warning_row
from leadline.record import Finding

__all__ = ["CsvSink"]


@SINKS.register("csv")
class CsvSink:
    """Appends to a CSV file; every sample is written out at once."""

    def __init__(self, path: str) -> None:
        file = check_path(path, name="The path of the sink csv", error=LabError)
        header = ",".join(COLUMNS)
        is_new = not file.exists() or file.stat().st_size == 0
        if not is_new:
            with file.open(encoding="utf-8", errors="replace") as lines:
                if lines.readline().rstrip("\r\n") != header:
                    raise LabError(
                        f"{file} is there and does not begin with the line {header!r}, so it is not "
                        "of this sink; give another path."
                    )
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file.open("a", encoding="utf-8", newline="")
        self._rows: Any = csv.writer(self._file, lineterminator="\n")
        if is_new:
            self._append([COLUMNS])

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._append(rows_of(step, values))

    def warn(self, finding: Finding) -> None:
        self._append([warning_row(finding)])

    def close(self) -> None:
        self._file.close()

    def _append(self, rows: Iterable[Row | tuple[str, ...]]) -> None:
        self._rows.writerows(rows)
        self._file.flush()
