"""Say warnings while the run goes on: to the log, the record, a function, sinks, and a snapshot."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from leadline.errors import TrainingStopped
from leadline.lab.watch.fence import Fence, log
from leadline.lab.watch.writer import RunWriter
from leadline.reading.watch.alarm import Standing, ask_alarms
from leadline.reading.watch.history import History
from leadline.record import Finding, Reading, Site
from leadline.record.run.ring import Ring, read_ring, ring_path
from leadline.record.words.watch_answer import batch_words

__all__ = ["SLOTS", "Bell"]

MOST_BATCHES = 32
"""So many batches are named at most, from the one before it began to the one at which it is said."""
OF_EVERY_SAMPLE = ("stream.norm", "weights.update_ratio")
"""Quantities that stand at every sample and never between two, as those of a snapshot do."""
SLOTS = 256
"""So many updates are kept at full rate."""


class Bell:
    """Rings for new warnings. `serious` is whether one of them was serious."""

    def __init__(
        self, fence: Fence, *, on_warning: Callable[[Finding], object] | None, stop: bool
    ) -> None:
        self.warnings: list[Finding] = []
        self.serious = False
        self.batch = ""
        """The name of the batch under way."""
        self.keeps_ring = False
        self._fence = fence
        self._on_warning = on_warning
        self._stop = stop
        self._standing = Standing()
        self._sinks: list[Any] = []
        self._writer: RunWriter | None = None
        self._ring: Ring | None = None
        self._ring_sites: list[Site] = []
        self._kept_until = 0
        self._sampled: deque[int] = deque(maxlen=SLOTS)
        self._batches: dict[int, str] = {}
        """The names of the last updates' batches."""

    def open(self, writer: RunWriter, *, sinks: Iterable[Any], snapshot: bool) -> None:
        """Begin: `snapshot` keeps the last updates at full rate beside the record."""
        self._writer = writer
        self.keeps_ring = snapshot
        if sinks:
            from leadline.lab.watch.sinks.sink import open_sinks

            self._sinks = open_sinks(sinks, note=self._fence.note)

    def remember(self, history: History) -> None:
        """Take what stood at the last samples of a run that goes on as said: it is in the record."""
        steps = {
            int(step)
            for quantity in OF_EVERY_SAMPLE
            for series in history.by_layer(quantity)
            for step in series.steps
        }
        for step in sorted(steps)[-Standing.QUIET - 1 :]:
            self._standing.new(ask_alarms(history.until(step), note=self._fence.note))

    def ask(self, history: History) -> list[Finding]:
        """Return the warnings that are new."""
        new = self._standing.new(ask_alarms(history, note=self._fence.note))
        new = [replace(one, details={**one.details, **self._circumstances(one)}) for one in new]
        self.warnings += new
        self.serious = self.serious or any(one.severity == "serious" for one in new)
        return new

    def tell(self, warnings: Sequence[Finding], step: int, readings: Sequence[Reading]) -> None:
        """Say the warnings of a sample, and send its numbers to the sinks."""
        self._sampled.append(step)
        for one in warnings:
            log.warning("leadline.watch: %s", _log_line(one, step))
        if warnings and self._ring is not None:
            self._fence.lenient("A snapshot", self._snapshot)([one.code for one in warnings])
        self.send(readings)
        for sink in self._sinks:
            for one in warnings:
                sink.warn(one)
        if self._on_warning is not None:  # the last: it may end the watch
            for one in warnings:
                self._fence.lenient("on_warning", self._on_warning)(one)

    def send(self, readings: Sequence[Reading]) -> None:
        """Send numbers to the sinks, step by step."""
        if not self._sinks:
            return
        from leadline.lab.watch.sinks.names import scalars

        by_step: dict[int, list[Reading]] = {}
        for reading in readings:
            by_step.setdefault(reading.step, []).append(reading)
        for sink in self._sinks:
            for step, rows in sorted(by_step.items()):
                sink.write(step, scalars(rows))

    def end_update(self, step: int) -> None:
        """Keep the name of the batch of an update that is over."""
        if not self.batch:
            return
        self._batches[step], self.batch = self.batch, ""
        if len(self._batches) > SLOTS:
            del self._batches[next(iter(self._batches))]

    def _circumstances(self, warning: Finding) -> dict[str, Any]:
        """Which batches came when it began and when it was said, and which attempt it was."""
        step, since = warning.details.get("step", 0), warning.details.get("since", 0)
        near = [at for at in range(since - 1, step + 1) if at in self._batches]
        if len(near) > MOST_BATCHES:  # the first are those that may have caused it
            near = [*near[: MOST_BATCHES - 1], near[-1]]
        batches = {str(at): self._batches[at] for at in near}
        found: dict[str, Any] = {"batches": batches} if batches else {}
        if self._writer is not None and self._writer.facts["attempts"]:
            found["attempt"] = len(self._writer.facts["attempts"]) - 1
        return found

    def stop_if_asked(self) -> None:
        """End the training, where the user wants that of a serious warning."""
        if self._stop and self.serious:
            worst = next(one for one in self.warnings if one.severity == "serious")
            self._stop = False
            raise TrainingStopped(f"{worst.code} {worst.name}: {worst.verdict}")

    def keep(
        self,
        step: int,
        values: Sequence[float],
        norms: Mapping[Site, float],
        *,
        sites: Sequence[Site],
    ) -> None:
        """Keep one update at full rate: loss, rate, gradient norm, and that of every group."""
        if self._ring is not None and list(sites) != self._ring_sites:
            self._snapshot([])  # its rows have other columns
            self._ring.remove()
            self._ring = None
        if self._ring is None:
            assert self._writer is not None and self._writer.place is not None
            names = [_site_json(site) for site in sites]
            self._ring = Ring(ring_path(self._writer.place), names, slots=SLOTS)
            self._ring_sites = list(sites)
        row = [*values, *(norms.get(site, float("nan")) for site in sites)]
        self._ring.put(step, row, batch=self._batches.get(step, ""))

    def _snapshot(self, codes: Sequence[str]) -> bool:
        """Bring what the ring holds into the record; say that it stands there."""
        assert self._ring is not None and self._writer is not None
        ring = read_ring(self._ring.path)
        readings = ring.readings(after=self._kept_until, without=self._sampled)
        # Losses stand in the record at full rate already.
        readings = [one for one in readings if not one.quantity.endswith(".loss")]
        snapshots = [*self._writer.facts.get("snapshots", []), ring.entry(codes)]
        self._writer.write(readings, snapshots=snapshots)
        self._kept_until = max(ring.steps, default=self._kept_until)
        return True

    def close(self) -> None:
        """End: what the ring holds goes into the record, and sinks are closed."""
        shield = self._fence.shield
        if self._ring is not None:
            # What is not in the record stays for the next process to take over.
            end = self._ring.remove if shield(self._snapshot)([]) else self._ring.close
            shield(end)()
        for sink in self._sinks:
            shield(sink.close)()


def _log_line(warning: Finding, step: int) -> str:
    """Say all of a warning in a line: many loops show nothing but their log."""
    words = [f"step {step}: {warning.code} {warning.name}: {warning.verdict}"]
    if warning.cause:
        words.append(f"Likely: {warning.cause}.")
    words.append(warning.remedy["words"])
    if batches := warning.details.get("batches"):
        words.append(f"Batches: {batch_words(batches)}.")
    return " ".join(words)


def _site_json(site: Site) -> dict[str, Any]:
    return {key: value for key, value in asdict(site).items() if value is not None}
