"""What a search for violations found as rows of a record, and read back from them to the bit.

Every bound is a run of its own: its rows are the largest ratio where its assumptions hold, the
worst where some fail, and how many attacks met it. Its words (title, statement, source, which
assumptions fail) and the facts of its worst network stand in the provenance, under `instrument`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from leadline.instruments.attacks.result import AttackRow, AttackTable
from leadline.record import Quantity, Reading, Record
from leadline.record.rows.site import RUN

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RATIO", "attacks_record", "read_attacks"]


def _of_attack(name: str, title: str, symbol: str, formula: str, **words: Any) -> Quantity:
    return Quantity(
        name=f"attack.{name}",
        title=title,
        symbol=symbol,
        formula=formula,
        lives_on="run",
        headline="value",
        **words,
    )


RATIO = _of_attack(
    "ratio",
    "Measured over predicted, where the assumptions hold",
    "ρ",
    "largest measured / predicted over the networks on which the assumptions of the bound hold; "
    "its inverse for a lower bound",
    high="Above 1 the bound is violated; near 1 it is tight.",
    low="Nothing that was tried comes near the bound.",
    meaning="How near an attack came to violating the bound.",
    leads=True,
    better="low",
)
_OUTSIDE_RATIO = _of_attack(
    "outside_ratio",
    "Measured over predicted, where an assumption fails",
    "ρ′",
    "that of the worst network on which some assumption fails: with the fewest of them failing",
    high="Above 1 the bound needs its assumptions.",
    low="The bound seems to hold without them.",
    meaning="Whether the bound needs its assumptions.",
)
_RANDOM = _of_attack("random", "Random attacks met", "N", "how many drawn networks met it")
_OPTIMISED = _of_attack(
    "optimised", "Optimised attacks met", "N′", "how many networks that climb towards it met it"
)
_OUTSIDE = _of_attack(
    "outside", "Attacks outside its assumptions", "N″", "how many met it where an assumption fails"
)
_QUANTITIES = {
    "ratio": RATIO,
    "outside_ratio": _OUTSIDE_RATIO,
    "random": _RANDOM,
    "optimised": _OPTIMISED,
    "outside": _OUTSIDE,
}
_WORDS = ("name", "title", "statement", "source")
_TABLE = ("asked_random", "asked_optimised", "drawn", "climbed", "seed")


def attacks_record(table: AttackTable, *, notes: Mapping[str, Any] | None = None) -> Record:
    """Return a record of the search; `notes` are further entries of the provenance."""
    record = Record()
    with record.together():
        for quantity in _QUANTITIES.values():
            record.describe(quantity)
        record.append(_readings(table))
        record.note(
            "instrument",
            {
                "name": "attacks",
                **{name: getattr(table, name) for name in _TABLE},
                "laws": table.laws,
                "bounds": [
                    {
                        **{name: getattr(row, name) for name in _WORDS},
                        "because": row.because,
                        "verdict": row.verdict,
                        "facts": dict(row.facts),
                    }
                    for row in table.rows
                ],
            },
        )
        for key, value in (notes or {}).items():
            record.note(key, value)
    return record


def read_attacks(record: Record) -> AttackTable:
    """Return the search for violations that the rows of a record hold."""
    instrument = record.provenance["instrument"]
    numbers = {(row.run, row.quantity): row.value for row in record.select()}

    def row_of(entry: Mapping[str, Any]) -> AttackRow:
        values = {field: numbers[entry["name"], one.name] for field, one in _QUANTITIES.items()}
        return AttackRow(
            **{name: str(entry[name]) for name in _WORDS},
            random=int(values["random"]),
            optimised=int(values["optimised"]),
            ratio=values["ratio"],
            outside=int(values["outside"]),
            outside_ratio=values["outside_ratio"],
            because=tuple(entry["because"]),
            facts={key: _with_tuples(value) for key, value in entry["facts"].items()},
        )

    return AttackTable(
        rows=tuple(row_of(entry) for entry in instrument["bounds"]),
        **{name: instrument[name] for name in _TABLE},
        laws=tuple(instrument["laws"]),
    )


def _readings(table: AttackTable) -> Iterator[Reading]:
    for row in table.rows:
        for field, quantity in _QUANTITIES.items():
            number = float(getattr(row, field))
            yield Reading(quantity.name, RUN, "value", number, run=row.name, seed=table.seed)


def _with_tuples(value: Any) -> Any:
    """JSON has lists where facts have tuples."""
    if isinstance(value, list):
        return tuple(_with_tuples(one) for one in cast("list[Any]", value))
    if isinstance(value, dict):
        return {key: _with_tuples(one) for key, one in cast("dict[str, Any]", value).items()}
    return value
