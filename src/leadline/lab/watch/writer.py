"""Write the rows of a watched run into its record, and go on where an earlier run was cut off.

Everything of one sample is one transaction: whatever ends the process, the file holds every sample
up to the last. What cannot be written now, because a reader holds the file or the disk is full, is
kept and written with the next sample.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from leadline.anatomy import unwrapped
from leadline.errors import LeadlineError, RecordError, words_of
from leadline.instruments.passes.processes.sharding import plain_class
from leadline.instruments.passes.provenance import model_facts, versions
from leadline.lab.watch.fence import Fence
from leadline.record import Finding, Quantity, Reading, Record
from leadline.record.file.store import is_empty_file, is_record_file
from leadline.record.run.ring import read_ring, ring_path

__all__ = ["RunWriter", "identity_of"]

PATIENCE = 0.1
"""Seconds that a sample waits for a reader that holds the file: the loop waits with it."""
LAST_PATIENCE = 5.0
"""Seconds at the end, when what cannot be written is lost."""
MOST_PENDING = 200_000
"""Rows that are kept while they cannot be written; what comes after is lost, and said."""


def identity_of(module: nn.Module) -> str:
    """A digest of class, names and shapes: the same for a run that goes on, whatever its weights.

    Wrappers, sharding and the number of processes may change in between.
    """
    module = unwrapped(module)
    digest = hashlib.sha256(plain_class(module).__name__.encode())
    for name, parameter in module.named_parameters():
        digest.update(f"{name}{tuple(parameter.shape)}".encode())
    return digest.hexdigest()[:16]


class RunWriter:
    """The record of one watched run."""

    def __init__(
        self,
        path: Path | None,
        model: nn.Module,
        *,
        every: int,
        name: str | None,
        fence: Fence,
    ) -> None:
        self.path = path
        """The file as it was given, for people to read."""
        self.place = None if path is None else path.absolute()
        """The file itself: the loop may go to another folder."""
        self.fence = fence
        self._identity = identity_of(unwrapped(model))
        self._pending: list[Reading] = []
        self._pending_findings: list[Finding] = []
        self._pending_quantities: dict[str, Quantity] = {}
        self._pending_facts: dict[str, Any] = {}
        self._run = ""
        self._reached: dict[str, int] = {}
        """The last step that the record holds of every run, of what was there before."""
        self.facts: dict[str, Any] = {"every": every, "attempts": [], "identity": self._identity}
        trained = [one.numel() for one in model.parameters() if one.requires_grad]
        counts = {"trained": sum(trained), "all": sum(one.numel() for one in model.parameters())}
        if path is None:
            self.record = Record()
        elif path.exists() and not is_empty_file(path):
            self.record = self._reopen(path)
        else:
            self.record = Record.create(path, journal="delete")
        self.facts |= {"every": every, "parameters": counts}
        self.record.wait_at_most(PATIENCE)
        if "model" not in self.record.provenance:
            with self.record.together():
                facts = model_facts(model, name, "watched")
                self.record.note("model", facts | {"mode": "as the loop runs it"})
                self.record.note("watch", self.facts)
                self.record.note("versions", versions())
                self.record.note("time", time.strftime("%Y-%m-%dT%H:%M:%S%z"))

    def _reopen(self, path: Path) -> Record:
        """Open the record of the same run to go on; any other file is refused."""
        if not path.is_file():
            kind = "is a folder" if path.is_dir() else "is no regular file"
            raise RecordError(f"{path} {kind}; give another path.")
        if not is_record_file(path):
            raise RecordError(f"{path} exists and is no record; give another path.")
        with Record.open(path) as there:
            noted: Any = there.provenance.get("watch")
            if not isinstance(noted, Mapping):
                raise RecordError(
                    f"{path} holds a record that leadline.watch did not write; give another path."
                )
            if noted.get("identity") != self._identity:
                raise RecordError(
                    f"{path} holds the run of another model (its parameters differ); give another "
                    "path."
                )
            self._reached = there.last_steps()
        self.facts = dict(noted)
        return Record.reopen(path, journal="delete")

    @property
    def resumed(self) -> bool:
        """Whether the record holds an earlier part of this run."""
        return bool(self.facts["attempts"])

    def begin(self, step: int) -> None:
        """Say at which update this process begins; rows that would be read twice get a new name."""
        attempts = list(self.facts["attempts"])
        reached = max(self._reached.values(), default=0)
        if attempts and step <= reached:
            self._run = f"again from step {step} ({len(attempts) + 1})"
            self.fence.note(
                f"{self.path} holds a run of this model up to step {reached}, and this one begins "
                "at step 1: it takes its place, and what was read before is kept behind it. To have "
                "both side by side, give another path; if it goes on from a checkpoint and its "
                "optimizer does not count, say start=N, the updates made before."
                if step <= 1
                else f"{self.path} reaches step {reached}, and this run goes on from step "
                f"{step}: what was read before is kept behind it."
            )
        elif attempts:
            self._run = attempts[-1]["run"]
        attempts.append(
            {"run": self._run, "first": step, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
        )
        self.facts |= {"attempts": attempts, "closed": False}

    def describe(self, quantities: Iterable[Quantity]) -> None:
        """Store definitions that are new, with the next rows."""
        self._pending_quantities |= {quantity.name: quantity for quantity in quantities}

    def note(self, key: str, fact: Any) -> None:
        """Store an entry of the provenance, with the next rows."""
        self._pending_facts[key] = fact

    def write(
        self, readings: Sequence[Reading], findings: Sequence[Finding] = (), **facts: Any
    ) -> None:
        """Write a sample in one transaction, with whatever could not be written before."""
        self._pending += [_named(reading, self._run) for reading in readings]
        self._pending_findings += findings
        self.facts |= facts
        try:
            self._write_pending()
        except RecordError as error:
            if len(self._pending) > MOST_PENDING:
                self._pending = []
                self.fence.note(f"Rows were lost, because nothing could be written: {error}")
            else:
                self.fence.note(f"{error} The rows are kept and written later.")
            return
        except Exception:
            # A row that no record takes would be in the way of all that follow.
            self._pending, self._pending_findings = [], []
            raise
        self._pending, self._pending_findings = [], []
        self._pending_quantities, self._pending_facts = {}, {}

    def _write_pending(self) -> None:
        with self.record.together():
            known = self.record.quantities if self._pending_quantities else {}
            for name, quantity in self._pending_quantities.items():
                if name not in known:
                    self.record.describe(quantity)
            self.record.append(self._pending)
            for finding in self._pending_findings:
                self.record.add_finding(finding)
            for key, fact in self._pending_facts.items():
                self.record.note(key, fact)
            self.record.note("watch", self.facts)

    def take_over_ring(self) -> None:
        """Bring the last updates of a process that died into the record."""
        if self.place is None or not ring_path(self.place).exists():
            return
        place = ring_path(self.place)
        attempts = self.facts["attempts"]
        self._run = attempts[-1]["run"] if attempts else ""
        reached = self._reached.get(self._run, 0)
        try:
            ring = read_ring(place)
            readings = ring.readings(after=reached)
        except LeadlineError as error:
            self.fence.note(str(error))
            return
        known = self.record.quantities
        snapshots = [*self.facts.get("snapshots", []), ring.entry()]
        self.write([one for one in readings if one.quantity in known], snapshots=snapshots)
        self._reached[self._run] = max([reached, *(one.step for one in readings)])
        place.unlink(missing_ok=True)

    def close(self, *, error: BaseException | None = None, **facts: Any) -> None:
        """Write what is left, say how it ended, and close the file."""
        self.record.wait_at_most(LAST_PATIENCE)
        if self.facts["attempts"]:
            ending = {"ended": "closed" if error is None else "error"}
            if error is not None:
                ending["error"] = f"{type(error).__name__}: {words_of(error, first_line=True)}"
            *before, last = self.facts["attempts"]
            self.facts["attempts"] = [*before, last | ending]
        self.write((), closed=True, **facts)
        if self._pending:
            self.fence.note(f"{len(self._pending)} rows could not be written and are lost.")
        if self.path is not None:
            self.record.close()


def _named(reading: Reading, run: str) -> Reading:
    from dataclasses import replace

    return reading if reading.run == run else replace(reading, run=run)
