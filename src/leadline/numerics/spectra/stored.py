"""Products with stored matrices: a batch of small ones, or one large one chunk by chunk.

Small matrices are multiplied together (`bmm`). For a large one each chunk of `CHUNK` entries is used
for both products, y = A_b v and out += A_b' y, while it lies in the cache: M v reads A once, not
twice. Columns in which a chunk is zero are not read at all: half of a causal matrix, most of a
window or of packed documents.

In float64 a chunk is raised once and used for all products of the certificate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

__all__ = ["CHUNK", "Certified", "Chunked", "MatrixBatch", "Several"]

Tensor = torch.Tensor

CHUNK = 1 << 18
"""Entries of one chunk: 1 MB in float32."""

FORMED = 192
"""Up to this side A'A is formed: it costs two or three products and halves the later ones."""

RAISED = CHUNK // 2
"""Entries that are held in float64 at a time: 1 MB."""


@dataclass(frozen=True)
class Certified:
    """Float64 products for rows x [matrix, wanted, n] and z [matrix, n]."""

    products: Tensor
    """A x' as rows [matrix, wanted, m]."""
    image: Tensor
    """A'A z [matrix, n]."""
    squares: Tensor
    """|A|_F^2 [matrix]; only where more than one vector is wanted."""

    @staticmethod
    def stack(parts: Sequence[Certified]) -> Certified:
        """The products of several matrices; rows without entries are left out, so m may differ."""
        longest = max(part.products.shape[2] for part in parts)
        padded = [
            torch.nn.functional.pad(part.products, (0, longest - part.products.shape[2]))
            for part in parts
        ]
        return Certified(
            torch.cat(padded),
            torch.cat([part.image for part in parts]),
            torch.cat([part.squares for part in parts]),
        )


class MatrixBatch:
    """A batch [matrix, m, n], multiplied together."""

    def __init__(self, matrices: Tensor, gram: Tensor | None = None) -> None:
        self.matrices = matrices
        self._gram = gram

    @property
    def gram(self) -> Tensor | None:
        """A'A, where it is formed."""
        if self._gram is None and self.matrices.shape[2] <= FORMED:
            self._gram = torch.bmm(self.matrices.mT, self.matrices)
        return self._gram

    def take(self, keep: Tensor) -> MatrixBatch:
        if self.gram is not None:
            return MatrixBatch(self.matrices[:0], self.gram.index_select(0, keep))
        return MatrixBatch(self.matrices.index_select(0, keep))

    def gram_rows(self, x: Tensor) -> Tensor:
        """x A'A for rows x [matrix, row, n]."""
        if self.gram is not None:
            return torch.bmm(x, self.gram)
        # A matrix times columns is faster than rows times a transposed matrix.
        image = torch.bmm(self.matrices, x.mT)
        return torch.bmm(image.mT, self.matrices)

    def certify(self, x: Tensor, z: Tensor) -> Certified:
        count, m, n = self.matrices.shape
        size = min(count, max(1, RAISED // (m * n)))
        buffer = torch.empty(size, m, n, dtype=torch.float64, device=x.device)
        products, images, squares = [], [], []
        columns = torch.cat([x.double(), z.double()[:, None]], 1).mT
        for first in range(0, count, size):
            part = slice(first, first + size)
            batch = self.matrices[part]
            raised = buffer[: len(batch)].copy_(batch)
            image = torch.bmm(raised, columns[part])
            products.append(image[..., :-1].mT)
            images.append(torch.bmm(image[..., -1:].mT, raised)[:, 0])
            squares.append(raised.flatten(1).square().sum(1) if x.shape[1] > 1 else raised[:, 0, 0])
        return Certified(torch.cat(products), torch.cat(images), torch.cat(squares))


class Several:
    """Large matrices, each multiplied by itself; what is small in a run is done for all together."""

    def __init__(self, matrices: Sequence[Chunked]) -> None:
        self.matrices = list(matrices)

    def take(self, keep: Tensor) -> Several:
        return Several([self.matrices[number] for number in keep.tolist()])

    def gram_rows(self, x: Tensor) -> Tensor:
        """x A'A for rows x [matrix, row, n]."""
        out = torch.zeros_like(x)
        for number, matrix in enumerate(self.matrices):
            matrix.add_gram(x[number], out[number])
        return out

    def certify(self, x: Tensor, z: Tensor) -> Certified:
        return Certified.stack([a.certify(x[i], z[i]) for i, a in enumerate(self.matrices)])


class Chunked:
    """One nonnegative matrix [m, n], multiplied chunk by chunk without its zero columns.

    The first look at a chunk finds its zero columns and its part of M 1, which every run begins
    with. `lowest` is the smallest entry, `reach` the largest entry of M 1, or NaN. The matrix may
    be given as blocks of rows, of `columns` columns in all; those that a block lacks are zero.
    """

    def __init__(self, matrix: Tensor | Sequence[Tensor], columns: int | None = None) -> None:
        if isinstance(matrix, Tensor):
            n = matrix.shape[1]
            matrix = matrix.split(max(1, CHUNK // n))
        else:
            assert columns is not None
            n = columns
        ones = matrix[0].new_ones(n)
        self.shape = (sum(len(chunk) for chunk in matrix), n)
        self.lowest = math.inf
        self.first_image = matrix[0].new_zeros(n)
        self.chunks: list[tuple[Tensor, Tensor, slice]] = []
        self._has_all_columns = True
        for chunk in matrix:
            # NaN may get lost here, but not in M 1.
            self.lowest = min(self.lowest, float(chunk.amin()))
            transposed = chunk.mT
            image = torch.mv(transposed, torch.mv(chunk, ones[: chunk.shape[1]]))
            self.first_image[: chunk.shape[1]] += image
            used = np.flatnonzero(image.cpu().numpy())
            if len(used) == n:
                self.chunks.append((chunk, transposed, slice(0, n)))
                continue
            self._has_all_columns = False
            if len(used):
                span = slice(int(used[0]), int(used[-1]) + 1)
                self.chunks.append((chunk[:, span], transposed[span], span))
        self.reach = float(self.first_image.amax())

    def add_gram(self, x: Tensor, out: Tensor) -> None:
        """Add x A'A to `out`, for rows x [row, n]."""
        if x.shape[0] > 1:
            # Rows times the transposed chunk: much faster than the chunk times columns.
            for chunk, transposed, columns in self.chunks:
                out[:, columns].addmm_(torch.mm(x[:, columns], transposed), chunk)
            return
        out[0] += self.gram(x[0])

    def gram(self, vector: Tensor, total: Tensor | None = None) -> Tensor:
        """A'A times a vector [n], added to `total` in place where one is given."""
        total = torch.zeros_like(vector) if total is None else total
        # Back and forth: what was read last is still in the cache.
        self.chunks.reverse()
        if self._has_all_columns:
            for chunk, transposed, _ in self.chunks:
                total.addmv_(transposed, torch.mv(chunk, vector))
            return total
        for chunk, transposed, columns in self.chunks:
            total[columns].addmv_(transposed, torch.mv(chunk, vector[columns]))
        return total

    def certify(self, x: Tensor, z: Tensor) -> Certified:
        """For rows x [wanted, n] and z [n]."""
        rows = torch.cat([x.double(), z.double()[None]])
        image = torch.zeros(self.shape[1], dtype=torch.float64, device=x.device)
        products, squares = [], torch.zeros(1, dtype=torch.float64, device=x.device)
        size = max(1, RAISED // self.shape[1])
        buffer = torch.empty(size * self.shape[1], dtype=torch.float64, device=x.device)
        for chunk, _, columns in self.chunks:
            left, sums = rows[:, columns], image[columns]
            for part in chunk.split(size):
                raised = buffer[: part.numel()].view(part.shape).copy_(part)
                transposed = raised.mT
                product = torch.mm(left, transposed)
                products.append(product)
                sums.addmv_(transposed, product[-1])
                if x.shape[0] > 1:
                    squares += torch.dot(raised.view(-1), raised.view(-1))
        return Certified(torch.cat(products, 1)[None, :-1], image[None], squares)
