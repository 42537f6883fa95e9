"""The places of the map of what trains: cells that differ by their seed alone.

A place trains when at least `share` of the seeds that were measured do, and at least one. The
usable depth of a row is the largest measured depth such that it and every smaller measured one
train; the next measured depth, which does not, closes the bracket. Holes count neither way.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leadline.reading.map.binomial import binomial_interval
from leadline.record.provenance import strict_number

if TYPE_CHECKING:
    from leadline.reading.map.cells import Label, SweepCell

__all__ = ["Depth", "MapPlace", "MapRow", "UsableDepth", "usable_depth"]

DIGITS = 0.005
"""A share is compared to two digits, so that 0.67 asks for two seeds of three."""

Depth = int | float


@dataclass(frozen=True, slots=True)
class MapPlace:
    """The cells of one row at one depth. `missing` counts those that were not run yet.

    `gauges` maps a gauge to its median over the seeds, at the step at which it predicts best.
    """

    depth: Depth
    cells: tuple[SweepCell, ...]
    missing: int
    share: float
    gauges: Mapping[str, float]

    @property
    def measured(self) -> list[SweepCell]:
        """The cells that are not holes."""
        return [cell for cell in self.cells if cell.trains is not None]

    @property
    def trained(self) -> int:
        """How many seeds train."""
        return sum(cell.trains is True for cell in self.cells)

    @property
    def seeds(self) -> int:
        """How many seeds were measured."""
        return len(self.measured)

    @property
    def holes(self) -> int:
        """How many cells failed, are impossible or were not run."""
        return len(self.cells) - self.seeds + self.missing

    @property
    def trains(self) -> bool | None:
        """Whether enough of the measured seeds train; None where none was measured."""
        if not self.seeds:
            return None
        needed = self.seeds if self.share >= 1 else (self.share - DIGITS) * self.seeds
        return self.trained >= max(1, needed)

    @property
    def loss(self) -> float:
        """The median loss of the measured seeds, one that diverged counted as the highest."""
        losses = [cell.loss for cell in self.measured]
        if not losses:
            return math.nan
        middle = statistics.median(math.inf if math.isnan(one) else one for one in losses)
        return middle if math.isfinite(middle) else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The probability to train lies in it, with 95 % confidence."""
        return binomial_interval(self.trained, self.seeds)

    def to_json(self) -> dict[str, Any]:
        """Return the place as strict JSON."""
        return {
            "depth": self.depth,
            "trains": self.trains,
            "trained": self.trained,
            "seeds": self.seeds,
            "holes": self.holes,
            "probability": list(self.interval),
            "loss": strict_number(self.loss),
            "gauges": {name: strict_number(value) for name, value in self.gauges.items()},
            "cells": [_cell_json(cell) for cell in self.cells],
            "not_run": self.missing,
        }


@dataclass(frozen=True, slots=True)
class UsableDepth:
    """How deep a row trains. `depth` is 0 where not even its smallest measured depth does.

    `fails_at` is the first measured depth that does not train, None where all do. `again` are
    deeper ones that do, `holes` the depths at which nothing was measured. `by_seed` has the
    usable depth of every seed alone.
    """

    depth: Depth
    fails_at: Depth | None
    again: tuple[Depth, ...]
    holes: tuple[Depth, ...]
    by_seed: Mapping[int, Depth]

    @property
    def smallest(self) -> Depth:
        """The usable depth of the worst seed."""
        return min(self.by_seed.values())

    @property
    def median(self) -> Depth:
        """The usable depth of the middle seed, the lower of two."""
        return statistics.median_low(self.by_seed.values())

    @property
    def largest(self) -> Depth:
        """The usable depth of the best seed."""
        return max(self.by_seed.values())

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "depth": self.depth,
            "fails_at": self.fails_at,
            "trains_again_at": list(self.again),
            "not_measured_at": list(self.holes),
            "by_seed": {str(seed): depth for seed, depth in self.by_seed.items()},
            "smallest": self.smallest,
            "median": self.median,
            "largest": self.largest,
        }


@dataclass(frozen=True, slots=True)
class MapRow:
    """A row of the map. `places` has one entry per depth of the map, None where none was asked.

    `usable` is None where nothing of the row was measured.
    """

    name: str
    labels: Mapping[str, Label]
    places: tuple[MapPlace | None, ...]
    usable: UsableDepth | None

    @property
    def tasks(self) -> list[str]:
        """The tasks of its cells."""
        return list(dict.fromkeys(c.task for p in self.places if p for c in p.cells))


def usable_depth(places: Sequence[MapPlace | None]) -> UsableDepth | None:
    """Return how deep a row trains; None where nothing of it was measured."""
    present = [place for place in places if place is not None]
    verdicts = {place.depth: place.trains for place in present if place.trains is not None}
    if not verdicts:
        return None
    depth, fails_at = _reach(verdicts)
    by_seed: dict[int, dict[Depth, bool]] = {}
    for place in present:
        for cell in place.measured:
            by_seed.setdefault(cell.seed, {})[place.depth] = cell.trains is True
    again = () if fails_at is None else (d for d, yes in verdicts.items() if yes and d > fails_at)
    return UsableDepth(
        depth=depth,
        fails_at=fails_at,
        again=tuple(again),
        holes=tuple(place.depth for place in present if place.trains is None),
        by_seed={seed: _reach(by_seed[seed])[0] for seed in sorted(by_seed)},
    )


def _reach(verdicts: Mapping[Depth, bool]) -> tuple[Depth, Depth | None]:
    """The largest depth up to which all train, 0 if none does, and the first that does not."""
    reached: Depth = 0
    for depth in sorted(verdicts):
        if not verdicts[depth]:
            return reached, depth
        reached = depth
    return reached, None


def _cell_json(cell: SweepCell) -> dict[str, Any]:
    return {
        "run": cell.run,
        "seed": cell.seed,
        "status": cell.status,
        "reason": cell.reason,
        "steps": cell.steps,
        "loss": strict_number(cell.loss),
        "trains": cell.trains,
    }
