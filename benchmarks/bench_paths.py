"""How long does the exact decomposition by path length take?

48 attention layers of 8 heads, width 64, 32 tokens: 9^48 paths (6.4e45), with and without MLPs;
seconds of the whole of `leadline.paths`, logits and losses included, and as multiples of one
forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch

import leadline
from _harness import Result, interleave, median_with_interval, ratio

DEPTH, HEADS, WIDTH, TOKENS = 48, 8, 64, 32
SECONDS = 3.0
ROUNDS = 7


def _work(mlp: str) -> dict[str, Callable[[], object]]:
    model = leadline.Transformer(depth=DEPTH, width=WIDTH, heads=HEADS, mlp=mlp)
    ids = torch.randint(0, 256, (1, TOKENS), generator=torch.Generator().manual_seed(0))

    def forward() -> object:
        with torch.no_grad():
            return model(ids)

    return {"paths": lambda: leadline.paths(model, ids), "forward": forward}


def run() -> Iterable[Result]:
    """Two lines for attention alone, two with MLPs."""
    for name, mlp in (("attention only", "none"), ("with MLPs", "gelu_tanh")):
        times = interleave(_work(mlp), rounds=ROUNDS, warmup=1)
        seconds = np.asarray(times["paths"])
        middle, low, high = median_with_interval(seconds)
        yield Result(
            name=f"paths of 48 layers, {name}",
            compared="seconds",
            ratio=middle,
            target=SECONDS,
            repetitions=ROUNDS,
            spread=(low, high),
            detail={"depth": DEPTH, "heads": HEADS, "width": WIDTH, "tokens": TOKENS},
        )
        yield ratio(times, "paths", "forward", name=f"paths over forward, {name}")
