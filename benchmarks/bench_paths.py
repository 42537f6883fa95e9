"""How long does the exact decomposition by path length take?

48 attention layers of 8 heads, width 64, 32 tokens: 9^48 paths (6.4e45), with and without MLPs;
seconds of the whole of `leadline.paths`, logits and losses included, and as multiples of one
forward pass. Layer l is applied to l components, so the applications alone are worth 48 / 2 forward
passes. The time grows at most like the square of the depth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch

import leadline
from _harness import Result, exponent, interleave, median_with_interval, ratio

DEPTH, HEADS, WIDTH, TOKENS = 48, 8, 64, 32
SECONDS = 3.0
FORWARDS = 45.0
"""At most so many forward passes; 24 are the applications of layers to components."""
DEPTHS = (24, 48, 96)
GROWTH = 2.0
"""The exponent of depth: layers times components."""
ROUNDS = 7


def _work(mlp: str, depth: int = DEPTH) -> dict[str, Callable[[], object]]:
    model = leadline.Transformer(depth=depth, width=WIDTH, heads=HEADS, mlp=mlp)
    ids = torch.randint(0, 256, (1, TOKENS), generator=torch.Generator().manual_seed(0))

    def forward() -> object:
        with torch.no_grad():
            return model(ids)

    return {"paths": lambda: leadline.paths(model, ids), "forward": forward}


def run() -> Iterable[Result]:
    """Three lines for attention alone, three with MLPs."""
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
        yield ratio(times, "paths", "forward", name=f"paths over forward, {name}", target=FORWARDS)
        yield _growth(name, mlp)


def _growth(name: str, mlp: str) -> Result:
    """The exponent of the time over depth, fitted within every round."""
    work = {str(depth): _work(mlp, depth)["paths"] for depth in DEPTHS}
    times = interleave(work, rounds=ROUNDS, warmup=1)
    fits = [exponent(DEPTHS, [times[str(depth)][at] for depth in DEPTHS]) for at in range(ROUNDS)]
    middle, low, high = median_with_interval(fits)
    return Result(
        name=f"paths over depth, {name}",
        compared=f"exponent of seconds over depths {', '.join(work)}",
        ratio=middle,
        target=GROWTH,
        repetitions=ROUNDS,
        spread=(low, high),
        detail={"seconds": {depth: float(np.median(times[depth])) for depth in work}},
    )
