"""What is known of a run at one moment, of a record or of a file that grows.

    sight = sight_of(record)                 # a record that is open
    run = FollowedRun(path); run.look()      # a file that another process writes

Of a file that grows more is told than of a record: whether its writer is at work, has closed it, has
died, or has been silent for longer than it usually is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from leadline.errors import RecordError
from leadline.reading.watch.history import History
from leadline.record.file.following import FollowedFile
from leadline.record.file.writer import RecordWriter, writer_of
from leadline.record.provenance import number_at, text_at, value_at
from leadline.record.rows.site import RUN
from leadline.record.run.ring import read_ring, ring_path
from leadline.record.run.watching import Attempt, replaced, without_replaced
from leadline.record.views import written_by

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadline.record import Finding, Record
    from leadline.record.rows.step_line import StepLine

__all__ = ["FollowedRun", "RunSight", "SightState", "sight_of"]

SightState = Literal["waiting", "starting", "running", "silent", "died", "closed"]
"""No file yet; a file without a sample; rows come; none has come for long; the process that wrote
is gone; the run has ended."""

LEAST_SILENCE = 60.0
"""Seconds without a row after which a run counts as silent, at the earliest."""
INTERVALS = 5.0
"""A run counts as silent after so many times the usual time between two samples."""


@dataclass(frozen=True, eq=False)
class RunSight:
    """A run at one moment.

    `quiet` are the seconds since a row came, and `since` the time of day then; of a record None
    and nothing.
    """

    name: str
    state: SightState
    history: History = field(default_factory=History)
    findings: tuple[Finding, ...] = ()
    earlier: tuple[Finding, ...] = ()
    """Warnings about updates that the run has made again since."""
    provenance: Mapping[str, Any] = field(default_factory=dict[str, Any])
    quiet: float | None = None
    since: str = ""
    writer: RecordWriter | None = None
    busy: bool = False
    ring: int | None = None
    """The last update that the ring beside the file of a run that was cut off holds."""

    @property
    def asked(self) -> bool:
        """Whether alarms were asked: by a watch at every sample, by `leadline train` at its end."""
        return bool({"watch", "outcome"} & self.provenance.keys())

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.state == "closed"


def sight_of(record: Record) -> RunSight:
    """Return what a record knows of its run."""
    name = "" if record.path is None else record.path.name
    provenance = record.provenance
    closed = _says_that_it_ended(provenance) or record.integrity == "checked"
    return RunSight(
        name,
        "closed" if closed else "running",
        History.of(record),
        tuple(record.findings),
        tuple(record.replaced_findings),
        provenance,
    )


class FollowedRun:
    """A run whose file grows. `look` reads what is new and returns what is known then."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.path = path
        self._file = FollowedFile(path)
        self._history = History()
        self._run: str | None = None
        self._ring: int | None = None
        self._clock, self._wall = clock, wall
        self._begun = clock()
        self._changed: float | None = None
        """When a row came last, by the clock."""

    def look(self) -> RunSight:
        """Read what is new; a file that is no record of a run is refused in a sentence."""
        if self.path.exists() and not self.path.is_file():
            raise RecordError(f"{self.path} is no regular file; give the file of a record.")
        look = self._file.look()
        if self._file.again:
            self._history, self._run, self._ring = History(), None, None
        self._take(self._file.fresh)
        now = self._clock()
        if self._file.fresh or self._changed is None:
            self._changed = now - (0.0 if self._file.fresh and self._changed else self._age())
        if look == "missing":
            self._changed = None
            return RunSight(self.path.name, "waiting", quiet=now - self._begun)
        if look == "read":
            self._refuse_other_records()
        writer = writer_of(self.path)
        quiet = now - self._changed
        state = self._state(writer, quiet)
        ring = self._read_ring() if state == "died" else None
        return RunSight(
            self.path.name,
            state,
            self._history,
            tuple(without_replaced(self._file.findings, self._file.provenance.get("watch"))),
            tuple(replaced(self._file.findings, self._file.provenance.get("watch"))),
            self._file.provenance,
            quiet,
            time.strftime("%H:%M:%S", time.localtime(self._wall() - quiet)),
            writer,
            busy=look == "busy",
            ring=ring,
        )

    def _take(self, lines: Iterable[StepLine]) -> None:
        """Add rows to the history; an attempt that begins at an earlier step does it again."""
        self._history.describe(self._file.quantities.values())
        first = {attempt.run: attempt.first for attempt in _attempts(self._file.provenance)}
        by_run: dict[str, list[StepLine]] = {}
        for line in lines:
            by_run.setdefault(line.run, []).append(line)
        for run, several in by_run.items():
            if run != self._run and self._run is not None:
                begun = min(line.steps[0] for line in several)
                self._history.go_back_to(first.get(run, begun))
            self._run = run
            self._history.add_lines(several)

    def _read_ring(self) -> int | None:
        """Add what the ring beside the file of a dead writer holds beyond it; say up to where."""
        try:
            rows = read_ring(ring_path(self.path))
        except (RecordError, OSError):
            return None
        last = max(rows.steps, default=0)
        if last > self._history.step:
            readings = rows.readings(after=self._history.step)
            # A loop whose loss the watch did not see has none in the ring either.
            self._history.add(
                one for one in readings if not math.isnan(one.value) or one.site == RUN
            )
            self._ring = last
        return self._ring

    def _age(self) -> float:
        """How many seconds ago the file was written, by the clock of the disk."""
        try:
            return max(0.0, self._wall() - self.path.stat().st_mtime)
        except OSError:
            return 0.0

    def _state(self, writer: RecordWriter | None, quiet: float) -> SightState:
        lives = None if writer is None else writer.lives
        at_work = writer is not None and lives is not False
        if not at_work and (self._file.closed or _says_that_it_ended(self._file.provenance)):
            return "closed"
        if lives is False:
            return "died"
        if not self._history.step:
            return "starting"
        return "silent" if quiet > self._patience() else "running"

    def _patience(self) -> float:
        """Seconds after which a run counts as silent."""
        known = self._file.provenance
        every = number_at(known, "watch", "every") or 1.0
        attempts = _attempts(known)
        begun = _seconds_of(_last_time(known))
        done = self._history.step - (attempts[-1].first if attempts else 0) + 1
        if begun is None or done < 1:
            return LEAST_SILENCE
        taken = self._wall() - self._age() - begun
        return max(LEAST_SILENCE, INTERVALS * every * taken / done)

    def _refuse_other_records(self) -> None:
        """Refuse a record that holds no run, or many."""
        known, quantities = self._file.provenance, self._file.quantities
        command = written_by(known)
        if "sweep" in known:
            raise RecordError(
                f"{self.path} is the record of a sweep, which has many runs; "
                f"`leadline map {self.path}` shows it."
            )
        of_runs = any(quantity.over == "step" for quantity in quantities.values())
        if of_runs or {"watch", "training"} & known.keys() or not quantities:
            return
        made = f" by `leadline {command}`" if command else ""
        raise RecordError(
            f"{self.path} was written{made} and holds no training run, so there is nothing to "
            f"watch; `leadline report {self.path}` shows it."
        )


def _attempts(provenance: Mapping[str, Any]) -> list[Attempt]:
    noted = value_at(provenance, "watch", "attempts")
    if not isinstance(noted, list):
        return []
    return [Attempt.of(one) for one in cast("list[Mapping[str, Any]]", noted)]


def _last_time(provenance: Mapping[str, Any]) -> str:
    """When the last attempt began."""
    noted: Any = value_at(provenance, "watch", "attempts")
    if isinstance(noted, list) and noted:
        return str(noted[-1].get("time", ""))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return text_at(provenance, "time")


def _seconds_of(text: str) -> float | None:
    """The seconds of a time as records note it, such as 2026-11-01T10:00:00+0000."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z").timestamp()
    except ValueError:
        return None


def _says_that_it_ended(provenance: Mapping[str, Any]) -> bool:
    return value_at(provenance, "watch", "closed") is True or "outcome" in provenance
