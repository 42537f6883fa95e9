"""Linear maps from stream to stream, known by their products alone.

The stream of E examples is [example, token, width]; the map of every example is a square matrix J
of N = token x width rows, and no example sees another. k vectors at a time are [k, example, token,
width]. A map has two products, `forward` J v and `adjoint` J' u; the matrix itself is never made,
except by `dense`, the slow and obvious reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

__all__ = ["Chain", "Dense", "LinearMap", "Shifted", "apart", "dense"]

Tensor = torch.Tensor
Shape = tuple[int, int, int]
ROWS = 256
"""How many rows of the matrix `dense` asks for at once."""


class LinearMap(Protocol):
    """One square matrix per example, by its products with k vectors [k, example, token, width]."""

    @property
    def shape(self) -> Shape: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def device(self) -> torch.device: ...

    def forward(self, v: Tensor) -> Tensor:
        """J v."""
        ...

    def adjoint(self, u: Tensor) -> Tensor:
        """J' u."""
        ...


class Chain:
    """The product of maps, the first of them applied first."""

    def __init__(self, maps: Sequence[LinearMap]) -> None:
        self.maps = tuple(maps)
        self.shape = self.maps[0].shape
        self.dtype = self.maps[0].dtype
        self.device = self.maps[0].device

    def forward(self, v: Tensor) -> Tensor:
        """J_last ... J_first v."""
        for one in self.maps:
            v = one.forward(v)
        return v

    def adjoint(self, u: Tensor) -> Tensor:
        """J_first' ... J_last' u."""
        for one in reversed(self.maps):
            u = one.adjoint(u)
        return u


class Shifted:
    """J - c I. With c = 1 and J = I + F' it is the Jacobian of the branch alone."""

    def __init__(self, linear_map: LinearMap, by: float) -> None:
        self.linear_map = linear_map
        self.by = by
        self.shape = linear_map.shape
        self.dtype = linear_map.dtype
        self.device = linear_map.device

    def forward(self, v: Tensor) -> Tensor:
        """J v - c v."""
        return self.linear_map.forward(v).sub(v, alpha=self.by)

    def adjoint(self, u: Tensor) -> Tensor:
        """J' u - c u."""
        return self.linear_map.adjoint(u).sub(u, alpha=self.by)


class Dense:
    """Explicit matrices [example, N, N] as a linear map."""

    def __init__(self, matrices: Tensor, *, tokens: int = 1) -> None:
        self.matrices = matrices
        examples, rows, _ = matrices.shape
        self.shape: Shape = (examples, tokens, rows // tokens)
        self.dtype = matrices.dtype
        self.device = matrices.device

    def forward(self, v: Tensor) -> Tensor:
        """J v."""
        return torch.einsum("eij,kej->kei", self.matrices, v.flatten(2)).view_as(v)

    def adjoint(self, u: Tensor) -> Tensor:
        """J' u."""
        return torch.einsum("eij,kei->kej", self.matrices, u.flatten(2)).view_as(u)


def dense(linear_map: LinearMap) -> Tensor:
    """The matrices [example, N, N] of a map, row by row: N adjoint products."""
    examples, tokens, width = linear_map.shape
    size = tokens * width
    blocks: list[Tensor] = []
    for start in range(0, size, ROWS):
        count = min(ROWS, size - start)
        unit = torch.zeros(count, size, dtype=linear_map.dtype, device=linear_map.device)
        unit[torch.arange(count), torch.arange(start, start + count)] = 1.0
        rows = unit.view(count, 1, tokens, width).expand(count, examples, tokens, width)
        blocks.append(linear_map.adjoint(rows).reshape(count, examples, size))
    return torch.cat(blocks).transpose(0, 1)


def apart(one: Tensor, other: Tensor) -> float:
    """|one - other| / |other| of the worst example, over all vectors [k, example, token, width]."""
    difference = (one.double() - other.double()).square().sum((0, 2, 3)).sqrt()
    size = other.double().square().sum((0, 2, 3)).sqrt()
    return float(torch.where(difference == 0, difference, difference / size).max())
