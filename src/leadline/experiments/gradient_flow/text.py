"""What the numbers of the gradient-flow experiment say, in sentences that follow from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from leadline.experiments.gradient_flow.growth import FlowGrowth, fitted, mean_error, straight
from leadline.experiments.gradient_flow.jacobians import Norms
from leadline.experiments.gradient_flow.lines import law_exponent, stream_band
from leadline.experiments.gradient_flow.starts import DESIGNS
from leadline.experiments.gradient_flow.training import TRAINED, TrainedDesigns
from leadline.experiments.outcome.exponent import Exponent

__all__ = ["remarks"]

NEAR = 0.1
"""A measured exponent agrees with a law within this."""
LINEAR = 0.98
"""A curve follows a line where the line explains this share of its variance."""
EQUAL = 0.999
"""Tokens are one vector where the mean cosine of two reaches this."""
NEAR_IDENTITY = 0.5
"""|J - I|_F / sqrt(N) below which a block counts as near the identity."""
BALANCED = 0.2
"""The share of the logarithm of a product that may be left so that its norms count as undoing it."""
VANISHED = 1e-3
"""A gradient has vanished on its way where less than this share of it arrives."""


def remarks(found: FlowGrowth, *, width: int) -> Iterator[str]:
    """Every sentence, in the order of the panels."""
    yield from _last_matrix(found, width=width)
    yield from _mechanism(found)
    yield from _towards_the_input(found)
    yield from _stream(found, width=width)
    yield from _without_norms(found)
    yield from _products(found)
    yield from _norms(found)
    yield from _training(found)


# --- before training -------------------------------------------------------------------------


def _span(depths: Sequence[int]) -> str:
    return f"{depths[0]} to {depths[-1]} layers"


def _last_matrix(found: FlowGrowth, *, width: int) -> Iterator[str]:
    told: list[str] = []
    for design in DESIGNS:
        fit = found.exponent(design, lambda one: one.weight)
        if fit is None:
            continue
        law = law_exponent(found, design, width=width)
        told.append(f"{design} {fit.text}{_against(fit, law)}")
    if told:
        depths = fitted(found.depths)
        yield f"|dL/dW2| of the last block over {_span(depths)}: {'; '.join(told)}."


def _against(fit: Exponent, law: float | None) -> str:
    if law is None:
        return ""
    how = "agrees with" if fit.within(law, NEAR) else "misses"
    return f", {how} the law's {law:g} (within {NEAR:g})"


def _mechanism(found: FlowGrowth) -> Iterator[str]:
    """Pre-norm: whether the gradient falls as the stream grows, and as nothing else."""
    plain = found.exponent("pre", lambda one: one.weight)
    scaled = found.exponent("pre", lambda one: one.scaled_weight)
    if plain is None or scaled is None:
        return
    why = (
        "the last norm divides by the stream, and that is all of it"
        if scaled.within(0.0, NEAR) and not plain.within(0.0, NEAR)
        else "the growth of the stream does not explain it alone"
    )
    yield (
        f"Pre-norm: times the root mean square of the last stream the same gradient goes as "
        f"{scaled.text}: {why}."
    )


def _towards_the_input(found: FlowGrowth) -> Iterator[str]:
    told: list[str] = []
    depth = found.deepest
    for design in DESIGNS:
        if not found.whole(design, depth):
            told.append(f"{design}: not finite in float64 at {depth} layers")
            continue
        mean, _ = mean_error([math.log10(one.ratio) for one in found.at(design, depth)])
        fit = found.exponent(design, lambda one: one.ratio)
        power = "" if fit is None or design == "no norm" else f" (over depth {fit.text})"
        told.append(f"{design} {10.0**mean:.3g}{power}")
    yield f"|dL/dx_0| / |dL/dx_L| at {depth} layers before training: {'; '.join(told)}."
    vanishing = [
        design
        for design in DESIGNS
        if found.whole(design, depth)
        and mean_error([math.log10(one.ratio) for one in found.at(design, depth)])[0]
        < math.log10(VANISHED)
    ]
    if vanishing:
        yield f"The gradient vanishes towards the input before training: {', '.join(vanishing)}."
    else:
        yield (
            f"In none of these designs does the gradient fall below {VANISHED:g} of itself on its "
            "way to the input before training, post-norm and no skip included."
        )


def _stream(found: FlowGrowth, *, width: int) -> Iterator[str]:
    own = found.at("pre", found.deepest)
    sites = range(found.deepest + 1)
    slope, error = mean_error([straight(sites, one.squares).slope for one in own])
    # The law is about the mean over weights.
    r2 = straight(sites, found.squares("pre")).r2
    line = "near linear" if r2 >= LINEAR else "not linear"
    cross, _ = mean_error([one.crosses / one.grown for one in own])
    off = max(abs(one.grown - one.updates - one.crosses) / one.squares[-1] for one in own)
    yield (
        f"Pre-norm, {found.deepest} layers: the mean square grows by {slope:.3f}"
        f"{_plus_minus(error)} per layer, {line} (R² {r2:.4f} of the mean over "
        f"seeds){_beside(slope, found, width=width)}. It is the sum of what was written: updates "
        f"{1.0 - cross:.0%}, cross terms {cross:.0%}; the identity holds to {off:.1g}."
    )


def _beside(slope: float, found: FlowGrowth, *, width: int) -> str:
    """Where a slope lies in the band that is drawn; nothing where there is none."""
    bands = stream_band(found, width=width)
    if bands is None:
        return ""
    low, high = ((bands[-1][end] - bands[0][end]) / found.deepest for end in (0, 1))
    where = "inside" if low <= slope <= high else "outside"
    return (
        f", {where} the {low:.3f} to {high:.3f} per layer that the law of Xiong et al. gives for "
        "these models, with their activation and the inner width of their MLP"
    )


def _plus_minus(error: float) -> str:
    return "" if math.isnan(error) else f" ± {error:.3f}"


def _without_norms(found: FlowGrowth) -> Iterator[str]:
    depth = found.deepest
    own = [one for one in found.at("no norm", depth) if one.finite]
    if own:
        sites = range(depth + 1)
        logs = [[math.log10(v) for v in one.squares] for one in own]
        by_layer = [straight(sites, one) for one in logs]
        by_power = [straight(np.log(np.arange(1, depth + 2)).tolist(), one) for one in logs]
        rate, error = mean_error([fit.slope for fit in by_layer])
        r2, other = (min(fit.r2 for fit in fits) for fits in (by_layer, by_power))
        law = (
            "it grows exponentially"
            if r2 >= LINEAR and r2 > other
            else "neither an exponential nor a power law holds it well"
        )
        yield (
            f"Without norms, {depth} layers: {law}: the mean square gets {10.0**rate:.2f} times "
            f"larger per layer (log10 {rate:.3f}{_plus_minus(error)}; R² {r2:.3f} over the layer, "
            f"{other:.3f} over its logarithm)."
        )
    lost = [d for d, gone in sorted(found.overflowed.items()) if gone]
    if lost:
        yield f"Without norms float32 overflows at {', '.join(map(str, lost))} layers."
    elif found.overflowed:
        yield f"Without norms float32 does not overflow up to {max(found.overflowed)} layers."


def _products(found: FlowGrowth) -> Iterator[str]:
    if not found.blocks:
        return
    deepest = max(one.depth for one in found.blocks)
    some = [one for one in found.blocks if one.depth == deepest]
    told = [f"{one.design} {one.product:.1f} against {math.log10(one.whole):.1f}" for one in some]
    yield (
        f"log10 of the product of the blocks' norms against that of the norm of the product, "
        f"{deepest} layers, one example: {'; '.join(told)}. The first is what a Lipschitz "
        "constant by layers gives, the second what is there."
    )
    for one in some:
        if one.refused:
            yield f"{one.design}, {one.depth} layers, singular values: {one.refused}"
    near = [one.design for one in some if max(one.distance) < NEAR_IDENTITY]
    pre = next((one for one in some if one.design == "pre"), None)
    if pre is not None:
        yield (
            f"J = I + epsilon: in pre-norm |J - I|_F / sqrt N goes from {pre.distance[0]:.2f} in "
            f"block 1 to {pre.distance[-1]:.2f} in block {deepest}; below {NEAR_IDENTITY:g} in every "
            f"block: "
            f"{', '.join(near) or 'no design'}."
        )


def _norms(found: FlowGrowth) -> Iterator[str]:
    if not found.norms:
        return
    one = max(found.norms, key=lambda each: each.depth)
    each = 10.0 ** (one.shrink / (2 * one.depth))
    without, with_ = 10.0**one.without_size, 10.0**one.with_size
    yield (
        f"Post-norm, {one.depth} layers: a norm multiplies directions by {each:.2f} in the root "
        f"mean square. The product of the blocks does so by {without:.3g} without its norms and by "
        f"{with_:.3g} with them (sigma_1 {10.0**one.without_largest:.3g} and "
        f"{10.0**one.with_largest:.3g}): "
        + (
            "what the norms take away is what the skips and branches have added."
            if _balanced(one)
            else "the two do not cancel."
        )
    )


def _balanced(one: Norms) -> bool:
    """Whether the norms undo most of the growth, on the logarithmic scale, and not much more."""
    return abs(one.with_size) < BALANCED * abs(one.without_size)


# --- after training --------------------------------------------------------------------------


def _training(found: FlowGrowth) -> Iterator[str]:
    if not found.trained:
        return
    broken = [one for one in found.trained if one.status != "finished"]
    for one in broken:
        yield (
            f"{one.design}, {one.depth} layers, seed {one.seed}: {one.status} after {one.steps} "
            f"steps, {one.reason}."
        )
    for design in TRAINED:
        own = [one for one in found.trained if one.design == design and one not in broken]
        if own:
            yield f"Trained without warm-up, {design}: {_acquired(own)}."


def _acquired(own: Sequence[TrainedDesigns]) -> str:
    """What training did to the gradient and the tokens of one design, by depth."""
    depths = sorted({one.depth for one in own})

    def over(depth: int, number: Callable[[TrainedDesigns], float]) -> list[float]:
        return [number(one) for one in own if one.depth == depth]

    told: list[str] = []
    for depth in depths:
        first, last = (_typical(over(depth, lambda one, at=at: one.ratio[at])) for at in (0, 1))
        cosines = [mean_error(over(depth, lambda one, at=at: one.cosine[at]))[0] for at in (0, 1)]
        told.append(
            f"{depth} layers ratio {first:.2g} to {last:.2g}, cosine {cosines[0]:.3f} to "
            f"{cosines[1]:.3f}"
        )
    vanished = [
        depth
        for depth in depths
        if all(
            one.ratio[1] < VANISHED * one.ratio[0] and one.cosine[1] >= EQUAL
            for one in own
            if one.depth == depth
        )
    ]
    if not vanished:
        return f"{'; '.join(told)}: no vanishing was acquired"
    verdict = f"the gradient has come to vanish at {_layers(vanished)}"
    return f"{'; '.join(told)}: {verdict}; {_tokens(own, vanished)}"


def _layers(depths: Sequence[int]) -> str:
    return f"{', '.join(map(str, depths))} layers"


def _tokens(own: Sequence[TrainedDesigns], vanished: Sequence[int]) -> str:
    """Whether tokens that are one after the training have become so, or were so before it."""
    before = {
        depth: [one.cosine[0] >= EQUAL for one in own if one.depth == depth] for depth in vanished
    }
    parts = {
        "have become one": [d for d in vanished if not any(before[d])],
        "were one before the training already": [d for d in vanished if all(before[d])],
        "were one before the training in some of the seeds": [
            d for d in vanished if any(before[d]) and not all(before[d])
        ],
    }
    said = [f"{what} at {_layers(depths)}" for what, depths in parts.items() if depths]
    return f"the tokens {' and '.join(said)}"


def _typical(values: Sequence[float]) -> float:
    """The geometric mean; 0 where a value is 0."""
    if any(value == 0.0 for value in values):
        return 0.0
    return 10.0 ** mean_error([math.log10(value) for value in values])[0]
