"""Does x + F(x) preserve the variance on the way forward?

Read in the note's own setting: a Transformer with residual connections, norms where modern models
have them (pre). Mean squares add, m' = m + mean(u²) + 2 mean(x u), an identity, so the variance can
stay only where updates are small or point against the stream. Before training it grows by a
constant per layer, inside the band of Xiong et al. 2020 (arXiv 2002.04745) as Leadline's law has it
for these sizes. Writes divided by sqrt(2 L) keep it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.norms._start import AT_START, DEPTHS, WIDTH, found_in

DEPTH = 48


@claim(
    "skip-preserves-variance",
    group="norms",
    notes=("summary",),
    title="The residual connection preserves the variance on the way forward",
    formula=r"\mathrm{Var}(x + F(x)) = \mathrm{Var}(x)",
    plain="Var(x + F(x)) = Var(x)",
    says="In the forward pass the residual connection preserves the variance of the signal.",
    correction="$\\mathrm{Var}(x + F) = \\mathrm{Var}(x) + \\mathrm{Var}(F) + "
    "2 \\, \\mathrm{Cov}(x, F)$: what a layer adds can have either sign. In Pre-LN before training "
    "the variance grows with depth, between two straight lines; with updates divided by "
    "$\\sqrt{2L}$ it stays of its size.",
    why="The stream of a Pre-LN model before training was followed through 48 layers: its mean "
    "square grows {growth:.1f}-fold, by {slope:.2f} per layer in the mean. What is added "
    "is what the layers wrote: the mean squares of all updates and twice their products with the "
    "stream add up to it, with a relative error of {split_error}. Divided by $\\sqrt{2L}$ as in "
    "GPT-2's scaling the updates leave it almost alone: {scaled_growth:.2f}-fold.",
    checks=(
        Check(
            "growth", "claim", "near", 1.0, within=0.5,
            label="mean square after 48 layers over the one before, Pre-LN",
            because="Preserved is read generously: within a half of what it was.",
            log=True,
        ),
        Check(
            "split_error", "correction", "at most", 1e-10,
            label="growth against squares plus cross terms of all updates, relative",
            because="An identity: 96 additions in float64.",
            log=True,
        ),
        Check(
            "in_band", "correction", "near", 0.5, within=0.5,
            label="place in the band of the law, 0 its lower end and 1 its upper, mean of four "
            "depths",
            because="The law bounds the mean over weights. One draw scatters by 0.15, so the mean "
            "of the four depths, a draw each, is set beside it.",
        ),
        Check(
            "scaled_growth", "correction", "at most", 2.0,
            label="mean square after 48 layers over the one before, updates / √(2L)",
            because="All updates together add at most what one unscaled block may add, about one.",
        ),
    ),
    source="Xiong et al. 2020, arXiv 2002.04745",
    seconds=0.3,
    needs=(AT_START,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Mean squares of the stream over the layers, and what they are made of."""
    from leadline.experiments.gradient_flow.growth import facts_of
    from leadline.theory.depth import LAWS

    pre, scaled = found_in(trials, "pre"), found_in(trials, "scaled pre")
    squares = pre.squares(DEPTH)
    grown = squares[-1] - squares[0]
    written = pre.number("updates", DEPTH) + pre.number("crosses", DEPTH)
    places: list[float] = []
    lines: dict[int, tuple[tuple[float, float], ...]] = {}
    for depth in DEPTHS:
        stream = pre.squares(depth)
        facts = facts_of("pre", depth, width=WIDTH, mean_square=stream)
        found = LAWS.get("xiong-stream")().predicted(facts)
        assert found is not None
        lines[depth] = found
        low, high = found[-1]
        places.append((stream[-1] - low) / (high - low))
    bands = lines[DEPTH]
    layers = tuple(float(layer) for layer in range(DEPTH + 1))
    return Measured(
        {
            "growth": pre.growth(DEPTH),
            "slope": grown / DEPTH,
            "split_error": abs(grown - written) / grown,
            "in_band": sum(places) / len(places),
            "scaled_growth": max(scaled.growth(depth) for depth in DEPTHS),
        },
        Picture(
            "layer",
            "mean square of the stream",
            {
                "Pre-LN": (layers, tuple(squares)),
                "Pre-LN, updates / √(2L)": (layers, tuple(scaled.squares(DEPTH))),
                "law, lower end": (layers, tuple(band[0] for band in bands)),
                "law, upper end": (layers, tuple(band[1] for band in bands)),
            },
            y_log=True,
            faint=("law, lower end", "law, upper end"),
        ),
    )
