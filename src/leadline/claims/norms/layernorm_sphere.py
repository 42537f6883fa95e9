"""LayerNorm as geometry: which sphere do the tokens land on?

The note names three steps: centring, division by sigma that puts every token on the sphere of
radius 1, the gain that makes an ellipsoid of it. |x - mu 1|² = d sigma², so the radius is sqrt(d),
inside the hyperplane orthogonal to 1. With a gain z = gamma xh fulfils |z / gamma| = sqrt(d) and
sum z / gamma = 0: an ellipsoid of one dimension less, in the hyperplane orthogonal to 1 / gamma.
The shift moves its centre to beta. eps = 0 here, as in the note's argument.

The picture is that of d = 3: the plane orthogonal to (1, 1, 1) in the coordinates of (1, -1, 0)
and (1, 1, -2). The tokens of the picture are the same for every seed. Points with a gain do not
lie in that plane; they are drawn as seen along (1, 1, 1).
"""

from __future__ import annotations

import math

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

WIDTHS, TOKENS = (3, 64, 768), 32
GAIN = np.array([1.6, 0.7, 1.0])
"""The gain of the picture."""
PLANE = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]])
DRAWN = 60


@claim(
    "layernorm-sphere",
    group="norms",
    notes=("deep-dive",),
    title="LayerNorm puts every token on the sphere of radius 1",
    formula=r"\left\| \frac{x - \mu \mathbf{1}}{\sigma} \right\| = 1",
    plain="‖(x − μ1)/σ‖ = 1",
    says="Seen as geometry, LayerNorm centres every token, divides it by its standard deviation "
    "and so puts all of them on the sphere of radius 1; the gain then stretches the sphere into "
    "an ellipsoid.",
    correction="The radius is $\\sqrt{d}$, not 1: the standard deviation is a mean over $d$ "
    "features, the length is a sum. The sphere lies in the hyperplane orthogonal to "
    "$\\mathbf{1}$, so it has one dimension less. The gain makes an ellipsoid of it, in the "
    "hyperplane orthogonal to $1/\\gamma$; the shift moves the centre to $\\beta$.",
    why="A token of 64 features has length {radius:.4f} behind LayerNorm, with 768 features "
    "{radius_large:.3f}: the square roots of the widths. All tokens do land on one and the same "
    "shell, as the note says. Unit variance means that the mean of the squares is 1, "
    "so their sum is $d$. With 3 features the sphere is a circle of radius $\\sqrt{3}$ in "
    "a plane, and the gain makes an ellipse of it.",
    checks=(
        Check(
            "radius", "claim", "near", 1.0, within=0.01,
            label="length of a token of 64 features behind LayerNorm",
            because="The radius that the note gives; without eps nothing else enters.",
            log=True,
        ),
        Check(
            "spread", "claim", "at most", 1e-12,
            label="relative difference of the lengths of different tokens",
            because="One shell for all tokens: an identity to rounding.",
            log=True,
        ),
        Check(
            "radius_error", "correction", "at most", 1e-12,
            label="length against √d at 3, 64 and 768 features, relative",
            because="An identity: a sum of at most 768 squares in float64.",
            log=True,
        ),
        Check(
            "plane_error", "correction", "at most", 1e-12,
            label="mean feature behind LayerNorm",
            because="The hyperplane orthogonal to 1: a sum of at most 768 features of order one.",
            log=True,
        ),
        Check(
            "ellipsoid_error", "correction", "at most", 1e-12,
            label="distance to the ellipsoid with gain and shift, relative",
            because="|(z − β)/γ| = √d is an identity; gains between 0.5 and 1.5 lose no digits.",
            log=True,
        ),
    ),
    source="Brody, Alon, Yahav 2023, arXiv 2305.02582",
    seconds=0.01,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Lengths behind the norm of the parts catalog and behind that of the theory."""
    from leadline.claims.norms._layernorm import applied
    from leadline.theory.norm_jacobian import normed

    rng = np.random.default_rng([seed, 37])
    lengths: dict[int, np.ndarray] = {}
    errors, planes, shells = [0.0], [0.0], [0.0]
    for width in WIDTHS:
        x = rng.standard_normal((TOKENS, width)) * rng.uniform(0.5, 5.0, (TOKENS, 1)) + 0.5
        gamma, beta = rng.uniform(0.5, 1.5, width), rng.standard_normal(width)
        found = applied(x, eps=0.0)
        written = np.stack([normed(one, norm="layernorm", eps=0.0)[0] for one in x])
        root = math.sqrt(width)
        lengths[width] = np.linalg.norm(found, axis=1)
        for one in (found, written):
            errors.append(float(np.abs(np.linalg.norm(one, axis=1) / root - 1.0).max()))
            planes.append(float(np.abs(one.mean(axis=1)).max()))
        stretched = (applied(x, gamma=gamma, beta=beta, eps=0.0) - beta) / gamma
        shells.append(float(np.abs(np.linalg.norm(stretched, axis=1) / root - 1.0).max()))
    return Measured(
        {
            "radius": float(lengths[64].mean()),
            "radius_large": float(lengths[768].mean()),
            "spread": float(np.ptp(lengths[64]) / lengths[64].mean()),
            "radius_error": max(errors),
            "plane_error": max(planes),
            "ellipsoid_error": max(shells),
        },
        picture(),
    )


def picture() -> Picture:
    """Tokens of three features, before the norm, behind it, and with a gain."""
    from leadline.claims.norms._layernorm import applied

    rng = np.random.default_rng(37)
    axes = PLANE / np.linalg.norm(PLANE, axis=1, keepdims=True)
    x = rng.standard_normal((DRAWN, 3)) * rng.uniform(0.3, 2.0, (DRAWN, 1))
    turn = np.linspace(0.0, 2.0 * math.pi, 100)
    several = {
        "unit circle the note names": np.stack([np.cos(turn), np.sin(turn)], axis=1),
        "drawn tokens": x @ axes.T,
        "LayerNorm without gain": applied(x, eps=0.0) @ axes.T,
        "with gain": applied(x, gamma=GAIN, eps=0.0) @ axes.T,
    }
    return Picture(
        "along (1, −1, 0)",
        "along (1, 1, −2)",
        {
            name: (tuple(map(float, points[:, 0])), tuple(map(float, points[:, 1])))
            for name, points in several.items()
        },
        points=True,
        equal=True,
        faint=("unit circle the note names",),
    )
