"""Pictures of training runs: losses over steps, and gradients over depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from leadline.claims.claim import Picture
from leadline.claims.training._cells import curve, profile

__all__ = ["gradients", "losses"]

POINTS = 60
"""About so many points has a line."""
FREQUENCIES = "unigram entropy"


def losses(runs: Mapping[str, Mapping[str, Any]]) -> Picture:
    """The training loss of every run over its steps, and the loss of the frequencies."""
    lines = {name: _thinned(*curve(found)) for name, found in runs.items()}
    last = max(x[-1] for x, _ in lines.values())
    height = float(next(iter(runs.values()))["unigram"])
    return Picture(
        "steps",
        "training loss, nats",
        {**lines, FREQUENCIES: ((0.0, last), (height, height))},
        faint=(FREQUENCIES,),
    )


def gradients(runs: Mapping[str, Mapping[str, Any]]) -> Picture:
    """|dL/dx_l| of every run after its last update, over l / L and over its value at the end."""
    lines: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {}
    for name, found in runs.items():
        values = np.array(profile(found))
        places = np.linspace(0.0, 1.0, len(values))
        lines[name] = (tuple(places.tolist()), tuple((values / values[-1]).tolist()))
    return Picture("place in the stack", "gradient over that at the end", lines, y_log=True)


def _thinned(
    steps: tuple[float, ...], values: tuple[float, ...]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Means of so many neighbouring points that about `POINTS` are left."""
    size = max(1, len(steps) // POINTS)
    whole = len(steps) // size * size
    x = np.array(steps[:whole]).reshape(-1, size)[:, -1]
    y = np.array(values[:whole]).reshape(-1, size).mean(axis=1)
    return tuple(x.tolist()), tuple(y.tolist())
