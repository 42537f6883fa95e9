"""Is subtracting the mean the removal of a radial offset?

Radial means along the token itself, away from or towards the origin. What is removed is mu 1, a
vector along 1, whatever the token is; it is orthogonal to what is left, and |x|² = |x - mu 1|² +
d mu². A token that is twice as far from the origin is, after centring, still twice as far: radial
differences are removed by the division, not by the subtraction.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

WIDTH, TOKENS = 64, 64


@claim(
    "mean-removal-is-radial",
    group="norms",
    notes=("deep-dive",),
    title="Subtracting the mean removes a radial offset",
    formula=r"x \mapsto x - \mu \mathbf{1}",
    plain="x ↦ x − μ1 removes the radial part",
    says="The first step of LayerNorm, subtracting the mean, takes away the radial offset of a "
    "token.",
    correction="It takes away the part along $\\mathbf{1}$, the same direction for every token, "
    "and leaves the part orthogonal to it: $|x|^2 = |x - \\mu \\mathbf{1}|^2 + d \\mu^2$. The "
    "distance from the origin is taken away by the next step, the division by $\\sigma$.",
    why="A radial offset lies along the token itself. The part that is removed has a cosine of "
    "{cosine:.3f} with its token in the root mean square, so it hardly lies along it. "
    "A token that is moved outward by a factor of 2 is, after subtraction of the mean, still "
    "{still:.2f} times as long as before. Division then makes both the same.",
    checks=(
        Check(
            "cosine", "claim", "at least", 0.9,
            label="cosine of what is removed with the token",
            because="Radial means along the token; nine tenths would still pass for that.",
        ),
        Check(
            "still", "claim", "near", 1.0, within=0.1,
            label="length of a doubled token over the token, after centring",
            because="Once a radial offset is removed both would be the same.",
        ),
        Check(
            "along_one", "correction", "near", 1.0, within=1e-12,
            label="cosine of what is removed with 1, in size",
            because="An identity, to rounding.",
        ),
        Check(
            "pythagoras", "correction", "at most", 1e-12,
            label="|x|² against |x − μ1|² + dμ², relative",
            because="An identity: both parts are orthogonal.",
            log=True,
        ),
        Check(
            "after_division", "correction", "at most", 1e-12,
            label="doubled token against the token behind LayerNorm without ε",
            because="An identity: LayerNorm does not see the length of a token.",
            log=True,
        ),
    ),
    source="",
    seconds=0.02,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """The removed part beside the token, and tokens moved outward."""
    from leadline.claims.norms._layernorm import applied

    rng = np.random.default_rng([seed, 43])
    x = rng.standard_normal((TOKENS, WIDTH)) + 0.3 * rng.standard_normal((TOKENS, 1))
    removed = np.repeat(x.mean(axis=1, keepdims=True), WIDTH, axis=1)
    left = x - removed
    ones = np.ones((TOKENS, WIDTH))
    squares = (x**2).sum(axis=1)
    parts = (left**2).sum(axis=1) + WIDTH * x.mean(axis=1) ** 2
    twice = 2.0 * x - 2.0 * removed
    lengths = np.linalg.norm(twice, axis=1) / np.linalg.norm(left, axis=1)
    return Measured(
        {
            "cosine": float(np.sqrt((_cosine(removed, x) ** 2).mean())),
            "still": float(lengths.mean()),
            "along_one": float(np.abs(_cosine(removed, ones)).min()),
            "pythagoras": float(np.abs(squares - parts).max() / squares.max()),
            "after_division": float(np.abs(applied(2.0 * x, eps=0.0) - applied(x, eps=0.0)).max()),
        }
    )


def _cosine(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return (one * other).sum(axis=1) / lengths
