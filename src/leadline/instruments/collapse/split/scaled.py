"""A tensor times a power of two whose exponent is a Python integer: no overflow, no underflow.

    value = values * 2^exponent,    2^-9 <= max |values| <= 2^8

The exponent is exact at any size, so a quantity may be as small as 10^(-10^18). Zero has the
exponent None. All float64; powers of two cost no rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from leadline.errors import InputError

__all__ = ["FAINT", "REACH", "Scaled", "added", "refuse_loss", "scaled", "shifted", "times"]

Tensor = torch.Tensor
FAINT = 1e-200
"""So small that the first order is exact; a little further float64 runs out of digits."""
LOST = 2.0**-1000
REACH = 2040
"""Shifts beyond this leave nothing of a float64, or everything."""


@dataclass(frozen=True)
class Scaled:
    """values * 2^exponent; made by `scaled`, which brings the values to size."""

    values: Tensor
    exponent: int | None

    @property
    def is_zero(self) -> bool:
        return self.exponent is None

    def at(self, exponent: int) -> Tensor:
        """The values in units of 2^exponent: infinite or zero where that is out of range."""
        if self.exponent is None:
            return self.values
        return shifted(self.values, self.exponent - exponent)

    def map(self, values: Tensor) -> Scaled:
        """The same exponent over other values, which are brought to size."""
        return scaled(values, self.exponent)

    def log2(self, size: Tensor) -> Tensor:
        """log2 of a number that was computed from the values, such as their norm."""
        if self.exponent is None:
            return torch.full_like(size, -math.inf)
        return torch.log2(size) + self.exponent


def scaled(values: Tensor, exponent: int | None = 0) -> Scaled:
    """Bring values to size. Refuses what is not finite."""
    if exponent is None:
        return Scaled(values, None)
    peak = float(values.abs().max())
    if peak == 0.0:
        return Scaled(values, None)
    if not math.isfinite(peak):
        raise InputError(
            "A value is not finite in float64: the weights or the stream are too large; scale "
            "them down."
        )
    _, shift = math.frexp(peak)
    if -8 <= shift <= 8:
        # Near enough to one: the exponent need not move at every operation.
        return Scaled(values, exponent)
    return Scaled(shifted(values, -shift), exponent + shift)


def shifted(values: Tensor, shift: int) -> Tensor:
    """values * 2^shift for any integer shift."""
    if shift == 0:
        return values
    shift = max(-REACH, min(REACH, shift))
    # 2^shift itself may be out of range although the product is not.
    half = shift // 2
    return values * math.ldexp(1.0, half) * math.ldexp(1.0, shift - half)


def added(first: Scaled, second: Scaled) -> Scaled:
    """The sum; shapes broadcast."""
    if first.exponent is None and second.exponent is None:
        return Scaled(first.values + second.values, None)
    if first.exponent is None:
        return Scaled(first.values + second.values, second.exponent)
    if second.exponent is None:
        return Scaled(first.values + second.values, first.exponent)
    top = max(first.exponent, second.exponent)
    return scaled(first.at(top) + second.at(top), top)


def times(first: Scaled, second: Scaled) -> Scaled:
    """The product, value by value; shapes broadcast."""
    product = first.values * second.values
    if first.exponent is None or second.exponent is None:
        return Scaled(product, None)
    return scaled(product, first.exponent + second.exponent)


def refuse_loss(sizes: Tensor, expected: Tensor) -> None:
    """Refuse results, one size per feature or head, that one exponent for all cannot hold.

    `expected` says which of them cannot be zero but by underflow; below 2^-1000 of the largest
    float64 runs out of digits.
    """
    if bool(((sizes <= LOST * sizes.max()) & expected).any()):
        raise InputError(
            "Features of the tokens differ by sizes that lie more than 300 powers of ten apart, "
            "and the smaller ones would be lost; such a network cannot be followed."
        )
