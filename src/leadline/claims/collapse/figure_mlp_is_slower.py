"""With MLPs alone the residual is said to fall somewhat more slowly than with attention alone.

Read as: at every layer at which the drawing has something to say, before rounding, the residual
with MLPs is the larger one. The note speaks of the first layer and of the two after it. It is so
after the first layer and not after the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.collapse._note_figure import NOTE_FIGURE, curves


@claim(
    "figure-mlp-is-slower",
    group="collapse",
    notes=("deep-dive",),
    title="With MLPs the residual falls more slowly than with attention alone",
    formula=r"\| \mathrm{res}(X^l) \|_{\mathrm{MLP}} > \| \mathrm{res}(X^l) \|_{\mathrm{SAN}}",
    plain="‖res(X^l)‖ with MLPs > with attention alone",
    says="With MLPs alone the residual decays somewhat more slowly than with attention alone: "
    "their nonlinearity and their power to raise rank slow the collapse.",
    correction="After the first layer the residual is larger with MLPs, after the second it is "
    "smaller. Further down neither is ahead in general: the collapse is cubic in both, and the "
    "draw decides.",
    why="After one layer the residual with MLPs is {first:.2f} times that without, after two "
    "layers {second:.2f} times: the second layer takes it down by {mlp_factor:.0f}, against "
    "{san_factor:.1f} without MLPs. At the last layer the logarithms are {mlp_last:.0f} and "
    "{san_last:.0f} on the mean over seeds. Both triple per layer.",
    checks=(
        Check(
            "first",
            "claim",
            "at least",
            1.0,
            label="MLP only over attention only, after one layer",
            because="Slower means a larger residual.",
        ),
        Check(
            "second",
            "claim",
            "at least",
            1.0,
            label="MLP only over attention only, after two layers",
            because="Slower means a larger residual.",
        ),
        Check(
            "cubic",
            "correction",
            "near",
            3.0,
            within=0.01,
            label="ratio of log residuals, MLP only, last layer",
            because="A cubic collapse gives 3 plus log c over log r, which is below 0.01 here.",
        ),
    ),
    seconds=0.01,
    needs=(NOTE_FIGURE,),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Compare the two curves, as drawn and below rounding."""
    drawn, true = curves(trials, "drawn"), curves(trials, "true")
    mlp, san = drawn["MLP only"], drawn["SAN only"]
    sites = tuple(float(site) for site in range(6))
    lines = {name: (sites, tuple(true[name][:6])) for name in ("SAN only", "MLP only")}
    return Measured(
        {
            "first": mlp[1] / san[1],
            "second": mlp[2] / san[2],
            "mlp_factor": mlp[1] / mlp[2],
            "san_factor": san[1] / san[2],
            "mlp_last": true["MLP only"][-1],
            "san_last": true["SAN only"][-1],
            "cubic": true["MLP only"][-1] / true["MLP only"][-2],
        },
        Picture("layer", "log₁₀ of the residual", lines),
    )
