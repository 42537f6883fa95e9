"""What larger MLP weights cost, run once per seed: the preset `lipschitz-cost`, made small."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Trial

__all__ = ["LIPSCHITZ_COST", "grown"]

SCALES = (0.5, 4.0)


def _run(seed: int) -> Mapping[str, Any]:
    from leadline.experiments.lipschitz_cost import lipschitz_cost

    found: dict[str, dict[str, list[float]]] = {}
    for line in lipschitz_cost(scales=SCALES, draws=1, batches=8, seed=seed).lines:
        network = found.setdefault(line.panel, {})
        for fact in ("lipschitz", "output_change", "gradient_variance"):
            network.setdefault(fact, []).append(float(line.facts[fact]))
    return found


LIPSCHITZ_COST = Trial("lipschitz-cost", _run, seconds=2.3)


def grown(trials: Mapping[str, Mapping[str, Any]], network: str, fact: str) -> float:
    """How many times as large a number is with the largest MLP weights as with the smallest."""
    first, last = trials[LIPSCHITZ_COST.name][network][fact]
    return last / first
