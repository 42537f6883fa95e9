"""Random matrices of known size, their products, and what a product does to vectors.

The largest singular value of a product is taken twice: by numpy from the matrix, and by Leadline's
bidiagonalisation from the chain of factors, which never makes the matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

__all__ = [
    "between",
    "largest_of_chain",
    "multiplied",
    "norm",
    "of_norm",
    "orthogonal",
    "products",
    "singular",
]


def norm(matrix: Matrix) -> float:
    """The spectral norm."""
    return float(np.linalg.norm(matrix, 2))


def singular(matrix: Matrix) -> Matrix:
    """The singular values, largest first."""
    return np.asarray(np.linalg.svd(matrix, compute_uv=False), dtype=np.float64)


def of_norm(rng: np.random.Generator, size: int, value: float) -> Matrix:
    """A Gaussian matrix, scaled to this spectral norm."""
    drawn = rng.normal(size=(size, size))
    return value * drawn / norm(drawn)


def orthogonal(rng: np.random.Generator, size: int) -> Matrix:
    """A random rotation or reflection, evenly over all of them."""
    q, r = np.linalg.qr(rng.normal(size=(size, size)))
    return q * np.sign(np.diag(r))


def between(rng: np.random.Generator, size: int, low: float, high: float) -> Matrix:
    """A matrix whose singular values are drawn between two numbers, its directions at random."""
    return (
        orthogonal(rng, size) * rng.uniform(low, high, size=size) @ orthogonal(rng, size)
    )  # fmt: skip


def products(factors: Sequence[Matrix]) -> list[Matrix]:
    """I, J_1, J_2 J_1, ... with the first factor applied first."""
    found = [np.eye(len(factors[0]))]
    for factor in factors:
        found.append(factor @ found[-1])
    return found


def multiplied(factors: Sequence[Matrix]) -> Matrix:
    """J_L ... J_1."""
    return products(factors)[-1]


def largest_of_chain(factors: Sequence[Matrix]) -> float:
    """The largest singular value of J_L ... J_1 from its factors alone."""
    import torch

    from leadline.instruments.jacobian.bidiagonal import largest
    from leadline.numerics.linear.linear_maps import Chain, Dense

    maps = [Dense(torch.from_numpy(np.ascontiguousarray(one))[None]) for one in factors]
    return float(largest(Chain(maps), 1, tolerance=1e-9).values[0, 0])
