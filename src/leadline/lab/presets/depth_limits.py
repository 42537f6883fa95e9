"""How deep can each design be and still train?

Ten designs from 6 to 96 layers, with and without warm-up, on the bytes of Python's own library:
width 64, 4 heads, 64 bytes, 16 examples, AdamW at 1e-3 without clipping, and the same Xavier init
wherever the design has none of its own. The learning rate is the same for all, so the map says
what trains in these settings, not what could be made to train.

    plain          u                        no skip, no norm
    no skip        u                        with norms before the branches
    post           N(x + u)                 the first Transformer
    pre            x + u, u of N(x)
    gpt2-scaled    pre, GPT-2's init: writes start smaller by 1/sqrt(2 L)
    deepnorm       N(a x + u)               its own constants and init
    rezero         x + a u, a from 0        no norm
    layerscale     pre, x + diag(g) u, g small
    weighted       x + u / sqrt(2 L)        no norm
    gated          pre, x + gate * u

The quick sweep has the places at which the designs part: post at 12 layers with and without
warm-up, pre at 12, 24 and 48, no skip at 6 and 12.
"""

from __future__ import annotations

from typing import Any

from leadline.lab.grid import Axis, Grid, Setting, Sweep
from leadline.lab.presets._preset import PRESETS

FIXED: dict[str, Any] = {
    "width": 64,
    "heads": 4,
    "init": "xavier",
    "head": "linear(bias=true)",
    "task": "stdlib(length=64)",
    "batch": 16,
    "rate": 1e-3,
    "examples": 256,
    "validate": 0,
    "gauges": 50,
}
DESIGNS: dict[str, dict[str, Any]] = {
    "plain": {"connection": "none", "placement": "none"},
    "no skip": {"connection": "none", "placement": "pre"},
    "post": {"connection": "identity", "placement": "post"},
    "pre": {"connection": "identity", "placement": "pre"},
    "gpt2-scaled": {"connection": "identity", "placement": "pre", "init": "gpt2(std=0.07)"},
    "deepnorm": {"connection": "deepnorm", "placement": "post", "init": "deepnorm"},
    "rezero": {"connection": "rezero", "placement": "none"},
    "layerscale": {"connection": "layerscale", "placement": "pre"},
    "weighted": {"connection": "weighted(alpha=depth)", "placement": "none"},
    "gated": {"connection": "gated", "placement": "pre"},
}
DEPTHS = {6: 300, 12: 300, 24: 200, 48: 150, 96: 150}
"""Layers, and how many steps they get: a deep model's step costs more."""
WARMUP = 0.5
"""The share of the steps that warm up, where they do."""
PLATEAU = 120
"""Steps without progress after which a run without warm-up is given up: its learning rate will
not change any more."""


@PRESETS.register("depth-limits")
def depth_limits(*, quick: bool) -> Sweep:
    """Ten designs, 6 to 96 layers, with and without warm-up: what trains?"""
    if quick:
        grids = (
            _grid(["post"], {12: 400}, (0, 300)),
            _grid(["pre"], {12: 200, 24: 150, 48: 100}, (0,)),
            _grid(["no skip"], {6: 200, 12: 200}, (0,)),
        )
    else:
        grids = tuple(
            _grid(list(DESIGNS), {depth: steps}, (0, round(WARMUP * steps)), quick=False)
            for depth, steps in DEPTHS.items()
        )
    return Sweep(name="depth-limits", grids=grids, seeds=(0, 1, 2), fixed=FIXED)


def _grid(
    designs: list[str], depths: dict[int, int], warmups: tuple[int, ...], *, quick: bool = True
) -> Grid:
    return Grid(
        (
            Axis("design", tuple(Setting(name, DESIGNS[name]) for name in designs)),
            Axis(
                "depth",
                tuple(Setting(d, {"depth": d, "steps": steps}) for d, steps in depths.items()),
            ),
            Axis("warm-up", tuple(_warmup(updates, quick=quick) for updates in warmups)),
        )
    )


def _warmup(updates: int, *, quick: bool) -> Setting:
    if updates:
        return Setting("yes", {"warmup": updates, "plateau": 0})
    return Setting("no", {"warmup": 0, "plateau": 0 if quick else PLATEAU})
