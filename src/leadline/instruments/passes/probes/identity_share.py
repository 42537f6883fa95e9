"""How much of the gradient came down the skip connection: the identity share.

In a stack that keeps an identity the stream at its end is that at site l plus all that was written
behind it, x_L = x_l + u_(l+1) + ... + u_L. So the gradient at site l is a sum too,

    g_l = g_L + (what the branches behind l add),        share_l = <g_L, g_l> / |g_l|^2

with g_L the gradient at the last site, over all real tokens of the batch. The two shares, that of
the identity and that of the branches, add up to 1. 1 is what branches that are switched off give;
a share near 0 says that the branches make the gradient, a negative one, or one above 1, that they
work against the identity. That "the 1 always gets through" is not true: a branch of -x takes all
of it away, g_l is then zero, and there is no share.

A connection that scales the stream, norms it or replaces it has no such sum; there the share is
refused.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from leadline.anatomy import Stack
from leadline.instruments.cost.work import Size, Workload, moving
from leadline.instruments.passes.probe import PROBES, At, Refused, Result, Single
from leadline.numerics.devices import widest_float
from leadline.numerics.tokens import Tokens
from leadline.record import Quantity

SHARE = Quantity(
    name="gradient.identity_share",
    title="Identity share of the gradient",
    symbol="⟨g_L, g_l⟩ / ‖g_l‖²",
    formula="part of the loss gradient at site l that is the gradient at the last site, come down "
    "the skip connection; over all real tokens of the batch",
    headline="value",
    high="1: the gradient is what the skip connection brings; above 1 the branches work against it.",
    low="0: the branches make the gradient; below 0 they turn it against what came down the skip.",
    meaning="How much of the gradient came straight along the skip connections.",
)


@PROBES.register("identity_share")
class IdentityShareProbe:
    """How much of the gradient at every stream site came down the skip connection."""

    sees = ("gradient",)
    quantities = (SHARE,)

    def __init__(self) -> None:
        self._last: dict[str, torch.Tensor] = {}

    def cost(self, size: Size) -> Workload:
        """Two inner products in float64, each over two copies."""
        return moving(size.numbers, times=12 * size.all_sites, double=True)

    def gradient(self, at: At, g: Tokens) -> Iterator[Result]:
        why = _no_identity(at.stack)
        if why:
            yield Refused((SHARE,), why)
            return
        # Gradients come last site first: that of the last is kept until the first is reached.
        if at.site.layer == at.stack.depth and at.site.sublayer is None:
            self._last[at.stack.name] = g.x.detach().clone()
        last = self._last.get(at.stack.name)
        if last is None or last.shape != g.x.shape:
            yield Refused(
                (SHARE,), "the gradient at the last site did not come, or in another shape"
            )
            return
        here = g.x if g.mask is None else g.x * g.mask.unsqueeze(-1)
        square = _inner(here, here)
        if at.site.layer == 0:
            del self._last[at.stack.name]
        shared = _inner(last, here)
        yield Single(
            SHARE,
            shared / square,
            parts=(shared, square),
            exists=square != 0,
            otherwise="the gradient is zero there, and nothing has no shares",
        )


def _no_identity(stack: Stack) -> str:
    """Why a stack does not keep an identity; empty where it does."""
    for block in stack.blocks:
        if block.opening is not None:
            return f"the stream itself goes through '{block.opening}' in layer {block.layer}"
        for s in block.sublayers:
            if s.law is not None:
                return f"the connection is no sum of stream and update ({s.law.formula})"
            if s.keep != 1.0:
                return f"the connection keeps {s.keep:.4g} times the stream, not the stream itself"
            if s.settle is not None:
                return f"the stream itself is normed after the addition, first by '{s.settle}'"
    return ""


def _inner(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """The inner product over everything, in float64: squares of a gradient of 1e-25 must not be 0."""
    wide = widest_float(first.device)
    return (first.to(wide) * second.to(wide)).sum()
