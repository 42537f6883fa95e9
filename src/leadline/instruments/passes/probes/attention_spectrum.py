"""All singular values of the attention matrices, by their rank.

A full decomposition of every matrix: slow for long inputs, so it has to be asked for. `ranks`
says how many of the largest are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from leadline.errors import ProbeError, check_count
from leadline.instruments.cost.attention import formed_work
from leadline.instruments.cost.work import Size, Workload, eigenvalues
from leadline.instruments.passes.probe import PROBES, At, Result, Single
from leadline.numerics.patterns.patterns import LONG, Patterns
from leadline.numerics.spectra.spectrum import singular_values
from leadline.record import Quantity

SPECTRUM = Quantity(
    name="attention.singular_values",
    title="Singular values of the attention matrices",
    symbol="σ_k(A)",
    formula="mean over heads and examples, rank by rank; without a rank, the mean of all",
    lives_on="sublayer",
    scale="log",
    high="The matrices pass on differences between tokens in many directions.",
    low="Few directions survive.",
    meaning="How attention treats differences between tokens, direction by direction.",
    axes=(
        "rank",
        "head",
    ),
    requires=(
        "attention",
        "all heads",
        "matrix",
    ),
)


@PROBES.register("attention_spectrum")
class AttentionSpectrumProbe:
    """The whole spectrum of every attention matrix, averaged over heads, rank by rank."""

    sees = ("attention",)
    later = True
    quantities = (SPECTRUM,)

    def __init__(self, ranks: int = 16) -> None:
        name = "The option ranks of the probe attention_spectrum"
        self.ranks = check_count(ranks, name, error=ProbeError)

    def cost(self, size: Size) -> Workload:
        """The matrices are formed, and all their singular values found in float64: 16/3 of the cube."""
        every = eigenvalues(
            size.keys, count=size.examples * size.heads, times=4 * size.attentions, double=True
        )
        return formed_work(size) + every

    def attention(self, at: At, patterns: Patterns) -> Iterator[Result]:
        if max(patterns.size(example)[1] for example in range(patterns.examples)) >= LONG:
            return
        singular = [singular_values(matrices) for _, matrices in patterns.matrices()]
        every = torch.cat([values.flatten() for values in singular])
        yield Single.mean(SPECTRUM, every, "mean")
        for rank in range(min(self.ranks, max(values.shape[-1] for values in singular))):
            here = [values[..., rank] for values in singular if values.shape[-1] > rank]
            site = replace(at.site, rank=rank + 1)
            yield Single.mean(SPECTRUM, torch.cat(here), "mean", site)
