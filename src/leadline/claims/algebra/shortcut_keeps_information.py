"""x + F(x) keeps the information of x: where x can be found again from it.

To keep the information is read as: x can be found again from y = x + F(x). With Lip(F) = q < 1

    |y - y'| >= (1 - q) |x - x'|,        x_{k+1} = y - F(x_k) converges to x like q^k

(Banach's fixed-point theorem; Behrmann et al. 2019, arXiv 1811.00995). The claim is measured on such
branches F(x) = W2 relu(W1 x) with |W2| |W1| = 0.9. Its reach is any branch of that form: with
W1 = -2 I and W2 = I the layer is x + relu(-2x) = |x|, and the signs are gone.
"""

from __future__ import annotations

import math

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

WIDTH, PAIRS, LIPSCHITZ, STEPS = 16, 200, 0.9, 400


@claim(
    "shortcut-keeps-information",
    group="algebra",
    notes=("shortcuts", "summary"),
    title="Adding x back keeps the information of x",
    formula=r"y = x + F(x) \;\Rightarrow\; x = g(y)",
    plain="y = x + F(x)  ⇒  x can be found again from y",
    says="Because the input is added to what the layer computes, the original information is "
    "kept and nothing is overwritten.",
    correction="It is kept for certain where the branch changes less than the identity does: with "
    "$\\mathrm{Lip}(F) < 1$ two inputs stay at least $1 - \\mathrm{Lip}(F)$ of their distance apart, and "
    "$x$ can be computed back. A larger branch can erase what it likes.",
    why="For ReLU branches with a Lipschitz constant of at most 0.9, $x$ was computed back from $x + "
    "F(x)$ with an error of {lost}. But $F(x) = \\max(0, -2x)$ is such a branch too, only larger: "
    "then $x + F(x) = |x|$, and an input and its mirror image leave the layer at a distance of "
    "{apart}. Small branches never bring two inputs closer than the theorem allows (smallest "
    "distance over the bound: {kept}).",
    checks=(
        Check(
            "lost", "claim", "at most", 1e-12,
            label="error of x computed back, Lip(F) ≤ 0.9",
            because="400 steps leave 0.9^400 = 5e-19; the rest is rounding, 1/(1 - 0.9) times eps.",
            log=True,
        ),
        Check(
            "apart", "reach", "at least", 1e-3,
            label="distance kept between x and -x, larger branch",
            because="Kept information means that different inputs stay apart, by a thousandth of "
            "their distance at least.",
        ),
        Check(
            "kept", "correction", "at least", 1.0 - 1e-12,
            label="distance of outputs over (1 - Lip) |x - x'|",
            because="A theorem: the reverse triangle inequality; the rest is rounding.",
        ),
    ),
    source="Behrmann et al. 2019, arXiv 1811.00995",
    seconds=0.05,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Compute x back by fixed-point steps; look for inputs that a larger branch makes equal."""
    from leadline.claims.algebra._matrices import of_norm
    from leadline.theory.residual_products import product_band

    rng = np.random.default_rng([seed, 101])
    up, down = of_norm(rng, WIDTH, 1.0), of_norm(rng, WIDTH, LIPSCHITZ)

    def small(x: np.ndarray) -> np.ndarray:
        return np.maximum(x @ up, 0.0) @ down

    x, other = rng.normal(size=(2, PAIRS, WIDTH))
    y, back = x + small(x), np.zeros_like(x)
    for _ in range(STEPS):
        back = y - small(back)
    lengths = np.linalg.norm(x, axis=1)
    bound = math.exp(product_band([LIPSCHITZ]).log_lower)
    # Pairs at random, and pairs that are close: there a branch is nearly linear.
    ratios = [
        np.linalg.norm(y - (near + small(near)), axis=1) / np.linalg.norm(x - near, axis=1)
        for near in (other, x + 1e-3 * other)
    ]
    # Two hidden features per feature give the branch -q x, with which the bound is attained.
    shrunk = x - LIPSCHITZ * (np.maximum(x, 0.0) - np.maximum(-x, 0.0))
    ratios.append(np.linalg.norm(shrunk, axis=1) / lengths)
    folded = x + np.maximum(-2.0 * x, 0.0)
    mirrored = -x + np.maximum(2.0 * x, 0.0)
    return Measured(
        {
            "lost": float(np.max(np.linalg.norm(back - x, axis=1) / lengths)),
            "apart": float(np.max(np.linalg.norm(folded - mirrored, axis=1) / (2.0 * lengths))),
            "kept": float(np.min(ratios)) / bound,
        }
    )
