"""Trials that several tests read are run once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from leadline.claims import CLAIMS
from leadline.claims.ruling import Ruling, rule

Ruled = Callable[..., Ruling]


@functools.cache
def _trial(claim: str, name: str, seed: int) -> Mapping[str, Any]:
    (trial,) = [one for one in CLAIMS.get(claim).needs if one.name == name]
    return trial.run(seed)


@functools.cache
def _kept(name: str, seed: int) -> Mapping[str, Any]:
    """The result of a trial by its name, whichever claim asks for it."""
    claim = next(c for c, e in CLAIMS.items() if any(t.name == name for t in e.needs))
    return _trial(claim, name, seed)


@pytest.fixture(scope="session")
def ruled_on_kept() -> Ruled:
    """Rule on a claim with trials that are run once for all tests."""

    def ruled_on(name: str, seeds: Sequence[int] = (0, 1, 2)) -> Ruling:
        entry = CLAIMS.get(name)
        seeds = seeds if entry.seeded else (0,)
        measured = [
            entry.run(seed, {trial.name: _kept(trial.name, seed) for trial in entry.needs})
            for seed in seeds
        ]
        numbers = {key: [one.numbers[key] for one in measured] for key in measured[0].numbers}
        return rule(entry.claim, numbers, seeds=seeds)

    return ruled_on
