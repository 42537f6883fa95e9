"""A large Lipschitz constant of the MLPs is said to raise the variance of gradients.

Read as in `large-lipschitz-costs-robustness`: tr Cov(g) over batches, with MLP weights 8 times as large, in
the theorem's setting without skip and norm, and then where a reader carries it, pre-norm with skips.
There larger weights get smaller gradients, since a norm makes the output independent of their size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.collapse._lipschitz_cost import LIPSCHITZ_COST, grown


@claim(
    "large-lipschitz-raises-gradient-variance",
    group="collapse",
    notes=("deep-dive",),
    title="A larger Lipschitz constant of the MLPs raises the variance of gradients",
    formula=r"\lambda \uparrow \; \Rightarrow \; \mathrm{tr} \, \mathrm{Cov}(g) \uparrow",
    plain="λ ↑ ⇒ tr Cov(g) ↑",
    says="A larger Lipschitz constant slows the collapse but may make optimisation harder, because the "
    "variance of gradients grows.",
    correction="It holds without norms. With norms before the branches the gradient of a weight falls as the "
    "weight grows, and the variance falls with it.",
    why="With MLP weights eight times as large the variance of the gradient over batches grew {bare:.1e} "
    "times in a network without skips and norms. With skips and a norm before every branch it fell to "
    "{normed:.2f} of what it was, and to {normless:.2f} with norms and no skips. What a norm divides out "
    "going forward, its gradient divides by going back.",
    checks=(
        Check(
            "bare",
            "claim",
            "at least",
            2.0,
            label="growth of the gradient variance, no skip, no norm",
            because="Raised is read as at least twice.",
            log=True,
        ),
        Check(
            "normed",
            "reach",
            "at least",
            2.0,
            label="the same with skips and pre-norm",
            because="Raised is read as at least twice.",
            log=True,
        ),
        Check(
            "falls",
            "correction",
            "at most",
            0.9,
            label="growth of the gradient variance with skips and pre-norm",
            because="Falls is read as by at least a tenth.",
        ),
    ),
    seconds=0.01,
    needs=(LIPSCHITZ_COST,),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Read the growth of all networks."""
    normed = grown(trials, "pre-norm", "gradient_variance")
    return Measured(
        {
            "bare": grown(trials, "without skip and norm", "gradient_variance"),
            "normed": normed,
            "falls": normed,
            "normless": grown(trials, "without skip", "gradient_variance"),
        }
    )
