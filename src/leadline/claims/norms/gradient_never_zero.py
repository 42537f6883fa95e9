"""With skips a gradient is never multiplied down to zero.

The note looks at small f', where the 1 of 1 + f' is what is left, and concludes for every f. So any
branch is inside the claim, and one that deletes decides. It is also measured in Pre-LN before
training, plain and with GPT-2's init, 12 to 96 layers: no layer gets less than half of the last
gradient. The branch that deletes: for x + W LN(x) with W = -s I, s the divisor of the norm, one
layer has the Jacobian I - (I - 11'/d - xh xh'/d): every direction but 1 and xh is multiplied by 0.
The correction is the lower end of the band, sigma_min(P) >= prod (1 - |F'_l|), where all |F'_l| <
1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.norms._start import AT_START, DEPTHS, found_in

WIDTH, LAYERS, SMALL = 32, 24, 0.05


@claim(
    "gradient-never-zero",
    group="norms",
    notes=("textbook",),
    title="With residual connections a gradient is never multiplied down to zero",
    formula=r"\prod_l (1 + f'_l) \neq 0",
    plain="∏ (1 + f'_l) ≠ 0",
    says="Thanks to the 1 in $1 + f'$ gradients flow backward without being multiplied down to "
    "zero, and gradient flow remains strong even in the earliest layers.",
    correction="It holds where every $\\|F'_l\\| < 1$: what is left is at least "
    "$\\prod_l (1 - \\|F'_l\\|)$. A branch with $F' = -I$ on some directions deletes them in one "
    "layer.",
    why="Before training no layer of a Pre-LN model gets less than {least:.2f} of the last "
    "layer's gradient, at any depth up to 96, so the first layers do get strong gradients. But a "
    "single branch can delete it: with $F(LN(x)) = -s \\, LN(x)$ a gradient keeps {deleted:.0e} "
    "of its length, apart from two directions. For branches of norm 0.05 the product of 24 "
    "layers keeps at least {kept:.2f} of every direction, above the bound $0.95^{24}$.",
    checks=(
        Check(
            "least", "claim", "at least", 0.5,
            label="least gradient of any layer over the last one's, Pre-LN, four depths",
            because="Strong: at least half of what the last layer gets.",
        ),
        Check(
            "least_gpt2", "claim", "at least", 0.5,
            label="the same with GPT-2's init",
            because="Strong: at least half of what the last layer gets.",
        ),
        Check(
            "deleted", "claim", "at least", 1e-6,
            label="length left of a gradient after one layer with F = −s LN",
            because="Not zero: above rounding by ten orders of magnitude.",
            log=True,
        ),
        Check(
            "bound", "correction", "at most", 1.0 + 1e-10,
            label="∏(1 − ‖F'‖) over the smallest singular value, 24 layers",
            because="A lower bound on every draw; room for rounding.",
        ),
    ),
    source="",
    seconds=0.01,
    needs=(AT_START,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gradients of drawn models, one branch that deletes, and products of small branches."""
    from leadline.theory.norm_jacobian import layer_norm_jacobian, normed
    from leadline.theory.residual_products import product_band

    rng = np.random.default_rng([seed, 46])
    x, gradient = rng.standard_normal((2, WIDTH))
    direction, s = normed(x, norm="layernorm", eps=0.0)
    for lost in (np.ones(WIDTH), direction):
        gradient -= lost * (gradient @ lost) / (lost @ lost)
    deleting = np.eye(WIDTH) - s * layer_norm_jacobian(x, eps=0.0)
    product, norms = np.eye(WIDTH), []
    for _ in range(LAYERS):
        weight = rng.standard_normal((WIDTH, WIDTH))
        branch = weight @ layer_norm_jacobian(x)
        weight *= SMALL / np.linalg.norm(branch, 2)
        branch = weight @ layer_norm_jacobian(x)
        norms.append(float(np.linalg.norm(branch, 2)))
        product = (np.eye(WIDTH) + branch) @ product
        x = x + weight @ normed(x, norm="layernorm", eps=1e-5)[0]
    smallest = float(np.linalg.svd(product, compute_uv=False)[-1])
    pre, gpt2 = found_in(trials, "pre"), found_in(trials, "gpt2-scaled")
    return Measured(
        {
            "least": min(pre.least(depth) for depth in DEPTHS),
            "least_gpt2": min(gpt2.least(depth) for depth in DEPTHS),
            "deleted": float(np.linalg.norm(deleting.T @ gradient) / np.linalg.norm(gradient)),
            "kept": smallest,
            "bound": math.exp(product_band(norms).log_lower) / smallest,
        }
    )
