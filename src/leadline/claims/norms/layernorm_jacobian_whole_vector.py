"""LayerNorm's Jacobian: not diagonal, dependent on the whole token, eigenvalues possibly below 1.

Three statements about one matrix, each a number. The last is about what may be: one token with an
eigenvalue below 1 is enough. Moving feature 0 changes entries (i, j) that do not touch it, because
mean and standard deviation do.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

WIDTH, TOKENS = 64, 8


@claim(
    "layernorm-jacobian-whole-vector",
    group="norms",
    notes=("shortcuts",),
    title="LayerNorm's Jacobian is no diagonal matrix and depends on the whole vector",
    formula=r"\frac{\partial \, LN(y)}{\partial y} \neq I",
    plain="∂LN(y)/∂y ≠ I, not diagonal",
    says="The Jacobian of LayerNorm is not the identity: it depends on the whole vector, it is not "
    "diagonal, and it may have eigenvalues below 1.",
    correction="",
    why="Every output feature contains the mean and the standard deviation of all input features. "
    "So the entries beside the diagonal are not zero: the largest is {off_diagonal:.3f} of the "
    "largest on it. Changing one feature by one standard deviation moves entries that have "
    "nothing to do with it by {moved:.4f} of the largest. For tokens of standard deviation 2 the "
    "typical eigenvalue is {typical:.3f}. All three statements are right.",
    checks=(
        Check(
            "off_diagonal", "claim", "at least", 1e-6,
            label="largest entry beside the diagonal over the largest on it",
            because="Not diagonal: above rounding, which is below 1e-13 here.",
            log=True,
        ),
        Check(
            "moved", "claim", "at least", 1e-6,
            label="change of other entries when one feature moves",
            because="Dependent on the whole vector: above rounding, which is below 1e-13 here.",
            log=True,
        ),
        Check(
            "typical", "claim", "at most", 0.999,
            label="median eigenvalue at tokens of std 2",
            because="May be below 1: by more than a thousandth, at one size of the token.",
        ),
    ),
    source="",
    seconds=0.05,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Look at the matrix that autograd gives, and at the one after a step of feature 0."""
    from leadline.claims.norms._layernorm import by_autograd, tokens

    beside: list[float] = []
    moved: list[float] = []
    typical: list[float] = []
    for x in tokens(seed, 27, count=TOKENS, width=WIDTH, std=2.0):
        found = by_autograd(x)
        diagonal = np.abs(np.diag(found)).max()
        beside.append(float(np.abs(found - np.diag(np.diag(found))).max() / diagonal))
        step = x.copy()
        step[0] += 2.0
        change = (by_autograd(step) - found)[1:, 1:]
        moved.append(float(np.abs(change).max() / diagonal))
        typical.append(float(np.median(np.linalg.eigvals(found).real)))
    return Measured(
        {
            "off_diagonal": min(beside),
            "moved": min(moved),
            "typical": max(typical),
        }
    )
