"""Records side by side: where they start, where they end, how they grow, where they part.

Lines of different records are matched by address (`update.norm[mlp]`); the first stack of each
record counts as the same, so a decoder compares with an encoder. The first record that has a line
is the measure of the others: ratios are theirs over its value (`parting` says at which places).

Numbers of training runs have no depth; their curves over steps are compared apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.errors import RecordError, shown
from leadline.reading.compare.names import name_records, short_names
from leadline.reading.compare.parting import EndRatio, Parting, ends_apart, find_parting, stretch_of
from leadline.reading.compare.training_curves import compare_curves, run_endings
from leadline.record import Record, check_record
from leadline.record.provenance import strict_number
from leadline.record.rows.address import address_of
from leadline.record.run.scanned import refuse_scan
from leadline.record.views import findings_to_show, written_by
from leadline.record.words.printable import printable_table
from leadline.record.words.screen import Screen, Showable
from leadline.record.words.shape import growth_json
from leadline.record.words.summary import (
    TOPICS,
    carried_by_few,
    headline_lines,
    leading_quantity,
    median_line,
)
from leadline.record.words.unfinished import unfinished_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.compare.training_curves import CurveComparison
    from leadline.record import Finding, Growth, Profile
    from leadline.record.rows.quantity import AxisScale, Quantity
    from leadline.record.run.ending import RunEnding
    from leadline.record.words.table import TextTable

__all__ = ["Comparison", "ComparisonRow", "ComparisonSide", "Parting", "compare"]


@dataclass(frozen=True, slots=True)
class ComparisonSide:
    """One line over depth in one of the records, set against the first record that has it."""

    profile: Profile
    growth: Growth
    parting: Parting | None
    ends: tuple[EndRatio, ...] = ()
    """The first and the last layer that it shares with the first record, and the ratio there."""
    stretch: float = 1.0
    """How many layers of the first record one layer is worth: not 1 where depths differ."""
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

    @property
    def ratio_at_first(self) -> float:
        """The ratio at the first layer that both have; NaN where there is none."""
        return self.ends[0].ratio if self.ends else math.nan

    @property
    def ratio_at_last(self) -> float:
        """The ratio at the last layer that both have; NaN where there is none."""
        return self.ends[-1].ratio if self.ends else math.nan

    @property
    def lost_layers(self) -> tuple[int, ...]:
        """The layers at which its value is not finite."""
        finite = np.isfinite(self.profile.values)
        pairs = zip(self.profile.layers, finite, strict=True)
        return tuple(layer for layer, sound in pairs if not sound)


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
    nats_per_unit: float = 0.0
    """What one unit is where values are logarithms, so that no ratios are compared; else 0."""

    @property
    def measure_at(self) -> int:
        """The number of the record that the others are compared with."""
        return next(at for at, side in enumerate(self.sides) if side is not None)

    @property
    def shared(self) -> bool:
        """Whether at least two records have it."""
        return sum(side is not None for side in self.sides) > 1


@dataclass(frozen=True)
class Comparison(Showable):
    """Records side by side, one row per quantity and role, one curve per quantity of a run."""

    names: tuple[str, ...]
    rows: tuple[ComparisonRow, ...]
    curves: tuple[CurveComparison, ...]
    endings: tuple[RunEnding | None, ...]
    """How the training run of each record ended; None where it says nothing."""
    writers: tuple[str, ...] = ()
    """The command that wrote each record; empty where it is unknown."""
    unfinished: tuple[str, ...] = ()
    """How far each record has come that still grows; empty for a finished one."""
    findings: tuple[tuple[Finding, ...], ...] = ()
    """What rules and passes found in each record, the worst first."""

    @property
    def shares_nothing(self) -> bool:
        """Whether no line and no curve is in two of the records."""
        return not any(row.shared for row in (*self.rows, *self.curves))

    @property
    def labels(self) -> tuple[str, ...]:
        """Names that are short enough for sentences and tables: letters where they are long."""
        return short_names(self.names)

    def table(self) -> TextTable:
        """Return every line over depth as a table; `print` shows those that differ most."""
        from leadline.reading.compare.text import depth_table, shared_rows

        return printable_table(depth_table(self, shared_rows(self)))

    def screen(self, *, everything: bool = False) -> Screen:
        """Return the answer, the rows in which records differ most, and what is not shared."""
        from leadline.reading.compare.text import comparison_screen

        return comparison_screen(self, everything=everything)

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as strict JSON: NaN is null, infinities are strings."""
        from leadline.reading.compare.answer import comparison_answer

        return {
            "schema": 1,
            "names": list(self.names),
            "answer": comparison_answer(self, names=self.names),
            "unfinished": list(self.unfinished),
            "findings": [
                [
                    {
                        "severity": finding.severity,
                        "code": finding.code,
                        "name": finding.name,
                        "verdict": finding.verdict,
                    }
                    for finding in findings
                ]
                for findings in self.findings
            ],
            "rows": [
                {
                    "label": row.label,
                    "quantity": row.quantity,
                    "statistic": row.statistic,
                    "records": [
                        None if side is None else _side_json(side, row) for side in row.sides
                    ],
                }
                for row in self.rows
            ],
            "curves": [row.to_json() for row in self.curves],
        }


def compare(*records: Record, names: Sequence[str] | None = None) -> Comparison:
    """Set two or more records side by side."""
    for record in records:
        check_record(record)
        refuse_scan(record)
    if len(records) < 2:
        raise RecordError(f"A comparison needs at least two records, but got {len(records)}.")
    if names is not None and not isinstance(names, list | tuple):
        raise RecordError(f"names is {shown(names)}; give a list with one name for each record.")
    if names is not None and len(names) != len(records):
        raise RecordError(
            f"{len(names)} names were given for {len(records)} records: give one for each."
        )
    titles = tuple(names) if names is not None else name_records(records)
    # Two one-stack models are compared whatever their stacks are called; otherwise a decoder
    # stands beside a decoder.
    by_stack = any(len(record.stacks) > 1 for record in records)
    lines_by_record = [_lines(record, by_stack=by_stack) for record in records]
    labels = dict.fromkeys(label for lines in lines_by_record for label in lines)
    rows = tuple(_row(label, lines_by_record) for label in labels)
    writers = tuple(written_by(record.provenance) for record in records)
    how_far = tuple(unfinished_text(record.provenance) for record in records)
    curves, endings = compare_curves(records), run_endings(records)
    findings = tuple(tuple(findings_to_show(record)) for record in records)
    return Comparison(titles, rows, curves, endings, writers, how_far, findings)


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
        nats_per_unit=measure.quantity.nats_per_unit,
    )


def _side(line: _Line, measure: _Line) -> ComparisonSide:
    profile = line.profile
    parting = None
    ends = tuple(EndRatio(layer, 1.0, 0.0) for layer in (profile.layers[0], profile.layers[-1]))
    stretch = 1.0
    if line is not measure:
        depths = {"depth": line.depth, "measure_depth": measure.depth}
        logarithm = measure.quantity.nats_per_unit > 0
        parting = find_parting(profile, measure.profile, **depths, logarithm=logarithm)
        ends = ends_apart(profile, measure.profile, **depths, logarithm=logarithm)
        stretch = stretch_of(**depths, by_hops=profile.over == "hops")
    return ComparisonSide(
        profile, profile.growth, parting, ends, stretch, line.median, line.few_tokens
    )


def _side_json(side: ComparisonSide, row: ComparisonRow) -> dict[str, Any]:
    parting = side.parting
    return {
        "first": strict_number(side.first),
        "last": strict_number(side.last),
        "growth": growth_json(side.profile, scale=row.scale, logarithm=row.nats_per_unit > 0),
        "compared_layers": [end.layer for end in side.ends],
        "ratio_at_first": strict_number(side.ratio_at_first),
        "ratio_at_last": strict_number(side.ratio_at_last),
        "not_finite_layers": list(side.lost_layers),
        "differs_most": None
        if parting is None
        else {
            "layer": parting.layer,
            "layer_of_first": parting.layer_of_first,
            "share_of_depth": parting.share_of_depth,
            "ratio": strict_number(parting.ratio),
            "log10_ratio": strict_number(parting.log10_ratio),
            "difference": strict_number(parting.difference),
        },
        "layers": list(side.profile.layers),
        "values": [strict_number(value) for value in side.profile.values],
    }
