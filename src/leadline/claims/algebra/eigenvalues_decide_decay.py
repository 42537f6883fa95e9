"""Eigenvalues below 1 make a product of matrices decay, above 1 explode: not for different factors.

The note speaks of a product of different matrices W_i. Two matrices whose eigenvalues are all 0,

    A = [[0, 2], [0, 0]],    B = [[0, 0], [2, 0]],    A B = [[4, 0], [0, 0]]

have a product that grows by 4: the first half is false. The second holds where ALL eigenvalues of
every factor are at least q > 1 in size, because the determinants multiply: |prod| >= |det prod|^(1/n)
>= q^L (the claim too); where only the largest is above 1 (its reach) two matrices, diag(2, 0.1) and
diag(0.1, 2), have a product that shrinks by 0.2. Right are singular values: sigma_1(W_i) <= q for all
i gives |prod| <= q^L, and sigma_min(W_i) >= q gives sigma_min(prod) >= q^L. Eigenvalues decide for
powers of ONE matrix: |W^L|^(1/L) tends to the largest |eigenvalue| (Gelfand's formula), and for
normal matrices, whose norm is the largest |eigenvalue|. That eigenvalues above 1 do not make every
direction grow is shown by [[q, 2], [0, q]] and its transpose.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

PAIRS, LAYERS, SIZE = 20, 40, 8
UPPER = np.array([[0.0, 2.0], [0.0, 0.0]])
LOWER = np.array([[0.0, 0.0], [2.0, 0.0]])
WIDE, NARROW = np.diag([2.0, 0.1]), np.diag([0.1, 2.0])
BELOW, ABOVE, POWERS = 0.9, 1.1, 2000
LEAST = 1.05
SHEAR = np.array([[LEAST, 2.0], [0.0, LEAST]])


@claim(
    "eigenvalues-decide-decay",
    group="algebra",
    notes=("shortcuts",),
    title="Eigenvalues below 1 make a product of matrices decay, above 1 explode",
    formula=r"|\lambda(W_i)| < 1 \;\Rightarrow\; \prod_i W_i \to 0",
    plain="|λ(W_i)| < 1 ⇒ ∏ W_i → 0;  |λ| > 1 ⇒ ∏ W_i → ∞",
    says="The gradient is a product of matrices; where their eigenvalues are below 1 it decays "
    "exponentially, where they are above 1 it explodes.",
    correction="Singular values decide: if the largest singular value of every factor is at most "
    "$q < 1$, the product is at most $q^L$; if the smallest of every factor is at least $q > 1$, "
    "every direction grows by $q^L$ at least. Eigenvalues all above 1 make the norm of the product grow, "
    "because the determinant does, but not every direction. Eigenvalues below 1 are enough for powers "
    "of one matrix, or for normal factors.",
    why="Two matrices with no eigenvalue but 0 were multiplied in turn: after 40 factors the product "
    "has the norm {grown}. Two others, each with one eigenvalue of 2 and one of 0.1, left {shrunk}. Where "
    "all eigenvalues are 1.05 the norm grew to {sheared}, but one direction shrank to {narrow}. "
    "Eigenvalues do not multiply when the matrices turn the space differently, singular values bound "
    "the product: with singular values between 0.89 and 0.9 it stays below $0.9^{40}$ (ratio {decay}), with singular "
    "values between 1.1 and 1.11 above $1.1^{40}$ (ratio {growth}).",
    checks=(
        Check(
            "grown", "claim", "at most", 1.0,
            label="norm of 40 factors, all eigenvalues 0",
            because="Decay means at least that the product is not larger than the identity.",
            log=True,
        ),
        Check(
            "all_above", "claim", "at least", 1.0 - 1e-9,
            label="norm of the product over 1.05^40, all |eigenvalues| from 1.05 on",
            because="A theorem: the norm is at least the root of the determinant, and determinants "
            "multiply; the rest is rounding.",
            log=True,
        ),
        Check(
            "shrunk", "reach", "at least", 1.0,
            label="norm of 40 factors, largest eigenvalue 2",
            because="Exploding means at least that the product is not smaller than the identity.",
            log=True,
        ),
        Check(
            "decay", "correction", "at most", 1.0 + 1e-12,
            label="norm of the product over 0.9^40",
            because="The norm of a product is at most the product of the norms; the rest is rounding.",
        ),
        Check(
            "growth", "correction", "at least", 1.0 - 1e-9,
            label="smallest singular value over 1.1^40",
            because="A theorem; the product has a condition of 1.5 at most, so rounding is far below.",
        ),
        Check(
            "gelfand", "correction", "near", 1.0, within=0.02,
            label="|W^2000|^(1/2000) over the largest |eigenvalue|",
            because="Gelfand's formula; the rest is log(condition)/2000, below 1 % for conditions "
            "up to e^20.",
        ),
        Check(
            "sheared", "correction", "at least", 1.0,
            label="largest gain of 40 shears, all eigenvalues 1.05",
            because="Growing means that the product is larger than the identity.",
            log=True,
        ),
        Check(
            "narrow", "correction", "at most", 1.0,
            label="smallest gain of 40 shears, all eigenvalues 1.05",
            because="A direction that does not grow has a gain of 1 at most.",
            log=True,
        ),
        Check(
            "chain", "correction", "near", 1.0, within=1e-8,
            label="the same norm from the factors alone",
            because="The bidiagonalisation of the chain was asked for nine digits.",
        ),
    ),
    source="Gelfand 1941; Horn and Johnson, Matrix Analysis, section 5.6",
    seconds=0.1,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Multiply counterexamples, and random factors of known singular values."""
    from leadline.claims.algebra._matrices import (
        between,
        largest_of_chain,
        multiplied,
        norm,
        products,
        singular,
    )

    rng = np.random.default_rng([seed, 103])
    zero, two = [LOWER, UPPER] * PAIRS, [WIDE, NARROW] * PAIRS
    small = [between(rng, SIZE, BELOW - 0.01, BELOW) for _ in range(LAYERS)]
    large = [between(rng, SIZE, ABOVE, ABOVE + 0.01) for _ in range(LAYERS)]
    one = rng.normal(size=(SIZE, SIZE)) / np.sqrt(SIZE)
    lifted = list[np.ndarray]()
    for _ in range(LAYERS):
        turned = rng.normal(size=(SIZE, SIZE))
        lifted.append(LEAST * turned / np.min(np.abs(np.linalg.eigvals(turned))))
    sheared = [SHEAR, SHEAR.T] * PAIRS
    widest = norm(multiplied(sheared))
    radius = float(np.max(np.abs(np.linalg.eigvals(one))))
    power, length = np.eye(SIZE), 0.0
    for _ in range(POWERS):
        power = one @ power
        scale = norm(power)
        power, length = power / scale, length + float(np.log(scale))
    counted = tuple(float(at) for at in range(LAYERS + 1))
    lines = {
        "eigenvalues 0": [norm(p) for p in products(zero)],
        "an eigenvalue 2": [norm(p) for p in products(two)],
        "singular values up to 0.9": [norm(p) for p in products(small)],
        "singular values from 1.1": [float(singular(p)[-1]) for p in products(large)],
    }
    return Measured(
        {
            "grown": lines["eigenvalues 0"][-1],
            "shrunk": lines["an eigenvalue 2"][-1],
            "all_above": norm(multiplied(lifted)) / LEAST**LAYERS,
            "sheared": widest,
            # Of two singular values the smaller one is the determinant over the larger one.
            "narrow": LEAST ** (2 * LAYERS) / widest,
            "decay": lines["singular values up to 0.9"][-1] / BELOW**LAYERS,
            "growth": lines["singular values from 1.1"][-1] / ABOVE**LAYERS,
            "gelfand": float(np.exp(length / POWERS)) / radius,
            "chain": largest_of_chain(large) / norm(multiplied(large)),
        },
        Picture(
            "factors",
            "norm of the product",
            {name: (counted, tuple(values)) for name, values in lines.items()},
            y_log=True,
        ),
    )
