"""Who sees whom: the tokens of an example, and the examples of a batch.

In a causal map no token sees a later one: J' u is zero behind the tokens that u stands on, exactly,
because a masked weight is an exact zero. A text of n tokens can be cut at n - 1 places, and a pair
of tokens is seen by the cuts between them: all cuts together are a proof. There are as many as
products, so beyond `CUTS` of them only so many are looked at, evenly spread, and `proved` is False:
then no leak means that none was seen.

Examples that see each other have no Jacobians of their own: J' u of some of them must be zero in
all others. Every digit of the example's number parts the batch in two, once each way, so that
every pair is parted by some digit: 2 ceil(log2 E) products see all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from leadline.errors import ProbeError
from leadline.numerics.linear.linear_maps import LinearMap

__all__ = ["CUTS", "Leak", "leak_of"]

Tensor = torch.Tensor
CUTS = 64
"""The most places at which a text is cut."""
_TOGETHER = 8


@dataclass(frozen=True)
class Leak:
    """The largest |J' u| later than u of every example; NaN where there is one token only."""

    values: Tensor
    products: int
    proved: bool
    """Whether the text was cut at all places."""


def leak_of(linear_map: LinearMap, *, seed: int = 0) -> Leak:
    """How far later tokens reach earlier ones. ProbeError where examples see each other."""
    examples, tokens, _ = linear_map.shape
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(linear_map.shape, generator=generator, dtype=torch.float64)
    start = start.to(linear_map.device, linear_map.dtype)
    products = _refuse_meetings(linear_map, start)
    cuts = _cuts(tokens)
    worst = torch.full((examples,), 0.0 if cuts else torch.nan, dtype=torch.float64)
    at = torch.arange(tokens, device=linear_map.device)[:, None]
    for first in range(0, len(cuts), _TOGETHER):
        some = cuts[first : first + _TOGETHER]
        u = torch.stack([start * (at < cut) for cut in some])
        pulled = linear_map.adjoint(u).abs()
        behind = torch.stack([one * (at >= cut) for one, cut in zip(pulled, some, strict=True)])
        worst = torch.maximum(worst, behind.amax((0, 2, 3)).double().cpu())
        products += len(some)
    return Leak(worst, products, proved=len(cuts) == tokens - 1)


def _refuse_meetings(linear_map: LinearMap, start: Tensor) -> int:
    """ProbeError where examples see each other; otherwise the products that it took to know."""
    numbers = torch.arange(linear_map.shape[0], device=linear_map.device)
    sides = [
        (numbers >> digit) % 2 == side
        for digit in range((linear_map.shape[0] - 1).bit_length())
        for side in (0, 1)
    ]
    for side in sides:
        mine = side[:, None, None]
        pulled = linear_map.adjoint((start * mine).unsqueeze(0))[0]
        across = float((pulled * ~mine).abs().max())
        if across != 0:
            raise ProbeError(
                f"The examples of this batch see each other (a gradient of {across:.1e} goes from "
                "one to another), so they have no Jacobians of their own; give one example."
            )
    return len(sides)


def _cuts(tokens: int) -> list[int]:
    """How many tokens stand before each cut: all places, or CUTS of them."""
    if tokens - 1 <= CUTS:
        return list(range(1, tokens))
    return [1 + round(i * (tokens - 2) / (CUTS - 1)) for i in range(CUTS)]
