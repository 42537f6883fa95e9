"""Weighted, gated and dropped-out residuals are valid variants.

The summary lists x + a F(x), x + s(W x) F(x) and x + dropout(F(x)) as modifications. Read as: a
pre-norm Transformer with each of them trains. LayerScale (Touvron et al. 2021, arXiv 2103.17239),
a weight per feature, is a fourth of the kind. The gate is that of the connection `gated`, the
weight is 1/sqrt(2 L), the rate of the dropout 0.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.training._cells import cell, gain, trains
from leadline.claims.training._pictures import losses

WEIGHTED, GATED = cell("weighted pre", 12), cell("gated", 12)
DROPOUT, LAYERSCALE, PLAIN = cell("dropout", 12), cell("layerscale", 12), cell("pre", 12)


@claim(
    "residual-variants-train",
    group="training",
    notes=("summary",),
    title="Weighted, gated and dropped-out residuals are valid variants",
    formula=r"x + \alpha F(x), \quad x + \sigma(W_1 x) F(x), \quad x + \mathrm{dropout}(F(x))",
    plain="x + αF(x), x + σ(W₁x)F(x), x + dropout(F(x))",
    says="The residual can be modified: by a weight on the update, by a gate that looks at the "
    "stream, or by dropout on the update.",
    correction="",
    why="Four variants of the same pre-norm Transformer of 12 layers were trained alike. Below "
    "the entropy of the byte frequencies they end by {weighted:.2f} (weighted), {gated:.2f} "
    "(gated), {dropout:.2f} (dropout) and {layerscale:.2f} nats (LayerScale); the plain residual "
    "by {plain:.2f}. All of them train.",
    checks=(
        trains("weighted", "claim", "gain with updates / √(2L), 12 layers"),
        trains("gated", "claim", "gain with gated updates, 12 layers"),
        trains("dropout", "claim", "gain with dropout on the updates, 12 layers"),
        trains("layerscale", "reach", "gain with LayerScale, 12 layers"),
    ),
    source="Touvron et al. 2021, arXiv 2103.17239, for LayerScale",
    seconds=0.01,
    needs=(WEIGHTED, GATED, DROPOUT, LAYERSCALE, PLAIN),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """The gain of every variant."""
    runs = {
        "weighted": trials[WEIGHTED.name],
        "gated": trials[GATED.name],
        "dropout": trials[DROPOUT.name],
        "layerscale": trials[LAYERSCALE.name],
        "plain": trials[PLAIN.name],
    }
    return Measured({name: gain(found) for name, found in runs.items()}, losses(runs))
