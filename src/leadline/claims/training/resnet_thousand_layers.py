"""Residual networks can be trained with a thousand layers and more.

The card's table says so of ResNets, which have norms. The claim is a tower of 1,000 MLPs with skip
and norms before the branches. The reach is what the card draws as a residual connection and nothing
more: x + F(x) without norms, at 100 layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.training._cells import TRAINS, gain, stuck, tower, trains
from leadline.claims.training._pictures import losses

THOUSAND, BARE = tower("pre", 1000, steps=200, rate=2e-3), tower("residual", 100, steps=300)
PLAIN = tower("plain", 50, steps=300)


@claim(
    "resnet-thousand-layers",
    group="training",
    notes=("card",),
    title="Residual networks can be trained with a thousand layers and more",
    formula=r"x_{l+1} = x_l + F_l(x_l): \quad L_{\max} > 1000",
    plain="x + F(x): largest trainable depth over 1,000",
    says="With residual connections the largest trainable depth is 1,000 layers and more.",
    correction="With skip and norms, yes. A bare sum without norms does not train at 100 layers.",
    why="A tower of 1,000 MLPs with skip and norms gains {thousand:.2f} nats over the entropy "
    "of the byte frequencies after 200 updates at a rate of 0.002. With the skip alone 100 layers "
    "gain {bare:.2f} after 300 at 0.001; a plain tower of 50 layers gains {plain:.2f}. The "
    "skip makes the depth possible, and something has to keep the stream in bounds.",
    checks=(
        trains("thousand", "claim", "gain of 1,000 layers with skip and norms"),
        trains("bare", "reach", "gain of 100 layers with skip, without norms"),
        Check(
            "bare_gain",
            "correction",
            "at most",
            TRAINS,
            label="gain of 100 layers with skip, without norms, again",
            because="Does not train means less than 0.3 nats, the margin from which a run trains.",
        ),
        stuck("plain", "correction", "gain of 50 layers without skip"),
    ),
    source="He et al. 2016, arXiv 1603.05027, for ResNets of 1,001 layers",
    seconds=0.01,
    needs=(THOUSAND, BARE, PLAIN),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gains of towers with skip."""
    runs = {
        "thousand": trials[THOUSAND.name],
        "bare": trials[BARE.name],
        "plain": trials[PLAIN.name],
    }
    labels = ("1,000 layers, skip and norms", "100 layers, skip alone", "50 layers, plain")
    picture = losses(dict(zip(labels, runs.values(), strict=True)))
    gains = {name: gain(found) for name, found in runs.items()}
    return Measured({**gains, "bare_gain": gains["bare"]}, picture)
