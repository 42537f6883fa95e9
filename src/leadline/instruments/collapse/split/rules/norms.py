"""How a Split does LayerNorm and RMSNorm.

With c and r the reference and the rest without their mean over the features (LayerNorm) or as they
are (RMSNorm), v the mean square of c plus eps, d the width:

    t = (2 r.c + |r|^2) / (d v),   h = (1 + t)^(-1/2),   g = h - 1 = expm1(-log1p(t) / 2)
    rest = (r h + c g) / sqrt(v)

t is the relative change of the mean square from the reference to a token.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch.nn import functional as F

from leadline.errors import InputError
from leadline.instruments.collapse.split.scaled import FAINT, Scaled, scaled, shifted
from leadline.instruments.collapse.split.split import RULES, Split, constant, rule

__all__: list[str] = []

Tensor = torch.Tensor


@rule(F.layer_norm)
def _layer_norm(
    x: Split,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Split:
    _one_axis(normalized_shape)
    centred = x.linear(lambda values: values - values.mean(-1, keepdim=True))
    return _to_size(centred, weight, bias, eps)


@rule(F.rms_norm, torch.rms_norm)
def _rms_norm(
    x: Split, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Split:
    _one_axis(normalized_shape)
    return _to_size(x, weight, None, torch.finfo(torch.float64).eps if eps is None else eps)


def _one_axis(normalized_shape: Any) -> None:
    if not isinstance(normalized_shape, int) and len(normalized_shape) != 1:
        raise InputError("A norm over several axes cannot be followed.")


def _to_size(x: Split, weight: Tensor | None, bias: Tensor | None, eps: float) -> Split:
    """x / sqrt(mean square + eps) * weight + bias."""
    units = [e for e in (x.base.exponent, x.rest.exponent) if e is not None]
    if eps > 0.0:
        units.append(math.frexp(eps)[1] // 2)
    if not units:
        raise InputError("A norm without eps was given a stream of zeros; give it an eps.")
    unit = max(units)
    base, eps_ = x.base.at(unit), float(shifted(torch.tensor(eps, dtype=torch.float64), -2 * unit))
    variance = base.square().mean(-1, keepdim=True) + eps_
    if not bool((variance > 0.0).all()):
        # The reference itself is zero, or as good as zero beside the rest.
        return _affine(_plainly(x, unit, eps_), weight, bias)
    sigma = variance.sqrt()
    at_size = x.base.map(x.base.values / sigma)
    moved = Scaled(at_size.values, None if at_size.exponent is None else at_size.exponent - unit)
    if x.rest.exponent is None:
        return _affine(replace(x, base=x.rounding(moved)), weight, bias)
    tiny = x.rest.exponent - unit
    rest, width = x.rest.values, x.shape[-1]
    t_ = (
        2 * (rest * base).sum(-1, keepdim=True) + shifted(rest.square().sum(-1, keepdim=True), tiny)
    ) / (width * variance)
    t = shifted(t_, tiny)
    if not bool(torch.isfinite(t).all()):
        return _affine(_plainly(x, unit, eps_), weight, bias)
    mean_square = (base + shifted(rest, tiny)).square().mean(-1, keepdim=True) + eps_
    if not bool((mean_square > 0.0).all()):
        raise InputError("A norm without eps meets a token that is zero beside the others.")
    shrunk = torch.where(t > -0.5, torch.rsqrt(1 + t), (variance / mean_square).sqrt())
    # Near the end of float64 t has few digits left; there g / t is -1/2 to the last one.
    faint = t.abs() < FAINT
    safe = torch.where((t > -0.5) & ~faint, t, 1.0)
    per_t = torch.expm1(-0.5 * torch.log1p(safe)) / safe
    far = (shrunk - 1) / torch.where(faint, 1.0, t)
    per_t = torch.where(faint, -0.5, torch.where(t > -0.5, per_t, far))
    apart = (rest * shrunk + base * (t_ * per_t)) / sigma
    return _affine(x.settled(x.rounding(moved), scaled(apart, tiny)), weight, bias)


def _plainly(x: Split, unit: int, eps: float) -> Split:
    tokens = x.base.at(unit) + x.rest.at(unit)
    size = (tokens.square().mean(-1, keepdim=True) + eps).sqrt()
    if not bool((size > 0.0).all()):
        raise InputError("A norm without eps was given a token of zeros; give it an eps.")
    zero = Scaled(torch.zeros_like(x.base.values), None)
    return x.settled(zero, scaled(tokens / size))


def _affine(x: Split, weight: Tensor | None, bias: Tensor | None) -> Split:
    if weight is not None:
        x = RULES[torch.mul](x, weight)
    return x if bias is None else x.raised(constant(bias, like=x))
