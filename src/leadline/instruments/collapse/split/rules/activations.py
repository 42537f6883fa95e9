"""How a Split does activations: no difference of nearly equal values.

With a the reference's value and D the change to a token's:

    relu     by cases of the signs of a and a + D, exactly
    smooth   D times the mean slope between the two ends: 16 Gauss-Legendre nodes, the slope in the
             middle where D is tiny, the difference of the values where |D| > 1
    sigmoid  s(a + D) - s(a) = s(a + D) s(-a) (1 - exp(-D)) there, tanh(x) = 2 s(2x) - 1 likewise;
             erf by erfc on each side of zero: these are flat far out, and their values agree
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch.nn import functional as F

from leadline.errors import InputError
from leadline.instruments.collapse.split.scaled import FAINT, Scaled, scaled
from leadline.instruments.collapse.split.split import Split, rule

__all__: list[str] = []

Tensor = torch.Tensor
TENSOR = torch.Tensor
NODES = 16


@rule(F.relu, torch.relu, TENSOR.relu)
def _relu(x: Split, inplace: bool = False) -> Split:
    exponent = x.rest.exponent
    base = Scaled(x.base.values.clamp_min(0.0), x.base.exponent)
    if exponent is None:
        return replace(x, base=base)
    at, change = x.base.at(exponent), x.rest.values
    after = at + change
    crossed = torch.where(at > 0, -at, after)
    apart = torch.where((at > 0) == (after > 0), torch.where(at > 0, change, 0.0), crossed)
    return x.settled(base, x.rest.map(apart))


def _normal(x: Tensor) -> Tensor:
    return 0.5 * torch.erfc(-x * math.sqrt(0.5))


def _gelu_slope(x: Tensor) -> Tensor:
    return _normal(x) + x * torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


_INNER = math.sqrt(2 / math.pi)


def _gelu_tanh(x: Tensor) -> Tensor:
    # x sigmoid(2 u) is x (1 + tanh u) / 2 without cancellation at negative x.
    return x * torch.sigmoid(2 * _INNER * (x + 0.044715 * x**3))


def _gelu_tanh_slope(x: Tensor) -> Tensor:
    gate = torch.sigmoid(2 * _INNER * (x + 0.044715 * x**3))
    return gate + x * gate * (1 - gate) * 2 * _INNER * (1 + 3 * 0.044715 * x * x)


def _silu_slope(x: Tensor) -> Tensor:
    gate = torch.sigmoid(x)
    return gate + x * gate * (1 - gate)


def _sigmoid_slope(x: Tensor) -> Tensor:
    return torch.sigmoid(x) * torch.sigmoid(-x)


def _tanh_slope(x: Tensor) -> Tensor:
    return 4 * torch.sigmoid(2 * x) * torch.sigmoid(-2 * x)


def _erf_slope(x: Tensor) -> Tensor:
    return 2 / math.sqrt(math.pi) * torch.exp(-x * x)


@rule(F.gelu)
def _gelu(x: Split, approximate: str = "none") -> Split:
    if approximate == "tanh":
        return _curved(x, _gelu_tanh, _gelu_tanh_slope, straight=True)
    return _curved(x, lambda at: at * _normal(at), _gelu_slope, straight=True)


@rule(F.silu)
def _silu(x: Split, inplace: bool = False) -> Split:
    return _curved(x, lambda at: at * torch.sigmoid(at), _silu_slope, straight=True)


def _sigmoid_difference(at: Tensor, change: Tensor) -> Tensor:
    """s(a + D) - s(a) = s(a + D) s(-a) (1 - exp(-D)), and its mirror image for D < 0."""
    up = -torch.expm1(-change.clamp_min(0.0)) * torch.sigmoid(at + change) * torch.sigmoid(-at)
    down = torch.expm1(change.clamp_max(0.0)) * torch.sigmoid(at) * torch.sigmoid(-at - change)
    return torch.where(change > 0, up, down)


def _erf_difference(at: Tensor, change: Tensor) -> Tensor:
    """erf(a + D) - erf(a); on one side of zero by erfc, which is small where erf is flat."""
    end = at + change
    right = torch.special.erfc(at) - torch.special.erfc(end)
    left = torch.special.erfc(-end) - torch.special.erfc(-at)
    apart = torch.where((at > 0) & (end > 0), right, left)
    return torch.where((at > 0) == (end > 0), apart, torch.erf(end) - torch.erf(at))


@rule(torch.sigmoid, F.sigmoid, TENSOR.sigmoid)
def _sigmoid(x: Split) -> Split:
    return _curved(x, torch.sigmoid, _sigmoid_slope, difference=_sigmoid_difference)


@rule(torch.tanh, F.tanh, TENSOR.tanh)
def _tanh(x: Split) -> Split:
    def difference(at: Tensor, change: Tensor) -> Tensor:
        return 2 * _sigmoid_difference(2 * at, 2 * change)

    return _curved(x, torch.tanh, _tanh_slope, difference=difference)


@rule(torch.erf, TENSOR.erf)
def _erf(x: Split) -> Split:
    return _curved(x, torch.erf, _erf_slope, difference=_erf_difference)


MIDPOINT = 1e-9
"""Up to this change the slope in the middle is the mean slope, to 1e-18 of its third derivative."""
FLATTEST = 1e-290
"""A slope below this has digits missing."""
FLAT = 1e4
"""Beyond this every curve here is straight or constant to the last digit."""


def _curved(
    x: Split,
    value: Callable[[Tensor], Tensor],
    slope: Callable[[Tensor], Tensor],
    *,
    straight: bool = False,
    difference: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Split:
    """A smooth function: `straight` ones are 0 or x far out, the others constant.

    `difference` is for those whose values at two ends may agree to the last digit.
    """
    at = x.base.at(0)
    base = _value_at(x, at, value, slope, straight=straight)
    if x.rest.exponent is None:
        return replace(x, base=x.rounding(base))
    change = x.rest.at(0)
    largest = float(change.abs().max())
    if not math.isfinite(largest) or (largest > 1.0 and not bool(torch.isfinite(at).all())):
        raise InputError("Activations beyond the range of float64 cannot be followed.")
    if largest <= MIDPOINT:
        mean_slope = slope((at + 0.5 * change).clamp(-FLAT, FLAT))
        return x.settled(x.rounding(base), _sloped(x.rest, mean_slope))
    near = change.abs() <= 1.0
    small = torch.where(near, change, 0.0)
    mean_slope = torch.zeros_like(change)
    for node, weight in zip(*_GAUSS, strict=True):
        mean_slope = mean_slope + weight * slope((at + node * small).clamp(-FLAT, FLAT))
    if largest > 1.0:
        far = _difference(value, at, change) if difference is None else difference(at, change)
        mean_slope = torch.where(near, mean_slope, far / torch.where(near, 1.0, change))
    return x.settled(x.rounding(base), _sloped(x.rest, mean_slope))


def _sloped(rest: Scaled, mean_slope: Tensor) -> Scaled:
    """The rest times its slopes; refused where all of these are below the range of float64."""
    apart = rest.values * mean_slope
    if float(apart.abs().max()) < FLATTEST * float(rest.values.abs().max()):
        raise InputError(
            "All units stand so far in the flat part of their activation that its slope is below "
            "the range of float64; such a network cannot be followed."
        )
    return rest.map(apart)


def _value_at(
    x: Split,
    at: Tensor,
    value: Callable[[Tensor], Tensor],
    slope: Callable[[Tensor], Tensor],
    *,
    straight: bool,
) -> Scaled:
    """f(x) of the reference as x times f(x) / x where f(0) = 0: a tiny or huge x keeps its exponent."""
    inner = at.clamp(-FLAT, FLAT)
    vanishes = float(value(torch.zeros((), dtype=torch.float64))) == 0.0
    if not vanishes or (not straight and float(at.abs().max()) > 1.0):
        return scaled(value(inner))
    faint = inner.abs() < FAINT
    share = value(inner) / torch.where(faint, 1.0, inner)
    share = torch.where(faint, slope(torch.zeros_like(inner)), share)
    if straight:
        # Far out the share is 0 or 1: of an infinite value only its sign matters.
        share = torch.where(at.abs() > FLAT, (at > 0).double(), share)
    return x.base.map(x.base.values * share)


def _difference(value: Callable[[Tensor], Tensor], at: Tensor, change: Tensor) -> Tensor:
    """f(a + D) - f(a) of a function that is x far to the right: more than 1 apart they differ."""

    def of(points: Tensor) -> Tensor:
        return torch.where(points > FLAT, points, value(points.clamp(-FLAT, FLAT)))

    return of(at + change) - of(at)


def _gauss_legendre(nodes: int) -> tuple[list[float], list[float]]:
    """Nodes and weights on [0, 1]."""
    import numpy as np

    at, weights = np.polynomial.legendre.leggauss(nodes)
    return [float(0.5 * (1 + x)) for x in at], [float(0.5 * w) for w in weights]


_GAUSS = _gauss_legendre(NODES)
