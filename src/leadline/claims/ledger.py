"""The ledger: one line of JSON per measurement, appended when it is made.

A line holds what was measured (a claim or a trial), with which seed and which code, the numbers,
the curves and the seconds. A process that is killed loses the measurement it was at: a torn last
line is left out. A later line of the same measurement replaces an earlier one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from leadline.claims.catalog import CLAIMS
from leadline.claims.claim import Picture
from leadline.claims.ruling import Ruling, rule
from leadline.errors import RecordError
from leadline.record.provenance import strict_json

__all__ = ["SHIPPED", "Ledger", "LedgerLine", "default_ledger"]

SHIPPED = Path(__file__).with_name("measured.jsonl")
"""What was measured for this version; it comes with the package."""
BEGINNING = '{"kind": '
"""How every line begins; one that does and cannot be read was torn when its process died."""
_ABOUT = ("kind", "name", "seed", "code", "seconds", "time", "versions")
"""What every line says before what was measured."""
_DIGITS = 6
"""Curves are kept with so many digits; the numbers that decide with all of theirs."""


@dataclass(frozen=True)
class LedgerLine:
    """One measurement."""

    kind: str
    """"claim" or "trial"."""
    name: str
    seed: int
    code: str
    seconds: float
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    picture: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    """What a trial found."""
    time: str = ""
    versions: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def key(self) -> tuple[str, str, int]:
        """What was measured with which seed."""
        return self.kind, self.name, self.seed

    def to_json(self) -> dict[str, Any]:
        """Return the line as JSON; a claim has numbers and a picture, a trial its result."""
        entries = vars(self) | {"seconds": round(self.seconds, 3)}
        if self.kind == "claim":
            entries["picture"] = _rounded(self.picture)
        outcome = ("numbers", "picture") if self.kind == "claim" else ("result",)
        return strict_json({key: entries[key] for key in (*_ABOUT, *outcome)})

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> LedgerLine:
        """Read what `to_json` wrote."""
        numbers = {name: _float(value) for name, value in found.get("numbers", {}).items()}
        known = {one.name: found[one.name] for one in fields(cls) if one.name in found}
        return cls(**known | {"numbers": numbers, "seconds": float(found["seconds"])})


class Ledger:
    """The measurements of a file, the newest of each. A file that is not there is empty."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: dict[tuple[str, str, int], LedgerLine] = {}
        self._torn = False
        if path.exists():
            if not path.is_file():  # a device has no end
                raise RecordError(f"{path} is no file; choose another ledger.")
            self._read()

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[LedgerLine]:
        return iter(self._lines.values())

    def get(self, kind: str, name: str, seed: int, *, code: str) -> LedgerLine | None:
        """The measurement, if it was made by this code."""
        found = self._lines.get((kind, name, seed))
        return found if found is not None and found.code == code else None

    def add(self, line: LedgerLine) -> None:
        """Append a measurement to the file, at once."""
        text = json.dumps(line.to_json(), ensure_ascii=False, allow_nan=False)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(("\n" if self._torn else "") + text + "\n")
        self._torn = False
        self._lines[line.key] = LedgerLine.from_json(json.loads(text))

    def lines(self, name: str, *, seeds: Sequence[int] | None = None) -> list[LedgerLine]:
        """The measurements of a claim, by seed: all of the code that measured it last."""
        found = [
            line for line in self._lines.values() if line.kind == "claim" and line.name == name
        ]
        if seeds is not None:
            found = [line for line in found if line.seed in seeds]
        if found:
            last = max(found, key=lambda line: line.time).code
            found = [line for line in found if line.code == last]
        return sorted(found, key=lambda line: line.seed)

    def ruling(self, name: str, *, seeds: Sequence[int] | None = None) -> Ruling:
        """What the measurements say about a claim."""
        claim = CLAIMS.get(name).claim
        lines = self.lines(name, seeds=seeds if CLAIMS.get(name).seeded else None)
        names = list(dict.fromkeys(key for line in lines for key in line.numbers))
        asked = {check.number for check in claim.checks}
        if lines and any(not asked <= set(line.numbers) for line in lines):
            lines = []  # checks have changed since: not measured
        return rule(
            claim,
            {key: [line.numbers.get(key, math.nan) for line in lines] for key in names}
            if lines
            else {},
            pictures=[Picture.from_json(line.picture) for line in lines if line.picture],
            seeds=[line.seed for line in lines],
            seconds=sum(line.seconds for line in lines),
        )

    def _read(self) -> None:
        try:
            rows = self.path.read_text(encoding="utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise RecordError(
                f"{self.path} is no ledger of claims; choose another file."
            ) from error
        self._torn = bool(rows[-1])
        for number, row in enumerate(rows, start=1):
            if not row:
                continue
            try:
                line = LedgerLine.from_json(json.loads(row))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                if number == 1 and not row.startswith(BEGINNING):
                    raise RecordError(
                        f"{self.path} is no ledger of claims; choose another file."
                    ) from error
                if row.startswith(BEGINNING):  # a process died while it wrote this
                    continue
                raise RecordError(
                    f"Line {number} of the ledger {self.path} cannot be read; remove that line to "
                    "keep the others."
                ) from error
            self._lines[line.key] = line


def default_ledger(path: Path | None) -> Ledger:
    """The ledger that was named, or the one that comes with the package."""
    if path is None:
        return Ledger(SHIPPED)
    if not path.exists():
        raise RecordError(
            f"There is no ledger {path}; `leadline claims run --all --record {path}` makes it."
        )
    return Ledger(path)


def _float(value: Any) -> float:
    return math.nan if value is None else float(value)


def _rounded(picture: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if picture is None:
        return None

    def one(value: Any) -> Any:
        if isinstance(value, float) and math.isfinite(value):
            return float(f"{value:.{_DIGITS}g}")
        return value

    lines = {
        name: [[one(value) for value in axis] for axis in axes]
        for name, axes in picture["lines"].items()
    }
    return {**picture, "lines": lines}
