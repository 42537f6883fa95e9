"""The figure is said to verify fully that attention alone wears differences away double exponentially.

Read as: the drawn residuals show it, that is, their logarithms triple from layer to layer. In
float32 the curve reaches the rounding of the stream at the fourth layer and stays there: one ratio
of logarithms is left that lies below a residual of 1, and then the curve is flat. The truth does
triple.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.collapse._note_figure import NOTE_FIGURE, curves


@claim(
    "figure-shows-double-exponential",
    group="collapse",
    notes=("deep-dive",),
    title="The figure verifies the double exponential rate",
    formula=r"\frac{\log \| \mathrm{res}(X^{l+1}) \|}{\log \| \mathrm{res}(X^l) \|} \approx 3",
    plain="log ‖res(X^{l+1})‖ / log ‖res(X^l)‖ ≈ 3 in the figure",
    says="The fall of the curve of attention alone fully verifies that pure attention wears the "
    "differences between tokens away at a double exponential rate.",
    correction="The drawn values cannot show it: from the fourth layer on they are the rounding "
    "of float32, and flat. Followed without cancellation, the logarithm of the residual triples "
    "in every layer.",
    why="From the fourth layer on the drawn curve is flat: the logarithm grows {drawn:.3f} "
    "times per layer, and after twelve layers it stands at {end:.1e}. Followed without "
    "cancellation the logarithm grows {true:.4f} times in the last layer, and the residual is 10 "
    "to the power {last:.0f}. Any fall to the rounding within four layers would have drawn the "
    "same picture.",
    checks=(
        Check(
            "drawn",
            "claim",
            "near",
            3.0,
            within=0.5,
            label="growth of the drawn log residual per layer, layers 4 to 12",
            because="Double exponential and cubic means that logarithms triple.",
        ),
        Check(
            "true",
            "correction",
            "near",
            3.0,
            within=0.01,
            label="the same for the true residual, last layer",
            because="A cubic collapse gives 3 plus log c over log r, which is below 0.01 here.",
        ),
    ),
    seconds=0.01,
    needs=(NOTE_FIGURE,),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Set the drawn logarithms beside the true ones."""
    import math

    drawn = [math.log10(value) for value in curves(trials, "drawn")["SAN only"]]
    true = curves(trials, "true")["SAN only"]
    late = drawn[4:]
    sites = tuple(float(site) for site in range(8))
    return Measured(
        {
            "drawn": (late[-1] / late[0]) ** (1.0 / (len(late) - 1)),
            "end": 10.0 ** drawn[-1],
            "true": true[-1] / true[-2],
            "last": true[-1],
        },
        Picture(
            "layer",
            "log₁₀ of the residual",
            {"as drawn": (sites, tuple(drawn[:8])), "true": (sites, tuple(true[:8]))},
        ),
    )
