"""Rule on one claim with a few seeds, without a ledger."""

from __future__ import annotations

from collections.abc import Sequence

from leadline.claims import CLAIMS
from leadline.claims.ruling import Ruling, rule


def ruled(name: str, seeds: Sequence[int] = (0, 1)) -> Ruling:
    """Measure the claim with every seed, its trials first, and rule on it."""
    entry = CLAIMS.get(name)
    seeds = seeds if entry.seeded else (0,)
    measured = [
        entry.run(seed, {trial.name: trial.run(seed) for trial in entry.needs}) for seed in seeds
    ]
    numbers = {key: [one.numbers[key] for one in measured] for key in measured[0].numbers}
    pictures = [one.picture for one in measured if one.picture is not None]
    return rule(entry.claim, numbers, pictures=pictures, seeds=seeds)
