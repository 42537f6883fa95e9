"""What attention does over many layers: the norm of the product of its matrices.

    P_l = Ā_l ... Ā_1,    Ā_k = the mean of the matrices of the heads of layer k

A product of matrices with rows that sum to one has rows that sum to one, so ‖P_l‖ is at most the
square root of the number of tokens at any depth, while the product of the norms ‖Ā_k‖ may grow
without end. Forms one matrix per example and keeps it from layer to layer: up to 4,096 tokens.
Layers of another shape, and attention to another stack's tokens, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from leadline.instruments.cost.attention import formed_work, leading_work
from leadline.instruments.cost.work import Size, Workload, moving, product
from leadline.instruments.passes.probe import PROBES, At, Result, Single
from leadline.numerics.patterns.patterns import LONG, Patterns
from leadline.numerics.spectra.spectrum import spectral_norm
from leadline.record import Quantity

PRODUCT = Quantity(
    name="attention.product_norm",
    title="Norm of the product of attention matrices",
    symbol="‖Ā_l … Ā_1‖₂",
    formula="spectral norm of the product of the head-mean attention matrices of layers 1 to l",
    lives_on="sublayer",
    high="At most the square root of the number of tokens, at any depth.",
    low="1 is the least.",
    meaning="How much the attention of all layers so far can amplify.",
    beside="attention.product_of_norms",
    requires=(
        "attention",
        "all layers",
        "matrix",
    ),
)
NORMS = Quantity(
    name="attention.product_of_norms",
    title="Product of the norms of attention matrices",
    symbol="‖Ā_l‖₂ … ‖Ā_1‖₂",
    formula="product of the spectral norms of the head-mean attention matrices of layers 1 to l",
    lives_on="sublayer",
    scale="log",
    high="What multiplying bounds layer by layer would predict; the product's norm stays below.",
    low="1 is the least.",
    meaning="What a bound layer by layer allows that product to be.",
    requires=(
        "attention",
        "all layers",
        "matrix",
    ),
)


@PROBES.register("attention_product")
class AttentionProductProbe:
    """Norm of the product of the head-mean attention matrices up to every layer."""

    sees = ("attention",)
    quantities = (PRODUCT, NORMS)

    def __init__(self) -> None:
        self._products: dict[tuple[str, int], torch.Tensor] = {}
        self._norms: dict[tuple[str, int], torch.Tensor] = {}

    def cost(self, size: Size) -> Workload:
        """The matrices are formed and averaged; one product in float64 and two norms a layer."""
        once = product(
            size.tokens,
            size.keys,
            size.keys,
            count=size.examples,
            times=size.attentions,
            double=True,
        )
        # Matrix by matrix: two norms in each example.
        norms = 2 * size.examples * leading_work(replace(size, heads=1, examples=1))
        return formed_work(size) + moving(size.grid, times=3 * size.attentions) + once + norms

    def attention(self, at: At, patterns: Patterns) -> Iterator[Result]:
        if at.site.point != "attention":
            return
        products: list[torch.Tensor] = []
        norms: list[torch.Tensor] = []
        for example, matrices in _square(patterns):
            mean = matrices.mean(0).double()
            key = (at.stack.name, example)
            before = self._products.get(key)
            if before is not None and before.shape != mean.shape:
                continue
            product = mean if before is None else mean @ before
            norm = spectral_norm(mean).value * self._norms.get(key, 1.0)
            self._products[key], self._norms[key] = product, norm
            products.append(spectral_norm(product).value)
            norms.append(norm)
        if products:
            yield Single.mean(PRODUCT, torch.stack(products), "mean")
            yield Single(PRODUCT, torch.stack(products).amax(), "max", join="largest")
            yield Single.mean(NORMS, torch.stack(norms), "mean")


def _square(patterns: Patterns) -> Iterator[tuple[int, torch.Tensor]]:
    if max(patterns.size(example)[1] for example in range(patterns.examples)) >= LONG:
        return
    for example, matrices in patterns.matrices():
        if matrices.shape[1] == matrices.shape[2]:
            yield example, matrices
