"""The bound of Dong, Cordonnier and Loukas as published, for L layers in one formula."""

from __future__ import annotations

import math

from leadline.theory._condition import Condition
from leadline.theory.rank_collapse._assumptions import one_head, pure_attention
from leadline.theory.rank_collapse._facts import LayerFacts, StackFacts
from leadline.theory.rank_collapse.bound import COLLAPSE_BOUNDS, CollapseBound, measured_residuals
from leadline.theory.rank_collapse.log import log10, product, tower

__all__ = ["CollapsePublished", "published_factor"]

_SEVERAL = "the published proof adds heads in a measure whose triangle inequality fails"


@COLLAPSE_BOUNDS.register("collapse-published")
class CollapsePublished(CollapseBound):
    """|res X^L| <= (4 gamma beta H lambda / sqrt(d_qk))^{(3^L - 1)/2} |res X|^{3^L}.

    Composite measure, about the mean. beta is the largest |W_QK,h|_1 |W_h|_{1,inf} over layers and
    heads, W_h = W_V,h W_O,h; gamma, lambda, H and the scaling 1/sqrt(d_qk) are the largest too.
    Assumptions: no mask, no skip, no norm, no positions in the logits, softmax rows, a Lipschitz
    constant of the MLPs, and one head.

    Proof: `collapse-proved`, whose constant is smaller, layer by layer; L steps r' <= c r^3 give the
    exponents (3^L - 1)/2 and 3^L: 1, 4, 13, 40 and 3, 9, 27, 81. The published proof multiplies an
    inequality between entries by a matrix with signs, and adds heads in |.|_{1,inf}, whose
    triangle inequality fails; for several heads it is shown and not counted. In the long note the
    exponent with an MLP reads (3L - 1)/2: that is false.
    """

    title = "rank collapse, as published"
    statement = "|res X^L|₁,∞ <= (4 γ β H λ / √d_qk)^((3^L - 1)/2) |res X|₁,∞^(3^L)"
    source = (
        "Dong, Cordonnier, Loukas 2021, arXiv 2103.03404; "
        "Deep Dive into Transformer Architecture, section 3"
    )

    def conditions(self, facts: StackFacts) -> list[Condition]:
        return [*pure_attention(facts), one_head(facts, _SEVERAL)]

    def log10_values(self, facts: StackFacts) -> tuple[float, ...] | None:
        measured = measured_residuals(facts, self.measure)
        factor = published_factor(facts)
        if not measured or factor is None:
            return None
        return tuple(tower(factor, measured[0], at) for at in range(facts.depth + 1))


def published_factor(facts: StackFacts) -> float | None:
    """Return log10 of 4 gamma beta H lambda / sqrt(d_qk); None where a number is missing."""
    layers = [_log10_numbers(layer) for layer in facts.layers]
    if not layers or any(math.isnan(number) for numbers in layers for number in numbers):
        return None
    return product(math.log10(4.0), *(max(column) for column in zip(*layers, strict=True)))


def _log10_numbers(layer: LayerFacts) -> tuple[float, ...]:
    """Return log10 of gamma, beta, H, lambda and the scaling of a layer; NaN: not known."""
    heads = len(layer.query_key)
    per_head = (layer.gamma, layer.value_output_1, layer.value_output_inf)
    if not heads or any(len(numbers) != heads for numbers in per_head):
        return (math.nan,)
    if layer.lipschitz is None or layer.scaling is None:
        return (math.nan,)
    weights = zip(layer.query_key, layer.value_output_1, layer.value_output_inf, strict=True)
    betas = [product(log10(qk), 0.5 * log10(one), 0.5 * log10(inf)) for qk, one, inf in weights]
    gammas = [log10(gamma) for gamma in layer.gamma]
    if any(math.isnan(number) for number in (*betas, *gammas)):
        return (math.nan,)
    return (
        max(gammas),
        max(betas),
        log10(heads),
        log10(layer.lipschitz),
        log10(abs(layer.scaling)),
    )
