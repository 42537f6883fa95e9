"""The way of a line through depth: how it changes, where, and by how much.

A line is followed in the direction in which the signal goes: the stream forward from its first
layer, a gradient backward from its last. Its way is told in at most three legs, from one turn
to the next, each with the factor between the values at its two ends. Whether it vanishes or
explodes is judged by the largest fall or rise between any two layers of the way. Factors are kept
as logarithms, because those between two float64 may be none.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from leadline.record.words.places import places_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from leadline.record.rows.profile import Profile

__all__ = ["FAR", "FLAT", "STEADY", "Course", "course_of", "fold_text"]

FAR = 100.0
"""From this factor on a signal or a gradient vanishes or explodes. Gradients of pre-norm models
with 96 layers, which train, grow about 11-fold before training; those of models that do not train
for this reason change by 10^6 and more. Two orders of magnitude lie between both."""
STEADY = 2.0
"""Below this factor a line keeps its size: norms of one design differ by less between seeds."""
MOST_LEGS = 3
"""A way is told in so many legs at most."""
EVENLY = 0.4
"""An even change needs half of the layers for half of itself. One that needs less than this share
of them has a place that can be named."""
FLAT = 0.05
"""A line is flat if its range is no larger than this share of its largest size."""


@dataclass(frozen=True, slots=True)
class Leg:
    """A part of a way: from one layer to another, with the logarithm of the factor between them.

    `most` are the ends of the shortest part of it in which at least half of the change happens;
    None where it happens evenly.
    """

    start: int
    end: int
    log: float
    most: tuple[int, int] | None

    @property
    def words(self) -> str:
        """The change as the end of a sentence, without the layer where it starts."""
        verb = "shrinks" if self.log < 0 else "grows"
        return f"{verb} {fold_text(abs(self.log))}"

    @property
    def place_of_most(self) -> str:
        """Where most of the change happens; empty where it is even."""
        if self.most is None or set(self.most) == {self.start, self.end}:
            return ""
        first, last = self.most
        one_step = abs(first - last) == 1
        where = "in the step from layer {} to {}" if one_step else "between layers {} and {}"
        return f", most of it {where.format(first, last)}"


@dataclass(frozen=True, slots=True)
class Course:
    """How a line changes on its way through `layers`, which are in the order of its travel.

    `fall` and `rise` are the logarithms of the largest factors by which its positive values fall
    and rise between any two layers of the way, `away` that of the largest factor between its start
    and any other layer; `legs` tell the way. At the layers in `zero` the value is exactly
    zero, at those in `negative` below zero, at those in `lost` not finite: these count in no factor.
    """

    layers: tuple[int, ...]
    fall: float
    rise: float
    away: float
    legs: tuple[Leg, ...]
    zero: tuple[int, ...] = ()
    negative: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()

    @property
    def gone(self) -> bool:
        """Whether it is zero everywhere, or becomes zero behind a layer where it is not."""
        leading = self.layers[: len(self.zero)]
        return bool(self.zero) and (self.zero != leading or len(self.zero) == len(self.layers))

    @property
    def size(self) -> float:
        """The factor of the largest fall or rise: at least 1, infinite beyond float64."""
        if self.gone:
            return math.inf
        largest = max(self.fall, self.rise)
        return math.exp(largest) if largest < math.log(sys.float_info.max) else math.inf

    @property
    def shrinks(self) -> bool:
        """Whether the largest change is a fall; of two that are equal the first one counts."""
        if self.gone or self.fall > self.rise:
            return True
        return self.fall == self.rise and bool(self.legs) and self.legs[0].log < 0

    @property
    def is_sound(self) -> bool:
        """Whether it is finite and not below zero everywhere."""
        return not self.lost and not self.negative

    @property
    def words(self) -> str:
        """The change as the end of a sentence whose subject is the line."""
        odd = [
            f"is {what} {places_text(where, self.layers)}"
            for what, where in (
                ("0, or too small to be kept,", self.zero),
                ("below 0", self.negative),
                ("not finite", self.lost),
            )
            if where
        ]
        if not odd:
            return self._change
        ordinary = len(self.layers) - len(self.zero) - len(self.negative) - len(self.lost)
        # A fall before it becomes zero for good is part of that; a large rise before is not.
        ends_in_zero = self.gone and self.zero == self.layers[-len(self.zero) :]
        untold = ends_in_zero and len(odd) == 1 and self.rise < math.log(FAR)
        if ordinary < 2 or untold:
            return " and ".join(odd)
        return f"{' and '.join(odd)}; elsewhere it {self._change}"

    @property
    def _change(self) -> str:
        if max(self.fall, self.rise) < math.log(STEADY):
            size = math.exp(self.away)
            if size < 1 + 2 * FLAT:
                return f"keeps its size within {_rounded_up(100 * (size - 1)):.0f} %"
            return f"keeps its size within a factor of {_rounded_up(10 * size) / 10:g}"
        first, *others = self.legs
        words = f"{first.words} from layer {first.start} to layer {first.end}{first.place_of_most}"
        for one in others:
            words += f", then {one.words} to layer {one.end}"
        return words


def course_of(profile: Profile, *, backward: bool = False) -> Course | None:
    """Follow a line; None where it has a single value, which is on no way."""
    way = slice(None, None, -1 if backward else 1)
    layers = np.asarray(profile.layers, dtype=np.int64)[way]
    values = np.asarray(profile.values, dtype=np.float64)[way]
    if len(values) < 2:
        return None
    finite = np.isfinite(values)
    positive = finite & (values > 0)
    height = np.log(values[positive])
    kept = layers[positive]
    turns = _turns(height)
    return Course(
        layers=tuple(layers.tolist()),
        fall=_largest_rise(-height),
        rise=_largest_rise(height),
        away=float(np.max(np.abs(height - height[:1]), initial=0.0)),
        legs=tuple(
            Leg(
                start=int(kept[start]),
                end=int(kept[end]),
                log=float(height[end] - height[start]),
                most=_most(kept[start : end + 1], height[start : end + 1]),
            )
            for start, end in pairwise(turns)
        ),
        zero=tuple(layers[values == 0].tolist()),
        negative=tuple(layers[finite & (values < 0)].tolist()),
        lost=tuple(layers[~finite].tolist()),
    )


def _largest_rise(height: NDArray[np.float64]) -> float:
    """Return by how much a later value is above an earlier one, at most; 0 if it never is."""
    lowest = np.minimum.accumulate(height)
    return float(np.max(height - lowest, initial=0.0))


def _turns(height: NDArray[np.float64]) -> list[int]:
    """Return the first place, the turns worth telling and the last place; none without a change.

    The smallest leg between two turns is given up, again and again, until all that are left are
    worth telling and few enough.
    """
    turns: list[int] = []
    for at in range(len(height)):
        if (
            len(turns) > 1
            and (height[turns[-1]] - height[turns[-2]]) * (height[at] - height[turns[-1]]) >= 0
        ):
            turns[-1] = at
        elif not turns or height[at] != height[turns[-1]]:
            turns.append(at)
    while len(turns) > 2:
        sizes = [abs(float(height[end] - height[start])) for start, end in pairwise(turns)]
        smallest = min(range(len(sizes)), key=sizes.__getitem__)
        if sizes[smallest] >= math.log(STEADY) and len(sizes) <= MOST_LEGS:
            break
        # At an end of the way a leg goes alone; inside, its neighbours become one.
        if smallest == 0:
            del turns[0]
        elif smallest == len(sizes) - 1:
            del turns[-1]
        else:
            del turns[smallest : smallest + 2]
    if len(turns) < 2:
        return []
    # Where the line stays near a turn, the first layer that comes there counts.
    near = np.abs(height - height[turns[0]]) <= math.log1p(FLAT)
    settled = [int(np.argmax(near[: turns[0] + 1]))]
    for turn in turns[1:]:
        begin = settled[-1]
        near = np.abs(height[begin:] - height[turn]) <= math.log1p(FLAT)
        settled.append(begin + int(np.argmax(near)))
    return settled


def _rounded_up(value: float) -> float:
    return math.ceil(round(value, 6))


def fold_text(log: float) -> str:
    """Write a factor in two digits, by its logarithm: `2.8-fold`, `300-fold`, `10^7.5-fold`."""
    power = log / math.log(10)
    if power >= 5:
        return f"10^{power:.1f}-fold".replace(".0-", "-")
    return f"{float(f'{math.exp(log):.2g}'):g}-fold"


def _most(layers: NDArray[np.int64], height: NDArray[np.float64]) -> tuple[int, int] | None:
    """Return the shortest stretch with at least half of the change; None if it is spread evenly."""
    steps = len(height) - 1
    for length in range(1, max(1, math.ceil(EVENLY * steps)) + 1):
        if length > steps or (length > 1 and length >= EVENLY * steps):
            break
        share = (height[length:] - height[:-length]) / (height[-1] - height[0])
        best = int(np.argmax(share))
        if share[best] >= 0.5:
            return int(layers[best]), int(layers[best + length])
    return None
