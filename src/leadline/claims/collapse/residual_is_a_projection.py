"""res(X) = X - 1x' projects on what is orthogonal to matrices of equal rows.

With C = I - 11'/n: C C = C and C' = C, so res is an orthogonal projection, and what it takes away is
1x' with x the mean token. Then |X|_F^2 = |res X|_F^2 + n |x|^2. Read as an identity of matrices, for
every X.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

ROUNDING = 1e-13


@claim(
    "residual-is-a-projection",
    group="collapse",
    notes=("deep-dive",),
    title="Taking the mean token away projects on the complement of equal tokens",
    formula=r"\mathrm{res}(X) = (I - \frac{1}{n} \mathbf{1} \mathbf{1}^T) X, \quad \langle \mathrm{res}(X), \mathbf{1} y^T \rangle = 0",
    plain="res(X) = (I − 11ᵀ/n) X, ⟨res(X), 1yᵀ⟩ = 0",
    says="The residual of the tokens is their projection on the space orthogonal to matrices "
    "whose rows are all the same.",
    correction="",
    why="The mean token was taken away from random tokens once and twice. Twice is the same as "
    "once (off by {again} of its size), what is left is orthogonal to every matrix of equal rows "
    "({along}), and its size is the residual that the followed network reports ({apart}). All "
    "three are rounding.",
    checks=(
        Check(
            "again",
            "claim",
            "at most",
            ROUNDING,
            label="second projection against the first",
            because="A projection done twice is itself; a few hundred eps are left for rounding.",
            log=True,
        ),
        Check(
            "along",
            "claim",
            "at most",
            ROUNDING,
            label="cosine with a matrix of equal rows",
            because="Orthogonal means zero; a few hundred eps are left for rounding.",
            log=True,
        ),
        Check(
            "apart",
            "claim",
            "at most",
            ROUNDING,
            label="Leadline's residual against the projection",
            because="Both are the Frobenius norm of the same matrix, up to a few hundred eps.",
            log=True,
        ),
    ),
    seconds=0.01,
)
def measure(seed: int) -> Measured:
    """Project drawn tokens far from zero, by hand and as a followed network sees them."""
    import numpy as np

    from leadline.claims.collapse._stacks import drawn_layers, drawn_tokens
    from leadline.instruments.collapse.measure import collapse_weights

    x = drawn_tokens(seed) + 1.0
    tokens, width = x.shape
    project = np.eye(tokens) - np.full((tokens, tokens), 1.0 / tokens)
    once = project @ x
    equal = np.outer(np.ones(tokens), np.random.default_rng([seed, 78]).normal(size=width))
    along = abs(float((once * equal).sum())) / float(np.linalg.norm(once) * np.linalg.norm(equal))
    size = float(np.linalg.norm(once))
    found = collapse_weights(x, drawn_layers(seed, depth=1))
    return Measured(
        {
            "again": float(np.linalg.norm(project @ once - once)) / size,
            "along": along,
            "apart": abs(10.0 ** float(found.log10_residual[0]) / size - 1.0),
        }
    )
