"""The residuals of a record, as log10: how far tokens still differ after each layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.record.provenance import number_at

if TYPE_CHECKING:
    from leadline.record import Reading, Record
    from leadline.theory.rank_collapse.bound import Measure

__all__ = ["RESIDUALS", "STATISTICS", "Residual", "ResidualLine", "why_missing"]

RESIDUALS: dict[Measure, str] = {
    "composite": "tokens.composite_residual",
    "smallest": "tokens.smallest_composite_residual",
    "frobenius": "tokens.residual",
}
"""The quantity that holds the residual of each measure."""
STATISTICS = ("max", "value", "mean")
"""Which value over the examples is read: the first of those there are."""


@dataclass(frozen=True, slots=True)
class Residual:
    """A residual as log10, and its interval where it has one.

    `least` is what it surely is at least: None where nothing says how much of it is rounding.
    """

    value: float
    lower: float | None = None
    upper: float | None = None
    least: float | None = None


class ResidualLine:
    """The readings of one residual along the streams, of the first statistic there is."""

    def __init__(self, record: Record, quantity: str) -> None:
        self.statistic = ""
        self._by_site: dict[tuple[str, int], Reading] = {}
        for statistic in STATISTICS:
            if quantity in record and (readings := record.select(quantity, statistic=statistic)):
                self.statistic = statistic
                self._keep(readings)
                return

    def _keep(self, readings: Sequence[Reading]) -> None:
        """Keep the first run at its last step; of several seeds the largest."""
        here = [one for one in readings if one.run == readings[0].run]
        last = max(one.step for one in here)
        for one in here:
            site = one.site
            if one.step != last or site.point != "stream" or site.sublayer is not None:
                continue
            known = self._by_site.get((site.stack, site.layer))
            # NaN goes first and stays.
            if known is None or not (math.isnan(known.value) or one.value <= known.value):
                self._by_site[site.stack, site.layer] = one

    def at(self, stack: str, layer: int) -> Reading | None:
        """Return the reading after a layer."""
        return self._by_site.get((stack, layer))

    def residuals(self, stack: str, depth: int) -> tuple[Residual | None, ...]:
        """Return what was read at the sites 0..depth."""
        return tuple(_residual(self.at(stack, layer)) for layer in range(depth + 1))


def why_missing(record: Record, quantity: str) -> str:
    """Say why the record has no residuals of a kind, and what to do."""
    if number_at(record.provenance, "input", "longest") == 1:
        return f"{quantity} is about several tokens, and the input has one"
    return f"{quantity} is not in the record; measure with --probes tokens,residual,collapse"


def _residual(reading: Reading | None) -> Residual | None:
    if reading is None:
        return None
    lower, upper = (
        None if end is None else _log10(end, reading.exponent)
        for end in (reading.lower, reading.upper)
    )
    return Residual(_log10(reading.value, reading.exponent), lower, upper, lower)


def _log10(value: float, exponent: int | None) -> float:
    """Return the logarithm; what is not above zero is at the floor of rounding, -inf."""
    if math.isnan(value):
        return math.nan
    if value <= 0 or value == math.inf:
        return -math.inf if value <= 0 else math.inf
    return math.log10(value) + (exponent or 0) * math.log10(2.0)
