"""The history of a run: every gauge as a series over steps, from a record or while it grows.

    history = History.of(record)                 # a file
    history.add(readings)                        # or sample by sample, while the run goes on
    history.of_run("train.loss")                 # one Series, or None
    history.by_layer("update.ratio")             # one Series per site, in the order of depth

A series holds the headline statistic of a quantity at one site, without heads, lanes and tokens.
Attempts that overlap are put together: where a run went on from an earlier step, what it does again
replaces what was read before.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from leadline.record.rows.site import RUN, Site
from leadline.record.run.watching import attempts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from leadline.record import Quantity, Reading, Record
    from leadline.record.rows.step_line import StepLine

__all__ = ["History", "Series"]


@dataclass
class Series:
    """One quantity at one site, step by step: sixteen bytes for each, for runs of millions."""

    quantity: str
    site: Site
    _steps: array[int] = field(default_factory=lambda: array("q"))
    _values: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def steps(self) -> NDArray[np.int64]:
        """The steps, rising."""
        return np.array(self._steps, dtype=np.int64)

    @property
    def values(self) -> NDArray[np.float64]:
        """The values, one for each step."""
        return np.array(self._values, dtype=np.float64)

    @property
    def last_step(self) -> int:
        """The last step."""
        return self._steps[-1]

    @property
    def last(self) -> float:
        """The value at the last step."""
        return self._values[-1]

    def until(self, step: int) -> Series:
        """Return the series as it was when this step was the last."""
        count = bisect_right(self._steps, step)
        return Series(self.quantity, self.site, self._steps[:count], self._values[:count])

    def head(self, count: int) -> Series:
        """Return the first samples."""
        return Series(self.quantity, self.site, self._steps[:count], self._values[:count])

    def tail(self, count: int) -> Series:
        """Return the last samples: alarms look at few of many, after every sample."""
        return Series(self.quantity, self.site, self._steps[-count:], self._values[-count:])

    def sample(self, step: int) -> tuple[int, float]:
        """Return the last sample up to a step, its own step and value; the first where none is."""
        index = max(bisect_right(self._steps, step) - 1, 0)
        return self._steps[index], self._values[index]

    def at(self, step: int) -> float:
        """Return the value of the last sample up to a step."""
        return self.sample(step)[1]

    def put_line(self, steps: Sequence[int], values: Sequence[float]) -> None:
        """Add values at rising steps; what stands at the first of them or later is replaced."""
        self.put(steps[0], values[0])
        self._steps.extend(steps[1:])
        self._values.extend(values[1:])

    def put(self, step: int, value: float) -> None:
        """Add a value; what stands at this step or later is replaced."""
        while self._steps and self._steps[-1] >= step:
            self._steps.pop()
            self._values.pop()
        self._steps.append(step)
        self._values.append(value)


class History:
    """Series by quantity and site, in the order in which their sites came."""

    def __init__(self, quantities: Iterable[Quantity] = ()) -> None:
        self.quantities: dict[str, Quantity] = {one.name: one for one in quantities}
        self._series: dict[str, dict[Site, Series]] = {}
        self.step = 0
        """The last step that anything was read at."""

    @classmethod
    def of(cls, record: Record) -> History:
        """Return the history that a record holds, its attempts put together."""
        history = cls(record.quantities.values())
        lines = record.step_lines()
        before: str | None = None
        for attempt in attempts_of(record):
            if attempt.run == before:  # it went on where it had been cut off
                continue
            history.go_back_to(attempt.first)
            history.add_lines(line for line in lines if line.run == attempt.run)
            before = attempt.run
        return history

    def describe(self, quantities: Iterable[Quantity]) -> None:
        """Add definitions; what has none is not kept."""
        self.quantities |= {one.name: one for one in quantities}

    def add(self, readings: Iterable[Reading]) -> None:
        """Add the readings of one sample, or of several in the order of their steps."""
        for reading in readings:
            quantity = self.quantities.get(reading.quantity)
            site = reading.site
            if quantity is None or reading.statistic != quantity.headline:
                continue
            if (site.head, site.lane, site.token, site.rank, site.example) != (None,) * 5:
                continue
            sites = self._series.setdefault(reading.quantity, {})
            if site not in sites:
                sites[site] = Series(reading.quantity, site)
            sites[site].put(reading.step, reading.value)
            self.step = max(self.step, reading.step)

    def add_lines(self, lines: Iterable[StepLine]) -> None:
        """Add what was read at many steps at once, of each quantity and site."""
        for line in lines:
            if line.quantity not in self.quantities:
                continue
            sites = self._series.setdefault(line.quantity, {})
            if line.site not in sites:
                sites[line.site] = Series(line.quantity, line.site)
            sites[line.site].put_line(line.steps, line.values)
            self.step = max(self.step, line.steps[-1])

    def go_back_to(self, step: int) -> None:
        """Forget what was read at this step and later: it is done again."""
        for sites in self._series.values():
            for site, series in sites.items():
                sites[site] = series.until(step - 1)
        self.step = min(self.step, max(step - 1, 0))

    def until(self, step: int) -> History:
        """What was known at a step."""
        past = History(self.quantities.values())
        past._series = {name: dict(sites) for name, sites in self._series.items()}
        past.step = self.step
        past.go_back_to(step + 1)
        return past

    def __contains__(self, quantity: object) -> bool:
        return quantity in self._series

    @property
    def series(self) -> Mapping[str, Mapping[Site, Series]]:
        """Every series, by quantity and site."""
        return self._series

    def of_run(self, quantity: str) -> Series | None:
        """Return the series of a quantity of the run, None where it was never read."""
        series = self._series.get(quantity, {}).get(RUN)
        return series if series is not None and len(series) else None

    def by_layer(
        self, quantity: str, *, stack: str | None = None, point: str | None = None
    ) -> list[Series]:
        """Return the series of a quantity by depth, of all stacks unless one is named.

        Of the stream the sites between blocks are meant, not those between two writes of a block.
        """
        definition = self.quantities.get(quantity)
        inside = definition is not None and definition.lives_on == "stream"
        return sorted(
            (
                series
                for site, series in self._series.get(quantity, {}).items()
                if len(series)
                and site != RUN
                and (stack is None or site.stack == stack)
                and (point is None or site.point == point)
                and not (inside and site.sublayer is not None)
            ),
            key=lambda series: (series.site.stack, series.site.layer, series.site.sublayer or 0),
        )
