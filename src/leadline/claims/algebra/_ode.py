"""One run of `reproduce` ode-view per seed, from which three claims read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Trial

__all__ = ["ODE", "line_of", "order_of", "spectrum_of"]


def _run(seed: int) -> Mapping[str, Any]:
    from leadline.experiments.ode_view.experiment import DEPTHS, ERROR, Setting, ode_view

    outcome = ode_view(Setting(seeds=1, seed=seed))
    orders, stability = outcome.tables
    return {
        "depths": list(DEPTHS),
        "errors": {one.name: list(one.values) for one in outcome.lines if one.panel == ERROR},
        "orders": {name: row[0] for name, row in zip(orders.names, orders.rows, strict=True)},
        "spectra": {
            name: dict(zip(stability.columns, row, strict=True))
            for name, row in zip(stability.names, stability.rows, strict=True)
        },
    }


ODE = Trial("ode-view", _run, seconds=2.0)
"""Errors of the three kinds of steps over depth, their orders, and the eigenvalues of blocks."""


def order_of(found: Mapping[str, Mapping[str, Any]], name: str) -> float:
    """The order of convergence of one kind of step; NaN where none was fitted."""
    return float(found[ODE.name]["orders"].get(name, float("nan")))


def line_of(
    found: Mapping[str, Mapping[str, Any]], name: str
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Error against the flow over depth."""
    trial = found[ODE.name]
    depths = tuple(float(depth) for depth in trial["depths"])
    return depths, tuple(10.0 ** float(value) for value in trial["errors"][name])


def spectrum_of(found: Mapping[str, Mapping[str, Any]], name: str) -> Mapping[str, float]:
    """The row of one block in the table of stability."""
    return found[ODE.name]["spectra"][name]
