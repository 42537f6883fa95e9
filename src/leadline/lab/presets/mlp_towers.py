"""How deep can a tower of MLPs be and still train?

No attention: every token is alone, and the best that can be learned is which byte follows which
(the bigram entropy). Width 32, hidden 32, ReLU, Xavier init, AdamW at 1e-3.

    plain      u                   no skip, no norm: the network before residual connections
    residual   x + u               no norm: the stream grows with every layer
    weighted   x + u / sqrt(L)     no norm
    pre        x + u, u of N(x)
"""

from __future__ import annotations

from typing import Any

from leadline.lab.grid import Axis, Grid, Setting, Sweep
from leadline.lab.presets._preset import PRESETS

FIXED: dict[str, Any] = {
    "width": 32,
    "heads": 1,
    "attention": "none",
    "positions": "none",
    "mlp": "relu(hidden=32)",
    "init": "xavier",
    "head": "linear(bias=true)",
    "task": "stdlib(length=64)",
    "batch": 8,
    "rate": 1e-3,
    "examples": 256,
    "validate": 0,
    "gauges": 50,
}
DESIGNS: dict[str, dict[str, Any]] = {
    "plain": {"connection": "none", "placement": "none"},
    "residual": {"connection": "identity", "placement": "none"},
    "weighted": {"connection": "weighted(alpha=depth)", "placement": "none"},
    "pre": {"connection": "identity", "placement": "pre"},
}
QUICK = {10: 200, 100: 100, 1000: 150}
FULL = {5: 400, 10: 400, 20: 400, 50: 300, 100: 300, 300: 200, 1000: 200}
"""Layers, and how many steps they get."""


@PRESETS.register("mlp-towers")
def mlp_towers(*, quick: bool) -> Sweep:
    """Plain, residual, weighted and pre-norm towers of up to 1,000 layers: what trains?"""
    depths = QUICK if quick else FULL
    grid = Grid(
        (
            Axis("design", tuple(Setting(name, fields) for name, fields in DESIGNS.items())),
            Axis(
                "depth",
                tuple(Setting(d, {"depth": d, "steps": steps}) for d, steps in depths.items()),
            ),
        )
    )
    return Sweep(name="mlp-towers", grids=(grid,), seeds=(0, 1, 2), fixed=FIXED)
