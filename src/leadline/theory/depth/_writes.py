"""The mean square of what attention and an MLP write before training, over random weights.

The branch reads h with mean square q per token (1 behind a norm). Weights are independent, of mean
zero and variance v_role, fan in times v_role is the gain of a mean square:

    attention   u = W_O W_V sum_j A_ij h_j      E |u|²/d <= a q,   a = (d v_value) (d v_output)
    MLP         u = W_2 f(W_1 h)                E |u|²/d = (k v_down) S(d v_up q)
    S(v) = E f(sqrt(v) z)², z normal;  ReLU: S(v) = v / 2;  k = r d, the inner width

Proof. Given h, W h has independent rows of mean square fan in * v * q. Rows of attention sum to one,
so by convexity |sum_j A_ij h_j|² <= sum_j A_ij |h_j|² = q d where all tokens have the same mean
square; queries and keys are drawn apart from values, so A may be anything. The mean square is 0 at
least. For ReLU half of a symmetric variable's mean square is left, whatever its distribution; for
other activations W_1 h is taken to be normal, which it is for normal weights and for wide layers.
Output weights have mean zero, so <x, u> is 0 in the mean.

    xavier   v = gain² 2 / (fan in + fan out):  a = gain⁴,  MLP with ReLU c = gain⁴ 2 r / (1 + r)²
    gpt2     v = std², output weights std² / (2 L):  the 2 L is left to the law

Xiong et al. 2020 (arXiv 2002.04745) have xavier with r = 1: c = 1/2 and a = 1. With the usual r = 4
the MLP writes 8/25.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from leadline.theory.depth._facts import DepthFacts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

__all__ = ["ACTIVATIONS", "attention_write", "mlp_write", "second_moment"]

_NODES = 120


def _gelu_tanh(x: Vector) -> Vector:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _gelu(x: Vector) -> Vector:
    return x * np.array([0.5 * math.erfc(-one / math.sqrt(2.0)) for one in x.tolist()])


def _silu(x: Vector) -> Vector:
    return x * 0.5 * (1.0 + np.tanh(0.5 * x))


def _relu(x: Vector) -> Vector:
    return np.maximum(x, 0.0)


ACTIVATIONS: dict[str, Callable[[Vector], Vector]] = {
    "relu": _relu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
}


@cache
def _quadrature() -> tuple[Vector, Vector]:
    """The nodes and weights, which take 2 ms to find: a law asks for them at every layer."""
    return np.polynomial.hermite_e.hermegauss(_NODES)


def second_moment(activation: str, variance: float) -> float:
    """Return S(v) = E f(sqrt(v) z)² for a normal z, by Gauss-Hermite quadrature; ReLU: v / 2."""
    if activation == "relu":
        return 0.5 * variance
    nodes, weights = _quadrature()
    values = ACTIVATIONS[activation](math.sqrt(variance) * nodes) ** 2
    return float(weights @ values) / math.sqrt(2.0 * math.pi)


def attention_write(facts: DepthFacts, q: float = 1.0) -> float | None:
    """Return the most that attention writes in mean square; None where it is not known."""
    if facts.init_scale is None or facts.width is None:
        return None
    if facts.init == "xavier":
        return facts.init_scale**4 * q
    if facts.init == "gpt2":
        return (facts.width * facts.init_scale**2) ** 2 * q
    return None


def mlp_write(facts: DepthFacts, q: float = 1.0) -> float | None:
    """Return what the MLP writes in mean square; None where it is not known."""
    ratio, scale = facts.hidden_ratio, facts.init_scale
    if ratio is None or scale is None or facts.width is None or facts.mlp not in ACTIVATIONS:
        return None
    if facts.init == "xavier":
        gain = 2.0 * scale**2 / (1.0 + ratio)  # width times the variance of either matrix
    elif facts.init == "gpt2":
        gain = facts.width * scale**2
    else:
        return None
    return ratio * gain * second_moment(facts.mlp, gain * q)
