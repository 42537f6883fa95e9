"""How a claim enters the catalog: a text with checks, and the function that measures.

    @claim(
        "power-of-nine-tenths",
        group="algebra",
        notes=("shortcuts",),
        title=..., formula=..., plain=..., says=..., correction=..., why=...,
        checks=(Check("power", "claim", "near", 2.65e-5, within=5e-7, label=..., because=...),),
        seconds=0.01,
        seeded=False,
    )
    def measure(seed: int) -> Measured:
        return Measured({"power": 0.9**100})

`measure` gets a seed and returns one number per name, and curves if there are any. What several
claims need, such as a training run, is a `Trial`: it runs once per seed, its numbers are kept in
the ledger, and `measure(seed, trials)` gets them by name. Modules of claims import no torch at
their top: the list of claims and the page are made without it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from leadline.catalog import Catalog
from leadline.claims.claim import Check, Claim, Picture
from leadline.errors import CatalogError

__all__ = ["CLAIMS", "Entry", "Measured", "Trial", "claim", "trials", "uncheckable"]


@dataclass(frozen=True)
class Measured:
    """What a measurement gives: numbers by name, and curves."""

    numbers: Mapping[str, float]
    picture: Picture | None = None


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

    def run(self, seed: int, found: Mapping[str, Mapping[str, Any]]) -> Measured:
        """Measure with one seed; `found` are the results of the trials by name."""
        assert self.measure is not None, "only what can be checked is run"
        measured = self.measure(seed, found) if self.needs else self.measure(seed)
        missing = {check.number for check in self.claim.checks} - set(measured.numbers)
        if missing:
            raise CatalogError(
                f"The claim {self.claim.name!r} checks {', '.join(sorted(missing))}, which its "
                "measurement does not give."
            )
        return measured


CLAIMS: Catalog[Entry] = Catalog("claim", package="leadline.claims")


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
    """Enter a claim with the function that measures it."""
    text = Claim(
        name, group, notes, title, formula, plain, says, correction, why, checks, source
    )  # fmt: skip

    def enter(measure: Callable[..., Measured]) -> Callable[..., Measured]:
        expected = 2 if needs else 1
        if len(inspect.signature(measure).parameters) != expected:
            raise CatalogError(
                f"The measurement of {name!r} takes a seed"
                + (" and the results of its trials." if needs else " and nothing else.")
            )
        CLAIMS.register(name)(Entry(text, measure, seconds, seeded, needs))
        return measure

    return enter


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
    found: dict[str, Trial] = {}
    for name in names:
        for trial in CLAIMS.get(name).needs:
            known = found.setdefault(trial.name, trial)
            if known.run is not trial.run:
                raise CatalogError(f"Two trials are called {trial.name!r}.")
    return found
