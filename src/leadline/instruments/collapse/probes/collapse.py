"""What bounds on rank collapse are made of: sizes of weights, and how a layer sees differences.

Weights act from the right; W_QK,h = W_Q,h W_K,h' and W_h = W_V,h W_O,h of head h; R is what enters
the projections (the stream, or what a norm made of it) less its mean token; scaling multiplies the
products of queries and keys. At every attention sublayer:

    query_key      |W_QK,h|_1                          value_output   |W_h|_1 and |W_h|_inf
    value_gain     largest singular value of sum_h W_h
    diagonal       largest P_ii, i >= 2, P the matrix of weights
    gamma          of E_h = scaling R W_QK,h R', and of all heads together
    cubic_law      log10 |(scaling / n) sum_h R W_QK,h R' R W_h|_F

At every MLP z -> act(z W_1 + b_1) W_2 + b_2 its lambda = Lip(act) |W_1|_{1,inf} |W_2|_{1,inf}. At every
write, of an update U to a stream X: the cosine of res X and res U, and |<X, U>| / (|X| |U|).

The formulas stand in `leadline.numerics.patterns.token_differences`. W_O and W_2 hold the gain of the write.
Rotary positions, a position bias, a soft cap and norms on queries and keys make the logits another
form than R W_QK R': there gamma and the cubic law are refused. What was not found or has no such
form is named in the coverage.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from leadline.anatomy.tap.output_projection import OutputProjection, Perceptron
from leadline.anatomy.tap.projections import Source
from leadline.instruments.collapse.quantities import (
    ALIGNMENT,
    CUBIC,
    DIAGONAL,
    GAIN,
    GAMMA,
    JOINT,
    LIPSCHITZ,
    OVERLAP,
    QUERY_KEY,
    VALUE_OUTPUT_1,
    VALUE_OUTPUT_INF,
)
from leadline.instruments.collapse.weight_products import column_and_row_sums, product_gain
from leadline.instruments.cost.attention import pattern_work
from leadline.instruments.cost.work import Size, Workload, calling, eigenvalues, moving, product
from leadline.instruments.passes.attention_facts import positions_of
from leadline.instruments.passes.probe import PROBES, At, PerHead, Refused, Result, Single
from leadline.numerics.patterns.patterns import LONG, Patterns
from leadline.numerics.patterns.token_differences import (
    AttentionHeads,
    cubic_law,
    diagonals,
    gammas,
    residual_cosines,
)
from leadline.numerics.tokens import Tokens
from leadline.record import Quantity
from leadline.theory.rank_collapse.lipschitz import composite_lipschitz, lip

Tensor = torch.Tensor
_OF_HEADS = (
    QUERY_KEY,
    VALUE_OUTPUT_1,
    VALUE_OUTPUT_INF,
    GAIN,
    GAMMA,
    JOINT,
    DIAGONAL,
    CUBIC,
)
_OF_VALUES = (VALUE_OUTPUT_1, VALUE_OUTPUT_INF, GAIN)
_CROSS = "its keys and values are another sequence's"
_SEVERAL = "the sublayer computes its heads in several calls of attention"
_APART = "its queries, keys and values are not all made of the same tensor"
_NOT_FOUND = "which weights its {} come from was not found"
_TOO_FEW = "too few tokens"
_NORMED = "a norm stands on its {}, which are no linear image of the tokens"
_CHANGED = "its {} are changed after their product with the weights"
_POSITIONS = {
    "rotary": "rotary positions turn queries and keys: their products are no bilinear form of tokens",
    "bias": "a position bias is added to the logits: they are no bilinear form of the tokens alone",
    "unknown": "how its logits come from queries and keys was not found",
}
_CAPPED = "a soft cap bends its logits: they are no bilinear form of the tokens"


@dataclass(frozen=True)
class _Weights:
    """[head, width, head width] each, or the sentence that says why not."""

    query: Tensor | str
    key: Tensor | str
    value: Tensor | str


CALLS = 1000
"""Small operations of a layer: sums over heads and examples, one by one."""


@PROBES.register("collapse")
class CollapseProbe:
    """Ingredients of the bounds on rank collapse: weights of heads and MLPs, gamma, alignment."""

    sees = ("update", "heads", "perceptron")
    quantities = (*_OF_HEADS, LIPSCHITZ, ALIGNMENT, OVERLAP)

    def cost(self, size: Size) -> Workload:
        """Patterns, products of the weights of each head, and two forms of the differences a layer."""
        width, inner = size.width, size.head_width
        weights = product(width, inner, width, count=size.heads, times=4 * size.attentions)
        gain = eigenvalues(width, times=size.attentions, double=True)
        forms = product(
            size.tokens, width, size.keys, count=size.heads * size.examples,
            times=2 * size.attentions, double=True,
        )  # fmt: skip
        writes = moving(size.numbers, times=10 * size.depth * size.writes)
        return pattern_work(size) + calling(CALLS * size.depth) + weights + gain + forms + writes

    def heads(self, at: At, heads: AttentionHeads) -> Iterator[Result]:
        if at.site.point == "cross-attention":
            yield Refused(_OF_HEADS, _CROSS)
            return
        if heads.calls > 1:
            yield Refused(_OF_HEADS, _SEVERAL)
            return
        patterns = heads.patterns
        weights = _weights(patterns)
        yield from _diagonal(patterns)
        yield from _query_key(at, weights)
        yield from _value_output(at, weights, heads.output)
        yield from _bilinear(heads, weights)

    def perceptron(self, at: At, maps: Perceptron | str) -> Iterator[Result]:
        if isinstance(maps, str):
            yield Refused((LIPSCHITZ,), maps)
            return
        steepest = max(maps.activations, key=lip)
        sizes = [
            float(matrix.abs().sum(axis).amax())
            for matrix in (maps.up, maps.down)
            for axis in (0, 1)
        ]
        value = composite_lipschitz(steepest, *sizes)
        yield Single(LIPSCHITZ, torch.tensor(value, dtype=torch.float64))

    def update(self, at: At, u: Tokens, x: Tokens) -> Iterator[Result]:
        aligned, overlapping = residual_cosines(x, u)
        if aligned.numel():
            yield Single(ALIGNMENT, aligned.amin(), "min")
        if overlapping.numel():
            yield Single(OVERLAP, overlapping.amax(), "max")


def _diagonal(patterns: Patterns) -> Iterator[Result]:
    largest = diagonals(patterns)
    if largest is not None:
        yield PerHead(DIAGONAL, largest)
        return
    most = max(patterns.size(example)[1] for example in range(patterns.examples))
    if most >= LONG:
        yield Refused(
            (DIAGONAL,), f"it needs the whole matrix, and none is formed from {LONG:,} keys on"
        )


def _query_key(at: At, weights: _Weights) -> Iterator[Result]:
    for side in (weights.query, weights.key):
        if isinstance(side, str):
            yield Refused((QUERY_KEY,), side)
            return
    assert isinstance(weights.query, Tensor) and isinstance(weights.key, Tensor)
    columns, _ = column_and_row_sums(weights.query, weights.key.mT)
    yield from _by_head(at, QUERY_KEY, columns)


def _value_output(at: At, weights: _Weights, output: OutputProjection | str) -> Iterator[Result]:
    for side in (weights.value, output):
        if isinstance(side, str):
            yield Refused(_OF_VALUES, side)
            return
    assert isinstance(weights.value, Tensor) and isinstance(output, OutputProjection)
    columns, rows = column_and_row_sums(weights.value, output.weight)
    yield from _by_head(at, VALUE_OUTPUT_1, columns)
    yield from _by_head(at, VALUE_OUTPUT_INF, rows)
    joined = weights.value.transpose(0, 1).flatten(1)
    yield Single(GAIN, product_gain(joined, output.weight.flatten(0, 1)))


def _bilinear(heads: AttentionHeads, weights: _Weights) -> Iterator[Result]:
    """gamma and the cubic law: where the logits are a form R W_QK R' of what enters."""
    patterns = heads.patterns
    if not _several_tokens(patterns):
        return
    why = _not_bilinear(patterns, weights)
    if why is not None:
        yield Refused((GAMMA, JOINT, CUBIC), why)
        return
    unevenness = gammas(heads)
    yield PerHead(GAMMA, unevenness.each)
    yield Single(JOINT, unevenness.joint.amax(), "max")
    for side in (weights.value, heads.output):
        if isinstance(side, str):
            yield Refused((CUBIC,), side)
            return
    scores = patterns.scores
    assert scores is not None
    largest = max(cubic_law(heads, scaling=scores.scaling))
    if largest == -math.inf:
        yield Refused((CUBIC,), "its queries, keys or values are the same at all tokens")
        return
    yield Single(CUBIC, torch.tensor(largest, dtype=torch.float64), "max")


def _not_bilinear(patterns: Patterns, weights: _Weights) -> str | None:
    for side in (weights.query, weights.key):
        if isinstance(side, str):
            return side
    if patterns.attention.soft_cap is not None:
        return _CAPPED
    return _POSITIONS.get(positions_of(patterns))


def _several_tokens(patterns: Patterns) -> bool:
    """Whether any example has more than one token."""
    return any(patterns.size(example)[0] > 1 for example in range(patterns.examples))


def _weights(patterns: Patterns) -> _Weights:
    attention = patterns.attention
    # A single token does not show which weights it was multiplied by.
    lost = _NOT_FOUND if _several_tokens(patterns) else _TOO_FEW
    query, key, value = (
        lost.format(name) if source is None else _weight(source, patterns.heads, name)
        for source, name in (
            (attention.query_source, "queries"),
            (attention.key_source, "keys"),
            (attention.value_source, "values"),
        )
    )
    if attention.value_source is not None and attention.value_source.turned:
        value = _CHANGED.format("values")
    if not _together(attention.query_source, attention.key_source) and isinstance(query, Tensor):
        key = key if isinstance(key, str) else _APART
    if not _together(attention.query_source, attention.value_source) and isinstance(query, Tensor):
        value = value if isinstance(value, str) else _APART
    return _Weights(query, key, value)


def _weight(source: Source, heads: int, name: str) -> Tensor | str:
    """[head, width, head width]; keys and values of a group once for every head."""
    if source.weight is None:
        return _NORMED.format(name)
    weight = source.weight
    if len(weight) != heads:
        weight = weight.repeat_interleave(heads // len(weight), 0)
    return weight.mT


def _together(first: Source | None, second: Source | None) -> bool:
    """Whether both are products of the same tensor."""
    one = None if first is None else first.entered
    two = None if second is None else second.entered
    if one is None or two is None:
        return False
    if one.data_ptr() == two.data_ptr() and one.shape == two.shape:
        return True
    return one.numel() == two.numel() and torch.equal(one.reshape(two.shape), two)


def _by_head(at: At, quantity: Quantity, values: Tensor) -> Iterator[Result]:
    for head, value in enumerate(values, start=1):
        yield Single(quantity, value, site=replace(at.site, head=head))
