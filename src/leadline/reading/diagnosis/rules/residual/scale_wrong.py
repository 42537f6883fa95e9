"""R06: a constant factor stands on the wrong side of the addition, is another power of depth, or shrinks the stream.

DeepNorm (Wang et al. 2022): x <- norm(alpha x + f(x)), alpha = (2 L)^(1/4) for a stack of L layers of
its own; with an encoder of N and a decoder of M layers alpha is 0.81 (N^4 M)^(1/16) and (3 M)^(1/4).

Without a norm behind the addition, x <- c x + f(x) leaves c^n of the embedding, and of the gradient,
after n writes. Designs that mean it keep the variance (c^2 + g^2 = 1) or the mean (c + g = 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.equations import (
    BlockEquation,
    block_equations,
    is_declared,
    majority,
)
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.record.rows.finding import Finding

NEAR = 2e-4
"""Relative distance within which a factor is taken for a constant of the formula: code often rounds
constants to four digits, and neighbouring formulas differ by 5 % and more."""
SHARE_LEFT = 0.1
"""A constant below 1 is a fault where it leaves less than this of the embedding behind the last write.
The models of the zoo whose equations are discovered keep exactly 1, but for those that add around
their blocks and those with a norm behind every addition."""


@rule(
    "R06",
    "residual-scale-wrong",
    severity="serious",
    basis="law",
    needs=("anatomy",),
    summary="The factor of DeepNorm on the branch instead of the stream, or with a wrong power of depth; a "
    "factor below 1 on the stream at every write, with no norm behind it.",
    why=(
        "DeepNorm is stable because every update is small against the stream. On the branch the same "
        "factor makes each update large: the model is worse than plain post-norm. A stream that is halved "
        "at each of n writes has lost 2^n of its embedding at the end, and the gradient as much."
    ),
    is_not="Not residual multipliers below 1 on the branch (Granite, MiniCPM, depth-muP): they shrink it. "
    "Not factors that keep the variance or the mean, nor those that a model declares.",
    false_alarms="A branch factor that equals (2 L)^(1/4) by chance.",
    remedy="Multiply the stream by alpha, not the branch: norm(alpha * x + f(x)).",
    sources=("Wang et al. 2022, arXiv 2203.00555",),
    explains=(
        "gradient-vanishing", "gradient-exploding", "tokens-equal", "first-writes-too-large",
        "depth-unused", "unlike-its-family", "not-as-intended", "writes-drowned",
        "loss-worse-than-unigram", "loss-worse-than-uniform", "positions-unused",
    ),
    example="alpha-on-branch",
)  # fmt: skip
def residual_scale_wrong(case: Case, rule: Rule) -> Iterator[Finding]:
    """Post-norm stacks whose factor is a DeepNorm constant in the wrong place or power."""
    depths = {stack: case.depth(stack) for stack in case.stacks}
    for stack, blocks in block_equations(case).items():
        writes = [write for block in blocks for write in block.writes]
        if writes and all(write.settle is None for write in writes) and not is_declared(case):
            yield from _shrinking(rule, stack, blocks)
        if not writes or any(write.settle is None for write in writes):
            continue
        keep = majority((w.keep for w in writes if isinstance(w.keep, float)), share=0.9)
        gain = majority((w.gain for w in writes if isinstance(w.gain, float)), share=0.9)
        if keep is None or gain is None or keep <= 0:
            continue
        right = _alphas(stack, depths)
        ratio = gain / keep
        name = next((text for text, alpha in right.items() if _near(ratio, alpha)), None)
        place = f"all {len(blocks)} layers of the {stack}"
        layers = [block.layer for block in blocks]
        if name is not None:
            yield rule.finding(
                f"DeepNorm's alpha = {name} stands on the branch in {place}: norm(x + {ratio:.4g} u) "
                f"where the design is norm({ratio:.4g} x + u).",
                stack=stack,
                layers=layers,
                evidence=[
                    Evidence("factor of the update", gain, keep, "DeepNorm: 1"),
                    Evidence("factor of the stream", keep, gain, f"DeepNorm: alpha = {name}"),
                ],
                cause="the two factors of norm(alpha x + f(x)) are exchanged",
                remedy=Remedy(f"Write norm({ratio:.6g} * x + f(x))."),
            )
            continue
        wrong = _wrong_powers(depths[stack] if stack in depths else len(blocks))
        power = next((text for text, value in wrong.items() if _near(keep / gain, value)), None)
        if power is not None and not any(_near(keep / gain, alpha) for alpha in right.values()):
            text, alpha = next(iter(right.items()))
            yield rule.finding(
                f"The stream is kept with {power} = {keep / gain:.4g} in {place}, where DeepNorm has "
                f"alpha = {text} = {alpha:.4g}.",
                stack=stack,
                layers=layers,
                evidence=[Evidence("factor of the stream", keep / gain, alpha, f"alpha = {text}")],
                cause="another power of depth in the formula of alpha",
                remedy=Remedy(f"Use alpha = {text} = {alpha:.6g}."),
                severity="warning",
            )


def _shrinking(rule: Rule, stack: str, blocks: list[BlockEquation]) -> Iterator[Finding]:
    """A constant below 1 that every block multiplies the stream by."""
    factors = [_block_factors(block) for block in blocks]
    usual = majority(factors, share=0.9)
    if not usual or not 0 < usual[0] < 1 or usual[0] ** len(blocks) > SHARE_LEFT:
        return
    keep, *gains = usual
    variance, mean = keep**2 + sum(g**2 for g in gains), keep + sum(gains)
    if min(abs(variance - 1), abs(mean - 1)) < 0.01:
        return
    yield rule.finding(
        f"The stream is multiplied by {keep:g} in each of {len(blocks)} layers of the {stack}: "
        f"{keep ** len(blocks):.2g} of the embedding is left behind the last.",
        stack=stack,
        layers=[block.layer for block in blocks],
        evidence=[Evidence("factor of the stream in a layer", keep, 1.0, "x + f(x)")],
        ruled_out=["a norm behind the addition: none takes the factor away"],
        cause="a constant on the stream that belongs to the branch, or to no one",
        remedy=Remedy("Write x = x + f(x)."),
    )


def _block_factors(block: BlockEquation) -> tuple[float, ...]:
    """The factors of the stream and of every update in what leaves a block; none where one is learned."""
    factors: list[float] = [1.0]
    for write in block.writes:
        if not isinstance(write.keep, float) or not isinstance(write.gain, float):
            return ()
        factors = [factor * write.keep for factor in factors] + [write.gain]
    return tuple(float(f"{factor:.5g}") for factor in factors)


def _alphas(stack: str, depths: dict[str, int]) -> dict[str, float]:
    """What DeepNorm's alpha may be in this stack, by formula."""
    depth = depths.get(stack, 0)
    if depth == 0:
        return {}
    if {"encoder", "decoder"} <= set(depths):
        n, m = depths["encoder"], depths["decoder"]
        if stack == "encoder":
            return {"0.81 (N^4 M)^(1/16)": 0.81 * (n**4 * m) ** (1 / 16)}
        return {"(3 M)^(1/4)": (3 * m) ** 0.25}
    return {"(2 L)^(1/4)": (2 * depth) ** 0.25}


def _wrong_powers(depth: int) -> dict[str, float]:
    return {
        "(2 L)^(1/2)": math.sqrt(2 * depth),
        "(2 L)^(1/8)": (2 * depth) ** 0.125,
        "L^(1/4)": depth**0.25,
        "(8 L)^(1/4)": (8 * depth) ** 0.25,
    }


def _near(value: float, constant: float) -> bool:
    return constant > 0 and abs(value / constant - 1.0) < NEAR and abs(constant - 1.0) > 0.01
