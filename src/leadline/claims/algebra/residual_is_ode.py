"""A residual network is exactly the discretisation of an ordinary differential equation.

x <- x + h f(x) is the explicit Euler method, of order 1: with one field f in all layers and the step
h = T/L its error against the flow falls like 1/L (the claim, where it is true). What the note writes,
x_{t+1} = x_t + F(x_t), has the step 1 at any depth (its reach): more layers then are a longer time,
not a finer step, and the distance to the flow grows. `reproduce` ode-view follows both.

Chen et al. 2018, arXiv 1806.07366; Sander et al. 2022, arXiv 2205.14612.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.analysis.claim import Check, Picture
from leadline.claims._entry import Measured, claim
from leadline.claims.algebra._ode import ODE, line_of, order_of

SCALED, WHOLE = "step T/L", "step 1"


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
    "\\frac{T}{L} F(x)$ is the explicit Euler method, whose error falls like $1/L$. With the step 1 of "
    "a real network more layers follow the equation for a longer time instead of more finely.",
    why="One random block was used as the field of an equation and followed with 8 to 128 layers. With "
    "steps of $T/L$ the error against the true flow falls with the order {order:.3f}, as Euler's method "
    "does. With the step 1 of a residual network the distance grows {away:.0f} times from 8 to 128 layers.",
    checks=(
        Check(
            "order", "claim", "near", 1.0, within=0.1,
            label="order of convergence, step T/L",
            because="Euler's method has order 1; between 8 and 128 steps the next term of the error "
            "moves the fitted slope by less than a tenth.",
        ),
        Check(
            "away", "reach", "at most", 1.0,
            label="error at 128 layers over that at 8, step 1",
            because="What discretises an equation gets no worse with more steps.",
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
    seconds=0.01,
    needs=(ODE,),
)  # fmt: skip
def measure(seed: int, found: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Read the orders of two kinds of steps."""
    whole, scaled = line_of(found, WHOLE), line_of(found, SCALED)
    return Measured(
        {
            "order": order_of(found, SCALED),
            "away": whole[1][-1] / whole[1][0],
            "closer": scaled[1][-1] / scaled[1][0],
        },
        Picture(
            "depth L", "error against the flow", {SCALED: scaled, WHOLE: whole},
            x_log=True, y_log=True,
        ),
    )  # fmt: skip
