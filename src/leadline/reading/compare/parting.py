"""Where two lines over depth stand farthest apart, and by how much.

Lines of one depth are compared layer by layer. Lines of different depths are compared at equal
shares of depth l / L, with straight lines between the layers of the one that is the measure. The
place where two lines part most is the one with the largest |ln ratio|; where values change sign or
vanish, or are logarithms themselves, there is no ratio, and the largest difference stands.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from leadline.record.words.course import STEADY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from leadline.record import Profile

__all__ = ["EndRatio", "Parting", "ends_apart", "find_parting", "stretch_of"]


@dataclass(frozen=True, slots=True)
class Parting:
    """Where a record stands farthest from the first one.

    `layer` counts in the record itself, `layer_of_first` in the first record: the same layer where
    both have one depth, else the place at the same share of depth, which may lie between layers.
    `ratio` is NaN where there is none, and `log10_ratio` its logarithm, finite where the ratio
    itself is too large or too small for a number; `difference` is its value minus that of the first
    record. `begins` is the first layer at which the two differ by a factor of STEADY or more; None
    where they do so nowhere, or have no ratio.
    """

    layer: int
    share_of_depth: float
    ratio: float
    difference: float
    begins: int | None = None
    layer_of_first: float = math.nan
    log10_ratio: float = math.nan


class EndRatio(NamedTuple):
    """The ratio at the first or last layer that two lines share; NaN where there is none."""

    layer: int
    ratio: float
    log10_ratio: float


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The values of a line, and those of the measure at the same places."""

    values: NDArray[np.float64]
    against: NDArray[np.float64]
    inside: NDArray[np.bool_]
    """Where the measure has a value at all."""
    comparable: NDArray[np.bool_]
    log10_ratio: NDArray[np.float64]

    def ratio(self, at: int) -> float:
        if not math.isfinite(self.log10_ratio[at]):
            return math.nan
        with np.errstate(over="ignore", under="ignore"):
            return float(self.values[at] / self.against[at])


def stretch_of(depth: int, measure_depth: int, *, by_hops: bool) -> float:
    """Return how many layers of the measure one layer of a record is worth.

    A hop is a hop however deep the model is; only layers are compared by their share of depth.
    """
    return 1.0 if by_hops or not depth else measure_depth / depth


def find_parting(
    line: Profile, measure: Profile, *, depth: int, measure_depth: int, logarithm: bool
) -> Parting | None:
    """Find where a line stands farthest from the measure, at the layers of the line."""
    pairs = _pair(line, measure, depth=depth, measure_depth=measure_depth, logarithm=logarithm)
    if not bool(np.any(pairs.comparable)):
        return None
    has_ratio = pairs.comparable & np.isfinite(pairs.log10_ratio)
    # Halves, so that the difference of two large numbers does not overflow.
    distance = np.abs(np.where(pairs.comparable, pairs.values / 2 - pairs.against / 2, 0.0))
    begins = None
    if bool(np.all(has_ratio[pairs.comparable])):
        distance = np.abs(np.where(has_ratio, pairs.log10_ratio, 0.0))
        apart = np.flatnonzero(pairs.comparable & (distance >= math.log10(STEADY)))
        begins = line.layers[int(apart[0])] if len(apart) else None
    worst = int(np.argmax(np.where(pairs.comparable, distance, -1.0)))
    layer = line.layers[worst]
    with np.errstate(over="ignore"):
        difference = float(pairs.values[worst] - pairs.against[worst])
    return Parting(
        layer=layer,
        share_of_depth=layer / max(depth, 1),
        ratio=pairs.ratio(worst),
        difference=difference,
        begins=begins,
        layer_of_first=layer * stretch_of(depth, measure_depth, by_hops=line.over == "hops"),
        log10_ratio=float(pairs.log10_ratio[worst]),
    )


def ends_apart(
    line: Profile, measure: Profile, *, depth: int, measure_depth: int, logarithm: bool
) -> tuple[EndRatio, ...]:
    """Return the first and the last layer that both lines have, with their ratios; NaN for none."""
    pairs = _pair(line, measure, depth=depth, measure_depth=measure_depth, logarithm=logarithm)
    inside = np.flatnonzero(pairs.inside)
    return (
        ()
        if not len(inside)
        else tuple(
            EndRatio(line.layers[at], pairs.ratio(at), float(pairs.log10_ratio[at]))
            for at in (int(inside[0]), int(inside[-1]))
        )
    )


def _pair(
    line: Profile, measure: Profile, *, depth: int, measure_depth: int, logarithm: bool
) -> _Pairs:
    stretch = stretch_of(depth, measure_depth, by_hops=line.over == "hops")
    places = np.array(line.layers, dtype=np.float64) * stretch
    if stretch == 1:  # no value is made up between layers that were both measured
        at_layer = dict(zip(measure.layers, measure.values, strict=True))
        against = np.array([at_layer.get(layer, math.nan) for layer in line.layers])
        inside = np.array([layer in at_layer for layer in line.layers])
    else:
        places = np.where(np.abs(places - np.round(places)) < 1e-9, np.round(places), places)
        with np.errstate(all="ignore"):
            against = np.interp(places, measure.layers, measure.values, np.nan, np.nan)
        inside = (places >= measure.layers[0]) & (places <= measure.layers[-1])
    values = np.asarray(line.values, dtype=np.float64)
    comparable = inside & np.isfinite(values) & np.isfinite(against)
    log10_ratio = np.full_like(values, np.nan)
    # Such a ratio says nothing where signs differ; and of logarithms differences are compared.
    sound = comparable & (np.sign(values) == np.sign(against)) & (values != 0)
    if not logarithm and bool(np.any(sound)):
        log10_ratio[sound] = np.log10(np.abs(values[sound])) - np.log10(np.abs(against[sound]))
    return _Pairs(values, np.asarray(against, dtype=np.float64), inside, comparable, log10_ratio)
