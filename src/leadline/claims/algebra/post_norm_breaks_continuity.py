"""Post-LN projects after every step and thereby destroys the continuity of the dynamical system.

If it did, x <- LN(x + h f(x)) with h = T/L would tend to no flow when the depth grows: the order of
convergence would be 0. It is a projected Euler method, N(x + h f) = x + h P f + O(h²) with P the
Jacobian of the norm at a token of its sphere, and converges with order 1 to the flow x' = P(x) f(x).
What is lost is the identity as Jacobian, not the continuity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.analysis.claim import Check, Picture
from leadline.claims._entry import Measured, claim
from leadline.claims.algebra._ode import ODE, line_of, order_of

NORMED, SCALED = "step T/L, normed", "step T/L"


@claim(
    "post-norm-breaks-continuity",
    group="algebra",
    notes=("shortcuts",),
    title="The norm of Post-LN destroys the continuity of the dynamical system",
    formula=r"x_{l+1} = \mathrm{LN}(x_l + f(x_l))",
    plain="LN(x + f(x)) has no continuous limit",
    says="Post-LN forces x back by a projection after every step, and that destroys the continuity "
    "of the dynamical system which Pre-LN follows.",
    correction="With steps of $T/L$ it converges to a flow with order 1 like the method without norm: "
    "to $\\dot{x} = P(x) f(x)$ on the sphere of the norm, with $P$ the norm's Jacobian. It is a "
    "projected Euler method.",
    why="The same random field was followed with a LayerNorm after every step, with 8 to 128 layers. The "
    "error against the flow on the sphere falls with the order {order:.3f}; without the norm the order "
    "is {plain:.3f}. A projection after every step does not hinder convergence: numerical methods on "
    "manifolds are built that way.",
    checks=(
        Check(
            "fades", "claim", "at least", 0.5,
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
    ),
    source="Hairer, Lubich, Wanner, Geometric Numerical Integration, section IV.4 (projection methods)",
    seconds=0.01,
    needs=(ODE,),
)  # fmt: skip
def measure(seed: int, found: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Read the order of convergence with a norm after every step."""
    normed = line_of(found, NORMED)
    return Measured(
        {
            "fades": normed[1][-1] / normed[1][0],
            "order": order_of(found, NORMED),
            "plain": order_of(found, SCALED),
        },
        Picture(
            "depth L", "error against the flow",
            {"norm after every step": normed, "without norm": line_of(found, SCALED)},
            x_log=True, y_log=True, faint=("without norm",),
        ),
    )  # fmt: skip
