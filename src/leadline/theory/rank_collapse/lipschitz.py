"""Lipschitz constants: of activations, and of an MLP in the composite measure.

For z -> act(z W1 + b1) W2 + b2, applied to every token,

    |f(Z) - f(Z')|_{1,inf} <= lambda |Z - Z'|_{1,inf},
    lambda = Lip(act) |W1|_{1,inf} |W2|_{1,inf},   |W|_{1,inf} = sqrt(|W|_1 |W|_inf)

because |act(a) - act(b)| <= Lip(act) |a - b| entry by entry, and |.|_1 and |.|_inf are each
monotone in the entries and submultiplicative; biases cancel. Gated MLPs (SwiGLU) are products of
two functions of z: they have no Lipschitz constant on the whole space.

Lip(act) is the largest derivative. Where it is not 1 it is computed: for x g(x), with g going from
0 to 1 and g(x) + g(-x) = 1, the derivative at -x is 1 minus that at x, so the largest is above 1, on
the right, where the second derivative changes its sign; that place is found by bisection.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from leadline.errors import UnknownName

__all__ = ["composite_lipschitz", "lip"]

Curve = Callable[[float], float]
_TANH_SCALE = math.sqrt(2.0 / math.pi)
_TANH_CUBE = 0.044715
"""The cubic coefficient of the tanh form of GELU, as Hendrycks and Gimpel 2016 give it."""
_BRACKET = (0.5, 4.0)
"""Where the derivatives of GELU (both forms) and SiLU have their maximum, and no other turn."""


@cache
def lip(act: str) -> float:
    """Return the Lipschitz constant of an activation: its largest slope, to full precision.

    relu and tanh 1; gelu Phi(sqrt 2) + sqrt(2) phi(sqrt 2) = 1.12890...; gelu_tanh 1.12899...;
    silu 1.09983... and quick_gelu the same: x s(1.702 x) is SiLU in another unit of length.
    """
    if act not in _ACTIVATIONS:
        raise UnknownName("activation with a Lipschitz constant", act, _ACTIVATIONS)
    curves = _ACTIVATIONS[act]
    if curves is None:
        return 1.0
    slope, bend = curves
    return slope(_turn(bend))


def composite_lipschitz(
    act: str, up_1: float, up_inf: float, down_1: float, down_inf: float
) -> float:
    """Return lambda = Lip(act) |W1|_{1,inf} |W2|_{1,inf} from the four norms of the two matrices.

    The matrices act from the right: `up_1` = |W1|_1 is W1's largest column sum, and so on.
    """
    up = math.sqrt(up_1) * math.sqrt(up_inf)
    down = math.sqrt(down_1) * math.sqrt(down_inf)
    return lip(act) * up * down


def _turn(bend: Curve) -> float:
    """Return where the second derivative falls through zero, to the last bit."""
    low, high = _BRACKET
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (middle, high) if bend(middle) > 0.0 else (low, middle)
    return low


def _gelu_slope(x: float) -> float:
    return 0.5 * (1.0 + math.erf(x / math.sqrt(2.0))) + x * _normal(x)


def _gelu_bend(x: float) -> float:
    return _normal(x) * (2.0 - x * x)


def _normal(x: float) -> float:
    return math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


def _gelu_tanh_slope(x: float) -> float:
    tanh, inner = _tanh_form(x)
    return 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner


def _gelu_tanh_bend(x: float) -> float:
    tanh, inner = _tanh_form(x)
    twice = 6.0 * _TANH_SCALE * _TANH_CUBE * x
    return (1.0 - tanh * tanh) * (inner + 0.5 * x * twice - x * tanh * inner * inner)


def _tanh_form(x: float) -> tuple[float, float]:
    """Return tanh u and du/dx of u = sqrt(2/pi) (x + 0.044715 x^3)."""
    tanh = math.tanh(_TANH_SCALE * (x + _TANH_CUBE * x**3))
    return tanh, _TANH_SCALE * (1.0 + 3.0 * _TANH_CUBE * x * x)


def _silu_slope(x: float) -> float:
    gate = 1.0 / (1.0 + math.exp(-x))
    return gate * (1.0 + x * (1.0 - gate))


def _silu_bend(x: float) -> float:
    gate = 1.0 / (1.0 + math.exp(-x))
    return gate * (1.0 - gate) * (2.0 + x * (1.0 - 2.0 * gate))


_ACTIVATIONS: dict[str, tuple[Curve, Curve] | None] = {
    "relu": None,
    "tanh": None,
    "gelu": (_gelu_slope, _gelu_bend),
    "gelu_tanh": (_gelu_tanh_slope, _gelu_tanh_bend),
    "silu": (_silu_slope, _silu_bend),
    "quick_gelu": (_silu_slope, _silu_bend),
}
"""Slope and bend (first and second derivative) of each activation; None: the slope is at most 1."""
