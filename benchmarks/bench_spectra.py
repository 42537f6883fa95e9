"""How much faster than a loop of SVDs is the spectral norm of attention, with its interval?

The loop is what users write: `torch.linalg.svdvals(head.float()).max()` for every matrix of a batch
of softmax matrices with logits of standard deviation 0.3 to 16 (4 and 16 at 2,048 tokens), causal
and both ways; Leadline's side includes the certified interval. One thread. Beside each ratio stand
the median and the 95th percentile of the relative width.

Memory: one causal head of 8,192 tokens, width 64, from queries and keys without the matrix, against
softmax(q k') and then the spectral norm; the CPU time of the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch

from _harness import Result, interleave, peak_memory, ratio
from leadline.numerics.spectra.spectrum import attention_spectral_norm, spectral_norm

MIXED = (0.3, 1.0, 2.0, 4.0, 8.0, 16.0)
SHARP = (4.0, 16.0)
SPEED = {16: 2.5, 128: 7.4, 512: 12.0, 1024: 40.0, 2048: 40.0}
"""The least speed-up at each length."""
COUNT = {16: 384, 128: 192, 512: 12, 1024: 6, 2048: 2}
ROUNDS = {16: 15, 128: 9, 512: 7, 1024: 5, 2048: 3}
LONG, WIDTH = 8192, 64
LESS_MEMORY, CPU_TIME = 10.0, 1.2


def _batch(n: int, *, causal: bool) -> torch.Tensor:
    stds = SHARP if n == 2048 else MIXED
    g = torch.Generator().manual_seed(n)
    matrices = torch.empty(COUNT[n], n, n)
    later = torch.ones(n, n, dtype=torch.bool).triu_(1)
    for number in range(COUNT[n]):
        logits = torch.randn(n, n, generator=g) * stds[number % len(stds)]
        if causal:
            logits.masked_fill_(later, -torch.inf)
        matrices[number] = torch.softmax(logits, -1)
    return matrices


def _loop(matrices: torch.Tensor) -> torch.Tensor:
    return torch.stack([torch.linalg.svdvals(head.float()).max() for head in matrices])


def _speed(n: int, *, causal: bool) -> Result:
    matrices = _batch(n, causal=causal)
    found = spectral_norm(matrices)
    widths = found.width
    times = interleave(
        {"loop of svdvals": lambda: _loop(matrices), "leadline": lambda: spectral_norm(matrices)},
        rounds=ROUNDS[n],
        warmup=1,
        clock=time.process_time,
    )
    return ratio(
        times,
        "loop of svdvals",
        "leadline",
        name=f"spectral norm, {n} tokens, {'causal' if causal else 'both ways'}",
        target=SPEED[n],
        at_least=True,
        detail={
            "matrices": len(matrices),
            "median width": float(widths.median()),
            "95th percentile of the width": float(widths.quantile(0.95)),
            "mean iterations": float(found.iterations.double().mean()),
        },
    )


def _inputs(n: int = LONG) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, n, WIDTH, generator=g) for _ in range(2))
    return 2 * query, key


def _stored(query: torch.Tensor, key: torch.Tensor) -> object:
    """What one does without an operator: the matrix, then its norm."""
    n = query.shape[1]
    logits = query @ key.mT / math.sqrt(WIDTH)
    logits.masked_fill_(torch.ones(n, n, dtype=torch.bool).triu_(1), -torch.inf)
    return spectral_norm(torch.softmax(logits, -1))


def _free(query: torch.Tensor, key: torch.Tensor) -> object:
    return attention_spectral_norm(query, key, causal=True)


WAYS: Mapping[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "matrix": _stored,
    "leadline": _free,
}


def prepare(way: str) -> Callable[[], object]:
    """The work on the long head, after a short one has loaded what is loaded once."""
    torch.set_num_threads(1)
    WAYS[way](*_inputs(2048))
    query, key = _inputs()
    return lambda: WAYS[way](query, key)


def _memory() -> Iterable[Result]:
    added = {way: peak_memory(__file__, "prepare", way).added for way in WAYS}
    quotient = added["matrix"] / added["leadline"]
    yield Result(
        name=f"peak memory, causal, {LONG} tokens, one head",
        compared="matrix / leadline",
        ratio=quotient,
        target=LESS_MEMORY,
        repetitions=1,
        spread=(quotient, quotient),
        detail={"bytes": added},
        at_least=True,
    )
    query, key = _inputs()
    times = interleave(
        {way: (lambda run=run: run(query, key)) for way, run in WAYS.items()},
        rounds=5,
        warmup=1,
        clock=time.process_time,
    )
    yield ratio(
        times,
        "leadline",
        "matrix",
        name=f"CPU time without the matrix, causal, {LONG} tokens, one head",
        target=CPU_TIME,
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run() -> Iterable[Result]:
    """Two lines for each length, then memory and its price."""
    with _one_thread():
        for n in SPEED:
            for causal in (True, False):
                yield _speed(n, causal=causal)
        yield from _memory()
