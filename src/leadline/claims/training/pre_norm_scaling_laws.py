"""Pre-norm makes scaling laws hold: nothing on one machine can decide it."""

from __future__ import annotations

from leadline.claims.catalog import uncheckable

uncheckable(
    "pre-norm-scaling-laws",
    group="training",
    notes=("shortcuts",),
    title="Pre-norm is one of the fixes that make scaling laws hold",
    formula=r"L(N) \approx a N^{-b}",
    plain="loss falls as a power of the size",
    says="Pre-norm is one of the key engineering fixes that let scaling laws hold.",
    why="A scaling law is a fit of the loss over models whose sizes span several orders of "
    "magnitude, each trained on as much data as suits it, and the sentence needs that twice, with "
    "pre-norm and without. Models of a few thousand to a few million weights and minutes of "
    "training say nothing about it. What can be measured here is the depth at which either "
    "placement trains; other entries do.",
)
