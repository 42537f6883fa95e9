"""The caption: the line of skips alone is covered by the line of skips and MLPs.

Read as: at every layer the two differ by less than a marker is wide, about two and a half per cent
of the axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.collapse._note_figure import NOTE_FIGURE, curves


@claim(
    "figure-lines-coincide",
    group="collapse",
    notes=("deep-dive",),
    title="In the figure the lines with skips alone and with skips and MLPs coincide",
    formula=r"\| \mathrm{res}(X^l) \|_{\mathrm{skip}} \approx \| \mathrm{res}(X^l) \|_{\mathrm{skip + MLP}}",
    plain="skip only ≈ skip + MLP at every layer",
    says="The caption says that the line of the variant with skips alone is hidden under the "
    "line of the variant with skips and MLPs.",
    correction="",
    why="The two means differ by at most {apart:.3f} on an axis that reaches {axis:.0f}: "
    "{share:.4f} of it, less than the width of a marker. So the figure itself shows no "
    "difference between the two variants.",
    checks=(
        Check(
            "share",
            "claim",
            "at most",
            0.025,
            label="largest difference over the axis",
            because="Markers of six points on a plot of about 220 are 2.7 per cent of its height.",
        ),
    ),
    seconds=0.01,
    needs=(NOTE_FIGURE,),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Compare the two curves as drawn."""
    drawn = curves(trials, "drawn")
    pairs = zip(drawn["skip only"], drawn["skip + MLP"], strict=True)
    apart, axis = max(abs(a - b) for a, b in pairs), max(drawn["skip + MLP"])
    sites = tuple(float(site) for site in range(len(drawn["skip only"])))
    lines = {name: (sites, tuple(drawn[name])) for name in ("skip only", "skip + MLP")}
    return Measured(
        {"apart": apart, "axis": axis, "share": apart / axis}, Picture("layer", "residual", lines)
    )
