"""Find the weights of each branch when it writes, for the probes that ask for them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from leadline.anatomy import MIXING, Sublayer
from leadline.anatomy.tap.output_projection import BranchProducts
from leadline.instruments.passes.probe import At, Result
from leadline.instruments.passes.probe_plan import Plan
from leadline.numerics.patterns.patterns import Patterns
from leadline.numerics.patterns.token_differences import AttentionHeads
from leadline.record import Site

__all__ = ["Branches"]

Tensor = torch.Tensor


class Branches:
    """Keeps the attention of the block that is running until its write tells what W_O is."""

    def __init__(self, plan: Plan, products: BranchProducts) -> None:
        self._products = products
        self._heads = plan.seeing("heads")
        self._perceptrons = plan.seeing("perceptron")
        self._waiting: dict[Site, list[tuple[Patterns, Tensor | None]]] = {}

    def add_attention(self, site: Site, patterns: Patterns, tokens: Tensor | None) -> None:
        """Keep a proved attention until its write; `tokens` mask the real ones."""
        self._waiting.setdefault(site, []).append((patterns, tokens))

    def end_block(self) -> None:
        """Forget what belonged to the block that has ended."""
        self._waiting.clear()
        self._products.forget()

    def results_of_write(self, at: At, write: Sublayer, u: Tensor, x: Tensor) -> Iterator[Result]:
        """The results of the probes for the branch that wrote u to the stream x."""
        # A gain per feature and a law are no number; what they do is judged as something between.
        gain = write.gain if isinstance(write.gain, (int, float)) else 1.0
        waiting = self._waiting.pop(at.site, [])
        if waiting:
            patterns, tokens = waiting[0]
            output = self._products.output_of(patterns.attention, u, gain=gain)
            heads = AttentionHeads(patterns, tokens, output, calls=len(waiting))
            for probe in self._heads:
                yield from probe.heads(at, heads)
        elif write.role not in MIXING:
            maps = self._products.perceptron_of(u, x, gain=gain)
            for probe in self._perceptrons:
                yield from probe.perceptron(at, maps)
