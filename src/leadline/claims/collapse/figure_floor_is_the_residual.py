"""The figure's values near zero are read as the residual: it is said to stay at almost 0 in all later layers.

Read as: the numbers drawn are residuals, up to a factor of 2. From the fourth layer on they are the
rounding of float32, about eps times the size of the stream, whatever the residual is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.collapse._note_figure import NOTE_FIGURE, curves


@claim(
    "figure-floor-is-the-residual",
    group="collapse",
    notes=("deep-dive",),
    title="The small values of the later layers are the residual",
    formula=r"\| \mathrm{res}(X^l) \|_{\mathrm{drawn}} = \| \mathrm{res}(X^l) \|",
    plain="drawn value = residual at every layer",
    says="After its steep fall the residual stays at almost 0 in all later layers, and the "
    "output is a matrix of nearly rank one.",
    correction="Up to the third layer the drawn values are the residual. From the fourth on "
    "they are rounding: about {floor:.1e}, which is {units:.2f} times the precision of float32 "
    "times the size of the stream.",
    why="At the third layer drawn and true residual agree (ratio {early:.3f}). At the fourth "
    "layer the drawn value is {floor:.1e} and the residual is 10 to the power {fourth:.1f}: the "
    "logarithm of their ratio is {off:.1f}, and it grows from there. The computer adds ten "
    "tokens of the size of the stream and can leave nothing smaller than its rounding.",
    checks=(
        Check(
            "off",
            "claim",
            "at most",
            0.301,
            label="log₁₀ of drawn over true residual, fourth layer",
            because="The same number is read as within a factor of 2.",
        ),
        Check(
            "early",
            "correction",
            "near",
            1.0,
            within=0.1,
            label="drawn over true residual, third layer",
            because="Above the floor the two must agree; what rounding adds is below a tenth "
            "there.",
        ),
        Check(
            "units",
            "correction",
            "at most",
            8.0,
            label="floor over eps times the stream, fourth layer",
            because="Rounding alone leaves up to 8 eps of the size of tokens that are equal.",
            log=True,
        ),
    ),
    seconds=0.01,
    needs=(NOTE_FIGURE,),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Divide the drawn values by the true ones, and the floor by eps times the stream."""
    import math

    import numpy as np

    drawn = curves(trials, "drawn")["SAN only"]
    true, relative = (curves(trials, panel)["SAN only"] for panel in ("true", "relative"))
    stream = 10.0 ** (true[4] - relative[4])
    logs = [math.log10(value) for value in drawn]
    sites = tuple(float(site) for site in range(8))
    return Measured(
        {
            "floor": drawn[4],
            "fourth": true[4],
            "off": logs[4] - true[4],
            "early": drawn[3] / 10.0 ** true[3],
            "units": drawn[4] / (float(np.finfo(np.float32).eps) * stream),
        },
        Picture(
            "layer",
            "log₁₀ of the residual",
            {"as drawn": (sites, tuple(logs[:8])), "true": (sites, tuple(true[:8]))},
        ),
    )
