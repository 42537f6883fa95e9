"""How long does it take to follow collapsing tokens, and how far does a plain pass see?

40 layers of attention, 6 tokens of width 8, one head: `collapse_weights` with its error estimate
against the plain float64 pass that people write, and against mpmath with as many digits as the
residual needs, at the 6 layers that it can do in reasonable time. One thread.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from mpmath import mp, mpf

import leadline
from _harness import Result, interleave, median_with_interval, ratio

TOKENS, WIDTH, DEPTH, ROUNDS = 6, 8, 40, 15
LIMIT = 0.1
"""Seconds for 40 layers."""
DIGITS, SHALLOW = 700, 6


def layers() -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)

    def draw() -> torch.Tensor:
        return torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64) / WIDTH**0.5

    return [{name: draw() for name in ("W_Q", "W_K", "W_V", "W_O")} for _ in range(DEPTH)]


def plain(x: torch.Tensor, weights: list[dict[str, torch.Tensor]]) -> list[float]:
    """What people write: forward, subtract the mean, take the norm."""
    found = [float((x - x.mean(0)).norm())]
    for layer in weights:
        scores = (x @ layer["W_Q"]) @ (x @ layer["W_K"]).T / math.sqrt(WIDTH)
        x = torch.softmax(scores, -1) @ (x @ layer["W_V"]) @ layer["W_O"]
        found.append(float((x - x.mean(0)).norm()))
    return found


def with_digits(x: torch.Tensor, weights: list[dict[str, torch.Tensor]]) -> Any:
    mp.dps = DIGITS
    rows = mp.matrix([[mpf(v) for v in row] for row in x.tolist()])
    for layer in weights:
        matrix = {name: mp.matrix(value.tolist()) for name, value in layer.items()}
        scores = (rows * matrix["W_Q"]) * (rows * matrix["W_K"]).T / mp.sqrt(WIDTH)
        powers = scores.apply(mp.exp)
        for i in range(TOKENS):
            total = mp.fsum(powers[i, j] for j in range(TOKENS))
            for j in range(TOKENS):
                powers[i, j] /= total
        rows = powers * (rows * matrix["W_V"]) * matrix["W_O"]
    return rows


def run() -> Iterable[Result]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield from _results()
    finally:
        torch.set_num_threads(threads)


def _results() -> Iterable[Result]:
    weights = layers()
    x = torch.randn(TOKENS, WIDTH, generator=torch.Generator().manual_seed(1)).double()
    found = leadline.collapse_weights(x, weights).collapse
    with np.errstate(divide="ignore"):
        off = np.abs(np.log10(plain(x, weights)) - found.log10_residual)
    times = interleave(
        {
            "collapse_weights": lambda: leadline.collapse_weights(x, weights),
            "plain float64": lambda: plain(x, weights),
        },
        rounds=ROUNDS,
        warmup=2,
    )
    middle, low, high = median_with_interval(times["collapse_weights"])
    yield Result(
        name=f"{DEPTH} layers",
        compared="seconds of collapse_weights",
        ratio=middle,
        target=LIMIT,
        repetitions=ROUNDS,
        spread=(low, high),
        detail={
            "log10_residual": float(found.log10_residual[-1]),
            "plain_float64_is_wrong_from_layer": int(np.argmax(off > math.log10(2))),
        },
    )
    yield ratio(times, "collapse_weights", "plain float64", name=f"{DEPTH} layers, cost")
    few = weights[:SHALLOW]
    times = interleave(
        {
            f"mpmath with {DIGITS} digits": lambda: with_digits(x, few),
            "collapse_weights": lambda: leadline.collapse_weights(x, few),
        },
        rounds=5,
        warmup=1,
    )
    yield ratio(times, f"mpmath with {DIGITS} digits", "collapse_weights", name=f"{SHALLOW} layers")
