"""Attention matrices drawn at random, in numpy: small, of many shapes, with known logits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

__all__ = ["attention_matrices", "balanced", "largest", "softmax"]

Floats = npt.NDArray[np.float64]

SPREADS = (0.1, 8.0)
"""The standard deviation of drawn logits, even in the logarithm: from nearly uniform to nearly hard."""
BALANCING = 2000


def softmax(logits: Floats) -> Floats:
    """Softmax over the last axis; minus infinity gives an exact zero."""
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def attention_matrices(
    rng: np.random.Generator, count: int, *, causal: bool | None = None, most: int = 24
) -> Iterator[Floats]:
    """Draw softmax matrices of 2 to `most` tokens; with causal=None every other one is causal."""
    for number in range(count):
        n = int(rng.integers(2, most + 1))
        spread = SPREADS[0] * (SPREADS[1] / SPREADS[0]) ** rng.random()
        logits = spread * rng.standard_normal((n, n))
        if causal or (causal is None and number % 2):
            logits[np.triu_indices(n, 1)] = -np.inf
        yield softmax(logits)


def balanced(rng: np.random.Generator, n: int) -> Floats:
    """A doubly stochastic matrix: rows and columns of a positive one are scaled in turn."""
    matrix = np.exp(rng.standard_normal((n, n)))
    for _ in range(BALANCING):
        matrix /= matrix.sum(0, keepdims=True)
        matrix /= matrix.sum(1, keepdims=True)
    return matrix


def largest(matrix: Floats) -> float:
    """The largest singular value."""
    return float(np.linalg.svd(matrix, compute_uv=False)[0])
