"""With residual connections a model trains stably and scales in depth.

The summary's conclusion, the textbook's "robust to depth" and the card's "makes very deep networks
trainable" name the residual connection alone, and so does the talk's "deeper, more stable". The
claim is where it is mostly drawn, in a pre-norm block, at 96 layers. The reach is the same
connection elsewhere: with norms after the addition, and without norms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.training._cells import cell, gain, stuck, trains
from leadline.claims.training._pictures import losses

PRE, POST = cell("pre", 96), cell("post", 24)
BARE, NONE = cell("no norm", 12), cell("no skip", 24)


@claim(
    "skip-makes-depth-trainable",
    group="training",
    notes=("shortcuts", "summary", "textbook", "card"),
    title="With residual connections a model trains stably at any depth",
    formula=r"x_{l+1} = x_l + F_l(x_l): \quad \text{trains for every } L",
    plain="x + F(x) trains at any depth",
    says="With residual connections the model trains stably, is robust to depth and can be made "
    "very deep.",
    correction="The skip is needed and not enough. In a pre-norm block it makes depth possible; "
    "with the norm after the addition, or with no norm and no weight on the updates, it does not.",
    why="Four networks, all with the same learning rate and without warm-up. With skip and norms "
    "before the branches 96 layers gain {pre:.2f} nats over the entropy of the byte frequencies. "
    "With skip and norms after the addition 24 layers gain {post:.2f}, with skip and without "
    "norms 12 layers {bare:.2f}, without skip 24 layers {none:.2f}. Three of these four have "
    "residual connections in every sublayer, and one of them trains.",
    checks=(
        trains("pre", "claim", "gain of pre-norm, 96 layers"),
        trains("post", "reach", "gain of post-norm, 24 layers"),
        trains("bare", "reach", "gain of the sum without norms, 12 layers"),
        stuck("post_gain", "correction", "gain of post-norm, 24 layers, again"),
        stuck("bare_gain", "correction", "gain of the sum without norms, 12 layers, again"),
        stuck("none", "correction", "gain without skip, 24 layers"),
    ),
    seconds=0.01,
    needs=(PRE, POST, BARE, NONE),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gains of four deep networks."""
    runs = {
        "skip, pre-norm, 96 layers": trials[PRE.name],
        "skip, post-norm, 24 layers": trials[POST.name],
        "skip, no norms, 12 layers": trials[BARE.name],
        "no skip, 24 layers": trials[NONE.name],
    }
    pre, post, bare, none = map(gain, runs.values())
    numbers = {"pre": pre, "post": post, "bare": bare, "none": none}
    return Measured({**numbers, "post_gain": post, "bare_gain": bare}, losses(runs))
