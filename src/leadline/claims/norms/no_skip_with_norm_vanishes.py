"""A Transformer without residual connections, its norms kept: do gradients fade from 24 layers on?

The summary speaks of a Transformer whose residual connections are left out and whose LayerNorms
are there (it blames them). So the stack without skip and with norms is its own setting, at 24, 48
and 96 layers, before training. What is lost there is the difference between tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.norms._start import AT_START, DEPTHS, found_in

DEEP = (24, 48, 96)


@claim(
    "no-skip-with-norm-vanishes",
    group="norms",
    notes=("summary",),
    title="Without residual connections the gradients of a Transformer fade, above all from 24 "
    "layers on (before training)",
    formula=r"L \geq 24: \quad \left\| \frac{\partial L}{\partial x_0} \right\| \ll "
    r"\left\| \frac{\partial L}{\partial x_L} \right\|",
    plain="24 layers and more without skip: ‖∂L/∂x₀‖ ≪ ‖∂L/∂x_L‖",
    says="Without residual connections the gradients of a Transformer with LayerNorm fade, above "
    "all at depths of 24 layers and more.",
    correction="Before training the gradients do not fade there; in single draws they grow. The "
    "tokens fade: from 24 layers on all tokens of a sequence are one and the same vector.",
    why="Stacks of 24, 48 and 96 layers with LayerNorm and without skip were drawn. The gradient "
    "at the entry was {least:.2f} times that at the end where it was smallest, and {most:.0f} "
    "times where it was largest. But the cosine of "
    "two tokens is {cosine:.5f} at 24 layers: attention has averaged all tokens into one, and "
    "there is nothing left to tell apart. That is why such a stack does not train, not a "
    "vanishing gradient.",
    checks=(
        Check(
            "least", "claim", "at most", 1e-3,
            label="gradient at entry over end, least of 24, 48, 96 layers",
            because="Faded is read as a thousandfold loss at one of the depths at least.",
            log=True,
        ),
        Check(
            "kept", "correction", "at least", 0.01,
            label="least gradient of any layer over the last one's",
            because="Not vanished: a hundredth or more. Single draws lie between 0.1 and 1.",
            log=True,
        ),
        Check(
            "cosine", "correction", "at least", 0.999,
            label="mean cosine of two tokens after 24 layers",
            because="One vector: differences of less than 5 % of its length.",
        ),
    ),
    source="Dong, Cordonnier, Loukas 2021, arXiv 2103.03404 (the collapse)",
    seconds=0.01,
    needs=(AT_START,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gradients and token cosines of the design without skip."""
    found = found_in(trials, "no skip")
    depths = tuple(float(depth) for depth in DEPTHS)
    apart = {
        "1 − token cosine, no skip": found,
        "1 − token cosine, Pre-LN": found_in(trials, "pre"),
    }
    return Measured(
        {
            "least": min(found.ratio(depth) for depth in DEEP),
            "most": max(found.ratio(depth) for depth in DEEP),
            "kept": min(found.least(depth) for depth in DEEP),
            "cosine": found.number("cosine", 24),
        },
        Picture(
            "depth",
            "difference between tokens",
            {
                label: (depths, tuple(_apart(one.number("cosine", d)) for d in DEPTHS))
                for label, one in apart.items()
            },
            x_log=True,
            y_log=True,
        ),
    )


def _apart(cosine: float) -> float:
    """1 - cosine, at least what float64 resolves."""
    return max(1.0 - cosine, 2.2e-16)
