"""Who sees whom: the tokens of an example, and the examples of a batch.

In a causal map no token sees a later one: J' u is zero behind the tokens that u stands on, exactly,
because a masked weight is an exact zero. `leak` is the largest |J' u| there, over up to `CUTS`
vectors that end at different places (windows, which are not causal, pass some cuts unseen).

Examples that see each other have no Jacobians of their own: J' u of one of them must be zero in all
others, and is looked at with the same products.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from leadline.errors import ProbeError
from leadline.numerics.linear_maps import LinearMap

__all__ = ["CUTS", "Leak", "leak_of"]

CUTS = 7
"""Places at which a text is cut."""


@dataclass(frozen=True)
class Leak:
    """The largest |J' u| later than u of every example; NaN where there is one token only."""

    values: torch.Tensor
    products: int


def leak_of(given: LinearMap, *, seed: int = 0) -> Leak:
    """How far later tokens reach earlier ones. ProbeError where examples see each other."""
    examples, tokens, _ = given.shape
    cuts = _cuts(tokens)
    generator = torch.Generator().manual_seed(seed)
    u = torch.randn(len(cuts) + 1, *given.shape, generator=generator, dtype=torch.float64)
    for one, cut in zip(u, cuts, strict=False):
        one[:, cut:] = 0.0
    u[-1, 1:] = 0.0
    pulled = given.adjoint(u.to(given.device, given.dtype)).abs().double()
    across = float(pulled[-1, 1:].max()) if examples > 1 else 0.0
    if across != 0:
        raise ProbeError(
            f"The examples of this batch see each other (a gradient of {across:.1e} goes from "
            "one to another), so they have no Jacobians of their own; give one example."
        )
    later = [one[:, cut:].amax((1, 2)) for one, cut in zip(pulled, cuts, strict=False)]
    none = torch.full((examples,), torch.nan, dtype=torch.float64)
    return Leak(torch.stack(later).amax(0) if later else none, len(u))


def _cuts(tokens: int) -> list[int]:
    """At most CUTS different numbers of tokens, from one to all but one."""
    if tokens < 2:
        return []
    steps = min(CUTS, tokens - 1)
    return sorted({1 + round(i * (tokens - 2) / max(1, steps - 1)) for i in range(steps)})
