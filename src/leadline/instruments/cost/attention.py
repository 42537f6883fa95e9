"""What attention matrices take: to be formed, to be reduced to numbers, to give their largest values.

Of n queries, m keys and h heads in an example, c = h examples:

    formed     2 c n m d flops, and the softmax of c n m logits
    reduced    `REDUCED` times over the matrix; the proof A V w is one narrow product
    leading    `STEPS` products with A and with A' each, which read the matrix, and the certificate
               in float64
"""

from __future__ import annotations

from leadline.instruments.cost.work import Size, Workload, calling, functions, moving, product

__all__ = ["formed_work", "leading_work", "pattern_memory", "pattern_work"]

SOFTMAX = 4
"""Times over the matrix: the mask, the largest logit, the difference, the division."""
REDUCED = 22
"""Times over the matrix: hidden keys, sums of rows and columns, entropy, both moments and the span of
the logits, distances, the mean of the heads and its entropy; counted in `add_block`."""
STEPS = 10
"""Steps of the Krylov space until the two leading values are certain. An assumption that has not been
measured yet: it hangs on the pattern."""
TOGETHER = 2**22
"""Numbers of matrices that stand in memory together."""
CALLS = 450
"""Small operations of a layer beside those above: sums over blocks of rows, and the steps of the Krylov
space. Counted by a dispatch mode as what `--probes attention` adds to `stream`, less the rest that is
counted here: 466 on GPT-2 of 6 layers 384 wide at 2 x 96 tokens, 439 on Llama of 8 layers 256 wide at
2 x 128, both with random weights."""
COPIES = 6
"""Logits, weights, what is visible, and what is being made of them, one of them in float64."""


def formed_work(size: Size) -> Workload:
    """The matrices of all layers."""
    count = size.examples * size.heads
    once = product(size.tokens, size.head_width, size.keys, count=count, times=size.attentions)
    softmax = moving(size.grid, times=SOFTMAX * size.attentions)
    return once + softmax + functions(size.grid, times=size.attentions)


def pattern_work(size: Size) -> Workload:
    """The matrices, and what is read off them but singular values."""
    count = size.examples * size.heads
    proof = product(size.tokens, size.keys, 2, count=count, times=size.attentions)
    reduced = moving(size.grid, times=REDUCED * size.attentions)
    mixed = functions(size.grid / max(size.heads, 1), times=size.attentions)
    return formed_work(size) + reduced + mixed + proof


def leading_work(size: Size) -> Workload:
    """The two largest singular values of every matrix, with their intervals."""
    products = moving(size.grid, times=2 * STEPS * size.attentions)
    certificate = moving(size.grid, times=4 * size.attentions, double=True)
    return products + certificate + calling(CALLS * size.attentions)


def pattern_memory(size: Size) -> float:
    """Bytes of the matrices that are worked on together."""
    of_example = size.heads * size.tokens * size.keys
    return 4.0 * COPIES * min(size.grid, max(TOGETHER, of_example))
