"""A residual network is exactly the discretisation of an ordinary differential equation.

x <- x + h f(x) is the explicit Euler method, of order 1: with one field f in all layers and the step
h = T/L its error against the flow falls like 1/L (the claim, where it is true). What the note writes,
x_{t+1} = x_t + F(x_t), has the step 1 at any depth (its reach): L layers are then the time L, followed
with a coarse step, and 8 of them are set beside the flow at time 8. The order is that of `reproduce`
ode-view; the time 8 is followed here, with the same random block.

Chen et al. 2018, arXiv 1806.07366; Sander et al. 2022, arXiv 2205.14612.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.algebra._ode import ODE, line_of, order_of
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

SCALED, LONG, LENGTH = "step T/L", 8, 8
DEPTHS = (8, 16, 32, 64, 128)
DESIGN = {
    "depth": 1, "width": 16, "heads": 2, "context": LENGTH, "positions": "none", "mlp": "gelu_tanh",
}  # fmt: skip


@claim(
    "residual-is-ode",
    group="algebra",
    notes=("shortcuts",),
    title="A residual network is exactly a discretised differential equation",
    formula=r"x_{t+1} = x_t + F(x_t) \quad\longleftrightarrow\quad \dot{x} = F(x)",
    plain="x_{t+1} = x_t + F(x_t)  ↔  x' = F(x)",
    says="Adding a correction to x in every layer is the very same thing as discretising an ordinary "
    "differential equation; a ResNet in essence solves one.",
    correction="It is where all layers share one field and every step is divided by the depth: $x + "
    "(T/L) F(x)$ is the explicit Euler method, whose error falls like $1/L$. With the step 1 of "
    "a real network more layers follow the equation for a longer time instead of more finely.",
    why="One random block was used as the field of an equation and followed with 8 to 128 layers. With "
    "steps of $T/L$ the error against the true flow falls with the order {order:.3f}, as Euler's method "
    "does. Eight layers of step 1 miss the flow at time 8 by {same_time} of its size.",
    checks=(
        Check(
            "order", "claim", "near", 1.0, within=0.1,
            label="order of convergence, step T/L",
            because="Euler's method has order 1; between 8 and 128 steps the next term of the error "
            "moves the fitted slope by less than a tenth.",
        ),
        Check(
            "same_time", "reach", "at most", 0.1,
            label="error of 8 layers of step 1 against the flow at time 8",
            because="What solves the equation is right to a tenth.",
            log=True,
        ),
        Check(
            "closer", "correction", "at most", 0.125,
            label="error at 128 layers over that at 8, step T/L",
            because="Order 1 gives 1/16 for 16 times as many steps; twice that is allowed for.",
            log=True,
        ),
    ),
    source="Chen et al. 2018, arXiv 1806.07366; Sander et al. 2022, arXiv 2205.14612",
    seconds=1.0,
    needs=(ODE,),
)  # fmt: skip
def measure(seed: int, found: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Read the order of steps T/L with T = 1, and follow such a field for the time 8."""
    import torch
    from torch import Tensor

    from leadline.claims.algebra._networks import built, stretches_of, tokens_of
    from leadline.experiments.ode_view.reference_flow import followed

    model = built(DESIGN, seed=seed)
    block, start = stretches_of(model, tokens_of(model, length=LENGTH, seed=seed)).function(0, 1)

    def field(x: Tensor) -> Tensor:
        with torch.no_grad():
            return block(x) - x

    ends: list[Tensor] = []
    for depth in DEPTHS:
        x = start.detach()
        for _ in range(depth):
            x = x + LONG / depth * field(x)
        ends.append(x)
    flow = followed(field, start.detach(), float(LONG), judging=ends)
    later = tuple(flow.judged(end) for end in ends)
    scaled = line_of(found, SCALED)
    return Measured(
        {
            "order": order_of(found, SCALED),
            "same_time": later[DEPTHS.index(LONG)],
            "closer": scaled[1][-1] / scaled[1][0],
        },
        Picture(
            "depth L", "error against the flow at the same time",
            {
                "time 1, step 1/L": scaled,
                "time 8, step 8/L": (tuple(map(float, DEPTHS)), later),
            },
            x_log=True, y_log=True,
        ),
    )  # fmt: skip
