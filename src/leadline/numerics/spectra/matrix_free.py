"""Singular values of attention that is never stored: a block Krylov run over `AttentionRows`.

Every product costs a pass over the recomputed softmax, so several vectors share a pass: `COLUMNS`
at a time. The passes of the run are in float32 (float64 for float64 inputs); the last one, which
certifies, recomputes the softmax from q and k in float64: the interval is about the true softmax of
the given q and k, and is widened by `AttentionRows.rounding`.
"""

from __future__ import annotations

import torch

from leadline.numerics.spectra.attention_rows import AttentionRows
from leadline.numerics.spectra.stored import Certified

__all__ = ["COLUMNS", "MatrixFree"]

Tensor = torch.Tensor

COLUMNS = 8
"""Vectors that share a pass."""


class MatrixFree:
    """One head as an operator for `krylov.leading_vectors`."""

    def __init__(self, rows: AttentionRows) -> None:
        self.rows = rows

    def take(self, keep: Tensor) -> MatrixFree:
        assert len(keep) == 1
        return self

    def gram_rows(self, x: Tensor) -> Tensor:
        """x A'A for rows x [1, row, n]."""
        return self.rows.gram_rows(x)

    def certify(self, x: Tensor, z: Tensor) -> Certified:
        """Float64 products of one pass, for x [1, wanted, n] and z [1, n]."""
        _, m, n = self.rows.shape
        vectors = torch.cat([x.double(), z.double()[:, None]], 1)
        products = torch.zeros(1, x.shape[1], m, dtype=torch.float64, device=x.device)
        image = torch.zeros(1, 1, n, dtype=torch.float64, device=x.device)
        squares = torch.zeros(1, dtype=torch.float64, device=x.device)
        for first, weights in self.rows.weights(dtype=torch.float64):
            width = weights.shape[2]
            product = torch.bmm(vectors[..., :width], weights.mT)
            products[..., first : first + weights.shape[1]] = product[:, :-1]
            image[..., :width] += torch.bmm(product[:, -1:], weights)
            if x.shape[1] > 1:
                squares += weights.square().sum()
        return Certified(products, image[:, 0], squares)
