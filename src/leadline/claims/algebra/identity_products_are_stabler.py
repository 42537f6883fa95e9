"""(I + e_1)(I + e_2)... is far more stable than e_1 e_2 ...: for small e.

How stable a product is: how far its singular values are from 1, as the largest |log10| of them. The
note says it of small e (the claim: random e of norm 0.1 in 96 layers). Its reach is a branch that is
not small: orthogonal e keep every length exactly, and I + e, with eigenvalues 1 + e^(it), does not.
In the worst case, with |e_l| = q in L layers,

    |log prod e| >= L log(1/q),        |log prod (I + e)| <= L log(1/(1 - q))

so the product with identities is the stabler one for certain only where q < 1/2.
"""

from __future__ import annotations

import math

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

LAYERS, SIZE, SMALL = 96, 16, 0.1


def _away(values: np.ndarray) -> float:
    """The largest |log10| of singular values."""
    return float(np.max(np.abs(np.log10(values))))


@claim(
    "identity-products-are-stabler",
    group="algebra",
    notes=("shortcuts",),
    title="A product of I + ε is far more stable than a product of ε",
    formula=r"(I + \epsilon_1)(I + \epsilon_2) \cdots (I + \epsilon_n) "
    r", \qquad \epsilon_1 \epsilon_2 \cdots \epsilon_n",
    plain="(I + ε₁)(I + ε₂)…(I + ε_n) against ε₁ε₂…ε_n",
    says="The shortcut turns every Jacobian from ε into I + ε, and the product of these is far more "
    "stable.",
    correction="For small branches: with $\\|\\epsilon_l\\| \\le q < 1/2$ the product of the "
    "$I + \\epsilon_l$ is always nearer to 1 than that of the $\\epsilon_l$. Branches that keep lengths "
    "by themselves have nothing to win by the identity.",
    why="With random ε of norm 0.1 in 96 layers the plain product is $10$ to the power {plain:.0f}, while "
    "with identities the singular values stay within $10$ to the power $\\pm$ {skip:.2f}. With orthogonal "
    "ε it is the other way round: their product keeps every length ({kept}), and with identities it "
    "grows to $10$ to the power {grown:.0f}.",
    checks=(
        Check(
            "times", "claim", "at least", 10.0,
            label="|log| of the plain product over that with identities, ‖ε‖ = 0.1",
            because="Far more stable is read as ten times nearer to 1 on a logarithmic scale.",
            log=True,
        ),
        Check(
            "turned", "reach", "at least", 0.0,
            label="|log10| of the plain product minus that with identities, orthogonal ε",
            because="More stable means at least not further from 1.",
        ),
        Check(
            "inside", "correction", "at most", 1.0 + 1e-9,
            label="|log| of the product with identities over its bound",
            because="A theorem, attained by ε = -0.1 I; 96 factors round by less than 1e-13.",
        ),
        Check(
            "outside", "correction", "at least", 1.0 - 1e-9,
            label="|log| of the plain product over its bound",
            because="The norm of a product is at most the product of the norms.",
        ),
        Check(
            "half", "correction", "at least", 1.0,
            label="bound without over bound with identities, ‖ε‖ below 1/2",
            because="log(1/q) is at least log(1/(1 - q)) for q up to 1/2.",
        ),
    ),
    seconds=0.1,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Multiply small and orthogonal matrices with and without the identity."""
    from leadline.claims.algebra._matrices import of_norm, orthogonal, products, singular
    from leadline.theory.residual_products import product_band

    rng = np.random.default_rng([seed, 112])
    eye = np.eye(SIZE)
    small = [of_norm(rng, SIZE, SMALL) for _ in range(LAYERS)]
    rigid = [orthogonal(rng, SIZE) for _ in range(LAYERS)]
    drawn = {
        "ε": products(small),
        "I + ε": products([eye + one for one in small]),
        "orthogonal ε": products(rigid),
        "I + orthogonal ε": products([eye + one for one in rigid]),
    }
    values = {name: [singular(one) for one in several] for name, several in drawn.items()}
    ends = {name: several[-1] for name, several in values.items()}
    band = product_band([SMALL] * LAYERS)
    within = max(abs(band.log_lower), band.log_upper) / math.log(10.0)
    undone = [singular((1.0 - SMALL) * eye)] * LAYERS
    worst = abs(sum(float(np.log10(one[-1])) for one in undone))
    plain, skip = abs(float(np.log10(ends["ε"][0]))), _away(ends["I + ε"])
    bounds = [(q, product_band([q])) for q in np.linspace(0.01, 0.49, 49).tolist()]
    counted = tuple(float(at) for at in range(LAYERS + 1))
    shown = {"I + ε": 0, "ε": 0, "I + orthogonal ε": 0, "orthogonal ε": 0}
    return Measured(
        {
            "times": plain / skip,
            "turned": _away(ends["orthogonal ε"]) - _away(ends["I + orthogonal ε"]),
            "inside": max(skip, worst) / within,
            "outside": plain / (LAYERS * -math.log10(SMALL)),
            "half": min(-math.log(q) / abs(one.log_lower) for q, one in bounds),
            "plain": -plain,
            "skip": skip,
            "kept": float(ends["orthogonal ε"][0]),
            "grown": _away(ends["I + orthogonal ε"]),
        },
        Picture(
            "layers",
            "largest singular value of the product",
            {
                name: (counted, tuple(float(one[at]) for one in values[name]))
                for name, at in shown.items()
            },
            y_log=True,
        ),
    )
