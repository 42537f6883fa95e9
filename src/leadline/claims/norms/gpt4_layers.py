"""GPT-4 has about 100 layers: nothing about its architecture is published."""

from __future__ import annotations

from leadline.claims.catalog import uncheckable

uncheckable(
    "gpt4-layers",
    group="norms",
    notes=("card",),
    title="GPT-4 has about 100 layers",
    formula=r"L \approx 100",
    plain="L(GPT-4) ≈ 100",
    says="GPT-4's about 100 layers could not be trained without residual connections.",
    why="GPT-4's architecture is not published: neither its depth nor its width nor its number of "
    "parameters is known, so there is nothing to measure or to compute it from. It would take the "
    "configuration or the weights. Whether 100 layers train without residual connections can be "
    "tried, and other claims do.",
)
