"""Each factor below 1: the gradient vanishes. Each factor above 1: it explodes.

One note writes the chain of factors dx_{i+1}/dx_i and compares each with 1, the other says that each
layer's gradient has a size of about 0.9 or 1.1. For numbers, and for matrices that scale every
direction so (all singular values below or above 1), both halves are right as long as the factors
keep away from 1 (the product of all 1 - 1/(i + 1)^2 is 1/2): the claim. The size of a matrix is
commonly its norm, and there the second half fails: a norm above 1 says that ONE direction grows. With
singular values 1.1 and 0.5 and directions at random the product vanishes.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

LAYERS, SIZE = 100, 8


@claim(
    "factors-below-one-vanish",
    group="algebra",
    notes=("shortcuts", "card"),
    title="Factors below 1 make the gradient vanish, factors above 1 make it explode",
    formula=r"\left\|\frac{\partial x_{i+1}}{\partial x_i}\right\| < 1 \;\Rightarrow\; "
    r"\frac{\partial L}{\partial x_1} \to 0",
    plain="every factor < 1 ⇒ vanishes;  every factor > 1 ⇒ explodes",
    says="Without shortcuts the gradient is a product of one factor per layer: if each is below 1 "
    "it vanishes, if each is above 1 it explodes.",
    correction="The first half is sure where all norms are at most some $q < 1$, the second where "
    "every singular value of every factor is at least some $q > 1$. That a factor has a norm above 1 "
    "says only that one direction grows.",
    why="A hundred matrices with singular values between 0.5 and 0.9 shrink every gradient (to at most "
    "{vanished}), a hundred between 1.1 and 1.3 enlarge every gradient (at least {exploded} times). "
    "But a hundred matrices of norm 1.1, whose other directions shrink by half, leave {mixed}: the "
    "direction that grows is another one in every layer.",
    checks=(
        Check(
            "vanished", "claim", "at most", 1e-3,
            label="largest gain, all singular values below 0.9",
            because="Vanishing is read as shrinking at least a thousandfold.",
            log=True,
        ),
        Check(
            "exploded", "claim", "at least", 1e3,
            label="smallest gain, all singular values above 1.1",
            because="Exploding is read as growing at least a thousandfold.",
            log=True,
        ),
        Check(
            "mixed", "reach", "at least", 1.0,
            label="largest gain, norm 1.1, the rest 0.5",
            because="Exploding means at least that the gradient does not get smaller.",
            log=True,
        ),
        Check(
            "bounded", "correction", "at most", 1.0 + 1e-12,
            label="norm of the product over 0.9^100, and over 1.1^100",
            because="The norm of a product is at most the product of the norms; the rest is rounding.",
        ),
    ),
    seconds=0.1,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Multiply a hundred matrices of known singular values."""
    from leadline.claims.algebra._matrices import between, norm, orthogonal, products, singular

    rng = np.random.default_rng([seed, 104])
    sizes = np.array([1.1] + [0.5] * (SIZE - 1))
    small = products([between(rng, SIZE, 0.5, 0.9) for _ in range(LAYERS)])
    large = products([between(rng, SIZE, 1.1, 1.3) for _ in range(LAYERS)])
    mixed = products([orthogonal(rng, SIZE) * sizes @ orthogonal(rng, SIZE) for _ in range(LAYERS)])
    lines = {
        "all below 0.9": [norm(one) for one in small],
        "all above 1.1": [float(singular(one)[-1]) for one in large],
        "norm 1.1, the rest 0.5": [norm(one) for one in mixed],
    }
    counted = tuple(float(at) for at in range(LAYERS + 1))
    return Measured(
        {
            "vanished": lines["all below 0.9"][-1],
            "exploded": lines["all above 1.1"][-1],
            "mixed": lines["norm 1.1, the rest 0.5"][-1],
            "bounded": max(
                value / bound**at
                for bound, name in ((0.9, "all below 0.9"), (1.1, "norm 1.1, the rest 0.5"))
                for at, value in enumerate(lines[name])
            ),
        },
        Picture(
            "layers",
            "gain of the gradient",
            {name: (counted, tuple(values)) for name, values in lines.items()},
            y_log=True,
        ),
    )
