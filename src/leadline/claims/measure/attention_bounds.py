"""Bounds on the norm of attention from its weights: the note's and the corrected ones, under attack.

Heads that meet the assumptions of a bound are drawn at random and pushed uphill by gradient ascent
(`instruments.attacks`); a ratio norm / bound above 1 is a violation, to rounding. The bounds and their
proofs stand in `theory.attention`. D is the span of a row's logits, n the number of keys:

    1 <= |A|_2 <= sqrt(c_max) <= sqrt(n)                                        any row-stochastic A
    |A|_2^2 <= n max_k (k e^{2D} + n - k) / (k e^D + n - k)^2 <= cosh^2(D/2)    without a mask
    |A|_2 <= min{sqrt(sum_i max_k (k e^{2D} + i - k) / (k e^D + i - k)^2), |B|_2} < 2 e^D     causal
    |A|_2^2 <= sum_i max_k (k e^{2D} + m_i - k) / (k e^D + m_i - k)^2           query i sees m_i keys

sqrt(n) is attained by a column of ones; the second bound by equal rows, k logits at D and the others at
0. The causal one needs the full lower triangle: a window of two keys and the first one is the reach.

The note's chain, in its own setting (no mask, no shift beta of the norm, no biases, logits divided by
sqrt(d), d the width of the stream), with M = Gamma^2 sigma_Q sigma_K sqrt(d):

    |h - mean| = sqrt(d) sigma, |diag(gamma)| = Gamma, so |LN(h)| <= Gamma sqrt(d)
    |q| <= Gamma sigma_Q sqrt(d), |k| <= Gamma sigma_K sqrt(d)
    |l| <= M, and logits of a row differ by at most 2M
    |A|_2 <= sqrt(n / (1 + (n-1) e^{-2M}))

That setting is the claim of each step. GPT-2, of which the note speaks, is causal, has a shift and
biases and divides by sqrt(d_h), so logits are sqrt(d / d_h) = 3.46 times as large: the reach, and for
the last bound a claim of its own each. Corrected: |LN(h)| by |beta|; |q| <= sigma_Q (Gamma sqrt(d) +
|beta|) + |b_Q|; the range of a row by Delta of `theory.attention.logit_span`, where shift and biases
cancel on the side of the keys and not of the queries; |A| by the bounds above at Delta. Two causal
tokens and M = 0 refute the note's: A = [[1, 0], [1/2, 1/2]] has norm 1.144, the bound is 1. Uniform
causal attention has a norm that rises with n towards 2 (Hardy's inequality), attained at D = 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from leadline.claims.catalog import Measured, Results, measures
from leadline.claims.claim import Picture
from leadline.claims.measure.amplification import (
    attention_matrices,
    largest,
    measured_norm,
    softmax,
)
from leadline.claims.measure.architecture import farthest_from_one
from leadline.claims.measure.attention_in_models import AS_WRITTEN, TRAINED, bound_at

if TYPE_CHECKING:
    from torch import Tensor

CLIMBED_WIDTH = 16
"""The width of the heads that are pushed from sizes that are set; each has the width 1."""
HALF = {"gain": 0.5, "query_weight": 0.7, "key_weight": 0.7}
"""M = 0.5: with the note's conditions the bound is far from the root of n."""
HALF_SHIFTED = HALF | {"shift": 8.0}
"""The same, and a shift four times as long as what is normed."""
TWO = {"gain": 0.5, "query_weight": 2**0.5, "key_weight": 2**0.5}
"""M = 2: between equal logits and one key for all."""
NEARLY_EQUAL = {"gain": 0.2, "query_weight": 0.5, "key_weight": 0.5}
"""M = 0.04: nearly equal logits, where the note's bound is nearly 1."""


def worst_ratios(bounds: Sequence[str], kinds: Sequence[str], *, seed: int) -> dict[str, float]:
    """Of every bound the worst norm / bound over all heads of these kinds that meet its assumptions."""
    from leadline.errors import ProbeError
    from leadline.instruments.attacks.attention import merged, optimised_attack, random_attack

    attacks = [random_attack(kind, count=100, seed=1000 * seed + 7) for kind in kinds]
    attacks += [optimised_attack(kind, steps=40, seed=1000 * seed + 11, starts=8) for kind in kinds]
    worst = merged(attacks)
    for bound in bounds:
        if not worst[bound].within.attacks:
            raise ProbeError(
                f"No head of the kinds {', '.join(kinds)} meets the assumptions of the bound "
                f"{bound!r}; choose other kinds."
            )
    return {bound: worst[bound].within.ratio for bound in bounds}


def worst_ratio(bound: str, *kinds: str, seed: int) -> float:
    """The same for one bound."""
    return worst_ratios((bound,), kinds, seed=seed)[bound]


def climbed_ratio(bound: str, kind: str, sizes: Mapping[str, float], *, seed: int) -> float:
    """The worst norm / bound of heads pushed uphill from these sizes, within the assumptions or not."""
    import torch

    from leadline.instruments.attacks.attention import climb
    from leadline.instruments.attacks.heads import KINDS, DrawnHeads

    drawn = (
        DrawnHeads(KINDS[kind], 8, 16, generator=torch.Generator().manual_seed(number))
        for number in count(1000 * seed)
    )
    heads = next(one for one in drawn if (one.width, one.head_width) == (CLIMBED_WIDTH, 1))
    for name, size in sizes.items():
        heads.sizes[name] = torch.full_like(heads.sizes[name], size)
    worst = climb(heads, steps=60)[bound]
    return max(worst.within.ratio, worst.outside.ratio)


class Reached(NamedTuple):
    """Largest query, key and logit of heads, each over what a formula allows."""

    query: float
    """|q| over Gamma sigma_Q sqrt(d)."""
    key: float
    logit: float
    """|l| over M."""
    span: float
    """The range of a row's logits over 2 M."""
    query_corrected: float
    """|q| over sigma_Q (Gamma sqrt(d) + |beta|) + |b_Q|."""
    span_corrected: float
    """The range of a row's logits over Delta of the theory."""


def reached(kind: str, *, seed: int) -> Reached:
    """Push the logits of a kind of heads uphill by Adam, and take the worst of start and end."""
    import torch

    from leadline.instruments.attacks.heads import KINDS, DrawnHeads

    ratios: list[Reached] = []
    for part in range(3):
        generator = torch.Generator().manual_seed(10 * seed + part)
        heads = DrawnHeads(KINDS[kind], 60, 6, generator=generator)
        ratios += _reached_by(heads)
        ascent = torch.optim.Adam(list(heads.free.values()), lr=0.1, maximize=True)
        for _ in range(60):
            ascent.zero_grad()
            logits = heads.attention()[1]
            (logits.amax((-1, -2)) - logits.amin((-1, -2)) + 1e-9).log().sum().backward()
            ascent.step()
        ratios += _reached_by(heads)
    return Reached(*map(max, zip(*ratios, strict=True)))


def _reached_by(heads: Any) -> list[Reached]:
    import torch

    from leadline.theory.attention.logit_span import weight_span

    with torch.no_grad():
        weights, logits = heads.attention()
        query, key = heads._queries_and_keys()
        facts = heads.facts(weights, logits)
        lengths = query.norm(dim=-1).amax(-1).tolist(), key.norm(dim=-1).amax(-1).tolist()
        top = logits.abs().amax((-1, -2)).tolist()
    ratios: list[Reached] = []
    for q, k, logit, one in zip(*lengths, top, facts, strict=True):
        assert None not in (one.gain, one.query_weight, one.key_weight, one.shift, one.query_bias)
        long = one.gain * math.sqrt(one.width)
        written = long * long * one.query_weight * one.key_weight / math.sqrt(one.width)
        span = weight_span(one)
        assert span is not None
        ratios.append(
            Reached(
                query=q / (one.query_weight * long),
                key=k / (one.key_weight * long),
                logit=logit / written,
                span=one.logit_span / (2 * written),
                query_corrected=q / (one.query_weight * (long + one.shift) + one.query_bias),
                span_corrected=one.logit_span / span,
            )
        )
    return ratios


@measures("attention-norm-bounds")
def attention_norm_bounds(seed: int) -> Measured:
    """Attack the three bounds of any row-stochastic matrix, and look at drawn matrices beside them."""
    rng = np.random.default_rng([seed, 4620])
    names = ("one", "column-sum", "sqrt-queries")
    worst = worst_ratios(names, ("logits", "logits-causal", "open", "causal"), seed=seed)
    ones = np.zeros((17, 17))
    ones[:, 5] = 1
    return Measured(
        ratio_one=worst["one"],
        ratio_column_sum=worst["column-sum"],
        ratio_root=worst["sqrt-queries"],
        ratio_by_hand=max(
            largest(one) / float(np.sqrt(one.sum(0).max())) for one in attention_matrices(rng, 200)
        ),
        ratio_column_of_ones=measured_norm(ones) / bound_at("sqrt-queries", 17),
    )


@measures("any-mask-bound")
def any_mask_bound(seed: int) -> Measured:
    """Attack the bound for any mask, from weights and from logits, under four kinds of masks."""
    names = ("any-mask", "any-mask-measured")
    worst = worst_ratios(names, ("window", "blocks", "random", "logits-random"), seed=seed)
    return Measured(ratio_weights=worst[names[0]], ratio_measured=worst[names[1]])


@measures("bidirectional-bound")
def bidirectional_bound(seed: int) -> Measured:
    """Attack the bound without a mask, attain it, and compare it with the note's."""
    tokens = 8
    spans = np.linspace(0, 8, 33).tolist()
    kinds = ("open", "open-rotary", "open-qk-norm", "open-sink")
    attacked = worst_ratios(("bidirectional", "cosh"), kinds, seed=seed)
    bound = [bound_at("bidirectional-measured", tokens, logit_span=span) for span in spans]
    free = [bound_at("cosh-measured", tokens, logit_span=span) for span in spans]
    note = [math.sqrt(tokens / (1 + (tokens - 1) * math.exp(-span))) for span in spans]
    attained = [
        max(
            largest(np.tile(softmax(np.where(np.arange(tokens) < k, span, 0.0)), (tokens, 1)))
            for k in range(1, tokens + 1)
        )
        for span in spans
    ]
    return Measured(
        ratio_bidirectional=attacked["bidirectional"],
        ratio_cosh=attacked["cosh"],
        ratio_attained=farthest_from_one(a / b for a, b in zip(attained, bound, strict=True)),
        bound_at_three=bound[spans.index(3.0)],
        note_at_three=note[spans.index(3.0)],
        ratio_to_note=max(a / b for a, b in zip(bound, note, strict=True)),
        picture=Picture(
            "span of the logits of a row",
            "spectral norm",
            {
                "largest norm of equal rows": attained,
                "bound": bound,
                "form free of n": free,
                "the note's bound": note,
            },
            over=spans,
            faint=("bound", "form free of n", "the note's bound"),
        ),
    )


@measures("causal-bound")
def causal_bound(seed: int) -> Measured:
    """Attack the causal bound, compare it with 2 e^D, and look at a window with the first key."""
    tokens = 256
    ratios = [
        bound_at("causal-measured", n, mask="causal", logit_span=span) / (2 * math.exp(span))
        for n in (2, 16, 128, 1024)
        for span in (0.0, 0.5, 1.0, 2.0, 4.0)
    ]
    i, j = np.indices((tokens, tokens))
    visible = (j == 0) | ((j <= i) & (j > i - 2))
    window = largest(visible / visible.sum(1, keepdims=True))
    allowed = tuple(int(keys) for keys in visible.sum(1))
    rows = {"mask": "other", "allowed": allowed, "logit_span": 0.0}
    return Measured(
        ratio_causal=worst_ratio("causal", "causal", "causal-rotary", "causal-sink", seed=seed),
        ratio_to_two=max(ratios),
        ratio_window=window / 2,
        ratio_any_mask=window / bound_at("any-mask-measured", tokens, **rows),
        window_norm=window,
    )


@measures("pre-norm-bound")
def pre_norm_bound(seed: int) -> Measured:
    """Attack the note's bound in its own setting and in three others, and the bound by rows."""
    others = ("as-the-note-causal", "as-the-note-shifted", "as-the-note-scaled-by-head")
    causal, shifted, by_head = (
        climbed_ratio(AS_WRITTEN, kind, HALF_SHIFTED, seed=seed) for kind in others
    )
    return Measured(
        ratio_as_written=max(
            worst_ratio(AS_WRITTEN, "as-the-note", "as-the-note-rotary", seed=seed),
            climbed_ratio(AS_WRITTEN, "as-the-note", TWO, seed=seed),
        ),
        ratio_causal=causal,
        ratio_shifted=shifted,
        ratio_by_head=by_head,
        ratio_any_mask=worst_ratio("any-mask", "as-the-note", *others, seed=seed),
    )


def _both_bounds(kind: str, sizes: Mapping[str, float], seed: int) -> tuple[float, float]:
    """The worst ratio of the note's bound for a kind of heads, and of the corrected one."""
    corrected = max(
        worst_ratio("bidirectional", kind, seed=seed),
        climbed_ratio("bidirectional", kind, sizes, seed=seed),
    )
    return climbed_ratio(AS_WRITTEN, kind, sizes, seed=seed), corrected


@measures("pre-norm-bound-by-head-width")
def pre_norm_bound_by_head_width(seed: int) -> Measured:
    """Attack the note's bound and the corrected one with heads divided by the root of their width."""
    from leadline.parts import Recipe

    by_head, corrected = _both_bounds("as-the-note-scaled-by-head", HALF, seed)
    heads = Recipe.named("gpt2").heads
    assert heads is not None
    ratios = {"ratio_by_head": by_head, "ratio_corrected": corrected}
    return Measured(ratios | {"gpt2_factor": float(heads) ** 0.5})


@measures("pre-norm-bound-with-beta", needs=(TRAINED,))
def pre_norm_bound_with_beta(seed: int, results: Results) -> Measured:
    """Attack the note's bound and the corrected one with heads that have a shift."""
    shifted, corrected = _both_bounds("as-the-note-shifted", HALF_SHIFTED, seed)
    shifts = results[TRAINED.name]["pre"]["norm_shift"]
    ratios = {"ratio_shifted": shifted, "ratio_corrected": corrected}
    return Measured(ratios | {"trained_shift": sum(shifts) / len(shifts)})


@measures("pre-norm-bound-causal")
def pre_norm_bound_causal(seed: int) -> Measured:
    """Attack the note's bound and the causal one, and set both beside uniform causal attention."""
    sizes = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
    zeros = ("shift", "query_weight", "key_weight", "query_bias", "key_bias")
    equal_logits: dict[str, Any] = {"mask": "causal", "positions": "none"}
    equal_logits |= {"scaling": 1.0, "width": 16, "gain": 1.0} | dict.fromkeys(zeros, 0.0)
    norms, written, corrected = [], [], []
    for n in sizes:
        uniform = np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]
        norms.append(measured_norm(uniform))
        written.append(bound_at(AS_WRITTEN, n, **equal_logits))
        corrected.append(bound_at("causal", n, **equal_logits))
    two = sizes.index(2)
    return Measured(
        norm_two_tokens=norms[two],
        norm_many_tokens=norms[-1],
        ratio_uniform=norms[two] / written[two],
        ratio_causal=climbed_ratio(AS_WRITTEN, "as-the-note-causal", NEARLY_EQUAL, seed=seed),
        ratio_corrected=worst_ratio(
            "causal", "as-the-note-causal", "causal", "causal-rotary", seed=seed
        ),
        uniform_error=max(
            abs(b / a - 1) for a, b in zip(norms, corrected, strict=True) if not math.isinf(b)
        ),
        picture=Picture(
            "tokens",
            "spectral norm",
            {
                "causal attention, equal logits": norms,
                "corrected bound": corrected,
                "the note's bound": written,
            },
            over=sizes,
            x_log=True,
            faint=("corrected bound", "the note's bound"),
        ),
    )


@measures("layernorm-output-bound")
def layernorm_output_bound(seed: int) -> Measured:
    """Lengths of normed tokens, random and extreme, with drawn gains and shifts."""
    import torch

    from leadline.numerics.spectra.spectrum import spectral_norm
    from leadline.parts.norms.layernorm import LayerNorm
    from leadline.parts.norms.rmsnorm import RMSNorm

    count = 2000
    generator = torch.Generator().manual_seed(4800 + seed)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    plain, shifted, corrected, rms, deviations, gains = [], [], [], [], [], []
    for width in (2, 8, 64, 256):
        h = drawn(count, width) * torch.exp(2 * drawn(count, 1)) + drawn(count, 1)
        # The worst direction is among these: all weight on the feature of the largest gain.
        h[:width] = torch.eye(width, dtype=torch.float64)[: len(h)]
        norm, other = LayerNorm(width).double(), RMSNorm(width).double()
        gain, shift = drawn(width), drawn(width)
        reach = float(gain.abs().max()) * width**0.5
        gains.append(float(spectral_norm(torch.diag(gain)).value / gain.abs().max()))
        shift = shift * (reach / float(shift.norm()))
        with torch.no_grad():
            centred = h - h.mean(-1, keepdim=True)
            spread = h.var(-1, correction=0).sqrt() * width**0.5
            deviations.append(float((centred.norm(dim=-1) / spread - 1).abs().max()))
            norm.weight.copy_(gain)
            other.weight.copy_(gain)
            plain.append(float(norm(h).norm(dim=-1).max()) / reach)
            rms.append(float(other(h).norm(dim=-1).max()) / reach)
            norm.bias.copy_(shift)
            longest = float(norm(h).norm(dim=-1).max())
            shifted.append(longest / reach)
            corrected.append(longest / (reach + float(shift.norm())))
    return Measured(
        deviation_error=max(deviations),
        gain_norm_ratio=farthest_from_one(gains),
        ratio_without_shift=max(plain),
        ratio_with_shift=max(shifted),
        ratio_corrected=max(corrected),
        ratio_rms=max(rms),
    )


@measures("query-key-norm-bound")
def query_key_norm_bound(seed: int) -> Measured:
    """Lengths of queries and keys of pushed heads: plain, with a shift, with shift and biases."""
    plain, shifted = (
        reached(kind, seed=4810 + seed) for kind in ("as-the-note", "as-the-note-shifted")
    )
    biased = reached("open", seed=4811 + seed)
    return Measured(
        query_ratio=plain.query,
        key_ratio=plain.key,
        query_ratio_shifted=shifted.query,
        query_ratio_corrected=max(one.query_corrected for one in (plain, shifted, biased)),
    )


@measures("logit-bound")
def logit_bound(seed: int) -> Measured:
    """Logits of pushed heads of four kinds over M and Delta, and a head that attains Delta."""
    plain = reached("as-the-note", seed=4820 + seed)
    by_head = reached("as-the-note-scaled-by-head", seed=4821 + seed)
    shifted = reached("as-the-note-shifted", seed=4822 + seed)
    biased = reached("open", seed=4823 + seed)
    return Measured(
        logit_ratio=plain.logit,
        span_ratio=plain.span,
        logit_ratio_by_head=by_head.logit,
        logit_ratio_shifted=shifted.logit,
        span_ratio_corrected=max(one.span_corrected for one in (plain, by_head, shifted, biased)),
        attained_ratio=_attained_span(seed),
    )


def _attained_span(seed: int) -> float:
    """The range of a row over Delta, all of one head's weights, shift and bias along one direction."""
    from leadline.theory import AttentionFacts
    from leadline.theory.attention.logit_span import weight_span

    width, head = 16, 4
    rng = np.random.default_rng([seed, 4830])
    names = ("gain", "shift", "query_weight", "key_weight", "query_bias")
    sizes = dict(zip(names, np.exp(rng.standard_normal(5)), strict=True))
    gain, shift, query, key, bias = sizes.values()
    along, out = np.eye(width)[0], np.eye(head)[0]
    tokens = gain * (width**0.5 * np.array([[1.0], [-1.0]]) * along) + shift * along
    queries = tokens @ (query * np.outer(along, out)) + bias * out
    keys = tokens @ (key * np.outer(along, out))
    logits = queries @ keys.T / head**0.5
    places = {"positions": "none", "scaling": head**-0.5, "width": width}
    span = weight_span(AttentionFacts(queries=2, keys=2, **places, **sizes))
    assert span is not None
    return float(np.ptp(logits, axis=1).max()) / span
