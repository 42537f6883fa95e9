"""Attention matrices: how much they amplify, how they mix, and what bounds on them are made of.

Of every head, with A its matrix of weights (rows are queries): the largest and the second largest
singular value, the largest column sum, entropy, spread and span of the logits, the share of the
first key, the mean distance, and how far the heads of a layer differ. The formulas stand in
`leadline.numerics.patterns.patterns`. The largest singular value comes with a certified interval.

The ingredients of the bounds are measured too, so that `leadline bounds` needs neither the model
nor torch: gain and shift of the norm before the projections, largest singular values of W_Q and
W_K of every head and the norms of their biases, the radii of a QK-norm, scaling, soft cap, range
of a position bias.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from leadline.anatomy.tap.projections import Source
from leadline.instruments.cost.attention import leading_work, pattern_memory, pattern_work
from leadline.instruments.cost.work import Size, Workload
from leadline.instruments.passes.probe import PROBES, At, Later, PerHead, Result, Single
from leadline.numerics.patterns.patterns import Patterns
from leadline.record import Quantity

Tensor = torch.Tensor
ROUNDED_UP = 1e-12

NORM = Quantity(
    name="attention.spectral_norm",
    title="Spectral norm of the attention matrices",
    symbol="‖A‖₂",
    formula="largest singular value of the matrix of attention weights of a head",
    lives_on="sublayer",
    high="Some direction over the tokens is amplified: many queries look at the same key.",
    low="1 is the least for weights that sum to one: every key is looked at equally much.",
    meaning="How much attention can amplify any direction over the tokens.",
    leads=True,
    axes=("head",),
    requires=("attention",),
)
SECOND = Quantity(
    name="attention.second_singular_value",
    title="Mixing rate: second singular value of the attention matrices",
    symbol="σ₂(A)",
    formula="second largest singular value of the matrix of attention weights of a head; interval: "
    "the lower end is proved, the upper end is an estimate by four residuals beyond 64 tokens",
    lives_on="sublayer",
    high="Differences between tokens survive the head.",
    low="Towards 0: all tokens get the same mixture, the head is of rank one.",
    meaning="How much of the differences between tokens attention lets through.",
    axes=("head",),
    requires=("attention",),
)
COLUMN_SUM = Quantity(
    name="attention.column_sum",
    title="Largest column sum of the attention matrices",
    symbol="c_max",
    formula="max_j sum_i A_ij: the weight that the most looked-at key gets from all queries",
    lives_on="sublayer",
    scale="log",
    high="One key gathers the weight of many queries.",
    low="1 is the least: the weight is spread evenly over the keys.",
    meaning="How much of all attention one key gathers.",
    axes=("head",),
    requires=("attention",),
)
ENTROPY = Quantity(
    name="attention.entropy",
    title="Entropy of the attention weights",
    symbol="H(A_i)",
    formula="mean over the queries of -sum_j A_ij log A_ij",
    unit="nats",
    lives_on="sublayer",
    high="Weights are spread over many keys.",
    low="Towards 0: every query looks at one key.",
    meaning="Over how many keys a query spreads its attention.",
    axes=("head",),
    requires=("attention",),
)
LOGIT_STD = Quantity(
    name="attention.logit_std",
    title="Spread of the attention logits",
    symbol="std_j l_ij",
    formula="root mean square over the queries of the standard deviation over the keys",
    lives_on="sublayer",
    scale="log",
    high="Logits are far apart: the softmax saturates and its gradient fades.",
    low="Towards 0: weights are uniform whatever the tokens are.",
    meaning="How far the logits of a query are spread before the softmax.",
    axes=("head",),
    requires=(
        "attention",
        "logits",
    ),
)
LOGIT_SPAN = Quantity(
    name="attention.logit_span",
    title="Span of the attention logits",
    symbol="max_i (max_j l_ij − min_j l_ij)",
    formula="largest range of the logits of one query over the keys that it may see: all but those "
    "that a mask lowers by 1,000 or more",
    lives_on="sublayer",
    scale="log",
    high="Some weights are smaller than others by e to this power.",
    low="Towards 0: weights are uniform.",
    meaning="How far the largest and the smallest logit of a query are apart.",
    axes=("head",),
    requires=(
        "attention",
        "logits",
    ),
)
SINK_SHARE = Quantity(
    name="attention.sink_share",
    title="Share of the first key",
    symbol="A_i1",
    formula="mean weight on the first key, over all queries but the first",
    lives_on="sublayer",
    high="The first token is an attention sink.",
    low="The first token is no favourite.",
    meaning="How much attention goes to the first token.",
    axes=("head",),
    requires=("attention",),
)
DISTANCE = Quantity(
    name="attention.distance",
    title="Mean attention distance",
    symbol="Σ_j A_ij |i − j|",
    formula="mean over the queries of the distance to the keys, weighted by attention",
    unit="tokens",
    lives_on="sublayer",
    high="Queries look far away.",
    low="Queries look at their neighbours.",
    meaning="How far back queries look.",
    axes=("head",),
    requires=("attention",),
)
DIVERGENCE = Quantity(
    name="attention.head_divergence",
    title="Divergence between the heads",
    symbol="H(mean_h A_i) − mean_h H(A_i)",
    formula="Jensen-Shannon divergence of the heads of a layer, mean over the queries",
    unit="nats",
    lives_on="sublayer",
    high="At most the logarithm of the number of heads: every head looks elsewhere.",
    low="Towards 0: all heads do the same.",
    meaning="How differently the heads of a layer look.",
    requires=(
        "attention",
        "all heads",
    ),
)


def _ingredient(name: str, title: str, symbol: str, formula: str) -> Quantity:
    return Quantity(
        name=f"attention.{name}",
        title=title,
        symbol=symbol,
        formula=formula,
        lives_on="sublayer",
        headline="value",
        high="Bounds on the attention matrices are wider.",
        low="Bounds on the attention matrices are narrower.",
        meaning="Serves bounds on the attention matrices.",
        ingredient_of="attention",
    )


GAIN = _ingredient("norm_gain", "Gain of the norm", "Γ", "largest |weight| of the norm before W_Q")
SHIFT = _ingredient("norm_shift", "Shift of the norm", "‖β‖", "norm of the bias of that norm")
QUERY_WEIGHT = _ingredient(
    "query_weight", "Query weight", "σ_Q", "largest singular value of a head's W_Q"
)
KEY_WEIGHT = _ingredient("key_weight", "Key weight", "σ_K", "largest singular value of W_K")
QUERY_BIAS = _ingredient("query_bias", "Query bias", "‖b_Q‖", "norm of a head's query bias")
KEY_BIAS = _ingredient("key_bias", "Key bias", "‖b_K‖", "norm of a head's key bias")
QUERY_RADIUS = _ingredient(
    "query_radius", "Radius of the queries", "r_Q", "largest norm that the query norm allows"
)
KEY_RADIUS = _ingredient(
    "key_radius", "Radius of the keys", "r_K", "largest norm that the key norm allows"
)
SCALING = _ingredient("scaling", "Scaling", "s", "what multiplies the products of queries and keys")
SOFT_CAP = _ingredient("soft_cap", "Soft cap", "c", "logits are c tanh(logit / c)")
BIAS_RANGE = _ingredient(
    "bias_range",
    "Range of the position bias",
    "range b",
    "largest range over the keys of one query",
)


@PROBES.register("attention")
class AttentionProbe:
    """Spectral norm with its interval, mixing rate, entropy, logits, sinks, distance of every head."""

    sees = ("attention",)
    later = True
    quantities = (
        NORM,
        SECOND,
        COLUMN_SUM,
        ENTROPY,
        LOGIT_STD,
        LOGIT_SPAN,
        SINK_SHARE,
        DISTANCE,
        DIVERGENCE,
        GAIN,
        SHIFT,
        QUERY_WEIGHT,
        KEY_WEIGHT,
        QUERY_BIAS,
        KEY_BIAS,
        QUERY_RADIUS,
        KEY_RADIUS,
        SCALING,
        SOFT_CAP,
        BIAS_RANGE,
    )

    def cost(self, size: Size) -> Workload:
        """Each matrix is formed, weighted, proved, reduced, and its two largest values are found."""
        return pattern_work(size) + leading_work(size)

    def memory(self, size: Size) -> float:
        """Matrices of a few heads at once, and some copies of them."""
        return pattern_memory(size)

    def attention(self, at: At, patterns: Patterns) -> Iterator[Result | Later]:
        yield Later(lambda: self._numbers(patterns))
        yield from _ingredients(at, patterns)
        yield Later(lambda: _scores(patterns))

    def _numbers(self, patterns: Patterns) -> Iterator[Result]:
        m = patterns.measured
        real = [example for example, norm in enumerate(m.norm.value) if patterns.has(example)]
        yield PerHead(NORM, m.norm.value[real], m.norm.lower[real], m.norm.upper[real])
        several = [example for example in real if min(patterns.size(example)) > 1]
        if m.second is not None and several:
            second = m.second
            yield PerHead(
                SECOND, second.value[several], second.lower[several], second.upper[several]
            )
        for quantity, values in (
            (COLUMN_SUM, m.column_sum),
            (ENTROPY, m.entropy),
            (DISTANCE, m.distance),
        ):
            yield PerHead(quantity, values[real])
        # Where weights were changed after the softmax, its logits are not theirs.
        if not m.altered:
            yield PerHead(LOGIT_STD, m.logit_std[real])
            yield PerHead(LOGIT_SPAN, m.logit_span[real])
        longer = [example for example in real if patterns.size(example)[0] > 1]
        if longer:
            yield PerHead(SINK_SHARE, m.sink_share[longer])
        if patterns.heads > 1:
            yield Single.mean(DIVERGENCE, m.divergence[real], "mean")


def _ingredients(at: At, patterns: Patterns) -> Iterator[Result]:
    attention = patterns.attention
    query, key = attention.query_source, attention.key_source
    if query is not None and query.weight is not None and query.norm is not None:
        same = key is not None and key.norm is not None and key.norm.module == query.norm.module
        if same or at.site.point == "cross-attention":
            yield Single(GAIN, query.norm.gain.max(), join="same")
            yield Single(SHIFT, torch.linalg.vector_norm(query.norm.shift), join="same")
    for source, weight, bias, radius in (
        (query, QUERY_WEIGHT, QUERY_BIAS, QUERY_RADIUS),
        (key, KEY_WEIGHT, KEY_BIAS, KEY_RADIUS),
    ):
        if source is None:
            continue
        if source.weight is None:
            yield from _each(at, radius, _radii(source), patterns.heads)
            continue
        yield from _each(at, weight, _largest(source.weight), patterns.heads)
        if source.bias is not None:
            sizes = torch.linalg.vector_norm(source.bias, dim=-1)
            yield from _each(at, bias, sizes, patterns.heads)


def _scores(patterns: Patterns) -> Iterator[Result]:
    scores, soft_cap = patterns.scores, patterns.attention.soft_cap
    if scores is not None:
        yield Single(SCALING, torch.tensor(scores.scaling), join="same")
        yield Single(BIAS_RANGE, torch.tensor(scores.bias_range), join="largest")
    if soft_cap is not None:
        yield Single(SOFT_CAP, torch.tensor(soft_cap), join="same")


def _largest(weights: Tensor) -> Tensor:
    """The largest singular values of [head, head width, width], from the smaller side's Gram matrix.

    In float64 the square root of its largest eigenvalue is right to about 1e-15 times its size; a
    bound may only grow by it, so it is rounded up.
    """
    wide = weights if weights.shape[-2] <= weights.shape[-1] else weights.mT
    squares = torch.linalg.eigvalsh(wide @ wide.mT)[..., -1]
    return squares.clamp_min(0).sqrt() * (1 + ROUNDED_UP)


def _radii(source: Source) -> Tensor:
    """|gain x + shift| <= max|gain| sqrt(width) + |shift| over the features of each head."""
    norm = source.norm
    assert norm is not None
    return torch.stack(
        [
            norm.gain[rows].max() * norm.width**0.5 + torch.linalg.vector_norm(norm.shift[rows])
            for rows in source.features
        ]
    )


def _each(at: At, quantity: Quantity, values: Tensor, heads: int) -> Iterator[Result]:
    """One number per head; grouped keys serve several heads each."""
    for head in range(heads):
        value = values[head * len(values) // heads]
        yield Single(quantity, value, site=replace(at.site, head=head + 1), join="same")
