"""Streams of several lanes (hyper-connections): the size of each, and whether they differ.

Lanes whose cosine is 1 act as one: the extra width carries nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from leadline.instruments.cost.work import Size, Workload, moving
from leadline.instruments.passes.probe import PROBES, At, PerToken, Result
from leadline.numerics.tokens import Tokens
from leadline.record import Quantity

NORM = Quantity(
    name="lane.norm",
    title="Norm of each lane",
    symbol="‖x_l^{(k)}‖",
    formula="Euclidean norm of one lane of a token's stream",
    scale="log",
    high="This lane carries more of the stream than the others.",
    low="This lane carries little.",
    meaning="How large each lane of the stream is.",
    leads=True,
    axes=("lane",),
    requires=("lanes",),
)
COSINE = Quantity(
    name="lane.cosine",
    title="Cosine between lanes",
    symbol="mean cos(x^{(j)}, x^{(k)})",
    formula="mean cosine over all pairs of different lanes of one token",
    high="Towards 1: the lanes hold the same vector and act as one.",
    low="The lanes hold different things.",
    source="Zhu et al. 2024, arXiv 2409.19606",
    meaning="How alike the lanes of the stream are.",
    requires=("lanes",),
)


@PROBES.register("lanes")
class LanesProbe:
    """Norm of every lane and mean cosine between lanes; silent on streams of one lane."""

    sees = ("stream",)
    quantities = (NORM, COSINE)

    def cost(self, size: Size) -> Workload:
        """Norms, units and their sum go over the lanes six times; nothing where there is one."""
        return moving(size.numbers, times=0 if size.lanes == 1 else 6 * size.sites)

    def stream(self, at: At, x: Tokens, start: Tokens) -> Iterator[Result]:
        lanes = at.stack.lanes
        if lanes == 1 or at.site.sublayer is not None:
            return
        split = x.x.unflatten(-1, (lanes, -1))
        norms = torch.linalg.vector_norm(split, dim=-1)
        for lane in range(lanes):
            yield PerToken(NORM, norms[..., lane], replace(at.site, lane=lane + 1))
        units = split / norms.clamp_min(torch.finfo(norms.dtype).tiny).unsqueeze(-1)
        square = torch.linalg.vector_norm(units.sum(-2), dim=-1).square()
        yield PerToken(COSINE, (square - lanes) / (lanes * (lanes - 1)))
