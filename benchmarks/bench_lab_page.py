"""How long does the playground take for the curves of a design, and what would `measure` take?

Width 64, four heads, 43 tokens, one example, at 24 and at 96 layers: the model built, one forward and
one backward pass, every block's distance from the identity by 32 probes, all curves reduced. A slider
asks for another depth every time, so each round of the playground takes one that was not asked for a
moment ago. Beside it `leadline.measure` with the same quantities on the same design, which proves the
anatomy and measures more than a page draws (the largest singular value of a block cannot be left
out). Targets are milliseconds, for a page that answers within 0.2 and 1 seconds in all; on a machine
that does other work too the seconds of the processor, stated beside them, say more. The runner names the processor.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable

import torch

import leadline
from _harness import Result, interleave, median_with_interval, ratio
from leadline.web.playground.curves import curves_of
from leadline.web.playground.design import Design

TARGETS = {24: 120.0, 96: 700.0}
"""Milliseconds at each depth."""
ROUNDS = 15
PROBES = "stream,tokens,update,gradient,attention,jacobian(k=1, branch=false)"


def run() -> Iterable[Result]:
    """Time the playground at both depths, then measure beside it."""
    for depth, target in TARGETS.items():
        yield page(depth, target)
    yield beside_measure(24)


def page(depth: int, target: float) -> Result:
    """The median time of all curves of a design."""
    depths = itertools.cycle((depth, depth - 1))
    processor: list[float] = []

    def one() -> None:
        started = time.process_time()
        curves_of(Design(depth=next(depths)))
        processor.append(time.process_time() - started)

    seconds = interleave({"page": one}, rounds=ROUNDS)["page"]
    middle, *spread = median_with_interval([1e3 * one for one in seconds])
    busy, *_ = median_with_interval([1e3 * one for one in processor[-ROUNDS:]])
    return Result(
        f"curves of {depth} layers, milliseconds",
        "nothing: the time itself",
        middle,
        target,
        ROUNDS,
        (spread[0], spread[1]),
        detail={
            "threads": torch.get_num_threads(),
            "milliseconds of the processor": round(busy, 1),
        },
    )


def beside_measure(depth: int) -> Result:
    """The playground's time over that of `measure`, model included in both."""
    design = Design(depth=depth)
    times = interleave(
        {
            "page": lambda: curves_of(design),
            "measure": lambda: leadline.measure(design.model(), design.inputs(), probes=PROBES),
        },
        rounds=5,
        warmup=1,
    )
    return ratio(
        times,
        "page",
        "measure",
        name=f"curves of {depth} layers",
        detail={"threads": torch.get_num_threads()},
    )
