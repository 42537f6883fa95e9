"""In how many directions tokens differ: stable rank and entropy rank of the centred tokens.

With C the tokens of one example minus their mean and p_k = s_k(C)^2 / |C|_F^2:
stable rank 1 / max_k p_k = |C|_F^2 / |C|_2^2 (Rudelson and Vershynin 2007), entropy rank
exp(-sum_k p_k log p_k) (the form of Roy and Vetterli 2007 on squared singular values, which are
accurate in float32). Measured at block boundaries. The first token is left out: one massive
token makes every rank 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from leadline.instruments.cost.work import Size, Workload, eigenvalues, product
from leadline.instruments.passes.probe import PROBES, At, Result, Single
from leadline.numerics.tokens import Tokens, ranks
from leadline.record import Quantity

STABLE = Quantity(
    name="tokens.stable_rank",
    title="Stable rank of the tokens",
    symbol="‖C‖_F² / ‖C‖₂²",
    formula="of the centred tokens of one example, without the first",
    high="Tokens differ in many directions.",
    low="Towards 1: tokens differ along one direction only.",
    headline="mean_without_first",
    source="Rudelson and Vershynin 2007",
    meaning="How many directions the tokens use, counted by their largest one.",
)
ENTROPY = Quantity(
    name="tokens.entropy_rank",
    title="Entropy rank of the tokens",
    symbol="exp H(s_k² / Σ s²)",
    formula="exponential of the entropy of the squared singular values of the centred tokens of "
    "one example, without the first",
    high="The differences between tokens are spread evenly over many directions.",
    low="Towards 1: tokens differ along one direction only.",
    headline="mean_without_first",
    source="after Roy and Vetterli 2007, EUSIPCO",
    meaning="How many directions the tokens use, counted by their shares.",
)


@PROBES.register("rank")
class RankProbe:
    """Stable and entropy rank of the centred tokens at block boundaries."""

    sees = ("stream",)
    quantities = (STABLE, ENTROPY)

    def cost(self, size: Size) -> Workload:
        """The Gram matrix of the smaller side, and its eigenvalues."""
        short, long = sorted((max(size.tokens - 1, 1), size.width))
        gram = product(short, long, short, count=size.examples, times=size.sites)
        return gram + eigenvalues(short, count=size.examples, times=size.sites)

    def stream(self, at: At, x: Tokens, start: Tokens) -> Iterator[Result]:
        if at.site.sublayer is not None or x.length < 3:
            return
        pairs = [ranks(gram) for gram in x.gram()]
        if not pairs:
            return
        stable = torch.cat([stable for stable, _ in pairs])
        entropy = torch.cat([entropy for _, entropy in pairs])
        yield Single.mean(STABLE, stable, "mean_without_first")
        yield Single.mean(ENTROPY, entropy, "mean_without_first")
