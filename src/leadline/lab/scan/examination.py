"""One checkpoint of a scan: loaded, measured and diagnosed in a worker, one at a time.

The rows are those of `leadline.diagnose`, whose passes they share, with the name of the checkpoint
as their run and its training step as their step. A checkpoint that cannot be loaded or measured has
no rows, but a status and a sentence:

    measured   it has rows and a diagnosis
    refused    it cannot be loaded or measured, for a reason of its own
    failed     its worker died, or somebody's code raised
"""

from __future__ import annotations

import gc
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.errors import LeadlineError, words_of
from leadline.instruments.visit.diagnose import diagnose
from leadline.lab.cell import CellResult, Paused, torch_threads
from leadline.lab.scan.files import free_memory, memory_needed
from leadline.lab.scan.settings import ScanSettings
from leadline.lab.scan.sources import CheckpointSource
from leadline.lab.trainer import Beat
from leadline.models.loading import load_model
from leadline.reading.diagnosis.words import finding_json
from leadline.record.provenance import number_at, text_at

if TYPE_CHECKING:
    from leadline.lab.engines.engine import Deaths, Orders
    from leadline.reading.diagnosis.diagnosis import Diagnosis

__all__ = ["CheckpointWork", "gigabytes"]


@dataclass(frozen=True)
class CheckpointWork:
    """What a worker needs to know of a checkpoint; `run` is the name of its rows."""

    run: str
    checkpoint: CheckpointSource
    fingerprint: str
    settings: ScanSettings

    def perform(
        self, folder: Path | None, orders: Orders, tell: Callable[[Beat], None]
    ) -> CellResult:
        """Measure and diagnose it; what is wrong with it is one of its facts."""
        del folder  # a checkpoint is measured in one go: nothing is kept of half of it
        started = time.monotonic()

        def progress(_doing: str, done: int, total: int) -> None:
            tell(Beat(done, total, float("nan"), 0.0, {}))

        progress("loading", 0, 1)
        result: CellResult
        with torch_threads(orders.threads):
            try:
                result = self._examined(progress)
            except Paused:
                raise
            except LeadlineError as error:
                result = self._without_rows("refused", str(error))
            except Exception as error:  # whatever a foreign checkpoint or its code raises
                result = self._without_rows("failed", self._reason(error))
            finally:
                gc.collect()  # so that the next model finds the memory of this one
        seconds = round(time.monotonic() - started, 3)
        return replace(result, facts={**result.facts, "seconds": seconds})

    def lost(self, deaths: Deaths, *, worker: str, how: str, memory: bool) -> CellResult:
        """Say that it has failed, because its workers died."""
        why = ""
        if memory:
            need = memory_needed(self.checkpoint, dtype=self.settings.dtype)
            about = "" if need is None else f" (it needs about {gigabytes(need)})"
            why = f", often because memory ran out{about}; ask for fewer workers or another dtype"
        reason = f"{worker} died {deaths.total} times ({how}){why}"
        result = self._without_rows("failed", f"{reason[:1].upper()}{reason[1:]}.")
        return replace(result, facts={**result.facts, "attempts": deaths.total})

    def _examined(self, progress: Callable[[str, int, int], None]) -> CellResult:
        settings = self.settings
        self._refuse_too_large()
        loaded = load_model(
            self.checkpoint.source,
            dtype=settings.dtype,
            device=settings.device,
            trust_remote_code=settings.trust_remote_code,
            seed=settings.seed,
        )
        diagnosis = diagnose(
            loaded,
            replace(settings.inputs(loaded), made=True),
            twin=settings.twin,
            seed=settings.seed,
            progress=progress,
        )
        record = diagnosis.record
        step = self.checkpoint.step or 0
        readings = tuple(replace(reading, run=self.run, step=step) for reading in record.select())
        names = {reading.quantity for reading in readings}
        quantities = tuple(one for name, one in record.quantities.items() if name in names)
        facts = {
            **self._place("measured"),
            **_verdict_of(diagnosis),
            "missing": list(loaded.missing),
            "measurement": record.provenance,
        }
        return CellResult(self.run, readings, facts, quantities)

    def _refuse_too_large(self) -> None:
        """Refuse a model that would not fit, before the system ends the process for it."""
        need, free = memory_needed(self.checkpoint, dtype=self.settings.dtype), free_memory()
        if self.settings.device == "cpu" and need is not None and free is not None and need > free:
            raise LeadlineError(
                f"Measuring it needs about {gigabytes(need)} of memory and {gigabytes(free)} are "
                f"free on {platform.node()}. Try it once more (--retry) with fewer workers, or scan with "
                "a smaller number type, such as bfloat16."
            )

    def _reason(self, error: Exception) -> str:
        if isinstance(error, MemoryError) or "memory" in type(error).__name__.lower():
            need = memory_needed(self.checkpoint, dtype=self.settings.dtype)
            about = "" if need is None else f": it needs about {gigabytes(need)}"
            return f"The memory did not suffice{about}. Ask for fewer workers or shorter inputs."
        return f"{type(error).__name__}: {words_of(error, first_line=True)}"

    def _without_rows(self, status: str, reason: str) -> CellResult:
        return CellResult(self.run, (), {**self._place(status), "reason": reason})

    def _place(self, status: str) -> dict[str, Any]:
        one = self.checkpoint
        return {
            "name": one.name,
            "source": one.source,
            "step": one.step,
            "group": one.group,
            "fingerprint": self.fingerprint,
            "status": status,
            "reason": "",
            "host": platform.node(),
            "attempts": 1,
        }


def gigabytes(count: float) -> str:
    """Write a number of bytes in words, such as 1.5 GB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.0f} MB"


def _verdict_of(diagnosis: Diagnosis) -> Mapping[str, Any]:
    """What the entry of a checkpoint says of its diagnosis; the rest stands in its rows."""
    known = diagnosis.record.provenance
    return {
        "healthy": diagnosis.healthy,
        "answer": diagnosis.answer,
        "findings": [finding_json(finding) for finding in diagnosis.findings],
        "model": text_at(known, "model", "name"),
        "class": text_at(known, "model", "class"),
        "parameters": number_at(known, "model", "parameters"),
        "loss": number_at(known, "loss", "value"),
    }
