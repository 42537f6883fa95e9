"""By which laws do time and memory of a measurement grow, and is any worse than the plain pass's own?

`measure` with the default probes, the anatomy known, and a plain forward and backward pass of the
same model, along four axes: depth 12 to 192, tokens 64 to 8,192, width 128 to 2,048, examples 1 to
64. The exponent b of seconds ~ size^b and bytes ~ size^b is that of a line through the logarithms,
its 95 % interval that of the slope by Student's t. Each line of the table is the exponent of
`measure` less that of the plain pass: above 0 by more than its interval would be worse. What does
not grow with an axis (embeddings, the program itself) makes exponents smaller, of both alike.
Models are small on the long axes, so that all of it takes a few minutes.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

import leadline
from _harness import Result, interleave, peak_memory

AXES: Mapping[str, Sequence[int]] = {
    "depth": (12, 24, 48, 96, 192),
    "tokens": (64, 256, 1024, 4096, 8192),
    "width": (128, 256, 512, 1024, 2048),
    "examples": (1, 4, 16, 64),
}
USUAL = {
    "depth": {"depth": 12, "width": 128, "examples": 2, "tokens": 64},
    "tokens": {"depth": 2, "width": 64, "examples": 1, "tokens": 64},
    "width": {"depth": 2, "width": 128, "examples": 2, "tokens": 64},
    "examples": {"depth": 4, "width": 128, "examples": 1, "tokens": 64},
}
"""The sizes that stay the same along each axis."""
STUDENT = {2: 4.303, 3: 3.182}
"""The 97.5 % point of Student's t by degrees of freedom."""
ALLOWED = 0.1
"""How much larger an exponent may be than that of the plain pass: `bench_depth` asked 1.1 of 1."""
ROUNDS = 3


def _works(axis: str, at: int) -> dict[str, Callable[[], object]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    size = {**USUAL[axis], axis: at}
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=size["depth"],
        n_embd=size["width"],
        n_head=max(1, size["width"] // 64),
        vocab_size=1000,
        n_positions=size["tokens"],
    )
    model: Any = GPT2LMHeadModel(config).eval()
    inputs = leadline.random_tokens(model, examples=size["examples"], length=size["tokens"], seed=0)
    anatomy = leadline.anatomy_of(model, inputs)
    ids = inputs.tensors["input_ids"]

    def plain() -> None:
        model(ids, labels=ids, use_cache=False).loss.backward()
        model.zero_grad(set_to_none=True)

    return {"plain": plain, "measure": lambda: leadline.measure(model, inputs, anatomy=anatomy)}


def prepare(axis: str, at: str, which: str) -> Callable[[], object]:
    """The work at one size for the measurement of its peak memory."""
    works = _works(axis, int(at))
    gc.collect()
    return works[which]


def run() -> Iterable[Result]:
    """Time and memory along each axis."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    for axis, sizes in AXES.items():
        seconds: dict[str, list[float]] = {"plain": [], "measure": []}
        held: dict[str, list[float]] = {"plain": [], "measure": []}
        for at in sizes:
            works = _works(axis, at)
            times = interleave(works, rounds=ROUNDS, warmup=1, clock=clock)
            for which in works:
                seconds[which].append(float(np.median(times[which])))
                held[which].append(peak_memory(__file__, "prepare", axis, str(at), which).added)
        yield _line(f"time over {axis}", sizes, seconds)
        yield _line(f"peak memory over {axis}", sizes, held)


def _line(name: str, sizes: Sequence[int], values: Mapping[str, list[float]]) -> Result:
    plain, of_plain = slope(sizes, values["plain"])
    measured, of_measured = slope(sizes, values["measure"])
    apart, error = slope(sizes, np.asarray(values["measure"]) / np.asarray(values["plain"]))
    return Result(
        name=f"{name} {sizes[0]} to {sizes[-1]:,}",
        compared="exponent of measure - exponent of the plain pass",
        ratio=apart,
        target=ALLOWED,
        repetitions=ROUNDS,
        spread=(apart - error, apart + error),
        detail={
            "sizes": list(sizes),
            "plain": {"exponent": plain, "interval": [plain - of_plain, plain + of_plain]},
            "measure": {
                "exponent": measured,
                "interval": [measured - of_measured, measured + of_measured],
            },
            "values": dict(values),
        },
    )


def slope(sizes: Sequence[int], values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """b of log value = a + b log size, and half of its 95 % interval."""
    x, y = np.log(np.asarray(sizes, dtype=float)), np.log(np.asarray(values, dtype=float))
    b, a = np.polyfit(x, y, 1)
    free = len(x) - 2
    scatter = float(((y - a - b * x) ** 2).sum()) / free
    return float(b), STUDENT[free] * (scatter / float(((x - x.mean()) ** 2).sum())) ** 0.5
