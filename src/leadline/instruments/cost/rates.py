"""What this machine does in a second, measured in well under a second, and kept.

    products      flops a second of float32 matrix products with edges of 32, 128 and 512
    attention     flops a second of fused attention, forward and backward
    bandwidth     bytes a second of additions of 256 kB, 4 MB and 64 MB: in the caches, beyond them,
                  and in memory that the system hands out anew each time
    functions     results of tanh a second
    decompositions  flops a second of the eigenvalues of 128 x 128 matrices
    call          seconds that an operation takes beside its work: torch's dispatcher, the module
                  around it, and the graph; forward and backward of small layers

An operation takes the longer of what its flops and its bytes take, and a call. Nothing here knows of
any model: no number is fitted on what is predicted.
"""

from __future__ import annotations

import platform
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from leadline.instruments.cost.work import MIB, Operation, Workload

__all__ = ["NO_TIME", "Rates", "faster", "measured_rates", "rates_here"]

TENSORS = (MIB // 4, 4 * MIB, 64 * MIB)
"""Bytes of the tensors whose addition is timed. glibc maps what is larger than 32 MB anew each time."""
SIDES = (32, 128, 512)
WEIGHTS = 16
"""Matrices that are taken in turn: at an edge of 512 they are 16 MB together, more than a core keeps."""
ROUNDS = 7
PATIENCE = 0.05
"""Seconds after which no further round of one rate is begun."""


@dataclass(frozen=True)
class Rates:
    """Workload a second. `products` are those of the edges in `SIDES`."""

    processor: str
    threads: int
    products: tuple[float, ...]
    attention: float
    bandwidth: tuple[float, ...]
    functions: float
    decompositions: float
    call: float
    double: float = 0.5
    """Products in float64 as a share of those in float32: registers hold half as many numbers."""

    def seconds(self, work: Workload) -> float:
        """How long the work takes here."""
        return sum(count * self._each(one) for one, count in work.operations.items())

    def _each(self, one: Operation) -> float:
        moved = one.bytes / between(one.bytes / 3, TENSORS, self.bandwidth)
        return max(moved, self._computing(one)) + self.call

    def _computing(self, one: Operation) -> float:
        if one.kind == "function":
            return one.numbers / self.functions
        if one.kind == "attention":
            return one.flops / self.attention
        if one.kind == "decomposition":
            return one.flops / (self.decompositions * (self.double if one.double else 1.0))
        if not one.flops:
            return 0.0
        rate = between(one.side, SIDES, self.products)
        return one.flops / (rate * (self.double if one.double else 1.0))

    def to_json(self) -> dict[str, Any]:
        """The rates, with what they were measured on."""
        return {
            **asdict(self),
            "products": dict(zip(map(str, SIDES), self.products, strict=True)),
            "bandwidth": dict(zip(map(str, TENSORS), self.bandwidth, strict=True)),
        }


NO_TIME = Rates("", 0, (1.0,) * 3, 1.0, (1.0,) * 3, 1.0, 1.0, 0.0)
"""For who asks for memory alone: its seconds mean nothing."""


def between(side: float, sides: tuple[int, ...], rates: tuple[float, ...]) -> float:
    """The rate at an edge: that of the nearest edges, by the straight line between them."""
    if side <= sides[0]:
        return rates[0]
    if side >= sides[-1]:
        return rates[-1]
    index = bisect_left(sides, side)
    low, high = sides[index - 1], sides[index]
    share = (side - low) / (high - low)
    return rates[index - 1] + share * (rates[index] - rates[index - 1])


def rates_here() -> Rates:
    """The rates of this machine with as many threads as torch has now, measured once a process."""
    return _kept(torch.get_num_threads())


@cache
def _kept(threads: int) -> Rates:
    """Those of one thread by the time that it had the processor; of several, no slower than of one.

    While others compute, threads that wait for one another can take a hundred times as long.
    """
    if threads == 1:
        return measured_rates(time.process_time)
    several = measured_rates()
    torch.set_num_threads(1)
    try:
        return faster(several, _kept(1))
    finally:
        torch.set_num_threads(threads)


def faster(several: Rates, one: Rates) -> Rates:
    """Rates of several threads, each at least that of a single one, which torch may use as well."""

    def higher(these: tuple[float, ...], those: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(map(max, these, those))

    return replace(
        several,
        products=higher(several.products, one.products),
        attention=max(several.attention, one.attention),
        bandwidth=higher(several.bandwidth, one.bandwidth),
        functions=max(several.functions, one.functions),
        decompositions=max(several.decompositions, one.decompositions),
        call=min(several.call, one.call),
    )


def measured_rates(clock: Callable[[], float] = time.perf_counter) -> Rates:
    """Measure the rates, each in a few rounds after one that warms up.

    By the time that the process had the processor, it is the middle round: a pass does not meet the
    best of all moments. By the clock on the wall it is the fastest, since others may hold up the rest.
    """
    middle = clock is time.process_time

    def best(work: Callable[[], object], times: int = 1) -> float:
        work()
        seconds: list[float] = []
        began = clock()
        # A machine that others work on may take a hundred times as long: then one round has to do.
        while len(seconds) < ROUNDS and (not seconds or clock() - began < PATIENCE):
            start, done = clock(), 0
            while done < times and (not done or clock() - start < PATIENCE):
                work()
                done += 1
            seconds.append((clock() - start) / done)
        return max(median(seconds) if middle else min(seconds), 1e-9)

    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    with torch.inference_mode(False), torch.no_grad():
        products: list[float] = []
        for side in SIDES:
            a = drawn(side, side)
            # A pass meets every weight once: one that was met just now would still be in the cache.
            weights = cycle([drawn(side, side) for _ in range(WEIGHTS)])
            product = partial(_linear, a, weights)
            products.append(2.0 * side**3 / best(product, 4 if side > 256 else 50))
        bandwidth: list[float] = []
        for size in TENSORS:
            tensor = torch.ones(size // 4)
            seconds = best(lambda x=tensor: x + x, max(1, 4 * MIB // size))
            bandwidth.append(3 * tensor.nbytes / seconds)
        small = drawn(MIB // 4)
        grams = torch.stack([drawn(128, 128) for _ in range(2)])
        grams = grams @ grams.mT
        decompositions = 4 / 3 * 2 * 128**3 / best(lambda: torch.linalg.eigvalsh(grams))
        tanh = small.numel() / best(lambda: torch.tanh(small), 4)
    attention = _attention_rate(best, drawn)
    call = _call_seconds(best, drawn)
    return Rates(
        processor=processor_name(),
        threads=torch.get_num_threads(),
        products=tuple(products),
        attention=attention,
        bandwidth=tuple(bandwidth),
        functions=tanh,
        decompositions=decompositions,
        call=call,
    )


def _linear(x: torch.Tensor, weights: Iterator[torch.Tensor]) -> torch.Tensor:
    return F.linear(x, next(weights))


def _attention_rate(best: Callable[..., float], drawn: Callable[..., torch.Tensor]) -> float:
    """Flops a second of causal attention, with those above the diagonal, forward and backward."""
    heads, tokens, width = 4, 256, 64
    query, key, value = (drawn(1, heads, tokens, width).requires_grad_() for _ in range(3))

    def both() -> None:
        with torch.enable_grad():
            out = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            torch.autograd.grad(out.sum(), (query, key, value))

    return (4 + 10) * heads * tokens**2 * width / best(both)


def _call_seconds(best: Callable[..., float], drawn: Callable[..., torch.Tensor]) -> float:
    """Seconds of one operation in a chain of small modules, forward and backward together."""
    chain = nn.Sequential(
        *(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.ReLU()) for _ in range(8))
    )
    x = drawn(4, 8)
    calls = 8 * CALLS_OF_THREE

    def both() -> None:
        with torch.enable_grad():
            chain(x).sum().backward()

    return best(both, 4) / calls


CALLS_OF_THREE = 8
"""Operations of a norm, a linear layer and a ReLU forward and backward, gradients of weights among
them, as `counting` counts them; a test counts them again."""


@cache
def processor_name() -> str:
    """What the processor calls itself."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
