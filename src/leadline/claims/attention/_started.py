"""Untrained models of many layers: what their attention does before the first step.

One trial per seed: 24 layers of width 64 on 32 random tokens, with the norm before the branch
(pre), after the addition (post) or nowhere (none), drawn as Xavier draws and as GPT-2 does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Trial

__all__ = ["DEPTH", "STARTED", "TOKENS"]

DEPTH, WIDTH, HEADS, TOKENS = 24, 64, 4, 32
NUMBERS = ("spectral_norm", "column_sum", "logit_span", "norm_gain", "query_weight", "key_weight")


def _run(seed: int) -> Mapping[str, Any]:
    from leadline.instruments.passes.measurement import measure
    from leadline.models.inputs import random_tokens
    from leadline.parts import Transformer

    found: dict[str, Any] = {}
    for placement, norm in (("pre", "layernorm"), ("post", "layernorm"), ("none", "none")):
        for init in ("xavier", "gpt2"):
            model = Transformer(
                depth=DEPTH,
                width=WIDTH,
                heads=HEADS,
                vocabulary=100,
                context=TOKENS,
                placement=placement,
                norm=norm,
                init=init,
                seed=seed,
            )
            ids = random_tokens(model, examples=4, length=TOKENS, seed=seed)
            record = measure(model, ids, probes="attention", seed=seed)
            cell: dict[str, list[float | None]] = {}
            for name in NUMBERS:
                by_layer: list[float | None] = [None] * DEPTH
                if f"attention.{name}" in record:
                    profile = record.by_layer(f"attention.{name}", point="attention")
                    for layer, value in zip(profile.layers, profile.values, strict=True):
                        by_layer[int(layer) - 1] = float(value)
                cell[name] = by_layer
            found[f"{placement}-{init}"] = cell
    return found


STARTED = Trial("attention-at-the-start", _run, seconds=3.0)
