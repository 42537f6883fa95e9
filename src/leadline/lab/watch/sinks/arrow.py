"""An Arrow file that grows with the run: a stream of batches with `step, name, value, text`.

    table = pyarrow.ipc.open_stream("run.arrow").read_all()

It is Arrow's stream format without an end mark, which readers do not need: the file can be read
while it is written, and holds every whole sample after a kill. A sample that was cut off by a kill
is removed when the run goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from leadline.errors import LabError, check_path, require
from leadline.lab.watch.sinks.sink import SINKS
from leadline.lab.watch.sinks.table import COLUMNS, Row, rows_of, warning_row
from leadline.record import Finding

__all__ = ["ArrowSink"]


@SINKS.register("arrow")
class ArrowSink:
    """Appends to an Arrow stream; every sample is one batch, written out at once."""

    def __init__(self, path: str) -> None:
        self._arrow: Any = require("pyarrow", extra="table")
        number, text = self._arrow.int64(), self._arrow.string()
        types = (number, text, self._arrow.float64(), text)
        self._schema = self._arrow.schema(zip(COLUMNS, types, strict=True))
        file = check_path(path, name="The path of the sink arrow", error=LabError)
        file.parent.mkdir(parents=True, exist_ok=True)
        end = self._end_of_batches(file)
        self._file = file.open("ab")
        self._file.truncate(end)
        if not end:
            self._file.write(self._schema.serialize())
        self._file.flush()

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._append(rows_of(step, values))

    def warn(self, finding: Finding) -> None:
        self._append([warning_row(finding)])

    def close(self) -> None:
        self._file.close()

    def _append(self, rows: Iterable[Row]) -> None:
        columns = [list(column) for column in zip(*rows, strict=True)]
        if columns:
            batch = self._arrow.record_batch(columns, schema=self._schema)
            self._file.write(batch.serialize())
            self._file.flush()

    def _end_of_batches(self, file: Path) -> int:
        """Return where the last whole batch of a file ends, 0 where there is no file yet."""
        if not file.exists() or file.stat().st_size == 0:
            return 0
        lines = self._arrow.BufferReader(file.read_bytes())
        ipc, end = self._arrow.ipc, 0
        try:
            if ipc.read_schema(ipc.read_message(lines)) != self._schema:
                raise self._arrow.ArrowInvalid("another schema")
        except (self._arrow.ArrowInvalid, OSError, EOFError) as error:
            raise LabError(
                f"{file} is there and is no Arrow stream of this sink; give another path."
            ) from error
        try:
            while True:
                end = lines.tell()
                ipc.read_message(lines)
        except (self._arrow.ArrowInvalid, OSError, EOFError):
            return end
