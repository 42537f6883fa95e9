"""How much a product of residual Jacobians can grow or shrink.

J_l = I + F_l with |F_l| the spectral norm. For the product P = J_L ... J_1

    prod (1 - |F_l|)  <=  sigma_min(P)  <=  sigma_max(P)  <=  prod (1 + |F_l|)  <=  exp(sum |F_l|)

where the left end counts as 0 as soon as one |F_l| >= 1. Proof: |(I + F)v| <= |v| + |F||v| and
>= |v| - |F||v|, layer by layer; 1 + t <= e^t.

So the identity keeps a gradient alive only where |F_l| < 1, and a product stays of order one only
where sum |F_l| does: that each |F_l| is small is not enough. With |F_l| = 0.1 in 100 layers the left
end is 0.9^100 = 2.7e-5. Both ends are attained: F_l = -|F_l| I and F_l = |F_l| I.

Everything is kept in natural logarithms, so that no depth overflows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from leadline.errors import InputError

__all__ = ["ProductBand", "product_band", "product_bands"]


@dataclass(frozen=True, slots=True)
class ProductBand:
    """Between what the singular values of a product lie, as natural logarithms."""

    log_lower: float
    """Of prod (1 - |F_l|); -inf where some |F_l| >= 1."""
    log_upper: float
    """Of prod (1 + |F_l|)."""
    total: float
    """sum |F_l|, the logarithm of the looser upper end."""


def product_band(norms: Sequence[float]) -> ProductBand:
    """Return the band of the product of all layers; no layers: the identity."""
    return product_bands(norms)[-1]


def product_bands(norms: Sequence[float]) -> tuple[ProductBand, ...]:
    """Return the bands of the products of the first 0, 1, 2, ... layers; NaN stays NaN."""
    for layer, norm in enumerate(norms, start=1):
        if norm < 0.0:
            raise InputError(f"The norm of layer {layer} is {norm}, and a norm is never negative.")
    lowers, uppers, sums = [0.0], [0.0], [0.0]
    for norm in norms:
        shrink = math.log1p(-norm) if norm < 1.0 else norm if math.isnan(norm) else -math.inf
        lowers.append(lowers[-1] + shrink)
        uppers.append(uppers[-1] + math.log1p(norm))
        sums.append(sums[-1] + norm)
    return tuple(ProductBand(*ends) for ends in zip(lowers, uppers, sums, strict=True))
