"""A proof of the largest singular value: an interval in float64 that contains it.

Lower: sigma_1 >= |A x| / |x| for any x; with the Ritz vector of a float32 run its error is the
square of the vector's error.

Upper, for a nonnegative A with M = A'A (Collatz 1942, Wielandt 1950): for every z > 0

    sigma_1^2 <= max_i (M z)_i / z_i.

The Ritz vector alone is a poor z: where it is almost zero (another document of a packed sequence,
a token nobody attends to) the quotient says nothing. The vector

    z = (lambda - M)^-1 1 = sum_k M^k 1 / lambda^(k+1),   lambda = sigma_1^2 (1 + eta)

is positive everywhere and M z = lambda z - 1 < lambda z, for any nonnegative M, connected or not.
An approximate z with M z = lambda z - 1 + r still proves lambda as long as r_i <= 1 in every
entry: the solution need not be good, only its residual must stay below the right side. A Krylov
space that starts at 1 contains such a z, so every eta costs no product with A; the best of a grid
is taken. Packed documents need no splitting: each part of the graph has its own share of 1.

Rounding, with A and z nonnegative: every sum of p nonnegative products is right to p eps
relatively in any order, so the quotient to (m + n + 2) eps. For the lower end |A x| is right to
n eps sigma |x|. Both ends are moved by (m + n + 8) eps, eps = 2^-52.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from leadline.numerics.spectra.krylov import Space

__all__ = ["ETAS", "batched_ends", "ends", "margin", "positive_vector", "quotient"]

Tensor = torch.Tensor

ETAS = (3e-7, 1e-6, 2e-6, 4e-6, 1e-5, 3e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e3)
"""The grid of eta. The last one makes z equal to 1 up to 1e-3: it is positive, whatever happens."""

NEAR = (0.3, 1.0, 3.0, 10.0)
"""While a run is under way only eta near the residual of the Ritz vector can be tight."""

NOISE = 2
"""Rounding errors of the run that are counted against a candidate."""


def positive_vector(space: Space, *, every: bool = True) -> tuple[Tensor, Tensor]:
    """The best resolvent vector [matrix, n] of a Krylov space, and its predicted slack [matrix].

    With `every` the whole grid is tried, otherwise only what can be tight. The first row of the
    space is 1 / sqrt(n), so that with (lambda - T) c = theta_1 e_1

        z = V'c,   M z / theta_1 = (1 + eta) z - 1 / sqrt(n) + r,   r = F' B c / theta_1

    (the last block of c). The slack is max_i (M z)_i / (theta_1 z_i) - 1 in the precision of the
    run; what is returned is M z / theta_1 + 1 / sqrt(n), one product further.
    """
    values = space.values
    top = values[:, -1].clamp_min(torch.finfo(torch.float32).tiny)
    if every:
        eta = values.new_tensor(ETAS).expand(len(values), -1)
    else:
        residual = (space.residuals(1) / top).clamp_min(ETAS[0])
        eta = residual[:, None] * values.new_tensor(NEAR)
    # One row of weights on the Ritz vectors for every eta.
    gaps = 1 + eta[:, :, None] - (values / top[:, None])[:, None]
    inside = torch.bmm(space.vectors[:, :1] / gaps, space.vectors.mT)
    block = space.outside.shape[1]
    new = torch.bmm(inside[:, :, -block:], space.outside / top[:, None, None])
    dtype, n = space.rows.dtype, space.rows.shape[2]
    z = torch.bmm(inside.to(dtype), space.rows[:, :-block])
    r = torch.bmm(new.to(dtype), space.rows[:, -block:])
    # An entry of M z carries the rounding of the largest ones: where z is small it could tip the
    # quotient over, so it is counted against the candidate.
    noise = NOISE * torch.finfo(dtype).eps * z.amax(-1, keepdim=True)
    room = ((1 / math.sqrt(n) - noise) - r) / z
    proved = eta - torch.where(z > 0, room, -torch.inf).amin(-1)
    slack, best = proved.min(-1)
    which = best[:, None, None].expand(-1, 1, n)
    factor = 1 + eta.gather(1, best[:, None]).to(dtype)
    chosen = factor * z.gather(1, which)[:, 0] + r.gather(1, which)[:, 0]
    # Where no candidate is positive the vector 1 is.
    usable = torch.isfinite(slack)[:, None] & (chosen > 0)
    return torch.where(usable, chosen, 1 / math.sqrt(n)), slack


def margin(m: int, n: int) -> float:
    """How much both ends are moved for the rounding of products with an m x n matrix."""
    return (m + n + 8) * torch.finfo(torch.float64).eps


def quotient(image: Tensor, z: Tensor) -> Tensor:
    """max_i (M z)_i / z_i of float64 rows [..., n]."""
    return (image / z).amax(-1)


def ends(value: float, bound: float, slack: float) -> tuple[float, float]:
    """The interval from the Rayleigh quotient of A and the Collatz-Wielandt bound on sigma^2."""
    return value * (1 - slack), max(math.sqrt(max(bound, 0.0)), value) * (1 + slack)


def batched_ends(value: Tensor, bound: Tensor, slack: float) -> tuple[Tensor, Tensor]:
    """The intervals of many matrices, as `ends` gives that of one; NaN stays NaN."""
    upper = torch.maximum(bound.clamp_min(0).sqrt(), value)
    return value * (1 - slack), upper * (1 + slack)
