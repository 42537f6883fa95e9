"""The last updates of a run at full rate, in a file that outlives the process.

`FILE.ring` beside a record holds the last `slots` updates: step, loss, learning rate, norm of the
gradient and the norm of every group of parameters. It is overwritten in place without a buffer, so
that what was written is there whatever ends the process; only a machine that loses power may lose
the last of it. It is not mapped into memory: on a full disk that would end the process.

    bytes 0 to 15        "LEADLINE RING 1\\n"
    8 bytes              length n of the header, little-endian
    n bytes              header, JSON: slots, columns, sites
    slots x columns      float64, row s % slots for update s; a row of an unused slot has step 0
    slots x BATCH        UTF-8 text: which batch it was, where the loop said so
"""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.errors import RecordError
from leadline.record.rows.reading import Reading
from leadline.record.rows.site import RUN, Site
from leadline.record.run.training import GRADIENT_NORM, LEARNING_RATE
from leadline.record.run.watching import LOSS

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BATCH", "FIRST_COLUMNS", "Ring", "RingRows", "read_ring", "ring_path"]

_MAGIC = b"LEADLINE RING 1\n"
FIRST_COLUMNS = ("step", "loss", "rate", "gradient_norm")
"""What every ring holds; the norms of the groups follow."""
OF_THE_RUN = (LOSS.name, LEARNING_RATE.name, GRADIENT_NORM.name)
OF_A_GROUP = "gradient.parameters"
BATCH = 120
"""Bytes for the name of a batch."""


def ring_path(record: Path) -> Path:
    """The ring beside a record."""
    return record.with_name(f"{record.name}.ring")


class Ring:
    """Writes the last updates, one row each."""

    def __init__(self, path: Path, sites: Sequence[dict[str, Any]], *, slots: int) -> None:
        header = json.dumps({"slots": slots, "sites": list(sites)}).encode()
        self.slots = slots
        self.path = path
        self._columns = len(FIRST_COLUMNS) + len(sites)
        self._start = len(_MAGIC) + 8 + len(header)
        self._file = path.open("w+b", buffering=0)
        self._file.write(_MAGIC + struct.pack("<Q", len(header)) + header)
        self._file.truncate(self._start + slots * (self._columns * 8 + BATCH))

    def put(self, step: int, values: Sequence[float], *, batch: str = "") -> None:
        """Write the row of an update; the step goes last, so that no half row counts."""
        if len(values) != self._columns - 1:
            raise ValueError(f"{len(values)} values, and a row has {self._columns - 1}")
        slot = step % self.slots
        at = self._start + slot * self._columns * 8
        self._write(at, struct.pack("<d", 0.0))
        self._write(
            self._start + self.slots * self._columns * 8 + slot * BATCH,
            batch.encode()[:BATCH].ljust(BATCH, b"\0"),
        )
        self._write(at + 8, struct.pack(f"<{len(values)}d", *values))
        self._write(at, struct.pack("<d", step))

    def _write(self, at: int, data: bytes) -> None:
        self._file.seek(at)
        if self._file.write(data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def close(self) -> None:
        """Let go of the file; what it holds stays."""
        self._file.close()

    def remove(self) -> None:
        """Take the file away: what it holds stands in the record."""
        self.close()
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True)
class RingRows:
    """What a ring holds: one row per update, in the order of steps."""

    sites: list[dict[str, Any]]
    rows: NDArray[np.float64]
    batches: list[str]

    @property
    def steps(self) -> list[int]:
        """The updates."""
        return [int(step) for step in self.rows[:, 0]]

    def readings(self, *, after: int = 0, without: Iterable[int] = ()) -> list[Reading]:
        """The rows as readings: the numbers of the run, and gradient norms of every group."""
        left_out = set(without)
        readings: list[Reading] = []
        for row in self.rows:
            step = int(row[0])
            if step <= after or step in left_out:
                continue
            for name, value in zip(OF_THE_RUN, row[1 : len(FIRST_COLUMNS)], strict=True):
                readings.append(Reading(name, RUN, "value", float(value), step=step))
            for site, value in zip(self.sites, row[len(FIRST_COLUMNS) :], strict=True):
                readings.append(Reading(OF_A_GROUP, Site(**site), "value", float(value), step=step))
        return readings

    def entry(self, codes: Sequence[str] = ()) -> dict[str, Any]:
        """What the provenance says of a snapshot: its steps, why it was taken, and the batches."""
        steps = self.steps
        named = {str(step): name for step, name in zip(steps, self.batches, strict=True) if name}
        ends = [steps[0], steps[-1]] if steps else []
        return {"steps": ends, "codes": list(codes), "batches": named}


def read_ring(path: Path) -> RingRows:
    """Read a ring that somebody writes or wrote; a file that is none is refused."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(f"Cannot read {path}: {error.strerror}.") from error
    try:
        if not data.startswith(_MAGIC):
            raise ValueError
        at = len(_MAGIC)
        (length,) = struct.unpack_from("<Q", data, at)
        header = json.loads(data[at + 8 : at + 8 + length])
        slots, sites = int(header["slots"]), list(header["sites"])
        columns, start = len(FIRST_COLUMNS) + len(sites), at + 8 + length
        rows = np.frombuffer(data, "<f8", slots * columns, start).reshape(slots, columns)
        texts = np.frombuffer(data, "u1", slots * BATCH, start + slots * columns * 8)
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise RecordError(
            f"{path} does not hold the last updates of a watched run, or is damaged; remove it."
        ) from error
    used = [at for at in np.argsort(rows[:, 0], kind="stable") if rows[at, 0] > 0]
    batches = [
        bytes(texts[at * BATCH : (at + 1) * BATCH]).rstrip(b"\0").decode(errors="replace")
        for at in used
    ]
    return RingRows(sites, rows[used].copy(), batches)
