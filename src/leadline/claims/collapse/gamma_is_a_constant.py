"""gamma, which the note calls a constant that measures the error of the softmax.

Read as: some number that does not grow with the number of tokens will do; the first version of the
theorem has 1 in its place. It is refuted by a family of networks, whose need passes 1 and any other
number. n one-hot tokens, W_QK = T on the features of half of them (the set S), a query bias that
raises the logit of token 0 by c, and values that look at feature 0 alone. The logits are T for a token
of S with itself, c with token 0, else 0: tokens of S turn from token 0 to themselves and the others do
not, so that r' is about sqrt(n)/2 while beta r^3 / sqrt(d) is about 8 T with T = log n + 6: the gamma
that is needed grows like
sqrt(n) / log n. For a hundred million tokens the row sums are taken in closed form, which is set
beside the followed network for few tokens. The gamma of `theory` is at most sqrt(n)/2 and suffices; two
tokens +a and -a attain it: E = a^2 (1, -1; -1, 1) has ranges 2 a^2 and |E|_1 = 2 a^2.
"""

from __future__ import annotations

import math

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

MANY, FEWER, FEW = 10**8, 10**6, 40
SIZES = (10, 100, 1000, 10**4, 10**5, 10**6, 10**7, 10**8)


@claim(
    "gamma-is-a-constant",
    group="collapse",
    notes=("deep-dive",),
    title="The γ of the bound is a constant of the softmax",
    formula=r"\exists \gamma \; \forall n: \; \| \mathrm{res}(X') \|_{1,\infty} \le \frac{4 \gamma \beta}{\sqrt{d_{qk}}} \| \mathrm{res}(X) \|_{1,\infty}^3",
    plain="one γ for all n: ‖res(X′)‖₁,∞ ≤ 4γβ/√d_qk ‖res(X)‖₁,∞³",
    says="The factor γ is called a constant that has to do with the logits and measures the error of the "
    "softmax. It is read as a number that does not grow with the number of tokens.",
    correction="No constant will do: the γ that is needed can grow like $\\sqrt{n} / \\log n$ with the "
    "number of tokens $n$. With $\\gamma = \\sqrt{\\sum_i o_i \\max_i o_i} / (2 \\|E\\|_1)$, $o_i$ the range "
    "of row $i$ of the centred logits $E$, the bound holds, and $\\gamma \\le \\sqrt{n}/2$.",
    why="Half of $n$ one-hot tokens look at themselves, the other half at one common token. Row sums of "
    "the result stay below one while column sums grow with $n$, and the measure is the root of their "
    "product. With γ = 1 the bound is broken {needed:.2f} times over at a hundred million tokens, by "
    "closed-form sums. At {few:.0f} tokens the closed form and the followed network agree, and with the "
    "measured γ the residual is {with_gamma:.4f} of the bound.",
    checks=(
        Check(
            "needed",
            "claim",
            "at most",
            1.0,
            label="the γ that 10⁸ tokens need",
            because="1, the constant of the theorem's first version, stands for any: the need grows "
            "past each, see growth.",
        ),
        Check(
            "growth",
            "correction",
            "near",
            1.0,
            within=1e-4,
            label="growth of the needed γ, 10⁶ to 10⁸ tokens, over that of √n/(log n + 6)",
            because="The family needs a multiple of √n/(log n + 6), up to terms of order 1/n = 1e-6.",
        ),
        Check(
            "agreement",
            "correction",
            "at most",
            1e-9,
            label="closed form against the followed network, 40 tokens",
            because="Both compute the same residual; 1e-9 is far above rounding.",
            log=True,
        ),
        Check(
            "with_gamma",
            "correction",
            "at most",
            1.0 + 1e-9,
            label="residual over the bound with the measured γ",
            because="A theorem: no ratio exceeds 1 but by rounding.",
        ),
        Check(
            "largest",
            "correction",
            "at most",
            1.0 + 1e-9,
            label="measured γ over √n/2",
            because="A theorem: rows of centred logits have ranges of at most |E|₁.",
        ),
        Check(
            "attained",
            "correction",
            "near",
            1.0,
            within=1e-9,
            label="γ of two tokens +a, -a over √n/2",
            because="Their γ is √2/2 exactly; 1e-9 is far above rounding.",
        ),
    ),
    seconds=0.06,
    seeded=False,
)
def measure(seed: int) -> Measured:
    """The family in closed form, and its small member as a network."""
    import numpy as np

    from leadline.claims.collapse._stacks import two_tokens
    from leadline.instruments.collapse.measure import collapse_weights
    from leadline.theory.rank_collapse import COLLAPSE_BOUNDS
    from leadline.theory.rank_collapse.cubic import largest_gamma

    own, common = _chosen(FEW)
    root = math.sqrt(FEW)
    marked = np.diag((np.arange(FEW) % 2).astype(float))
    first = np.zeros((FEW, FEW))
    first[0, 0] = 1.0
    layer = {
        "W_Q": root * own * marked,
        "W_K": np.eye(FEW),
        "W_V": first,
        "W_O": np.eye(FEW),
        "b_Q": root * common * first[0],
    }
    facts = collapse_weights(np.eye(FEW), [layer], facts=True).facts
    pair = two_tokens(1.0, query_key=1.0, value=1.0, depth=1).facts
    assert facts is not None and pair is not None
    values = COLLAPSE_BOUNDS.get("collapse-published")().log10_values(facts)
    assert values is not None
    small, _ = _closed(FEW)
    sizes = tuple(float(n) for n in SIZES)
    needed = tuple(_needed(n) for n in SIZES)
    return Measured(
        {
            "few": float(FEW),
            "needed": _needed(MANY),
            "growth": _needed(MANY) / _needed(FEWER) / (_scale(MANY) / _scale(FEWER)),
            "agreement": abs(10.0 ** facts.log10_composite[-1] / small - 1.0),
            "with_gamma": 10.0 ** (facts.log10_composite[-1] - values[-1]),
            "largest": facts.layers[0].gamma[0] / 10.0 ** largest_gamma(FEW),
            "attained": pair.layers[0].gamma[0] / 10.0 ** largest_gamma(2),
        },
        Picture(
            "tokens",
            "γ that is needed",
            {"this family": (sizes, needed), "a constant": (sizes, (1.0,) * len(sizes))},
            x_log=True,
            y_log=True,
            faint=("a constant",),
        ),
    )


def _chosen(tokens: int) -> tuple[float, float]:
    """The logit of a token of S with itself, and that of everybody with token 0."""
    return math.log(tokens) + 6.0, math.log(tokens) + 3.0


def _scale(tokens: int) -> float:
    """sqrt(n) / (log n + 6)."""
    return math.sqrt(tokens) / (math.log(tokens) + 6.0)


def _needed(tokens: int) -> float:
    """r' over 4 beta r^3 / sqrt(d), with beta / sqrt(d) = T."""
    after, before = _closed(tokens)
    return after / (4.0 * _chosen(tokens)[0] * before**3)


def _closed(tokens: int) -> tuple[float, float]:
    """The composite residuals after and before the layer; half of the tokens are in S."""
    own, common = _chosen(tokens)
    half = tokens // 2
    apart = _to_first(tokens, own, common, True) - _to_first(tokens, own, common, False)
    share = half / tokens
    row = max(share, 1.0 - share) * abs(apart)
    column = 2.0 * half * (1.0 - share) * abs(apart)
    return math.sqrt(row * column), 2.0 * (1.0 - 1.0 / tokens)


def _to_first(tokens: int, own: float, common: float, marked: bool) -> float:
    """The weight that a token gives to token 0, which is not in S."""
    itself = math.exp(own - common) if marked else 0.0
    return 1.0 / (1.0 + itself + (tokens - 1 - marked) * math.exp(-common))
