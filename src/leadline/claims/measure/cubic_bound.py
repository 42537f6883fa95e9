"""The bound on the residual of pure attention: its constants, hypotheses, proof and looseness.

    |res X^L| <= c^((3^L - 1)/2) |res X|^(3^L) = r (c r^2)^((3^L - 1)/2), c = 4 gamma beta H / sqrt(d)

in |.|_{1,inf} of `token_residuals`, for attention alone, without mask and norm, with beta = max
|W_QK,h|_1 |W_V,h W_O,h|_{1,inf}, times the Lipschitz constant lambda where there are MLPs, and
gamma as `theory` defines it from the logits (at most sqrt(n)/2). Networks are drawn at random and
climb on measured over predicted. What can be proved has 2 (1 - 1/n), and sqrt(2) (1 - 1/n), in
place of 4, with sum_h |W_QK,h|_1 and max_h of both norms of W_h (`collapse-proved`). Under a causal
mask the bound fails, since the fall is only exponential. Two tokens +a and -a of width one, which
become w a tanh(tau a^2), are within most hypotheses: gamma = sqrt(2)/2 (E = a^2 (1, -1; -1, 1) has
ranges and 1-norm 2 a^2) and r = sqrt(2) a, so that near tokens reach sqrt(2)/8 of the published
bound.
Source: Dong, Cordonnier, Loukas 2021, arXiv 2103.03404, and the proof of `collapse-proved`.

Size. The exponent 3^L describes what happens, which is the part "claim" of
`bound-tells-the-residual`; the prefactor is loose, and the looseness is raised to (3^L - 1)/2. That
exponent is 1, 4, 13, 40: the prefactor is double exponential, its logarithm triples where an
exponential would add a constant, and where c < 1 it falls.

Convergence. The bound falls where c r^2 < 1. The note concludes from c < 1 alone, elsewhere from
r < 1 alone. Both are read as they stand and refuted by two tokens: tau = 0.3, w = 1.05, a = 4 (c is
0.89) and tau = 10, w = 2, a = 0.5 grow for ever.

Hypotheses. The note writes |W_Q|_1 |W_K|_1 where |W_Q W_K'|_1 <= |W_Q|_1 |W_K|_inf has the other
norm of W_K: for width one and k entries of 1 its product is 1 and |W_QK|_1 is k. With heads it
leaves W_O out of beta: moving a factor from W_V to W_O leaves the network as it is and makes that
beta as small as one likes. H in the factor: the published proof adds heads in |.|_{1,inf}, whose
triangle inequality fails, so it proves less, and the bound's conditions ask for one head; no
violation was found, which is evidence and no proof. H is needed: H equal heads on +a and -a write H
a tanh(a^2).

gamma, called a constant, is read as a number that does not grow with the tokens (the first version
of the theorem has 1 in its place). A family needs more than any: n one-hot tokens, W_QK = T on the
features of half of them (the set S), a query bias that raises the logit of token 0 by b, values
that look at feature 0 alone. Logits are T for a token of S with itself, b with token 0, else 0:
tokens of S turn from token 0 to themselves and the others do not, r' is near sqrt(n)/2 while beta
r^3 / sqrt(d) is near 8 T with T = log n + 6, and the gamma that is needed grows like sqrt(n) / log
n. For many tokens the row sums are taken in closed form, which is set beside the followed network
for few.

sqrt(d) is said to curb errors. At a fixed W_QK, as the formula has it, a head 16 times as wide has
a quarter of the residual in the cubic regime: the part "claim". A reader takes it for wider heads:
with entries of a fixed size W_QK is a sum of d terms and grows like sqrt(d), which the scaling only
makes up for.

The proof, which the note leaves out, concludes P R <= (I + 2D) 1p'R from P <= (I + 2D) 1p', D the
ranges of the rows of E. R has both signs, and where p'R = 0 the right side is zero and the left is
not. |P R - 1p'R| <= 2D 1p'|R| repairs it. Its lemma asks for ranges of at most 1.256;
|softmax(a + e) - softmax(a)|_1 <= 2 tanh(osc(e)/4) asks for nothing. Source: the same, appendix A.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from leadline.claims.catalog import Measured, measures
from leadline.claims.claim import Picture
from leadline.claims.measure.token_residuals import (
    RESIDUAL,
    Matrix,
    drawn_layers,
    drawn_tokens,
    facts_of,
    follow_layers,
    log10_factor,
    log10_growth,
    predicted,
    two_tokens,
)

if TYPE_CHECKING:
    import torch

    from leadline.instruments.attacks.attention import Attacked
    from leadline.theory.rank_collapse import StackFacts

PUBLISHED, PROVED, SHARP = "collapse-published", "collapse-proved", "collapse-sharp"
NEAR = 0.01
"""Tokens +a and -a so near that a tanh(a^2) is a^3."""
EQUAL_HEADS = 8


def search(
    kind: str, bounds: tuple[str, ...], *, seed: int, climbed: int = 25
) -> dict[str, Attacked]:
    """The worst measured over predicted of 400 random networks and of climbed ones."""
    from leadline.instruments.attacks.collapse import (
        optimised_collapse_attack,
        random_collapse_attack,
    )

    worst = random_collapse_attack(kind, count=400, seed=seed, bounds=bounds)
    if climbed:
        more = optimised_collapse_attack(kind, count=climbed, steps=50, seed=seed, bounds=bounds)
        worst = {name: worst[name].with_(more[name]) for name in worst}
    return worst


def used_share(bound: str, facts: StackFacts, hypotheses: StackFacts | None = None) -> float:
    """The last residual over what the bound says of it, or says under other hypotheses."""
    return 10.0 ** (facts.log10_composite[-1] - predicted(bound, hypotheses or facts)[-1])


def equal_heads(heads: int) -> StackFacts:
    """One layer of equal heads of width one on two near tokens."""
    row = np.ones((1, heads))
    layer = {"W_Q": row, "W_K": row, "W_V": row, "W_O": row.T}
    return facts_of(follow_layers(np.array([[NEAR], [-NEAR]]), [layer], heads=heads, facts=True))


@measures("residual-obeys-the-cubic-bound")
def residual_obeys_the_cubic_bound(seed: int) -> Measured:
    """Search among networks without a mask, then follow a causal one and two near tokens."""
    depth = 4
    worst = search("one-head", (PUBLISHED, PROVED, SHARP), seed=seed)
    small, layers = 1e-4 * drawn_tokens(seed), drawn_layers(seed, depth=depth)
    masked = facts_of(follow_layers(small, layers, causal=True, facts=True))
    near = facts_of(two_tokens(1e-3, query_key=1.0, value=1.0, depth=1))
    return Measured(
        published=worst[PUBLISHED].within.ratio,
        proved=worst[PROVED].within.ratio,
        sharp=worst[SHARP].within.ratio,
        attained=used_share(SHARP, near),
        reached=used_share(PUBLISHED, near),
        depth=depth,
        causal=masked.log10_composite[-1] - predicted(PUBLISHED, masked)[-1],
    )


@measures("bound-tells-the-residual")
def bound_tells_the_residual(seed: int) -> Measured:
    """Follow random attention, and set the bound and the cubic law beside its residual."""
    depth = 10
    followed = follow_layers(drawn_tokens(seed), drawn_layers(seed, depth=depth), facts=True)
    facts = facts_of(followed)
    truth, bound = facts.log10_composite, predicted(PUBLISHED, facts)
    law = predicted("collapse-cubic-law", facts)
    return Measured(
        depth=depth,
        ratio=followed.log_ratio[-1],
        truth=truth[-1],
        bound=bound[-1],
        size=bound[-1] / truth[-1],
        law=abs(law[-1] - float(followed.log10_residual[-1])),
        picture=Picture(
            "layer",
            "log₁₀ of the composite residual",
            {"measured": truth[:6], "the bound": bound[:6]},
            over=0,
            faint=("the bound",),
        ),
    )


@measures("prefactor-grows-exponentially")
def prefactor_grows_exponentially(seed: int) -> Measured:
    """The tower of cubes from a residual of 1, whose logarithm is that of the prefactor."""
    from leadline.theory.rank_collapse.log import tower

    layer = 10
    logs = [tower(1.0, 0.0, at) for at in range(layer + 2)]
    return Measured(
        layer=layer,
        exponential=(layer + 1) / layer,
        ratio=logs[layer + 1] / logs[layer],
        exponent=max(abs(a - b) for a, b in zip(logs[1:5], (1, 4, 13, 40), strict=True)),
        falling=tower(math.log10(0.5), 0.0, layer),
    )


@measures("small-factor-suffices-for-collapse")
def small_factor_suffices_for_collapse(seed: int) -> Measured:
    """Two tokens from two starts, and searches on both sides of the true condition."""
    from leadline.instruments.attacks.convergence import (
        AS_WRITTEN,
        CONVERGENCE,
        as_written_attack,
        convergence_attack,
    )
    from leadline.theory.rank_collapse.convergence import converges

    weights, depth, smaller = {"query_key": 0.3, "value": 1.05}, 40, 0.5
    large = two_tokens(4.0, **weights, depth=depth)
    small = two_tokens(smaller, **weights, depth=10)
    factor = log10_factor(facts_of(large))
    # Starts on both sides of c r^2 = 1, with r^2 = 2 a^2.
    edges = [
        facts_of(two_tokens(math.sqrt(wanted / (2.0 * 10.0**factor)), **weights, depth=1))
        for wanted in (0.98, 1.02)
    ]
    below, above = (float(bool(converges(facts))) for facts in edges)
    # Networks drawn with the note's condition and without the true one.
    drawn = as_written_attack(count=256, seed=seed)[AS_WRITTEN].outside.ratio
    return Measured(
        depth=depth,
        smaller=smaller,
        factor=10.0**factor,
        grown=10.0 ** log10_growth(large),
        drawn=math.log10(max(drawn, 1e-300)),
        promised=bool(converges(facts_of(large))),
        edge=below - above,
        kept=bool(converges(facts_of(small))),
        collapsed=log10_growth(small),
        worst=convergence_attack(count=200, seed=seed)[CONVERGENCE].within.ratio,
        picture=Picture(
            "layer",
            RESIDUAL,
            {"from +4, -4": large.log10_residual, "from +0.5, -0.5": small.log10_residual[:6]},
            over=0,
        ),
    )


@measures("residual-below-one-suffices")
def residual_below_one_suffices(seed: int) -> Measured:
    """Two tokens from one start, with large and with small weights."""
    depth = 20
    wild = two_tokens(0.5, query_key=10.0, value=2.0, depth=depth)
    tame = two_tokens(0.5, query_key=0.25, value=1.0, depth=10)
    factor, tame_factor = (log10_factor(facts_of(one)) for one in (wild, tame))
    start = facts_of(wild).log10_composite[0]
    return Measured(
        depth=depth,
        start=10.0**start,
        factor=10.0**factor,
        tame_factor=10.0**tame_factor,
        grown=10.0 ** log10_growth(wild),
        condition=10.0 ** (factor + 2.0 * start),
        tame_condition=10.0 ** (tame_factor + 2.0 * start),
        tame=log10_growth(tame),
        picture=Picture(
            "layer",
            RESIDUAL,
            {"large weights": wild.log10_residual, "small weights": tame.log10_residual[:6]},
            over=0,
        ),
    )


@measures("query-and-key-norms-suffice")
def query_and_key_norms_suffice(seed: int) -> Measured:
    """One layer of two tokens with wide queries and keys, then norms of drawn products."""
    head_width = 64
    ones, one = np.ones((1, head_width)), np.ones((1, 1))
    layer = {"W_Q": ones, "W_K": ones, "W_V": one, "W_O": one}
    facts = facts_of(follow_layers(np.array([[NEAR], [-NEAR]]), [layer], facts=True))
    note = float(np.abs(ones).sum(0).max()) ** 2
    written = replace(facts, layers=(replace(facts.layers[0], query_key=(note,)),))
    rng = np.random.default_rng([seed, 61])
    worst = 0.0
    for _ in range(100):
        q, k = rng.normal(size=(2, 5, 3)) * rng.exponential(size=(2, 1, 3)) ** 2
        share = np.linalg.norm(q @ k.T, 1) / np.linalg.norm(q, 1) / np.linalg.norm(k, np.inf)
        worst = max(worst, float(share))
    return Measured(
        head_width=head_width,
        written=used_share(PUBLISHED, facts, written),
        right=used_share(PUBLISHED, facts),
        submultiplied=worst,
    )


@measures("value-norms-suffice-with-heads")
def value_norms_suffice_with_heads(seed: int) -> Measured:
    """One layer with a factor moved to W_O, a search against the proved bound, and equal heads."""
    moved, heads = 1e8, 2
    layer = drawn_layers(seed, depth=1)[0]
    layer |= {"W_V": layer["W_V"] / moved, "W_O": layer["W_O"] * moved}
    x = 0.1 * drawn_tokens(seed)
    facts = facts_of(follow_layers(x, [layer], heads=heads, facts=True))
    values = np.split(np.abs(layer["W_V"]), heads, axis=1)
    alone = replace(
        facts.layers[0],
        value_output_1=tuple(float(v.sum(0).max()) for v in values),
        value_output_inf=tuple(float(v.sum(1).max()) for v in values),
    )
    return Measured(
        moved=moved,
        written=used_share(PUBLISHED, facts, replace(facts, layers=(alone,))),
        right=used_share(PUBLISHED, facts),
        proved=search("heads", (PROVED,), seed=seed)[PROVED].within.ratio,
        equal_heads=used_share(PROVED, equal_heads(EQUAL_HEADS)),
    )


@measures("heads-multiply-the-factor")
def heads_multiply_the_factor(seed: int) -> Measured:
    """Equal heads, and a search among networks of several heads, without and with MLPs."""
    many = equal_heads(EQUAL_HEADS)
    heads, mlps = (
        search(kind, (PUBLISHED,), seed=seed)[PUBLISHED].outside.ratio
        for kind in ("heads", "heads-mlp")
    )
    return Measured(
        equal_heads=used_share(PUBLISHED, many),
        without_factor=used_share(PUBLISHED, many, equal_heads(1)),
        heads=heads,
        mlps=mlps,
    )


@measures("gamma-is-a-constant")
def gamma_is_a_constant(seed: int) -> Measured:
    """The family in closed form, and its small member as a network."""
    from leadline.theory.rank_collapse.cubic import largest_gamma

    many, fewer, few = 10**8, 10**6, 40
    to_itself, to_first = _chosen_logits(few)
    root = math.sqrt(few)
    first = np.zeros((few, few))
    first[0, 0] = 1.0
    layer = {
        "W_Q": root * to_itself * np.diag((np.arange(few) % 2).astype(float)),
        "W_K": np.eye(few),
        "W_V": first,
        "W_O": np.eye(few),
        "b_Q": root * to_first * first[0],
    }
    facts = facts_of(follow_layers(np.eye(few), [layer], facts=True))
    pair = facts_of(two_tokens(1.0, query_key=1.0, value=1.0, depth=1))
    sizes = [10**power for power in range(1, 9)]
    growth = _needed_gamma(many) / _needed_gamma(fewer)
    return Measured(
        few=few,
        needed=_needed_gamma(many),
        growth=growth / (_scale(many) / _scale(fewer)),
        agreement=abs(10.0 ** facts.log10_composite[-1] / _closed_form(few)[0] - 1.0),
        with_gamma=used_share(PUBLISHED, facts),
        largest=facts.layers[0].gamma[0] / 10.0 ** largest_gamma(few),
        attained=pair.layers[0].gamma[0] / 10.0 ** largest_gamma(2),
        picture=Picture(
            "tokens",
            "γ that is needed",
            {"this family": map(_needed_gamma, sizes), "a constant": 1.0},
            over=sizes,
            x_log=True,
            y_log=True,
            faint=("a constant",),
        ),
    )


def _chosen_logits(tokens: int) -> tuple[float, float]:
    """The logit of a token of S with itself, and that of everybody with token 0."""
    return math.log(tokens) + 6.0, math.log(tokens) + 3.0


def _scale(tokens: int) -> float:
    """sqrt(n) / (log n + 6)."""
    return math.sqrt(tokens) / (math.log(tokens) + 6.0)


def _needed_gamma(tokens: int) -> float:
    """r' over 4 beta r^3 / sqrt(d), with beta / sqrt(d) = T."""
    after, before = _closed_form(tokens)
    return after / (4.0 * _chosen_logits(tokens)[0] * before**3)


def _closed_form(tokens: int) -> tuple[float, float]:
    """The composite residuals after and before the layer; half of the tokens are in S."""
    half = tokens // 2
    apart = _weight_of_first(tokens, True) - _weight_of_first(tokens, False)
    share = half / tokens
    row = max(share, 1.0 - share) * abs(apart)
    column = 2.0 * half * (1.0 - share) * abs(apart)
    return math.sqrt(row * column), 2.0 * (1.0 - 1.0 / tokens)


def _weight_of_first(tokens: int, marked: bool) -> float:
    """The weight that a token, in S if `marked`, gives to token 0, which is not in S."""
    to_itself, to_first = _chosen_logits(tokens)
    itself = math.exp(to_itself - to_first) if marked else 0.0
    return 1.0 / (1.0 + itself + (tokens - 1 - marked) * math.exp(-to_first))


@measures("wider-heads-curb-attention-errors")
def wider_heads_curb_attention_errors(seed: int) -> Measured:
    """Layers of one head on small tokens, widened by zeros or by more draws."""
    narrow, wide, width, draws = 4, 64, 32, 40
    rng = np.random.default_rng([seed, 19])
    one = np.eye(width)

    def last(x: Matrix, query: Matrix, key: Matrix) -> float:
        layer = {"W_Q": query, "W_K": key, "W_V": one, "W_O": one}
        return float(follow_layers(x, [layer]).log10_residual[-1])

    padded: list[float] = []
    drawn: list[float] = []
    product: list[float] = []
    more = np.zeros((width, wide - narrow))
    for _ in range(draws):
        x = 1e-2 * rng.normal(size=(8, width))
        query, key = rng.normal(size=(2, width, narrow)) / np.sqrt(width)
        before = last(x, query, key)
        padded.append(last(x, np.hstack([query, more]), np.hstack([key, more])) - before)
        queries, keys = rng.normal(size=(2, width, wide)) / np.sqrt(width)
        drawn.append(last(x, queries, keys) - before)
        product.append(float(np.linalg.norm(queries @ keys.T) / np.linalg.norm(query @ key.T)))
    return Measured(
        narrow=narrow,
        wide=wide,
        draws=draws,
        padded=10.0 ** float(np.mean(padded)),
        drawn=10.0 ** float(np.mean(drawn)),
        product=np.mean(product),
    )


@measures("published-proof-step")
def published_proof_step(seed: int) -> Measured:
    """Draw residuals and logits, small ones for the step and large ones for the bound."""
    import torch

    from leadline.instruments.attacks.steps import pattern_shift

    tokens, draws, widest = 4, 300, 1.256
    generator = torch.Generator().manual_seed(1000 * seed + 63)
    normal = partial(torch.randn, generator=generator, dtype=torch.float64)
    uniform = partial(torch.rand, generator=generator, dtype=torch.float64)

    def span(logits: torch.Tensor) -> torch.Tensor:
        return logits.amax(-1, keepdim=True) - logits.amin(-1, keepdim=True)

    even, scores = normal(draws, 1, tokens), normal(draws, tokens, tokens)
    scores = scores / span(scores) * widest * uniform(draws, tokens, 1)
    rest = normal(draws, tokens, 1)
    p = even.softmax(-1)
    moved = (pattern_shift(p, even, scores) @ rest).abs()
    broken = (moved - 2.0 * span(scores) * (p @ rest).abs()) / moved
    repaired = moved / (2.0 * span(scores) * (p @ rest.abs()))
    large = 10.0 * normal(draws, tokens, tokens) * uniform(draws, 1, 1)
    apart = pattern_shift(p, even, large).abs().sum(-1)
    return Measured(
        excess=broken.max(),
        repaired=repaired.max(),
        tanh=(apart / (2.0 * (span(large)[..., 0] / 4.0).tanh())).max(),
    )
