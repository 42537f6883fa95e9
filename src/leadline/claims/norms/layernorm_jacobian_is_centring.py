"""Is the Jacobian of LayerNorm the matrix that subtracts the mean?

Read as an equation between matrices, J = C with C = I - 11'/d, that is meant to be right up to
small terms. It is given the best case: tokens of standard deviation exactly 1, no gain, no eps.
Then J = C - xh xh'/d, and the two differ by 1 in spectral norm, because C keeps the direction of
the token itself and J removes it. At any other size of the token a factor 1/s comes on top.

    J = diag(gamma) / s (I - 11'/d - xh xh'/d)        `leadline.theory.norm_jacobian`

Source: Ba, Kiros, Hinton 2016, arXiv 1607.06450 (the norm); the derivative is elementary.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

WIDTH, TOKENS = 64, 8


@claim(
    "layernorm-jacobian-is-centring",
    group="norms",
    notes=("shortcuts",),
    title="The Jacobian of LayerNorm is in essence the matrix that subtracts the mean",
    formula=r"J_{LN} \approx I - \frac{1}{d} \mathbf{1} \mathbf{1}^T",
    plain="J_LN ≈ I − 11ᵀ/d",
    says="LayerNorm projects a vector onto the space of zero mean, so its Jacobian is in essence "
    "the identity minus the matrix that averages all features.",
    correction="$J = \\frac{1}{s} \\mathrm{diag}(\\gamma) (I - \\frac{1}{d} \\mathbf{1} "
    "\\mathbf{1}^T - \\frac{1}{d} \\hat{x} \\hat{x}^T)$ with $s = \\sqrt{\\sigma^2 + "
    "\\varepsilon}$: the mean is removed, the direction of the token itself is removed too, and "
    "everything is divided by $s$.",
    why="Dividing by the standard deviation has a derivative of its own. Even for tokens of "
    "standard deviation 1, where the division seems to do nothing, the Jacobian removes a second "
    "direction: making the token longer does not change the output. In that direction the two "
    "matrices differ by {distance_unit}, which is the whole of it. For tokens of standard "
    "deviation 0.1 they differ by {distance_small}, because of the factor $1/s$. The full formula "
    "agrees with automatic differentiation to rounding.",
    checks=(
        Check(
            "distance_unit", "claim", "at most", 0.5,
            label="spectral distance of J to I − 11ᵀ/d, tokens of std 1",
            because="Both matrices have norm 1; one that stands for the other in essence is off "
            "by less than half of it in every direction.",
        ),
        Check(
            "lost_unit", "claim", "near", 1.0, within=0.5,
            label="length left of a step along the token, tokens of std 1",
            because="I − 11ᵀ/d leaves a centred token as it is, so 1 is what the note's matrix "
            "gives.",
        ),
        Check(
            "formula_error", "correction", "at most", 1e-12,
            label="full formula against automatic differentiation",
            because="An identity: 64 features in float64, some thousand rounding errors of 2e-16 "
            "relative to the largest entry.",
            log=True,
        ),
    ),
    source="Ba, Kiros, Hinton 2016, arXiv 1607.06450",
    seconds=0.07,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Compare the Jacobian by autograd with the note's matrix and with the full formula."""
    from leadline.claims.norms._layernorm import by_autograd, tokens
    from leadline.theory.norm_jacobian import layer_norm_jacobian

    centring = np.eye(WIDTH) - 1.0 / WIDTH
    distance: dict[float, list[float]] = {}
    lost: list[float] = []
    for std in (1.0, 0.1):
        for x in tokens(seed, 23, count=TOKENS, width=WIDTH, std=std):
            found = by_autograd(x, eps=0.0)
            distance.setdefault(std, []).append(float(np.linalg.norm(found - centring, 2)))
            if std == 1.0:
                lost.append(float(np.linalg.norm(found @ x) / np.linalg.norm(centring @ x)))
    rng = np.random.default_rng([seed, 24])
    errors: list[float] = []
    for x in tokens(seed, 25, count=TOKENS, width=WIDTH, std=0.7):
        gamma, shifted = 1.0 + 0.5 * rng.standard_normal(WIDTH), x + rng.standard_normal()
        exact = by_autograd(shifted, gamma=gamma)
        written = layer_norm_jacobian(shifted, gamma=gamma)
        errors.append(float(np.abs(exact - written).max() / np.abs(exact).max()))
    return Measured(
        {
            "distance_unit": min(distance[1.0]),
            "distance_small": float(np.mean(distance[0.1])),
            "lost_unit": max(lost),
            "formula_error": max(errors),
        }
    )
