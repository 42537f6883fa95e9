"""Frobenius norms of a Jacobian by random probes (Hutchinson 1990), with standard errors.

    |J - c I|_F^2 = E |(J - c I)' u|^2        u with independent signs +-1

The estimate is the mean over m probes; its standard error is s / sqrt(m), s the standard deviation
over the probes, and that of the square root follows by the delta method. Only J' u is needed, so
it works with every attention kernel. Signs and not Gaussians: their |u|^2 = N does not fluctuate.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from leadline.errors import InputError
from leadline.numerics.linear.linear_maps import LinearMap

__all__ = ["Estimate", "both_norms", "frobenius"]

Tensor = torch.Tensor
TOGETHER = 8
"""How many probes go through the graph at once."""


@dataclass(frozen=True)
class Estimate:
    """A norm per example in float64, with one standard error."""

    value: Tensor
    error: Tensor
    probes: int


def frobenius(
    linear_map: LinearMap, *, probes: int = 32, seed: int = 0, shift: float = 0.0
) -> Estimate:
    """|J - shift I|_F of every example."""
    return _norms(linear_map, (shift,), probes=probes, seed=seed)[0]


def both_norms(
    linear_map: LinearMap, *, probes: int = 32, seed: int = 0
) -> tuple[Estimate, Estimate]:
    """|J|_F and |J - I|_F of every example, from the same probes."""
    plain, apart = _norms(linear_map, (0.0, 1.0), probes=probes, seed=seed)
    return plain, apart


def _norms(
    linear_map: LinearMap, shifts: tuple[float, ...], *, probes: int, seed: int
) -> list[Estimate]:
    if type(probes) is not int or probes < 2:
        raise InputError(
            f"{probes!r} probes were asked for; a standard error needs a whole number from 2 on."
        )
    generator = torch.Generator().manual_seed(seed)
    squares: list[list[Tensor]] = [[] for _ in shifts]
    for start in range(0, probes, TOGETHER):
        count = min(TOGETHER, probes - start)
        signs = torch.randint(0, 2, (count, *linear_map.shape), generator=generator)
        u = signs.to(linear_map.device, linear_map.dtype).mul_(2.0).sub_(1.0)
        pulled = linear_map.adjoint(u)
        for of_shift, shift in zip(squares, shifts, strict=True):
            apart = pulled.double().sub_(u.double(), alpha=shift)
            of_shift.append(apart.square().sum((2, 3)))
    return [_estimate(torch.cat(of_shift)) for of_shift in squares]


def _estimate(squares: Tensor) -> Estimate:
    """From [probe, example] squares to the root of their mean."""
    count = squares.shape[0]
    value = squares.mean(0).sqrt()
    error = squares.std(0) / count**0.5 / (2.0 * value)
    return Estimate(value, torch.where(value > 0, error, torch.zeros_like(error)), count)
