"""Gram matrices of which only the lower triangle is computed, and the eigenvalues of several at once.

An eigenvalue solver reads one triangle, so on a CPU the other is never made: rows a to b of X X' need
the first b columns only. Strips of 64 rows leave out 46 % of the products at 768 rows. A GPU is better
served by one large product.

The tridiagonal form, on which an eigenvalue solver spends its time, is half made of products of a
matrix with one vector. Several threads wait for each other there at every one of them: the matrices
of a batch, one thread each, keep all cores at work.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch

from leadline.numerics.devices import is_far

__all__ = ["eigenvalues", "lower_gram"]

Tensor = torch.Tensor
_STRIP = 64
"""Rows that are multiplied at once. 48 to 96 are within 4 % of each other, and 0.6 to 0.75 of the time
of the whole product, at 127, 511 and 768 rows; at 127 rows 128 and more leave nothing out."""
_WIDE = 256
"""From this width on a matrix has a thread of its own: on two cores that is 1.1 times as fast as one
after the other at 192, 1.3 at 256 and 1.7 at 384 to 512; below 160 the threads cost more."""


def lower_gram(x: Tensor) -> Tensor:
    """X X' of [..., row, column] in the lower triangle; above it stands zero or the same."""
    count = x.shape[-2]
    if count <= _STRIP or is_far(x):
        return x @ x.mT
    gram = x.new_zeros(*x.shape[:-1], count)
    for start in range(0, count, _STRIP):
        end = min(start + _STRIP, count)
        gram[..., start:end, :end] = x[..., start:end, :] @ x[..., :end, :].mT
    return gram


def eigenvalues(matrices: Tensor) -> Tensor:
    """Eigenvalues of symmetric [..., k, k], ascending; the lower triangles are read."""
    threads = torch.get_num_threads()
    flat = matrices.flatten(0, -3) if matrices.ndim > 3 else matrices
    alone = is_far(matrices) or matrices.ndim < 3 or len(flat) < 2
    if alone or threads < 2 or matrices.shape[-1] < _WIDE:
        return torch.linalg.eigvalsh(matrices)
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            each = list(pool.map(torch.linalg.eigvalsh, flat))
    finally:
        # Torch also keeps the number for threads to come, and the workers have set it to 1.
        torch.set_num_threads(threads)
    return torch.stack(each).reshape(matrices.shape[:-1])
