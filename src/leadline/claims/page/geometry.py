"""The numbers behind the pictures that a reader can move, and their first drawing.

The page computes the same again in its script whenever a slider moves.

    powers     L log10(1 + e), L log10(1 - e), L log10(e)
    ellipse    the image of the unit circle under A = softmax of two rows of two logits. With the
               differences s and t of the rows' logits, A = [[a, 1 - a], [b, 1 - b]],
               a = 1 / (1 + exp(-s)), b = 1 / (1 + exp(-t)). Singular values in closed form:
               E = (p + s) / 2, F = (p - s) / 2, G = (r + q) / 2, H = (r - q) / 2 of
               [[p, q], [r, s]] give hypot(E, H) +- hypot(F, G). At most the square root of the
               largest column sum, for ||A||^2 <= ||A||_1 ||A||_inf and rows sum to 1.
    sphere     LayerNorm without epsilon in three dimensions: (x - mean) / deviation has the length
               sqrt(3) and is orthogonal to (1, 1, 1): a circle. Gains g make it an ellipse whose
               semi-axes are sqrt(3) times the singular values of diag(g) B, where the columns of B
               span the plane.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ellipse", "attention_ellipse", "gained_axes", "layer_norm", "powers", "tokens", "view"]

Array = NDArray[np.float64]

PLANE: Array = np.array(
    [[1 / math.sqrt(2), 1 / math.sqrt(6)], [-1 / math.sqrt(2), 1 / math.sqrt(6)], [0.0, -2 / math.sqrt(6)]]
)  # fmt: skip
"""Columns that are orthonormal and orthogonal to (1, 1, 1)."""
ELEVATION = 0.42
"""How far above the horizon the eye stands, in radians."""


@dataclass(frozen=True)
class Ellipse:
    """What a 2 x 2 attention matrix makes of the unit circle."""

    matrix: Array
    long: float
    short: float
    bound: float
    """The square root of the largest column sum."""
    before: Array
    """The unit vector that becomes the long semi-axis."""
    after: Array
    """That semi-axis."""


def powers(epsilon: float, depth: int) -> tuple[float, float, float]:
    """Logarithms to base 10 of (1 + e)^L, (1 - e)^L and e^L."""
    return (
        depth * math.log10(1 + epsilon),
        depth * math.log10(1 - epsilon),
        depth * math.log10(epsilon),
    )


def attention_ellipse(s: float, t: float) -> Ellipse:
    """The ellipse of the rows softmax(s, 0) and softmax(t, 0)."""
    a, b = 1 / (1 + math.exp(-s)), 1 / (1 + math.exp(-t))
    matrix = np.array([[a, 1 - a], [b, 1 - b]])
    _, values, right = np.linalg.svd(matrix)
    before = right[0] if right[0].sum() >= 0 else -right[0]
    bound = math.sqrt(float(matrix.sum(axis=0).max()))
    return Ellipse(matrix, float(values[0]), float(values[1]), bound, before, matrix @ before)


def layer_norm(token: Sequence[float] | Array) -> Array:
    """LayerNorm without gain, bias and epsilon."""
    centred = np.asarray(token, dtype=np.float64) - np.mean(token)
    return centred / math.sqrt(float(np.mean(centred**2)))


def gained_axes(gains: Sequence[float]) -> tuple[float, float]:
    """The semi-axes of the ellipse that gains make of the circle, the longer first."""
    values = np.linalg.svd(np.diag(np.asarray(gains, dtype=np.float64)) @ PLANE, compute_uv=False)
    return math.sqrt(3) * float(values[0]), math.sqrt(3) * float(values[1])


def tokens(count: int = 10, *, seed: int = 0) -> Array:
    """Vectors for the picture: normal ones around a common offset."""
    drawn = np.random.default_rng(seed).normal(size=(count, 3))
    return np.round(1.3 * drawn + np.array([0.9, 0.6, 0.9]), 3)


def view(points: Array, turn: float) -> Array:
    """Points of space as an eye far away sees them, which stands at the angle `turn`."""
    right = np.array([-math.sin(turn), math.cos(turn), 0.0])
    up = np.array(
        [
            -math.cos(turn) * math.sin(ELEVATION),
            -math.sin(turn) * math.sin(ELEVATION),
            math.cos(ELEVATION),
        ]
    )
    return np.stack([points @ right, points @ up], axis=-1)
