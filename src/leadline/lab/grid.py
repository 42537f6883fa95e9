"""What a sweep trains: the product of its axes, once for every seed.

    Sweep(name="norms", grids=(Grid(axes=parse_axes(["depth=6,12", "placement=pre,post"])),))

An axis has settings. A setting changes one or several fields of the recipe or the training, and
its label stands in tables and in the name of the run. Grids of the same axes are united, so that
a sweep need not be one full product. Fields that no axis changes are `fixed`: those of a
grid come before those of the sweep.

The digest is the SHA-256 of the JSON with sorted keys: sweeps with one digest train the same.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from leadline.catalog import Choice
from leadline.errors import (
    CatalogError,
    LabError,
    as_whole_number,
    check_count,
    check_seed,
    did_you_mean,
    join_words,
    shown,
)
from leadline.lab.cell import FIELDS, OF_THE_TASK, Cell, Label
from leadline.parts.recipe import PARTS

__all__ = ["Axis", "Grid", "Setting", "Sweep", "parse_axes", "parse_fields", "read_values"]

_CHOICES = {*PARTS, "task"}
"""The fields whose values are choices; their spelling is brought into one form."""
_WORDS = re.compile(r"[A-Za-z_][\w.\-]*( [\w.\-]+)+")


@dataclass(frozen=True)
class Setting:
    """One place on an axis: what it is called, and which fields it changes."""

    label: Label
    changes: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "changes", _plain_fields(self.changes))


@dataclass(frozen=True)
class Axis:
    """A name and its settings, each with a label of its own."""

    name: str
    settings: tuple[Setting, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", tuple(self.settings))
        if not self.settings:
            raise LabError(
                f"The axis {self.name!r} has no values; write for example depth=6,12,24."
            )
        if duplicate := _first_duplicate(self.labels):
            raise LabError(
                f"The axis {self.name!r} has the value {duplicate[0]} twice; give it once."
            )
        if self.name == "seed" or "," in self.name or "=" in self.name or not self.name.strip():
            raise LabError(
                f"An axis cannot be called {self.name!r}: it is one word, and seeds are given "
                "beside the axes (--seeds 3)."
            )

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels, in order."""
        return tuple(setting.label for setting in self.settings)

    @property
    def fields(self) -> set[str]:
        """The fields that some setting changes."""
        return {name for setting in self.settings for name in setting.changes}

    @classmethod
    def of(cls, name: str, *values: Any) -> Axis:
        """The axis of one field, labelled by its values: `Axis.of("depth", 6, 12)`."""
        return cls(name, tuple(Setting(_label(name, value), {name: value}) for value in values))


@dataclass(frozen=True)
class Grid:
    """The product of its axes."""

    axes: tuple[Axis, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", tuple(self.axes))
        object.__setattr__(self, "fixed", _plain_fields(self.fixed))
        if not self.axes:
            raise LabError("A grid needs an axis; write for example depth=6,12,24.")
        for one, other in itertools.combinations(self.axes, 2):
            if one.name == other.name:
                raise LabError(f"The axis {one.name!r} is given twice; give all its values once.")
            if both := sorted(one.fields & other.fields):
                raise LabError(
                    f"The axes {one.name!r} and {other.name!r} both set {both[0]}; "
                    "let one of them set it."
                )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the axes, in order."""
        return tuple(axis.name for axis in self.axes)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What a sweep trains: every cell of its grids with every seed, and the fields that are fixed."""

    name: str
    grids: tuple[Grid, ...]
    seeds: tuple[int, ...] = (0, 1, 2)
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        object.__setattr__(self, "grids", tuple(self.grids))
        if isinstance(self.seeds, str) or not isinstance(self.seeds, Iterable):
            raise LabError(f"seeds is {shown(self.seeds)}; give them as a list, such as (0, 1, 2).")
        numbers = ((seed, as_whole_number(seed)) for seed in self.seeds)
        seeds = tuple(seed if number is None else number for seed, number in numbers)
        object.__setattr__(self, "seeds", seeds)
        object.__setattr__(self, "fixed", _plain_fields(self.fixed))
        if not self.grids:
            raise LabError(f"The sweep {self.name!r} has no grid; give it at least one axis.")
        for grid in self.grids[1:]:
            if grid.names != self.grids[0].names:
                raise LabError(
                    f"All grids of a sweep have the same axes in the same order; one has "
                    f"{', '.join(self.grids[0].names)} and another {', '.join(grid.names)}."
                )
        _check_seeds(self.seeds)
        if duplicate := _first_duplicate([cell.run for cell in self.cells()]):
            raise LabError(
                f"The cell {duplicate[0]!r} stands in two grids; leave it out of one of them."
            )

    @classmethod
    def over(
        cls,
        axes: Mapping[str, Sequence[Any]],
        *,
        seeds: int = 3,
        fixed: Mapping[str, Any] | None = None,
        name: str = "sweep",
    ) -> Sweep:
        """The product of some fields: `Sweep.over({"depth": [6, 12]}, fixed={"width": 64})`."""
        if not isinstance(axes, Mapping):
            raise LabError(
                f"The axes of a sweep are fields with their values, such as {{'depth': [6, 12]}}, "
                f"not {shown(axes)}."
            )
        for field_name, values in axes.items():
            if isinstance(values, str) or not isinstance(values, Iterable):
                raise LabError(
                    f"The axis {shown(field_name)} is {shown(values)}; give a list of values."
                )
        grid = Grid(tuple(Axis.of(field, *values) for field, values in axes.items()))
        count = check_count(seeds, "seeds", error=LabError)
        return cls(name=name, grids=(grid,), seeds=tuple(range(count)), fixed=fixed or {})

    @property
    def axes(self) -> dict[str, list[Label]]:
        """The labels of every axis, united over the grids in order of appearance."""
        by_axis: dict[str, dict[Label, None]] = {name: {} for name in self.grids[0].names}
        for grid in self.grids:
            for axis in grid.axes:
                by_axis[axis.name].update(dict.fromkeys(axis.labels))
        return {name: list(labels) for name, labels in by_axis.items()}

    def cells(self) -> list[Cell]:
        """Every run of the sweep, grid by grid; the seed changes fastest."""
        cells: list[Cell] = []
        for grid in self.grids:
            for place in itertools.product(*(axis.settings for axis in grid.axes)):
                labels = {
                    name: setting.label for name, setting in zip(grid.names, place, strict=True)
                }
                fields = {**self.fixed, **grid.fixed}
                for setting in place:
                    fields.update(setting.changes)
                where = ", ".join(f"{name}={label}" for name, label in labels.items())
                cells += [
                    Cell(f"{where}, seed={seed}", labels, seed, fields) for seed in self.seeds
                ]
        return cells

    def but(self, **changes: Any) -> Sweep:
        """Return the sweep with these fields fixed everywhere; refuse one that an axis sets."""
        for grid in self.grids:
            for axis in grid.axes:
                if both := sorted(axis.fields & set(changes)):
                    raise LabError(
                        f"The axis {axis.name!r} of this sweep sets {both[0]} itself; choose among "
                        f"its values instead: {axis.name}={','.join(map(str, axis.labels))}."
                    )
        grids = tuple(
            replace(grid, fixed={k: v for k, v in grid.fixed.items() if k not in changes})
            for grid in self.grids
        )
        return replace(self, grids=grids, fixed={**self.fixed, **changes})

    def only(self, axis: str, labels: Sequence[Label]) -> Sweep:
        """Return the sweep with only some labels of one axis."""
        axes = self.axes
        if axis not in axes:
            raise LabError(
                f"The sweep {self.name!r} has no axis {axis!r}.{did_you_mean(axis, axes)} "
                f"Its axes: {', '.join(axes)}."
            )
        for label in labels:
            if label not in axes[axis]:
                raise LabError(
                    f"The axis {axis!r} of the sweep {self.name!r} has no value {label}; it has "
                    f"{', '.join(map(str, axes[axis]))}."
                )
        grids = [_only(grid, axis, labels) for grid in self.grids]
        return replace(self, grids=tuple(grid for grid in grids if grid is not None))

    @property
    def digest(self) -> str:
        """The SHA-256 of the JSON with sorted keys."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The sweep as JSON."""
        return {
            "name": self.name,
            "grids": [
                {
                    "axes": [
                        {
                            "name": axis.name,
                            "settings": [
                                {"label": one.label, "changes": dict(one.changes)}
                                for one in axis.settings
                            ],
                        }
                        for axis in grid.axes
                    ],
                    "fixed": dict(grid.fixed),
                }
                for grid in self.grids
            ],
            "seeds": list(self.seeds),
            "fixed": dict(self.fixed),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Sweep:
        """Read what `to_json` wrote."""
        keys = ("name", "grids", "seeds", "fixed")
        if not isinstance(found, Mapping):
            raise LabError(
                f"A sweep in JSON is a mapping with {join_words(keys)}, not {shown(found)}."
            )
        if missing_keys := [repr(key) for key in keys if key not in found]:
            raise LabError(
                f"A sweep in JSON has {join_words(keys)}; this one lacks {join_words(missing_keys)}."
            )
        grids = tuple(
            Grid(
                tuple(
                    Axis(axis["name"], tuple(Setting(**setting) for setting in axis["settings"]))
                    for axis in grid["axes"]
                ),
                grid["fixed"],
            )
            for grid in found["grids"]
        )
        return cls(
            name=found["name"], grids=grids, seeds=tuple(found["seeds"]), fixed=found["fixed"]
        )


def parse_axes(texts: Sequence[str]) -> tuple[Axis, ...]:
    """Read axes as they are typed: `depth=6,12,24`, `connection=identity,hyper(lanes=4)`."""
    return tuple(Axis.of(name, *values) for name, values in map(read_values, texts))


def parse_fields(texts: Sequence[str]) -> dict[str, Any]:
    """Read fields with one value each: `steps=400`, `task=copy(length=32)`."""
    fields: dict[str, Any] = {}
    for text in texts:
        name, values = read_values(text)
        if len(values) != 1:
            raise LabError(
                f"{text!r} gives {name} {len(values)} values and one was expected; "
                "several make an axis of the grid."
            )
        if name in fields and fields[name] != values[0]:
            raise LabError(f"{name} is given twice: {fields[name]} and {values[0]}; give it once.")
        fields[name] = values[0]
    return fields


def read_values(text: str) -> tuple[str, tuple[Any, ...]]:
    """Read the name of a field and its values: `depth=6,12` is ("depth", (6, 12)).

    Words with spaces between them are one value: `design=pre,no skip` is ("pre", "no skip").
    """
    name, equals, values = text.partition("=")
    if not (equals and name.strip()):
        raise LabError(
            f"{text!r} is not a field with values; write the field, =, and its values with commas "
            "between them, such as depth=6,12,24."
        )
    try:
        items = Choice.parse(f"axis(of=[{_quoted(values)}])").options["of"]
    except CatalogError:
        raise LabError(
            f"The values of {text!r} cannot be read; write numbers, words or choices with commas "
            'between them, such as connection=identity,hyper(lanes=4), and texts in "quotes".'
        ) from None
    assert isinstance(items, tuple)
    name = name.strip()
    # Of a part, none is a name: no connection, no norm, no attention.
    return name, tuple("none" if v is None else v for v in items) if name in PARTS else items


def _quoted(values: str) -> str:
    """Put quotes around words with spaces between them, unless there are quotes or brackets."""
    if any(mark in values for mark in "\"'(["):
        return values
    return ",".join(
        json.dumps(value.strip()) if _WORDS.fullmatch(value.strip()) else value
        for value in values.split(",")
    )


def _plain_fields(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Bring every value into the form that JSON holds; unknown fields are refused by name."""
    plain: dict[str, Any] = {}
    for name, value in changes.items():
        if name in OF_THE_TASK:
            raise LabError(f"The {name} of a cell follows from its task; leave it out.")
        if name not in FIELDS:
            raise LabError(
                f"Neither a recipe nor a training has a field {name!r}."
                f"{did_you_mean(name, FIELDS)} The fields: {', '.join(FIELDS)}."
            )
        plain[name] = _plain(name, value)
    return plain


def _plain(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Choice | Mapping) or (isinstance(value, str) and name in _CHOICES):
        return str(Choice.parse(value))
    if isinstance(value, str):
        return value
    raise LabError(f"The field {name} cannot be {value!r}: JSON cannot hold it.")


def _label(name: str, value: Any) -> Label:
    plain = _plain(name, value) if name in FIELDS else value
    if plain is None or isinstance(plain, bool):
        return str(plain).lower()
    return plain


def _only(grid: Grid, name: str, labels: Sequence[Label]) -> Grid | None:
    """Return the grid with some labels of one axis; None if it has none of them."""
    axes: list[Axis] = []
    for axis in grid.axes:
        settings = [one for one in axis.settings if axis.name != name or one.label in labels]
        if not settings:
            return None
        axes.append(Axis(axis.name, tuple(settings)))
    return replace(grid, axes=tuple(axes))


def _check_seeds(seeds: Sequence[Any]) -> None:
    if not seeds:
        raise LabError("A sweep needs at least one seed; give --seeds 3, or seeds=(0, 1, 2).")
    for seed in seeds:
        check_seed(seed, error=LabError)
    if duplicate := _first_duplicate(seeds):
        raise LabError(f"The seed {duplicate[0]} is given twice; give it once.")


def _first_duplicate(values: Sequence[Any]) -> list[Any]:
    earlier: set[Any] = set()
    for value in values:
        if value in earlier:
            return [value]
        earlier.add(value)
    return []
