"""Records side by side: where they start, where they end, how they grow, where they part.

Lines of different records are matched by address (`update.norm[mlp]`); the first stack of each
record counts as the same, so a decoder compares with an encoder. The first record is the measure
of the others: ratios are theirs over its value. Records of one depth are compared layer by layer.
Records of different depths are compared at equal shares of depth l / L, with straight lines
between the layers of the shallower ones.

The place where two lines part most is the one with the largest |ln ratio|; where values change
sign or vanish there is no ratio, and the largest difference stands.

Numbers of training runs have no depth; their curves over steps are compared apart.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.errors import RecordError, shown
from leadline.reading.compare.training_curves import compare_curves, run_endings
from leadline.record import Record, check_record
from leadline.record.provenance import strict_number, text_at
from leadline.record.rows.address import address_of
from leadline.record.words.shape import STEADY
from leadline.record.words.summary import (
    TOPICS,
    carried_by_few,
    headline_lines,
    leading_quantity,
    median_line,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from leadline.reading.compare.training_curves import CurveComparison
    from leadline.record import Growth, Profile
    from leadline.record.rows.quantity import AxisScale, Quantity
    from leadline.record.run.ending import RunEnding
    from leadline.record.words.table import TextTable

__all__ = ["Comparison", "ComparisonRow", "ComparisonSide", "Parting", "compare"]

LONGEST_NAME = 18
"""Longer names leave no room in a table of 80 columns."""


@dataclass(frozen=True, slots=True)
class Parting:
    """Where a record stands farthest from the first one.

    `layer` counts in the record itself. `ratio` is NaN where there is none; `difference` is its
    value minus that of the first record. `begins` is the first layer at which the two differ by a
    factor of STEADY or more; None where they do so nowhere, or have no ratio.
    """

    layer: int
    share_of_depth: float
    ratio: float
    difference: float
    begins: int | None = None


@dataclass(frozen=True, slots=True)
class ComparisonSide:
    """One line over depth in one of the records, set against the first record that has it."""

    profile: Profile
    growth: Growth
    ratio_at_last: float
    parting: Parting | None
    median: Profile | None = None
    """The same line as the median without the first token, where the record has it."""
    few_tokens: bool = False
    """Whether the first token, or a few others, carry the mean."""

    @property
    def first(self) -> float:
        """The value at the first layer."""
        return self.profile.first

    @property
    def last(self) -> float:
        """The value at the last layer."""
        return self.profile.last


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One line over depth in all records; a record without it has None."""

    label: str
    quantity: str
    statistic: str
    scale: AxisScale
    sides: tuple[ComparisonSide | None, ...]
    title: str = ""
    topic: str = ""
    leads: bool = False
    """Whether its quantity tells its topic, so that it is said in words."""


@dataclass(frozen=True)
class Comparison:
    """Records side by side, one row per quantity and role, one curve per quantity of a run."""

    names: tuple[str, ...]
    rows: tuple[ComparisonRow, ...]
    curves: tuple[CurveComparison, ...]
    endings: tuple[RunEnding | None, ...]
    """How the training run of each record ended; None where it says nothing."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Names that are short enough for sentences and tables: letters where they are long."""
        return short_names(self.names)

    def table(self) -> TextTable:
        """Return every line over depth as a table; `print` shows those that differ most."""
        from leadline.reading.compare.text import depth_table, shared_rows

        return depth_table(self, shared_rows(self))

    def __str__(self) -> str:
        from leadline.reading.compare.text import comparison_screen

        return comparison_screen(self).text()

    def _repr_html_(self) -> str:
        from leadline.reading.compare.text import comparison_screen

        return comparison_screen(self).html()

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as strict JSON: NaN is null, infinities are strings."""
        from leadline.reading.compare.answer import comparison_answer

        return {
            "schema": 1,
            "names": list(self.names),
            "answer": comparison_answer(self, names=self.names),
            "rows": [
                {
                    "label": row.label,
                    "quantity": row.quantity,
                    "statistic": row.statistic,
                    "records": [None if side is None else _side_json(side) for side in row.sides],
                }
                for row in self.rows
            ],
            "curves": [row.to_json() for row in self.curves],
        }


def compare(*records: Record, names: Sequence[str] | None = None) -> Comparison:
    """Set two or more records side by side."""
    for record in records:
        check_record(record)
    if len(records) < 2:
        raise RecordError(f"A comparison needs at least two records, but got {len(records)}.")
    if names is not None and not isinstance(names, list | tuple):
        raise RecordError(f"names is {shown(names)}; give a list with one name for each record.")
    if names is not None and len(names) != len(records):
        raise RecordError(
            f"{len(names)} names were given for {len(records)} records: give one for each."
        )
    titles = tuple(names) if names is not None else _names(records)
    # Two one-stack models are compared whatever their stacks are called; otherwise a decoder
    # stands beside a decoder.
    by_stack = any(len(record.stacks) > 1 for record in records)
    lines_by_record = [_lines(record, by_stack=by_stack) for record in records]
    labels = dict.fromkeys(label for lines in lines_by_record for label in lines)
    rows = tuple(_row(label, lines_by_record) for label in labels)
    return Comparison(titles, rows, compare_curves(records), run_endings(records))


@dataclass(frozen=True, slots=True)
class _Line:
    profile: Profile
    quantity: Quantity
    depth: int
    leads: bool
    median: Profile | None
    few_tokens: bool


def _lines(record: Record, *, by_stack: bool) -> dict[tuple[str, str], _Line]:
    """Return the headline lines of a record by address and statistic."""
    unnamed = "" if by_stack else next(iter(record.stacks), "")
    lines: dict[tuple[str, str], _Line] = {}
    leading = {one.name for topic in TOPICS if (one := leading_quantity(record, topic))}
    for name, quantity in record.quantities.items():
        if quantity.ingredient_of or quantity.over == "step":
            continue
        profiles = record.profiles(name)
        for profile in headline_lines(profiles, quantity.headline):
            label = str(address_of(profile, profiles, first_stack=unnamed))
            depth, median = record.depth(profile.stack), median_line(profile, profiles)
            few = carried_by_few(profile, profiles) if quantity.scale == "log" else False
            line = _Line(profile, quantity, depth, name in leading, median, few)
            lines[label, profile.statistic] = line
    return lines


def _row(
    label: tuple[str, str], lines_by_record: Sequence[dict[tuple[str, str], _Line]]
) -> ComparisonRow:
    lines = [here.get(label) for here in lines_by_record]
    present = [line for line in lines if line is not None]
    measure = present[0]
    return ComparisonRow(
        label=label[0],
        quantity=measure.profile.quantity,
        statistic=label[1],
        scale=measure.quantity.scale,
        sides=tuple(None if line is None else _side(line, measure) for line in lines),
        title=measure.quantity.title,
        topic=measure.quantity.topic,
        leads=measure.leads,
    )


def _side(line: _Line, measure: _Line) -> ComparisonSide:
    profile = line.profile
    ratio, parting = 1.0, None
    if line is not measure:
        ends = np.array([profile.last]), np.array([measure.profile.last])
        ratio, parting = float(_ratio(*ends)[0]), _parting(line, measure)
    return ComparisonSide(profile, profile.growth, ratio, parting, line.median, line.few_tokens)


def _parting(line: _Line, measure: _Line) -> Parting | None:
    """Find where the two lines stand farthest apart, at the layers of `line`."""
    layers = np.array(line.profile.layers, dtype=np.float64)
    values = line.profile.values
    # A hop is a hop however deep the model is; only layers are compared by their share of depth.
    by_hops = line.profile.over == "hops"
    share = layers / (1 if by_hops else max(line.depth, 1))
    known = np.array(measure.profile.layers, dtype=np.float64)
    known = known / (1 if by_hops else max(measure.depth, 1))
    inside = (share >= known[0] - 1e-12) & (share <= known[-1] + 1e-12)
    against = np.interp(share, known, measure.profile.values)
    ratio = _ratio(values, against)
    difference = values - against
    comparable = inside & np.isfinite(difference)
    if not bool(np.any(comparable)):
        return None
    has_ratio = comparable & np.isfinite(ratio)
    distance = np.abs(difference)
    begins = None
    if bool(np.all(has_ratio[comparable])):
        distance = np.abs(np.log(ratio, out=np.zeros_like(ratio), where=has_ratio))
        apart = np.flatnonzero(comparable & (distance >= np.log(STEADY)))
        begins = line.profile.layers[int(apart[0])] if len(apart) else None
    worst = int(np.argmax(np.where(comparable, distance, -1.0)))
    return Parting(
        layer=line.profile.layers[worst],
        share_of_depth=float(layers[worst]) / max(line.depth, 1),
        ratio=float(ratio[worst]),
        difference=float(difference[worst]),
        begins=begins,
    )


def _ratio(values: NDArray[np.float64], against: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide where both have one sign; NaN elsewhere, for such a ratio says nothing."""
    sound = np.isfinite(values) & np.isfinite(against) & (values * against > 0)
    return np.divide(values, against, out=np.full_like(values, np.nan), where=sound)


def _names(records: Sequence[Record]) -> tuple[str, ...]:
    """Name each record by its model, or its file; the same name again gets a number."""
    names: list[str] = []
    for at, record in enumerate(records, start=1):
        stem = "" if record.path is None else record.path.stem
        name = text_at(record.provenance, "model", "name") or stem or f"record {at}"
        times = 1
        while (numbered := name if times == 1 else f"{name} ({times})") in names:
            times += 1
        names.append(numbered)
    return tuple(names)


def short_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names without what all begin with, or letters where they are still long."""
    first = names[0]
    ends = [at + 1 for at, sign in enumerate(first) if sign in ":/"]
    start = max([0, *(end for end in ends if all(name.startswith(first[:end]) for name in names))])
    cut = tuple(name[start:] for name in names)
    for choice in (tuple(names), cut):
        if all(choice) and max(map(len, choice)) <= LONGEST_NAME:
            return choice
    return tuple(string.ascii_uppercase[: len(names)]) if len(names) <= 26 else tuple(names)


def _side_json(side: ComparisonSide) -> dict[str, Any]:
    parting = side.parting
    return {
        "first": strict_number(side.first),
        "last": strict_number(side.last),
        "growth": side.growth.to_json(),
        "ratio_at_last": strict_number(side.ratio_at_last),
        "differs_most": None
        if parting is None
        else {
            "layer": parting.layer,
            "share_of_depth": parting.share_of_depth,
            "ratio": strict_number(parting.ratio),
            "difference": strict_number(parting.difference),
        },
        "layers": list(side.profile.layers),
        "values": [strict_number(value) for value in side.profile.values],
    }
