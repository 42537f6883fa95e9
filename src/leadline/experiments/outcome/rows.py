"""The outcome of an experiment as a record, and read back from it; no torch.

Every panel is a quantity and every line a line of it, called by its `point`; the place on the axis
stands where a layer would, as a number where it is whole and by its order where it is not. Standard
errors are the interval of a row. What rows cannot hold is in the provenance, under `instrument`:
words, tables, planes, places, exact errors, and the options of the experiment. The records behind
an outcome stay files of their own; they are found beside the file of the outcome.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import asdict, fields
from itertools import chain, count
from typing import Any

from leadline import __version__
from leadline.experiments.outcome.outcome import Outcome
from leadline.reading.show.panels import Line, Places, Plane, Table
from leadline.record.record import Record
from leadline.record.rows.quantity import Quantity
from leadline.record.rows.reading import Reading
from leadline.record.rows.site import Site
from leadline.record.words.screen import Screen, Showable

__all__ = ["KeptOutcome", "outcome_record", "read_outcome"]


class KeptOutcome(Outcome, Showable):
    """An outcome that was read from a record; its text is what `leadline reproduce` prints."""

    def screen(self, *, everything: bool = False) -> Screen:
        """Return its tables and remarks; every number is in the rows of the record."""
        from leadline.experiments.outcome.picture import outcome_screen

        return outcome_screen(self)


def outcome_record(outcome: Outcome, *, options: Mapping[str, Any] | None = None) -> Record:
    """Write an outcome into a record; `options` are those of the experiment."""
    names = _quantity_names(outcome)
    points = _points(outcome)
    record = Record()
    with record.together():
        for panel, name in names.items():
            record.describe(_quantity(outcome, panel, name))
        record.note("model", {"name": outcome.experiment})
        record.note("versions", {"leadline": __version__})
        record.note("instrument", _instrument(outcome, names, points, dict(options or {})))
    record.append(
        row
        for line, point in zip(outcome.lines, points, strict=True)
        for row in _readings(outcome, line, names[line.panel], point)
    )
    return record


def read_outcome(record: Record) -> KeptOutcome:
    """Read an outcome from the rows and the provenance."""
    instrument = record.provenance["instrument"]
    kept = {one.name: instrument[one.name] for one in fields(Outcome)}
    kept |= {
        "lines": tuple(_line(record, one) for one in kept["lines"]),
        "remarks": tuple(kept["remarks"]),
        "records": _records_beside(record, kept["records"]),
        "tables": tuple(Table(**_with_tuples(one)) for one in kept["tables"]),
        "places": {name: Places(**_with_tuples(one)) for name, one in kept["places"].items()},
        "planes": tuple(Plane(**_with_tuples(one)) for one in kept["planes"]),
    }
    return KeptOutcome(**kept)


def _quantity_names(outcome: Outcome) -> dict[str, str]:
    """A name for every panel: its words, with a number where another panel has the same ones."""
    names: dict[str, str] = {}
    for number, panel in enumerate(outcome.panels, start=1):
        words = re.sub(r"[^a-z0-9]+", "_", panel.lower()).strip("_") or f"panel_{number}"
        name = f"{outcome.experiment}.{words}"
        names[panel] = _unique(name, set(names.values()), "{name}_{number}")
    return names


def _points(outcome: Outcome) -> list[str]:
    """What the lines are called; the same name again in a panel gets a number that no other has."""
    points: list[str] = []
    by_panel: dict[str, set[str]] = {}
    for line in outcome.lines:
        names = {other.name for other in outcome.lines if other.panel == line.panel}
        used = by_panel.setdefault(line.panel, set())
        # The first line of a name keeps it, so that no number may make the name of another line.
        taken = used | (names if line.name in used else set())
        points.append(_unique(line.name, taken, "{name} ({number})"))
        used.add(points[-1])
    return points


def _unique(name: str, taken: Set[str], pattern: str) -> str:
    """Return the name, or the first one with a number that is not taken."""
    numbered = (pattern.format(name=name, number=number) for number in count(2))
    return next(one for one in chain([name], numbered) if one not in taken)


def _quantity(outcome: Outcome, panel: str, name: str) -> Quantity:
    places = outcome.places.get(panel)
    is_logarithm = "log₁₀" in panel or outcome.scales.get(panel) == "exponent"
    return Quantity(
        name,
        panel,
        "",
        outcome.value_label,
        unit="log10" if is_logarithm else "",
        lives_on="layer",
        headline="value",
        meaning=f"{outcome.title}; over: {places.label if places else outcome.axis}.",
        topic=outcome.experiment,
    )


def _readings(outcome: Outcome, line: Line, quantity: str, point: str) -> Iterator[Reading]:
    numbers = _numbers(outcome, line)
    for at, value in enumerate(line.values):
        error = line.errors[at] if line.errors else None
        yield Reading(
            quantity,
            Site(outcome.experiment, numbers[at], point=point),
            "value",
            value,
            lower=None if error is None else value - error,
            upper=None if error is None else value + error,
        )


def _numbers(outcome: Outcome, line: Line) -> list[int]:
    """The place of every value as a whole number."""
    places = outcome.places.get(line.panel)
    if places is None:
        return [outcome.start + at for at in range(len(line.values))]
    at = places.at[: len(line.values)]
    if len(set(at)) == len(at) and all(float(one).is_integer() for one in at):
        return [int(one) for one in at]
    return list(range(1, len(line.values) + 1))


def _instrument(
    outcome: Outcome, names: Mapping[str, str], points: list[str], options: dict[str, Any]
) -> dict[str, Any]:
    """What rows cannot hold."""
    kept = {one.name: getattr(outcome, one.name) for one in fields(Outcome)}
    kept |= {
        "lines": [
            {
                "panel": line.panel,
                "name": line.name,
                "quantity": names[line.panel],
                "point": point,
                "faint": line.faint,
                "facts": dict(line.facts),
                "errors": list(line.errors),
            }
            for line, point in zip(outcome.lines, points, strict=True)
        ],
        "records": sorted(outcome.records),
        "failures": dict(outcome.failures),
        "scales": dict(outcome.scales),
        "tables": [asdict(one) for one in outcome.tables],
        "places": {name: asdict(one) for name, one in outcome.places.items()},
        "planes": [asdict(one) for one in outcome.planes],
    }
    return {"name": "reproduce", "options": options, **kept}


def _line(record: Record, kept: Mapping[str, Any]) -> Line:
    rows = record.select(kept["quantity"], point=kept["point"])
    return Line(
        panel=kept["panel"],
        name=kept["name"],
        values=tuple(row.value for row in rows),
        faint=kept["faint"],
        facts=kept["facts"],
        errors=tuple(kept["errors"]),
    )


def _with_tuples(kept: Any) -> Any:
    """What JSON gives back, with the tuples that were lists there."""
    if isinstance(kept, list):
        return tuple(_with_tuples(one) for one in kept)
    if isinstance(kept, dict):
        return {name: _with_tuples(one) for name, one in kept.items()}
    return kept


def _records_beside(record: Record, names: list[str]) -> dict[str, Record]:
    """Open the records that were written into the same folder, as far as they are still there."""
    if record.path is None:
        return {}
    files = {name: record.path.parent / f"{name}.leadline" for name in names}
    return {name: Record.open(place) for name, place in files.items() if place.is_file()}
