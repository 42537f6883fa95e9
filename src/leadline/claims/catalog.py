"""How a claim enters the catalog: its text stands in a TOML file, its measurement is a function.

`texts/algebra.toml` has one table per claim, with its sentences and its checks:

    [power-of-nine-tenths]
    notes = ["shortcuts"]
    title = "A hundred factors of 0.9 leave 0.000026"
    ...
    checks = [{ part = "claim", number = "vanishing", relation = "near", limit = 2.65e-5, ... }]

and a file of `measure/` has the function that gives the numbers:

    @measures("power-of-nine-tenths")
    def power_of_nine_tenths(seed: int) -> Measured:
        return Measured(vanishing=0.9**100, exploding=1.1**100)

It gets a seed and returns one number per name, and curves if there are any. What several claims
need, such as a training run, is a `Trial`: it runs once per seed, its numbers are kept in the
ledger, and `measures(name, needs=(TRIAL,))` hands the function the results of its trials by name.
Files of measurements import no torch at their top: the list of claims and the page are made
without it. A plug-in reads a TOML file of its own with `read_texts` and decorates its functions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, SupportsFloat

from leadline.catalog import Catalog
from leadline.claims.claim import Check, Claim, Picture
from leadline.claims.text import Text, texts_of
from leadline.errors import CatalogError, UnknownName

__all__ = [
    "CLAIMS",
    "Entry",
    "Measured",
    "Results",
    "Trial",
    "claim",
    "measures",
    "read_texts",
    "trials",
    "uncheckable",
]

Results = Mapping[str, Mapping[str, Any]]
"""What the trials of a measurement gave, by name."""
TEXTS = Path(__file__).with_name("texts")


@dataclass(frozen=True, init=False)
class Measured:
    """What a measurement gives: numbers by name, and curves."""

    numbers: Mapping[str, float]
    picture: Picture | None

    def __init__(
        self,
        numbers: Mapping[str, SupportsFloat] | None = None,
        picture: Picture | None = None,
        **more: SupportsFloat,
    ) -> None:
        """Keep numbers of any kind as floats: those of a mapping, then those that are named."""
        several = {**(numbers or {}), **more}
        object.__setattr__(self, "numbers", {name: float(one) for name, one in several.items()})
        object.__setattr__(self, "picture", picture)


@dataclass(frozen=True)
class Trial:
    """A measurement that several claims share. What `run` returns must be JSON."""

    name: str
    run: Callable[[int], Mapping[str, Any]] = field(compare=False)
    seconds: float
    """About how long it takes on one core."""


@dataclass(frozen=True)
class Entry:
    """A claim and how it is measured."""

    claim: Claim
    measure: Callable[..., Measured] | None
    seconds: float = 0.0
    """About how long one seed takes on one core, without the trials."""
    seeded: bool = True
    """Whether anything is drawn; if not it is measured once."""
    needs: tuple[Trial, ...] = ()

    def run(self, seed: int, results: Results) -> Measured:
        """Measure with one seed; `results` are those of the trials, by name."""
        assert self.measure is not None, "only what can be checked is run"
        measured = self.measure(seed, results) if self.needs else self.measure(seed)
        missing = {check.number for check in self.claim.checks} - set(measured.numbers)
        if missing:
            raise CatalogError(
                f"The claim {self.claim.name!r} checks {', '.join(sorted(missing))}, which its "
                "measurement does not give."
            )
        return measured


CLAIMS: Catalog[Entry] = Catalog("claim", package="leadline.claims.measure")


def measures(
    name: str, *, needs: tuple[Trial, ...] = ()
) -> Callable[[Callable[..., Measured]], Callable[..., Measured]]:
    """Enter the function that measures the claim of this name; its text is in a TOML file."""

    def enter(measure: Callable[..., Measured]) -> Callable[..., Measured]:
        text = _known().get(name)
        if text is None:
            raise UnknownName("claim's text", name, _known())
        if not text.claim.checks:
            raise CatalogError(f"The claim {name!r} has no checks in {text.place}; add some.")
        return _enter(Entry(text.claim, measure, text.seconds, text.seeded, needs))

    return enter


def _enter(entry: Entry) -> Callable[..., Measured]:
    """Enter a claim with its measurement, which must take what it will be handed."""
    assert entry.measure is not None
    name, needs = entry.claim.name, entry.needs
    if len(inspect.signature(entry.measure).parameters) != (2 if needs else 1):
        raise CatalogError(
            f"The measurement of {name!r} takes a seed"
            + (" and the results of its trials." if needs else " and nothing else.")
        )
    CLAIMS.register(name)(entry)
    return entry.measure


def read_texts(path: str | PathLike[str]) -> None:
    """Add the claims of a TOML file to those that `measures` knows.

    What has no checks needs no measurement: it enters the catalog as it is, as not checkable.
    """
    for name, text in texts_of(Path(path)).items():
        known = _known().setdefault(name, text)
        if known.place != text.place:
            raise CatalogError(
                f"Two claims are called {name!r}, in {known.place} and in {text.place}; give the "
                "second another name."
            )
        if not text.claim.checks:
            CLAIMS.register(name)(Entry(text.claim, None))


@cache
def _known() -> dict[str, Text]:
    """The texts of the package by name; those of plug-ins are added to it."""
    return {}


def claim(
    name: str,
    *,
    group: str,
    notes: tuple[str, ...],
    title: str,
    formula: str,
    plain: str,
    says: str,
    correction: str,
    why: str,
    checks: tuple[Check, ...],
    seconds: float,
    source: str = "",
    seeded: bool = True,
    needs: tuple[Trial, ...] = (),
) -> Callable[[Callable[..., Measured]], Callable[..., Measured]]:
    """Enter a claim with its text in Python, for plug-ins that have no TOML file."""
    text = Claim(name, group, notes, title, formula, plain, says, correction, why, checks, source)

    return lambda measure: _enter(Entry(text, measure, seconds, seeded, needs))


def uncheckable(
    name: str,
    *,
    group: str,
    notes: tuple[str, ...],
    title: str,
    says: str,
    why: str,
    formula: str = "",
    plain: str = "",
) -> None:
    """Enter a claim that nothing on this machine can decide; `why` says what would be needed."""
    text = Claim(name, group, notes, title, formula, plain, says, "", why)
    CLAIMS.register(name)(Entry(text, None))


def trials(names: list[str]) -> dict[str, Trial]:
    """Every trial that these claims need, by name."""
    known: dict[str, Trial] = {}
    for name in names:
        for trial in CLAIMS.get(name).needs:
            if known.setdefault(trial.name, trial).run is not trial.run:
                raise CatalogError(f"Two trials are called {trial.name!r}.")
    return known
