"""W07: float weights that lie on a coarse grid.

Thresholds: nine of ten stretches of 64 values on one grid of at most 256 steps. Independent values of
float32 never do (24 of 24 stretches by chance: below 1e-300), values rounded to bfloat16 lie on grids
that are finer for smaller values and fail the test as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline.reading.diagnosis.case import OUTSIDE, Case
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import (
    exact_share,
    is_matrix,
    names_text,
    site_text,
    stack_layers,
)
from leadline.record.rows.finding import Finding

SHARE = 0.9


@rule(
    "W07",
    "weights-quantised",
    severity="warning",
    basis="identity",
    needs=("weights.rms",),
    summary="Weights in floating point lie on a grid of at most 256 steps: they were quantised.",
    why="What rounding took away is lost; training or merging adapters on top of it starts from worse "
    "weights than the file's name may promise.",
    is_not="Weights in bfloat16 or float16, or kept as whole numbers with a scale by a library.",
    false_alarms="A model that is meant to be used as it was quantised.",
    remedy="Load the weights in their first precision.",
    sources=("https://github.com/ARahim3/mlx-tune/issues/15",),
    explains=("weights-foreign", "weights-low-rank", "weights-zero"),
    example="quantised-layer",
)
def weights_quantised(case: Case, rule: Rule) -> Iterator[Finding]:
    """One finding for each stack, and one for tensors outside of blocks where no stack has any."""
    hits = [
        place
        for place, share in case.values("weights.grid").items()
        if share >= SHARE
        and is_matrix(case, place)
        and exact_share(case, "weights.grid", place, "twin") < SHARE
    ]
    inside = [place for place in hits if place.stack != OUTSIDE]
    for stack, layers in stack_layers(inside or hits).items():
        names = [case.parameter(place) for place in hits if place.stack == stack]
        at = site_text(case, stack, [layer for layer in layers if layer])
        yield rule.finding(
            f"Weights of {at} were quantised: {names_text(names)} "
            f"{'lie' if len(names) > 1 else 'lies'} on a grid of at most 256 steps.",
            stack=None if stack == OUTSIDE else stack,
            layers=[layer for layer in layers if layer],
            parameter=names[0],
            evidence=[
                Evidence(
                    f"share of {names[0]} on a grid",
                    exact_share(case, "weights.grid", next(p for p in hits if p.stack == stack)),
                    0.0,
                    "values drawn or trained in floating point",
                )
            ],
            ruled_out=["half precision: its grid is finer for smaller values"],
            cause="weights were rounded to 8 bits or fewer and written back as floats",
            remedy=Remedy("Load these weights in their first precision."),
            quantity="weights.grid",
        )
