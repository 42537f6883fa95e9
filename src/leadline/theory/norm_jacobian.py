"""The Jacobians of LayerNorm and RMSNorm in closed form.

For one token x of d features, J[i, j] = d y_i / d x_j:

    LayerNorm   m = mean x,  s = sqrt(var x + eps),     xh = (x - m) / s
                J = diag(gamma) / s (I - 11'/d - xh xh'/d)
    RMSNorm     s = sqrt(mean x² + eps),                xh = x / s
                J = diag(gamma) / s (I - xh xh'/d)

(beta moves y and not J.) With gamma = g everywhere the singular values are

    LayerNorm   |g|/s, d - 2 times;  |g| eps/s³ along xh;  0 along 1
    RMSNorm     |g|/s, d - 1 times;  |g| eps/s³ along xh

because 1 and xh are orthogonal for LayerNorm and |xh|² = d (s² - eps)/s², so I - xh xh'/d leaves
1 - (s² - eps)/s² = eps/s² along xh. Without eps LayerNorm has two zero singular values and RMSNorm
one: neither the size of x nor, for LayerNorm, its mean reaches the output. The norm is |g|/s, which
is below 1 only where s > |g|: a norm amplifies the gradient of a small stream. For a gamma that
differs by feature, singular values of a product of matrices give for each of them

    min|gamma| sigma_i  <=  sigma_i(J)  <=  max|gamma| sigma_i,      sigma_i those of gamma = 1.

The output without gamma and beta has length sqrt(d (s² - eps)/s²), so sqrt(d) for eps = 0.

Source: Ba, Kiros, Hinton 2016, arXiv 1607.06450; Zhang and Sennrich 2019, arXiv 1910.07467; the
derivatives are computed here. Where all features are equal (LayerNorm) or zero (RMSNorm) and
eps = 0 there is no derivative: the result is then not finite.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np

from leadline.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Vector = NDArray[np.float64]

__all__ = [
    "NormKind",
    "layer_norm_jacobian",
    "norm_jacobian_of_stream",
    "norm_singular_bounds",
    "norm_singular_values",
    "normed",
    "rms_norm_jacobian",
]

NormKind = Literal["layernorm", "rmsnorm"]
_LOST: dict[NormKind, int] = {"layernorm": 2, "rmsnorm": 1}
"""How many directions a norm without eps takes out."""


def normed(x: ArrayLike, *, norm: NormKind, eps: float) -> tuple[Vector, float]:
    """Return xh, what a norm without gamma and beta gives, and s, what it divides by."""
    token = _token(x, norm)
    centred = token - token.mean() if norm == "layernorm" else token
    s = math.sqrt(float(np.mean(centred**2)) + eps)
    with np.errstate(divide="ignore", invalid="ignore"):
        return centred / s, s


def layer_norm_jacobian(
    x: ArrayLike, *, gamma: ArrayLike | None = None, eps: float = 1e-5
) -> Vector:
    """Return the Jacobian [d, d] of LayerNorm at one token."""
    return _jacobian(x, "layernorm", gamma, eps)


def rms_norm_jacobian(x: ArrayLike, *, gamma: ArrayLike | None = None, eps: float = 1e-5) -> Vector:
    """Return the Jacobian [d, d] of RMSNorm at one token."""
    return _jacobian(x, "rmsnorm", gamma, eps)


def norm_jacobian_of_stream(
    x: ArrayLike, *, norm: NormKind, gamma: ArrayLike | None = None, eps: float = 1e-5
) -> Vector:
    """Return the Jacobian [n d, n d] at all tokens of a stream [n, d]: one block per token.

    A post-norm sublayer is N(x + F(x)): its Jacobian is this, at x + F(x), times I + F'.
    """
    stream = np.asarray(x, dtype=np.float64)
    if stream.ndim != 2:
        raise InputError(f"A stream has the shape [token, width]; found {stream.shape}.")
    tokens, width = stream.shape
    jacobian = np.zeros((tokens * width, tokens * width))
    for at, token in enumerate(stream):
        here = slice(at * width, (at + 1) * width)
        jacobian[here, here] = _jacobian(token, norm, gamma, eps)
    return jacobian


def norm_singular_values(
    x: ArrayLike, *, norm: NormKind, gamma: float = 1.0, eps: float = 1e-5
) -> Vector:
    """Return the singular values of the Jacobian for one gamma in all features, the largest first."""
    token = _token(x, norm)
    _, s = normed(token, norm=norm, eps=eps)
    count = len(token) - _LOST[norm]
    zeros = [0.0] if norm == "layernorm" else []
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.array([1.0] * count + [eps / np.float64(s) ** 2, *zeros])
        return abs(gamma) / np.float64(s) * shares


def norm_singular_bounds(
    x: ArrayLike, *, norm: NormKind, gamma: ArrayLike, eps: float = 1e-5
) -> tuple[Vector, Vector]:
    """Return what the singular values are at least and at most for any gamma."""
    sizes = np.abs(np.asarray(gamma, dtype=np.float64))
    values = norm_singular_values(x, norm=norm, eps=eps)
    return float(sizes.min()) * values, float(sizes.max()) * values


def _jacobian(x: ArrayLike, norm: NormKind, gamma: ArrayLike | None, eps: float) -> Vector:
    token, s = normed(x, norm=norm, eps=eps)
    d = len(token)
    projection = np.eye(d) - np.outer(token, token) / d
    if norm == "layernorm":
        projection -= 1.0 / d
    with np.errstate(divide="ignore", invalid="ignore"):
        jacobian = projection / s
    if gamma is None:
        return jacobian
    scale = np.asarray(gamma, dtype=np.float64)
    if scale.shape not in ((), (d,)):
        raise InputError(f"gamma has the shape {scale.shape} and the token {d} features.")
    return np.broadcast_to(scale, (d,))[:, None] * jacobian


def _token(x: ArrayLike, norm: NormKind) -> Vector:
    token = np.asarray(x, dtype=np.float64)
    if token.ndim != 1 or len(token) < _LOST[norm]:
        raise InputError(
            f"The Jacobian of {norm} is that of one token, a row of at least {_LOST[norm]} "
            f"numbers; found the shape {token.shape}."
        )
    return token
