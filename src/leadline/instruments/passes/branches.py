"""The weights of a branch, found when it has written: for the probes that ask for them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from leadline.anatomy import MIXING, Sublayer
from leadline.anatomy.tap.output_projection import BranchProducts
from leadline.instruments.passes.plan import Plan
from leadline.instruments.passes.probe import At, Result
from leadline.numerics.patterns.patterns import Patterns
from leadline.numerics.patterns.token_differences import AttentionHeads
from leadline.record import Site

__all__ = ["Branches"]

Tensor = torch.Tensor


class Branches:
    """Keeps the attention of the block that is running until its write tells what W_O is."""

    def __init__(self, plan: Plan, products: BranchProducts) -> None:
        self._products = products
        self._heads = plan.having("heads")
        self._perceptrons = plan.having("perceptron")
        self._waiting: dict[Site, list[tuple[Patterns, Tensor | None]]] = {}

    def attended(self, site: Site, patterns: Patterns, tokens: Tensor | None) -> None:
        """An attention was seen and proved; `tokens` are the real ones."""
        self._waiting.setdefault(site, []).append((patterns, tokens))

    def left(self) -> None:
        """The block has ended."""
        self._waiting.clear()
        self._products.forget()

    def written(self, at: At, written: Sublayer, u: Tensor, x: Tensor) -> Iterator[Result]:
        """What the probes say of the branch that wrote u to the stream x."""
        # A gain per feature and a law are no number; what they do is judged as something between.
        gain = written.gain if isinstance(written.gain, (int, float)) else 1.0
        seen = self._waiting.pop(at.site, [])
        if seen:
            patterns, tokens = seen[0]
            output = self._products.output_of(patterns.attention, u, gain=gain)
            heads = AttentionHeads(patterns, tokens, output, calls=len(seen))
            for probe in self._heads:
                yield from probe.heads(at, heads)
        elif written.role not in MIXING:
            maps = self._products.perceptron_of(u, x, gain=gain)
            for probe in self._perceptrons:
                yield from probe.perceptron(at, maps)
