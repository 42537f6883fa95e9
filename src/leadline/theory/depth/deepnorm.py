"""DeepNorm: how much a write changes the stream, as the stack gets deeper."""

from __future__ import annotations

import math
from dataclasses import replace

from leadline.theory._condition import Condition
from leadline.theory.depth._assumptions import as_drawn, called, plain_branches, unit_norm
from leadline.theory.depth._facts import DepthFacts
from leadline.theory.depth._law import LAWS, Law
from leadline.theory.depth._writes import mlp_write

__all__ = ["DeepNormLaw", "deepnorm_alpha", "deepnorm_beta"]

_TOLERANCE = 1e-6
"""Relative: what alpha may be off by."""


def deepnorm_alpha(depth: int) -> float:
    """Return what a write keeps of the stream, (2 L)^(1/4)."""
    return (2.0 * depth) ** 0.25


def deepnorm_beta(depth: int) -> float:
    """Return the gain of value, output and MLP weights, (8 L)^(-1/4)."""
    return (8.0 * depth) ** -0.25


@LAWS.register("deepnorm")
class DeepNormLaw(Law):
    """|u| / |x| = sqrt(c) beta² ~ L^(-1/2) at the MLP, c what it writes at Xavier's gain 1.

    Assumptions: x' = N(alpha x + u) with alpha = (2 L)^(1/4) in a stack of its own, decoder or
    encoder; the init deepnorm: Xavier, value, output and MLP weights times beta = (8 L)^(-1/4);
    nothing trained; layernorm or rmsnorm with an eps that is small against the stream; a block is
    multi-head attention, then a plain MLP with ReLU.

    The paper's. alpha and beta make (number of writes) (v² + w²) / alpha² = 1, v = w = beta the
    scales of the two matrices of a branch, which bounds by a constant how much one step of SGD
    changes the output of a model of any depth. 2 L * 2 beta² / alpha² = 4 L / (4 L) = 1.

    Derived here, at initialisation. Two matrices are multiplied by beta, so an update has beta⁴
    of its mean square: the MLP writes |u| / |x| = sqrt(c) beta² = sqrt(c / (8 L)) before a stream
    of mean square 1, attention at most beta². Against alpha x, which it is added to, that is
    beta² / alpha = 8^(-1/2) 2^(-1/4) L^(-3/4): what 2 L independent writes add to a stream of mean
    square 1 is at most 2 L beta⁴ / alpha² ~ L^(-1/2), so a deep stack at initialisation hardly
    turns its stream at all. The Jacobian of a write is J_N (alpha I + F'). Since s is nearly
    alpha, that is (I - P)(I + F' / alpha) with P the projection on what the norm takes out: two
    directions of a token for layernorm, one for rmsnorm. |F'| / alpha is of order L^(-3/4) too.
    So sigma_1(J - I) does not fall below 1 and |J - I|_F / sqrt(N) not below sqrt(2 / d): what
    falls is the part outside of P, which hardly turns from write to write. The gradient therefore
    keeps its size through the stack: |g_0| / |g_L| is of order one at any depth.
    """

    title = "DeepNorm's write before training"
    statement = "|u|/|x| = (c / 8L)^1/2 ~ L^-1/2"
    source = "Wang et al. 2022, arXiv 2203.00555 (alpha, beta); the size of a write derived"
    quantity = "update.ratio"
    along = "depth"

    def conditions(self, facts: DepthFacts) -> list[Condition]:
        return [
            called("the norm stands after every addition", facts.placement, ("post",),
                   "the placement"),
            _keeps(facts),
            called("the init is deepnorm", facts.init, ("deepnorm",), "the init"),
            as_drawn(facts),
            *unit_norm(facts),
            *plain_branches(facts),
            called("the activation is relu, which is homogeneous", facts.mlp, ("relu",),
                   "the MLP"),
        ]  # fmt: skip

    def exponent(self, facts: DepthFacts) -> float | None:
        return -0.5

    def mlp_ratio(self, facts: DepthFacts) -> float | None:
        """Return |u| / |x| at the MLP for this depth; None where a number is missing."""
        c = mlp_write(replace(facts, init="xavier", init_scale=1.0))
        return None if c is None else math.sqrt(c) * deepnorm_beta(facts.depth) ** 2


def _keeps(facts: DepthFacts) -> Condition:
    assumption = "every write is alpha x + u with alpha = (2 L)^(1/4)"
    if facts.keep is None or facts.gain is None:
        return Condition(assumption, False)
    alpha = deepnorm_alpha(facts.depth)
    holds = facts.gain == 1.0 and math.isclose(facts.keep, alpha, rel_tol=_TOLERANCE)
    reason = f"a write keeps {facts.keep:g} times the stream and adds {facts.gain:g} of the update"
    return Condition(assumption, holds, "" if holds else reason)
