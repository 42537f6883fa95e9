"""What becomes of a sample: joined over processes, judged by the alarms, written, and told.

The first process writes; every other one hands it what it has read. So do the losses of updates
between two samples, and the gradient norms at full rate of a watch with `snapshot=True`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from leadline.errors import TrainingStopped
from leadline.lab.watch.bell import Bell
from leadline.lab.watch.fence import Fence
from leadline.lab.watch.gauges import without_endless_room
from leadline.lab.watch.layers import LayerReader
from leadline.lab.watch.losses.calls import BackwardCall
from leadline.lab.watch.losses.keeper import LossKeeper
from leadline.lab.watch.processes.parts import RankPart
from leadline.lab.watch.processes.ranks import Ranks
from leadline.lab.watch.weights.reader import WeightReader
from leadline.lab.watch.writer import RunWriter
from leadline.reading.watch.history import History
from leadline.record import Quantity

__all__ = ["Delivery"]


class Delivery:
    """Takes what the readers of one process have read to where it belongs."""

    def __init__(
        self,
        *,
        fence: Fence,
        ranks: Ranks,
        layers: LayerReader,
        weights: WeightReader,
        losses: LossKeeper,
        bell: Bell,
        writer: RunWriter | None,
        stop: bool,
        sends_norms: bool,
    ) -> None:
        self.writer = writer
        self._fence = fence
        self._ranks = ranks
        self._layers = layers
        self._weights = weights
        self._losses = losses
        self._bell = bell
        self._stop = stop
        self._sends_norms = sends_norms
        """Whether the first process keeps gradient norms at full rate, and needs those from here."""
        self._last_sample = 0
        self._history = History()

    def begin(self, quantities: Sequence[Quantity], first: int) -> None:
        """Say which update comes first; the alarms go on from what the file holds before it."""
        if self.writer is None:
            return
        self.writer.describe(quantities)
        if self.writer.resumed:
            self._history = History.of(self.writer.record)
            self._history.go_back_to(first)
            self._fence.lenient("Reading the earlier warnings", self._bell.remember)(self._history)
        self.writer.begin(first)
        self._history.describe(quantities)

    def end(
        self, error: BaseException | None, *, begun: bool, steps: int, overhead: dict[str, Any]
    ) -> None:
        """Write what is left, and close what was opened."""
        if self.writer is None:
            self._ranks.send_losses(self._losses.readings(), self._weights.sites)
            return
        shield = self._fence.shield
        if begun:
            losses = self._losses.readings()
            losses = shield(self._ranks.join_losses)(losses) or losses
            shield(self.writer.write)(losses)
            shield(self._bell.send)(losses)
        shield(self._bell.close)()
        shield(self.writer.close)(
            error=error, steps=steps, notes=self._fence.notes, overhead=overhead
        )

    # --- one sample ------------------------------------------------------------------------------

    def deliver(
        self, step: int, calls: Sequence[BackwardCall], factor: float | None, *, every: int
    ) -> tuple[bool, int]:
        """Take a sample where it belongs; say whether it showed anything, and how often to sample."""
        part = self._read_part(calls)
        if self.writer is None:
            send = self._fence.guard("Sending a sample", self._send)
            return bool(send(step, part)), self._ranks.every_of_first(every)
        write = self._fence.guard("Writing a sample", self._write)
        return bool(write(self.writer, step, part, factor)), every

    def _read_part(self, calls: Sequence[BackwardCall]) -> RankPart:
        """What this process read of the update."""
        guard, sums = self._fence.guard, self._weights.sums()
        layers = guard("Reading the layers", self._layers.readings)(calls) or []
        losses = guard("Reading the losses", self._losses.readings)() or []
        return RankPart(sums, layers, self._layers.counts, losses)

    def _send(self, step: int, part: RankPart) -> bool:
        self._ranks.send(step, part, self._weights.sites)
        return bool(part.sums or part.layers)

    def _write(self, writer: RunWriter, step: int, part: RankPart, factor: float | None) -> bool:
        """Join, judge and write what was read; say whether it was more than losses."""
        guard, ranks = self._fence.guard, self._ranks
        join = guard("Joining what the processes read", ranks.join)
        layers = not self._layers.has_fixed_batch
        whole = join(step, part, self._weights.sites, layers=layers)
        if whole is None:  # what this process read of its part of the weights says nothing alone
            whole = replace(part, sums=None) if ranks.sharded else part
        readings = without_endless_room(whole.layers)
        readings += guard("Reading the weights", self._weights.readings)(whole.sums, factor) or []
        writer.facts["gradients"] = dict(self._weights.facts)
        readings = [replace(reading, step=step) for reading in readings]
        useful = len(readings) > 1  # the learning rate can always be read
        readings += whole.losses
        if ranks.several:
            writer.facts["processes"] = ranks.facts
        self._history.add(sorted(readings, key=lambda reading: reading.step))
        warnings = guard("Asking the alarms", self._bell.ask)(self._history) or []
        writer.write(readings, warnings, steps=step, notes=self._fence.notes)
        self._bell.tell(warnings, step, readings)
        return useful

    # --- in between ------------------------------------------------------------------------------

    def write_losses(self, step: int) -> None:
        """Write the losses of the updates since the last sample."""
        readings = self._losses.readings()
        if self.writer is not None:
            self._history.add(readings)
            self.writer.write(readings, steps=step)
            self._bell.send(readings)

    @property
    def keeps_norms(self) -> bool:
        """Whether gradient norms are read at every update."""
        return self._bell.keeps_ring or self._sends_norms

    def keep_norms(self, step: int, factor: float | None) -> None:
        """Keep loss, rate and gradient norms of one update in the ring beside the record."""
        if not self._weights.sites:
            return
        rate, squares = self._weights.squares()
        squares = self._ranks.join_squares(step, squares, self._weights.sites)
        if self._sends_norms:
            return
        norms = {site: value**0.5 / (factor or 1.0) for site, value in squares.items()}
        norm = math.sqrt(sum(value * value for value in norms.values())) if norms else math.nan
        values = (self._losses.last(step), rate, norm)
        self._bell.keep(step, values, norms, sites=self._weights.sites)

    # --- stopping --------------------------------------------------------------------------------

    @property
    def should_stop(self) -> bool:
        """Whether a serious warning was said; the same in all processes."""
        if not self._ranks.several:
            return self._bell.serious
        return bool(self._fence.shield(self._ranks.verdict)(self._last_sample))

    def stop_together(self, step: int) -> None:
        """End the training where the user wants that of a serious warning: in all processes."""
        ranks = self._ranks
        self._last_sample = step
        if not ranks.several:
            self._bell.stop_if_asked()
        elif not ranks.main:
            if ranks.stop_of_first(self._stop) and self.should_stop:
                raise TrainingStopped("A serious warning of the first process ends the training.")
        else:
            self._fence.shield(ranks.tell)(step, stop=self._bell.serious)
            if self.should_stop:
                self._bell.stop_if_asked()
            elif self._stop and self._bell.serious:
                self._fence.note(
                    "A serious warning would end the training, but not every process watches, and "
                    "one that stops alone would leave the others waiting: training continues."
                )
