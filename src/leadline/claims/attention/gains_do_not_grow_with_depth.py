"""Gamma, sigma_Q and sigma_K do not grow exponentially with depth: they are constants of the layers.

Claim: at the start, over 24 layers, the logarithm of Gamma^2 sigma_Q sigma_K has no slope. Reach: that
it has none after training either; in a trained pre-norm model it has. Whether that growth is
exponential cannot be told from the six layers of one model. Gamma is also read from the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from leadline.claims.attention._started import STARTED
from leadline.claims.attention._trained import TRAINED
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture


@claim(
    "gains-do-not-grow-with-depth",
    group="attention",
    notes=("deep-dive",),
    title="Γ, σ_Q and σ_K do not grow with depth",
    formula=r"\Gamma_l^2 \sigma_{Q,l} \sigma_{K,l} = O(1)",
    plain="Γ_l² σ_Q,l σ_K,l = O(1)",
    says="The gain of the norm and the spectral norms of W_Q and W_K are controlled by the start and by "
    "regularisation; they do not grow exponentially with depth and are constants free of the number of "
    "layers.",
    correction="They start equal in all layers. Training makes them differ from layer to layer.",
    why="Before training the logarithm of $\\Gamma^2 \\sigma_Q \\sigma_K$ has a slope of {slope_start:.4f} "
    "per layer over 24 layers. In a trained pre-norm model of 6 layers the slope is "
    "{slope_trained:.2f}, and the largest layer has {spread_trained:.1f} times the value of the "
    "smallest, which before training was {spread_start:.2f}. Nothing in the architecture sets these numbers; the start does, and then training.",
    checks=(
        Check(
            "slope_start", "claim", "near", 0.0, within=0.01,
            label="slope of the logarithm per layer, at the start",
            because="Layers are drawn alike; spectral norms spread by about 3 percent, which leaves a "
            "slope of 0.001 over 24 layers.",
        ),
        Check(
            "slope_trained", "reach", "near", 0.0, within=0.05,
            label="slope of the logarithm per layer, trained",
            because="Spectral norms of drawn layers, which spread by about 3 percent, leave a slope of "
            "0.01 over 6 layers; five times that is allowed.",
        ),
        Check(
            "spread_start", "correction", "at most", 1.5,
            label="largest over smallest layer, at the start",
            because="Equal: at most half as much again; drawn layers differ by some percent.",
        ),
        Check(
            "spread_trained", "correction", "at least", 1.5,
            label="largest over smallest layer, trained",
            because="Different: more than the same half as much again.",
        ),
        Check(
            "gain_ratio", "correction", "near", 1.0, within=1e-6,
            label="measured gain over the largest weight of the norm, worst layer",
            because="The gain is the largest weight in size, read in float32.",
        ),
    ),
    seconds=0.01,
    needs=(STARTED, TRAINED),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Fit the slope over layers, before and after training."""
    from leadline.lab import pair

    model: Any = pair.pre()[0]
    by_hand = np.array(
        [float(block.attention.enter.weight.detach().abs().max()) for block in model.blocks]
    )
    ratios = np.array(trials[TRAINED.name]["pre"]["norm_gain"]) / by_hand
    start = _reach(trials[STARTED.name]["pre-xavier"])
    trained = _reach(trials[TRAINED.name]["pre"])

    def slope(values: np.ndarray) -> float:
        return float(np.polyfit(np.arange(len(values)), np.log(values), 1)[0])

    def line(values: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return tuple(float(i + 1) for i in range(len(values))), tuple(values.tolist())

    return Measured(
        {
            "slope_start": slope(start),
            "slope_trained": slope(trained),
            "spread_start": float(start.max() / start.min()),
            "spread_trained": float(trained.max() / trained.min()),
            "gain_ratio": float(ratios[np.abs(ratios - 1).argmax()]),
        },
        Picture(
            "layer",
            "product of gains",
            {"at the start": line(start), "trained": line(trained)},
            y_log=True,
        ),
    )


def _reach(cell: Mapping[str, Any]) -> np.ndarray:
    gain, query, key = (
        np.array(cell[name], dtype=float) for name in ("norm_gain", "query_weight", "key_weight")
    )
    return gain**2 * query * key
