"""The identity path of Pre-LN exists even if F breaks, even if LN breaks, and the Jacobian is near I.

The sentence is about every branch and every norm ("even if"), so one branch decides: where F' N' has
the eigenvalue -1 the Jacobian I + F' N' of a pre-norm write is singular, and what came along that
direction is gone. Such a matrix W with F(z) = W z is built at a random token: N' maps a direction v
orthogonal to 1 and to x to v/s, so W = -s v v' does it. The derivative is taken by autograd through
LayerNorm itself and by `theory.norm_jacobian`. That J is near I is carried (its reach) to the start
of training: the first block of a pre-norm network with Xavier's init, sigma_1(J - I) below 1. What
is true:

    sigma_min(J) >= 1 - sigma_1(J - I)

measured on blocks with GPT-2's scaled init, where sigma_1(J - I) is below 1.
"""

from __future__ import annotations

import math

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

WIDTH, DEPTH, LENGTH = 32, 12, 8
SIZES = {"depth": DEPTH, "width": WIDTH, "heads": 4}
TOLERANCE = 1e-4


@claim(
    "identity-path-survives",
    group="algebra",
    notes=("shortcuts",),
    title="With Pre-LN the identity path survives whatever F and LN do",
    formula=r"\frac{\partial x_{l+1}}{\partial x_l} = I + F' \, \mathrm{LN}' \approx I",
    plain="∂x_{l+1}/∂x_l = I + F' LN' ≈ I, always",
    says="Under Pre-LN the gradient always has a path on which the Jacobian of a layer is about "
    "the identity: even if F breaks, even if the norm breaks, this path is still there.",
    correction="The identity is one term of a sum, and the other can cancel it. What is sure is "
    "$\\sigma_{\\min}(J) \\ge 1 - \\sigma_1(J - I)$: the path survives where branch and norm together "
    "stay below 1.",
    why="A branch behind a LayerNorm was built that cancels the identity in one direction: of a "
    "gradient along it {survives} is left. And untrained layers are not near the identity either: "
    "$J - I$ of the first pre-norm block with Xavier's init has the norm {first}, more than the "
    "identity itself. With GPT-2's scaled init it is {scaled}, and there the bound was never broken "
    "(smallest ratio {kept}).",
    checks=(
        Check(
            "survives", "claim", "at least", 1e-3,
            label="smallest gain, F built against the identity",
            because="A path that is still there lets at least a thousandth through.",
        ),
        Check(
            "first", "reach", "at most", 1.0,
            label="‖J - I‖ of the first block, Xavier's init",
            because="A matrix near I is at least nearer to I than 0 is.",
        ),
        Check(
            "agrees", "correction", "at most", 1e-12,
            label="Jacobian by autograd against the closed form",
            because="Two routes to one matrix of 32 rows; the rest is rounding.",
            log=True,
        ),
        Check(
            "kept", "correction", "at least", 1.0 - 1e-3,
            label="smallest singular value over 1 - ‖J - I‖",
            because="A theorem; both singular values were asked for to four digits.",
        ),
        Check(
            "dense", "correction", "near", 1.0, within=1e-6,
            label="smallest singular value over that of the whole matrix",
            because="The same number by numpy from the matrix of 256 rows; the rest is rounding.",
        ),
        Check(
            "scaled", "correction", "at most", 1.0,
            label="‖J - I‖ of the first block, GPT-2's init",
            because="The bound says something only where this is below 1.",
        ),
    ),
    seconds=0.7,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """A pre-norm write that cancels the identity, and the blocks of untrained networks."""
    import torch
    from torch.nn.functional import layer_norm

    from leadline.claims.algebra._matrices import norm, singular
    from leadline.claims.algebra._networks import built, matrix_of, stretches_of, tokens_of
    from leadline.instruments.jacobian.measure import jacobian
    from leadline.theory.norm_jacobian import layer_norm_jacobian, normed
    from leadline.theory.residual_products import product_band

    rng = np.random.default_rng([seed, 107])
    x, v = rng.normal(size=(2, WIDTH))
    hat, s = normed(x, norm="layernorm", eps=0.0)
    v -= v.mean()
    v -= hat * (v @ hat) / (hat @ hat)
    v /= np.linalg.norm(v)
    weight = -s * np.outer(v, v)
    closed = np.eye(WIDTH) + weight @ layer_norm_jacobian(x, eps=0.0)
    matrix = torch.from_numpy(weight)
    real = torch.autograd.functional.jacobian(
        lambda t: t + matrix @ layer_norm(t, (WIDTH,), eps=0.0), torch.from_numpy(x)
    )
    assert isinstance(real, torch.Tensor)
    far: dict[str, float] = {}
    ratios: list[float] = []
    twice: list[float] = []
    for init in ("xavier", "gpt2"):
        model = built({**SIZES, "init": init}, seed=seed)
        batch = tokens_of(model, length=LENGTH, seed=seed)
        stretches = stretches_of(model, batch)
        for layer in (1, DEPTH):
            found = jacobian(
                model, batch, layer=layer, k=1, smallest=1, probes=4, tolerance=TOLERANCE
            )
            size, least = float(found.branch[0]), float(found.smallest[0, 0])
            whole = matrix_of(*stretches.function(layer - 1, layer))
            twice.append(least / float(singular(whole)[-1]))
            if layer == 1:
                far[init] = size
            if size < 1.0:
                bound = math.exp(product_band([size]).log_lower)
                ratios.append(least / bound)
    return Measured(
        {
            "survives": float(singular(real.numpy())[-1]),
            "agrees": norm(real.numpy() - closed),
            "first": far["xavier"],
            "scaled": far["gpt2"],
            "kept": min(ratios, default=math.nan),
            "dense": max(twice, key=lambda one: abs(one - 1.0)),
        }
    )
