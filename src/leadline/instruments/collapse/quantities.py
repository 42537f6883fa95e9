"""What is read about collapsing tokens, by the probe `collapse` and by `leadline.collapse`.

Residuals that are followed without cancellation leave the range of float64, so beside the residual
itself, a number with an exact exponent, stands its logarithm: charts and comparisons are of that.
"""

from __future__ import annotations

from leadline.record import Quantity
from leadline.record.rows.quantity import LivesOn

__all__ = [
    "ALIGNMENT",
    "CUBIC",
    "DIAGONAL",
    "ERROR",
    "GAIN",
    "GAMMA",
    "JOINT",
    "LIPSCHITZ",
    "LOG_COMPOSITE",
    "LOG_NORM",
    "LOG_RELATIVE",
    "LOG_RESIDUAL",
    "LOG_SMALLEST",
    "OVERLAP",
    "QUERY_KEY",
    "SCALING",
    "VALUE_OUTPUT_1",
    "VALUE_OUTPUT_INF",
]

_SOURCE = "Dong, Cordonnier, Loukas 2021, arXiv 2103.03404"


def _ingredient(
    name: str,
    title: str,
    symbol: str,
    formula: str,
    *,
    lives_on: LivesOn = "sublayer",
    headline: str = "value",
    unit: str = "",
) -> Quantity:
    return Quantity(
        name=f"collapse.{name}",
        title=title,
        symbol=symbol,
        formula=formula,
        unit=unit,
        lives_on=lives_on,
        headline=headline,
        high="Bounds on the residual of the tokens are wider.",
        low="Bounds on the residual of the tokens are narrower.",
        meaning="Serves bounds on the residual of the tokens.",
        ingredient_of="rank_collapse",
        source=_SOURCE,
    )


QUERY_KEY = _ingredient(
    "query_key",
    "Size of the query-key form",
    "‖W_QK,h‖₁",
    "largest column sum of |W_Q W_K'| of a head; what multiplies queries or keys before their "
    "product is in it, the scaling of the product is not",
)
VALUE_OUTPUT_1 = _ingredient(
    "value_output_1",
    "Largest column sum of value and output",
    "‖W_h‖₁",
    "largest column sum of |W_V W_O| of a head, times the gain of the write",
)
VALUE_OUTPUT_INF = _ingredient(
    "value_output_inf",
    "Largest row sum of value and output",
    "‖W_h‖_∞",
    "largest row sum of |W_V W_O| of a head, times the gain of the write",
)
GAIN = _ingredient(
    "value_gain",
    "Gain of values and output",
    "σ_max(Σ_h W_h)",
    "largest singular value of the sum over the heads of W_V W_O, times the gain of the write",
)
LIPSCHITZ = _ingredient(
    "lipschitz",
    "Lipschitz constant of the MLP",
    "λ",
    "Lip(act) times the composite measures sqrt(largest column sum times largest row sum) of W_1 "
    "and W_2, times the gain of the write",
)
GAMMA = Quantity(
    name="collapse.gamma",
    title="Unevenness of the query-key form",
    symbol="γ_h",
    formula="sqrt(Σ_i osc_i max_i osc_i) / (2 ‖E‖₁), osc_i the range of row i of E, E = scaling "
    "times the products of the queries and keys of a head less their means over the tokens",
    lives_on="sublayer",
    headline="max",
    high="At most the square root of the number of tokens: a few rows of the logits hold the range.",
    low="The range is spread over the rows; 0 where all tokens are equal.",
    source=_SOURCE + ", second version",
    meaning="How unevenly the logits of a head are spread over its queries.",
    axes=("head",),
    requires=("attention",),
    leads=True,
)
JOINT = Quantity(
    name="collapse.joint_gamma",
    title="Unevenness of the query-key forms of all heads",
    symbol="γ",
    formula="sqrt(Σ_h Σ_i osc_hi Σ_h max_i osc_hi) / (2 Σ_h ‖E_h‖₁), γ_h where there is one "
    "head; the largest of any example",
    lives_on="sublayer",
    headline="max",
    high="At most the square root of the number of tokens.",
    low="The range is spread over the rows; 0 where all tokens are equal.",
    meaning="How unevenly the logits of all heads are spread over the queries.",
    requires=("attention",),
)
DIAGONAL = Quantity(
    name="collapse.diagonal",
    title="Largest weight of a token on itself",
    symbol="max_{i≥2} P_ii",
    formula="largest weight of any token but the first on itself, of a head",
    lives_on="sublayer",
    headline="max",
    high="Towards 1: some token keeps its own value; under a causal mask differences decay slowly.",
    low="Every token takes most from others; under a causal mask differences decay fast.",
    meaning="How much any token keeps of itself in attention.",
    axes=("head",),
    requires=("attention",),
)
CUBIC = Quantity(
    name="collapse.cubic_law",
    title="What the cubic law leaves of the differences",
    symbol="log₁₀ ‖(s/n) Σ_h R W_QK,h R′ R W_h‖_F",
    formula="log10 of the Frobenius norm, R what enters the projections less its mean token (the "
    "stream, or what a norm made of it), s the scaling, n tokens; the largest of any example",
    unit="log10",
    lives_on="sublayer",
    headline="max",
    high="The branch passes large differences on.",
    low="Where differences are small and nothing is hidden, the residual of what the branch writes.",
    meaning="What attention leaves of small differences between tokens.",
    requires=("attention",),
)
ALIGNMENT = Quantity(
    name="collapse.alignment",
    title="Alignment of update and stream, without their means",
    symbol="cos(res X, res U)",
    formula="inner product of all entries of stream and update, each less its mean token, over "
    "both norms; the smallest of any example",
    lives_on="sublayer",
    headline="min",
    high="From 0 on: the write cannot shorten the residual of the stream.",
    low="Below 0: the write takes differences between tokens away.",
    meaning="Whether a write adds to the differences between tokens or takes from them.",
    requires=("attention",),
)
OVERLAP = Quantity(
    name="collapse.overlap",
    title="Overlap of update and stream",
    symbol="|⟨X, U⟩| / (‖X‖_F ‖U‖_F)",
    formula="absolute inner product of all entries of stream and update over both norms; the "
    "largest of any example",
    lives_on="sublayer",
    headline="max",
    high="The write is no new direction.",
    low="Near 0: the write is orthogonal to the stream as a whole, which says nothing of residuals.",
    meaning="How far a write repeats what the stream holds.",
    requires=("attention",),
)
SCALING = _ingredient(
    "scaling",
    "Scaling of the logits",
    "s",
    "what the products of queries and keys are multiplied by",
)
LOG_COMPOSITE = _ingredient(
    "log10_composite_residual",
    "Logarithm of the composite token residual",
    "log₁₀ ‖X − 1m′‖_{1,∞}",
    "log10 of the square root of largest column sum times largest row sum of the absolute tokens "
    "minus their mean; the largest of any example",
    lives_on="stream",
    headline="max",
    unit="log10",
)
LOG_SMALLEST = _ingredient(
    "log10_smallest_composite_residual",
    "Logarithm of the smallest composite token residual",
    "log₁₀ min_x ‖X − 1x′‖_{1,∞}",
    "log10 of the least composite measure of the tokens minus one common vector, as far as it was "
    "found; the largest of any example",
    lives_on="stream",
    headline="max",
    unit="log10",
)
LOG_RESIDUAL = Quantity(
    name="collapse.log10_residual",
    title="Logarithm of the token residual",
    symbol="log₁₀ ‖X − 1m′‖_F",
    formula="log10 of the Frobenius norm of the tokens of one example minus their mean, followed "
    "without cancellation; the mean over the examples",
    unit="log10",
    high="Tokens differ.",
    low="Tokens have become equal: rank collapse. Three times as low after each layer: cubically.",
    source=_SOURCE,
    meaning="How far the tokens of a text are from their mean, at any depth.",
    axes=("example",),
)
LOG_RELATIVE = Quantity(
    name="collapse.log10_relative_residual",
    title="Logarithm of the relative token residual",
    symbol="log₁₀ (‖X − 1m′‖_F / ‖X‖_F)",
    formula="log10 of the token residual less log10 of the norm of all tokens; the mean over the "
    "examples",
    unit="log10",
    high="Near 0: tokens share no common part.",
    low="Tokens are nearly one vector: rank collapse.",
    source=_SOURCE,
    meaning="How much of the stream is what tells tokens apart, at any depth.",
    axes=("example",),
)
LOG_NORM = Quantity(
    name="collapse.log10_norm",
    title="Logarithm of the norm of all tokens",
    symbol="log₁₀ ‖X‖_F",
    formula="log10 of the Frobenius norm of the tokens of one example; the mean over the examples",
    unit="log10",
    high="The stream is large.",
    low="The stream vanishes.",
    meaning="The size of the stream beside which the residual is judged.",
    axes=("example",),
)
ERROR = Quantity(
    name="collapse.error",
    title="Estimated error of the token residual",
    symbol="δ",
    formula="relative difference of passes that are rounded once more at random in the last digit "
    "after every operation; the largest of any example",
    scale="log",
    headline="max",
    high="Above 1 only the logarithm of the residual means something.",
    low="The residual is known to this share of itself.",
    meaning="How well the residual is known.",
    axes=("example",),
)
