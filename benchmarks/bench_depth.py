"""Do time and memory of a measurement grow linearly with depth?

A GPT-2-shaped model of width 256 at 12, 24, 48 and 96 layers, 2 x 64 tokens: seconds and peak
memory that `measure` adds, and the exponent b of seconds ~ depth^b and bytes ~ depth^b. Linear
is 1; what does not depend on depth (embeddings, head, the program itself) makes it smaller.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

import leadline
from _harness import Result, exponent, interleave, peak_memory

DEPTHS = (12, 24, 48, 96)
LINEAR = 1.1
ROUNDS = 7


def _work(depth: int) -> Callable[[], object]:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(n_layer=depth, n_embd=256, n_head=4, vocab_size=1000, n_positions=64)
    model: Any = GPT2LMHeadModel(config).eval()
    inputs = leadline.random_tokens(model, examples=2, length=64, seed=0)
    anatomy = leadline.anatomy_of(model, inputs)
    return lambda: leadline.measure(model, inputs, anatomy=anatomy)


def prepare(depth: str) -> Callable[[], object]:
    """The work at one depth, warmed up, for the measurement of its peak memory."""
    work = _work(int(depth))
    work()
    gc.collect()
    return work


def run() -> Iterable[Result]:
    """One line for time, one for memory."""
    times = interleave({str(depth): _work(depth) for depth in DEPTHS}, rounds=ROUNDS, warmup=1)
    fits = [
        exponent(DEPTHS, [times[str(depth)][number] for depth in DEPTHS])
        for number in range(ROUNDS)
    ]
    seconds = {depth: float(np.median(times[str(depth)])) for depth in DEPTHS}
    yield Result(
        name="time over depth 12 to 96",
        compared="exponent b of seconds ~ depth^b",
        ratio=exponent(DEPTHS, [seconds[depth] for depth in DEPTHS]),
        target=LINEAR,
        repetitions=ROUNDS,
        spread=(min(fits), max(fits)),
        detail={"seconds": seconds},
    )
    added = {depth: peak_memory(__file__, "prepare", str(depth)).added for depth in DEPTHS}
    yield Result(
        name="peak memory over depth 12 to 96",
        compared="exponent b of bytes ~ depth^b",
        ratio=exponent(DEPTHS, [added[depth] for depth in DEPTHS]),
        target=LINEAR,
        repetitions=1,
        spread=(exponent(DEPTHS, list(added.values())),) * 2,
        detail={"bytes": added},
    )
