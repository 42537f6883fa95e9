"""What blocks take as linear maps: products J' u and J v, and what every block costs before them.

    J' u     one backward pass of the block to its stream
    J v      two: through the graph of J' u, which holds forward and backward
    before   the block run with its graph, three times more for finite differences, and the
             products that compare them

Block Golub-Kahan bidiagonalisation takes p = k + 2 products with J and p with J' a step; how many
steps it takes hangs on the spectrum.
"""

from __future__ import annotations

from typing import Protocol

from leadline.instruments.cost.work import Size, Workload, moving, product

__all__ = [
    "STEPS",
    "jacobian_work",
    "map_work",
    "pair_work",
    "qr_work",
    "search_work",
    "stretches_memory",
    "stretches_work",
]

RUNS = 4
"""Runs of a block until its map is known: with its graph, and three for finite differences."""
COMPARED = 4
"""Products J' u that are compared with finite differences."""
CAPTURED = 3
"""Passes of the whole model: that of the streams, that of the other kernel, and one that looks for
what goes past the stream."""
STEPS = 5
"""Steps of the bidiagonalisation for k = 4 to a tolerance of 1e-6. By the flops that `--probes jacobian`
did, counted by a dispatch mode, it was 5.4 on GPT-2 of 2 layers 128 wide and 4.9 on Llama of 2 layers
96 wide, both with random weights at 2 x 32 tokens. It hangs on the spectrum: trained weights may
take more."""
CUTS = 64
"""Places at most at which a text is cut to see whether later tokens reach earlier ones."""
FORMED = 1024
"""Up to so many rows the matrix of a map is formed instead of approached."""


def stretches_memory(size: Size) -> float:
    """The streams of all sites; for a moment the outputs under both kernels, and how they differ."""
    return size.stream * 2 * size.sites + 4 * 3 * size.output


class Searching(Protocol):
    """What a search for singular values and norms was asked."""

    k: int
    probes: int
    smallest: int
    sublayers: bool
    through: bool
    branch: bool


def stretches_work(size: Size) -> Workload:
    """The passes that capture what enters every block."""
    return CAPTURED * size.depth * size.block.plain_forward


def map_work(size: Size) -> Workload:
    """One block until its map is known."""
    return RUNS * size.block.plain_forward + COMPARED * size.block.plain_backward


def qr_work(size: Size, k: int, *, times: float = 1) -> Workload:
    """k directions made orthonormal in float64: the Gram matrix, a triangular solution, copies."""
    rows = size.tokens * size.width
    gram = product(k, rows, k, count=size.examples, times=2 * times, double=True)
    return gram + moving(size.numbers * k, times=6 * times, double=True)


def pair_work(size: Size) -> Workload:
    """One product J' u and one J v."""
    return 3 * size.block.plain_backward


def search_work(size: Size, k: int, *, steps: int = STEPS) -> Workload:
    """The k largest singular values of one map."""
    block = k + 2
    products = block * steps * pair_work(size)
    # Each new block is made orthogonal to all before it, twice, on both sides.
    rows = size.tokens * size.width
    against = product(block, rows, block * (steps + 1) / 2, count=size.examples, times=8 * steps)
    return products + against + qr_work(size, block, times=4 * steps)


def jacobian_work(size: Size, asked: Searching) -> Workload:
    """Everything that the Jacobian of one block is asked for, once its map is known."""
    cuts = min(CUTS, max(size.tokens - 1, 0)) + 2 * max(size.examples - 1, 0).bit_length()
    singles = (asked.probes + cuts) * size.block.plain_backward
    total = singles + search_work(size, asked.k)
    total = total + moving(size.numbers, times=4 * asked.probes, double=True)
    if asked.branch:
        total = total + search_work(size, 1)
    if asked.smallest:
        total = total + search_work(size, asked.smallest, steps=STEPS * 4)
    if asked.sublayers:
        total = total + total
    if asked.through:
        # The product up to site l passes l blocks: half of the depth in the mean.
        total = total + size.depth / 2 * search_work(size, 1)
    # The partial norms carry `probes` directions back through every block.
    return total + asked.probes * size.block.plain_backward + qr_work(size, asked.probes)
