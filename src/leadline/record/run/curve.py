"""One line over training steps: the values of one quantity of one run.

Numbers of a run (`lives_on == "run"`) have no layer. They are shown over steps, where all other
quantities are shown over depth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from leadline.record.run.ending import endings_of
from leadline.record.run.training import VALIDATION_LOSS
from leadline.record.run.watching import attempts_of, is_watched
from leadline.record.words.numbers import format_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from leadline.record.record import Record
    from leadline.record.rows.quantity import AxisScale, Quantity
    from leadline.record.rows.reading import Reading
    from leadline.record.run.ending import RunEnding

__all__ = [
    "Curve",
    "CurveRow",
    "curve_rows",
    "curves_of",
    "is_loss",
    "joined_curve",
    "run_quantities",
    "thin_curve",
]


@dataclass(frozen=True, eq=False)
class Curve:
    """The values of one quantity of one run, step by step."""

    quantity: str
    run: str
    seed: int | None
    steps: tuple[int, ...]
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def first(self) -> float:
        """The value at the first step."""
        return float(self.values[0])

    @property
    def last(self) -> float:
        """The value at the last step."""
        return float(self.values[-1])

    @property
    def lowest(self) -> tuple[int, float]:
        """The step of the lowest finite value and the value; the last one if none is finite."""
        finite = np.isfinite(self.values)
        if not bool(np.any(finite)):
            return self.steps[-1], self.last
        at = int(np.argmin(np.where(finite, self.values, np.inf)))
        return self.steps[at], float(self.values[at])


@dataclass(frozen=True, slots=True)
class CurveRow:
    """A curve with its name and its scale, as a row of a table."""

    label: str
    curve: Curve
    scale: AxisScale
    remark: str = ""
    diverged: bool = False
    """Whether it is a loss of a run that diverged, so that its last value is no result."""

    @property
    def last(self) -> str:
        """The last value in words."""
        return "diverged" if self.diverged else format_number(self.curve.last)


def is_loss(quantity: str) -> bool:
    """Say whether a quantity is a loss."""
    return quantity.endswith(".loss")


def run_quantities(record: Record) -> dict[str, Quantity]:
    """Return the quantities that belong to runs, by name."""
    return {name: one for name, one in record.quantities.items() if one.lives_on == "run"}


def curves_of(
    record: Record, quantity: str | None = None, *, run: str | None = None
) -> list[Curve]:
    """Return every curve of the record, by quantity and then by run; of one of each if named.

    Of two readings of one step the later one stands.
    """
    names = list(run_quantities(record)) if quantity is None else [quantity]
    curves: list[Curve] = []
    for name in names:
        groups: dict[tuple[str, int | None], dict[int, Reading]] = {}
        for reading in record.select(name, run=run):
            groups.setdefault((reading.run, reading.seed), {})[reading.step] = reading
        curves += [_curve(by_step) for by_step in groups.values()]
    return curves


def joined_curve(record: Record, quantity: str) -> Curve | None:
    """Return the curve of a run that was cut off and went on, its attempts put together.

    Where an attempt began at an earlier step than the one before had reached, it stands. None
    where the quantity was not read; of a record with many runs that of the first.
    """
    by_step: dict[int, Reading] = {}
    if quantity in record.quantities:
        for attempt in attempts_of(record):
            by_step = {step: one for step, one in by_step.items() if step < attempt.first}
            by_step |= {one.step: one for one in record.select(quantity, run=attempt.run)}
    return _curve(by_step) if by_step else None


def thin_curve(curve: Curve, most: int) -> Curve:
    """Return a curve of about `most` points at most: of every stretch its lowest and highest.

    The first and the last point stay, and so does the first of a stretch that is not finite. A
    curve that is thinned is there to be drawn, so its values have six digits.
    """
    if len(curve) <= most:
        return curve
    kept = {0, len(curve) - 1}
    for part in np.array_split(np.arange(len(curve)), max(1, most // 2)):
        values = curve.values[part]
        finite = np.isfinite(values)
        if not bool(np.all(finite)):
            kept.add(int(part[np.argmin(finite)]))
        if bool(np.any(finite)):
            kept.add(int(part[np.argmin(np.where(finite, values, np.inf))]))
            kept.add(int(part[np.argmax(np.where(finite, values, -np.inf))]))
    places = sorted(kept)
    steps = tuple(curve.steps[at] for at in places)
    values = np.array([float(f"{value:.6g}") for value in curve.values[places]])
    return replace(curve, steps=steps, values=values)


def curve_rows(record: Record) -> list[CurveRow]:
    """Return a row per quantity of a run; of several runs, the validation loss of each."""
    known = run_quantities(record)
    if not known:
        return []
    if is_watched(record):
        joined = (joined_curve(record, name) for name in known)
        return [
            CurveRow(one.quantity, one, known[one.quantity].scale)
            for one in joined
            if one is not None
        ]
    several = len(record.runs) > 1
    name = VALIDATION_LOSS.name if VALIDATION_LOSS.name in known else next(iter(known))
    curves = curves_of(record, name if several else None)
    endings = endings_of(record)
    return [
        CurveRow(
            label=curve.run or "(no name)" if several else curve.quantity,
            curve=curve,
            scale=known[curve.quantity].scale,
            remark=_remark(curve, endings.get(curve.run)) if is_loss(curve.quantity) else "",
            diverged=is_loss(curve.quantity) and _diverged(endings.get(curve.run)),
        )
        for curve in curves
    ]


def _diverged(ending: RunEnding | None) -> bool:
    return ending is not None and ending.diverged


def _curve(by_step: dict[int, Reading]) -> Curve:
    steps = sorted(by_step)
    values = np.array([by_step[step].value for step in steps], dtype=np.float64)
    values.setflags(write=False)
    one = by_step[steps[0]]
    return Curve(one.quantity, one.run, one.seed, tuple(steps), values)


def _remark(curve: Curve, ending: RunEnding | None) -> str:
    """Say where a loss was lowest, if that was not at the end; when its run diverged."""
    step, value = curve.lowest
    if ending is not None and ending.diverged:
        read = f"; lowest {format_number(value)} at step {step}" if np.isfinite(value) else ""
        return f"at step {ending.steps}{read}"
    if step == curve.steps[-1]:
        return ""
    return f"lowest {format_number(value)} at step {step}"
