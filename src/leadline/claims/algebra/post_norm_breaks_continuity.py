"""Post-LN projects after every step and thereby destroys the continuity of the dynamical system.

The note speaks of LN in general, which has gains and shifts, and blames the projection. In a
continuous limit of x <- LN(x + h f(x)) with h = T/L a step gets short like h. With gains g that differ
it does not: g N(x) is not x, even where x = g N(y) comes out of such a norm, so the stream leaps by
|g N(x) - x| at any h. That is the claim, where it is true. Its reach is the projection itself, gains of
1 and no shift, as every LayerNorm starts: there N(x + h f) = x + h P f + O(h²), with P the Jacobian of
the norm at a token of its sphere, is a projected Euler method and converges with order 1 to the flow
x' = P(x) f(x). What is lost there is the identity as Jacobian, not the continuity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from leadline.claims.algebra._ode import ODE, line_of, order_of
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

NORMED, SCALED = "step T/L, normed", "step T/L"
FEW, MANY, LENGTH, WIDTH = 8, 128, 8, 16
DESIGN = {
    "depth": 1, "width": WIDTH, "heads": 2, "context": LENGTH, "positions": "none",
    "mlp": "gelu_tanh",
}  # fmt: skip


@claim(
    "post-norm-breaks-continuity",
    group="algebra",
    notes=("shortcuts",),
    title="The norm of Post-LN destroys the continuity of the dynamical system",
    formula=r"x_{l+1} = \mathrm{LN}(x_l + f(x_l))",
    plain="LN(x + f(x)) has no continuous limit",
    says="Post-LN forces x back by a projection after every step, and that destroys the continuity "
    "of the dynamical system which Pre-LN follows.",
    correction="With gains of 1 and no shift, as before training, and steps of $T/L$ it converges to a flow "
    "with order 1 like the method without norm: to $\\dot{x} = P(x) f(x)$ on the sphere of the norm, "
    "with $P$ the norm's Jacobian. It is a projected Euler method. With gains that differ the norm is "
    "no projection: it moves a stream that it has normed already, however short the step, and there is "
    "no such limit.",
    why="The same random field was followed with a LayerNorm after every step, with 8 to 128 layers. The "
    "error against the flow on the sphere falls with the order {order:.3f}; without the norm the order "
    "is {plain:.3f}. A projection after every step does not hinder convergence: numerical methods on "
    "manifolds are built that way. With random gains between 0.5 and 1.5 it is another thing: with 16 "
    "times as many layers the first step is still {leap:.0%} as long, with gains of 1 it is "
    "{short:.0%}.",
    checks=(
        Check(
            "leap", "claim", "at least", 0.5,
            label="first step with 128 layers over that with 8, random gains",
            because="In a continuous limit a step falls like the step size, to 1/16; without one it "
            "stays, and half of it is allowed for.",
            log=True,
        ),
        Check(
            "fades", "reach", "at least", 0.5,
            label="error at 128 layers over that at 8",
            because="Without a continuous limit the error stays; half of it is allowed for.",
            log=True,
        ),
        Check(
            "order", "correction", "near", 1.0, within=0.1,
            label="order of convergence with a norm after every step",
            because="A projected Euler method has order 1; between 8 and 128 steps the next term of "
            "the error moves the fitted slope by less than a tenth.",
        ),
        Check(
            "short", "correction", "at most", 0.125,
            label="first step with 128 layers over that with 8, gains of 1",
            because="Steps that fall like the step size give 1/16; twice that is allowed for.",
            log=True,
        ),
    ),
    source="Hairer, Lubich, Wanner, Geometric Numerical Integration, section IV.4 (projection methods)",
    seconds=0.05,
    needs=(ODE,),
)  # fmt: skip
def measure(seed: int, found: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Read the order of convergence with a norm after every step; one step with gains."""
    import torch
    from torch import Tensor
    from torch.nn.functional import layer_norm

    from leadline.claims.algebra._networks import built, stretches_of, tokens_of

    model = built(DESIGN, seed=seed)
    block, x = stretches_of(model, tokens_of(model, length=LENGTH, seed=seed)).function(0, 1)
    drawn = torch.from_numpy(np.random.default_rng([seed, 115]).uniform(0.5, 1.5, size=WIDTH))

    def shortened(gains: Tensor) -> float:
        """|x_1 - x_0| in steps of 1/128 over that in steps of 1/8, x_0 behind such a norm."""

        def norm(v: Tensor) -> Tensor:
            return layer_norm(v, (WIDTH,), weight=gains, eps=0.0)

        with torch.no_grad():
            start = norm(x)
            f = block(start) - start
            few, many = ((norm(start + f / n) - start).norm() for n in (FEW, MANY))
        return float(many / few)

    normed = line_of(found, NORMED)
    return Measured(
        {
            "fades": normed[1][-1] / normed[1][0],
            "leap": shortened(drawn),
            "short": shortened(torch.ones_like(drawn)),
            "order": order_of(found, NORMED),
            "plain": order_of(found, SCALED),
        },
        Picture(
            "depth L", "error against the flow",
            {"norm after every step": normed, "without norm": line_of(found, SCALED)},
            x_log=True, y_log=True, faint=("without norm",),
        ),
    )  # fmt: skip
