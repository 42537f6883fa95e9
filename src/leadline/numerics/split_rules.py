"""How a Split does what modules do: none of these forms subtracts nearly equal numbers.

With x the reference, R the rest, D the change of a value between the reference and a token:

    linear       x W + b and R W
    shape        both parts alike
    activation   relu: by cases of the signs; others: D times the mean slope between the two ends,
                 16 Gauss-Legendre nodes (one where D is tiny), or the plain difference where
                 |D| > 1
    norm         with v the variance at the reference (plus eps), t = (2 r.c + |r|^2) / (d v),
                 h = (1 + t)^(-1/2), g = h - 1 by expm1(-log1p(t)/2):  (r h + c g) / sqrt(v)
    attention    see `split_attention`

c and r are x and R without their mean over the features (LayerNorm) or as they are (RMSNorm).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.nn import functional as F

from leadline.errors import InputError
from leadline.numerics.scaled import Scaled, added, scaled, shifted, times
from leadline.numerics.split import Split, constant, rule

__all__: list[str] = []

Tensor = torch.Tensor
TENSOR = torch.Tensor
NODES = 16
FAINT = 1e-200
"""So small that the first order is exact."""


# --- sums and products -------------------------------------------------------------------------


@rule(torch.add, TENSOR.add, TENSOR.__add__, TENSOR.__radd__)
def _add(first: Any, second: Any, *, alpha: Any = 1.0) -> Split:
    if alpha != 1.0:
        second = second * alpha
    if not isinstance(first, Split):
        first, second = second, first
    if isinstance(second, Split):
        return replace(
            first,
            base=first.rounding(added(first.base, second.base)),
            rest=first.rounding(added(first.rest, second.rest)),
        )
    if _by_token(second, first):
        number = constant(second, like=first)
        middle = _reference_of(number.values, first)
        rest = added(first.rest, number.map(number.values - middle))
        return first.settled(added(first.base, number.map(middle)), rest)
    return first.raised(constant(second, like=first))


@rule(torch.sub, TENSOR.sub, TENSOR.__sub__)
def _sub(first: Any, second: Any) -> Split:
    return _add(first, -second)


@rule(torch.rsub, TENSOR.__rsub__)
def _rsub(first: Any, second: Any) -> Split:
    return _add(second, -first)


@rule(torch.mul, TENSOR.mul, TENSOR.__mul__, TENSOR.__rmul__)
def _mul(first: Any, second: Any) -> Split:
    if not isinstance(first, Split):
        first, second = second, first
    if isinstance(second, Split):
        return first.product(second)
    number = constant(second, like=first)
    if not _by_token(second, first):
        return replace(
            first,
            base=first.rounding(times(first.base, number)),
            rest=first.rounding(times(first.rest, number)),
        )
    middle = number.map(_reference_of(number.values, first))
    apart = number.map(number.values - middle.values)
    rest = added(times(first.base, apart), times(first.rest, number))
    return first.settled(times(first.base, middle), rest)


@rule(torch.div, TENSOR.div, TENSOR.__truediv__)
def _div(first: Split, second: Any) -> Split:
    if isinstance(second, Split):
        raise InputError("A division by a tensor of tokens cannot be followed.")
    return _mul(first, 1.0 / second)


@rule(torch.zeros_like)
def _zeros_like(x: Split) -> Split:
    return x.reshaped(torch.zeros_like) if x.rest.is_zero else _mul(x, 0.0)


@rule(torch.neg, TENSOR.neg, TENSOR.__neg__)
def _neg(x: Split) -> Split:
    return -x


@rule(torch.addcmul)
def _addcmul(x: Any, first: Any, second: Any, *, value: float = 1.0) -> Split:
    return _add(x, _mul(first, second), alpha=value)


@rule(torch.lerp, TENSOR.lerp)
def _lerp(start: Any, end: Any, weight: Any) -> Split:
    return _add(start, _mul(weight, _add(end, -start)))


def _by_token(value: Any, like: Split) -> bool:
    """Whether a tensor has a number of its own for every token."""
    if not isinstance(value, Tensor):
        return False
    axis = like.axis - like.ndim
    return value.ndim >= -axis and value.shape[axis] > 1


def _reference_of(values: Tensor, like: Split) -> Tensor:
    axis = like.axis - like.ndim
    return values.narrow(axis, 0, 1) if like.first else values.mean(axis, keepdim=True)


# --- linear maps and shapes --------------------------------------------------------------------


@rule(F.linear)
def _linear(x: Split, weight: Tensor, bias: Tensor | None = None) -> Split:
    matrix = weight.detach().double().mT
    _finite(matrix, "weight")
    out = x.through(matrix)
    return out if bias is None else out.raised(constant(bias, like=x))


def _finite(values: Tensor, what: str) -> None:
    if not bool(torch.isfinite(values).all()):
        raise InputError(f"A {what} holds values that are not finite; load intact weights.")


@rule(TENSOR.view, TENSOR.reshape, torch.reshape)
def _view(x: Split, *shape: Any) -> Split:
    sizes: Sequence[int] = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    axis = x.axis
    if tuple(sizes[: axis + 1]) != tuple(x.shape[: axis + 1]):
        raise InputError("A change of shape that moves the tokens cannot be followed.")
    alone = (*sizes[:axis], 1, *sizes[axis + 1 :])
    return replace(
        x,
        base=Scaled(x.base.values.reshape(alone), x.base.exponent),
        rest=Scaled(x.rest.values.reshape(tuple(sizes)), x.rest.exponent),
    )


@rule(TENSOR.flatten, torch.flatten)
def _flatten(x: Split, start_dim: int = 0, end_dim: int = -1) -> Split:
    start, end = start_dim % x.ndim, end_dim % x.ndim
    if start <= x.axis:
        raise InputError("Tokens that are flattened into other axes cannot be followed.")
    return x.reshaped(lambda values: values.flatten(start, end))


@rule(TENSOR.unflatten)
def _unflatten(x: Split, dim: int, sizes: Any) -> Split:
    if dim % x.ndim <= x.axis:
        raise InputError("A change of shape that moves the tokens cannot be followed.")
    return x.reshaped(lambda values: values.unflatten(dim, sizes))


@rule(TENSOR.transpose, torch.transpose)
def _transpose(x: Split, first: int, second: int) -> Split:
    first, second = first % x.ndim, second % x.ndim
    axis = {first: second, second: first}.get(x.axis, x.axis)
    return x.reshaped(lambda values: values.transpose(first, second), axis=axis)


@rule(TENSOR.to, TENSOR.contiguous, TENSOR.double, TENSOR.float, TENSOR.type_as)
def _same(x: Split, *_: Any, **__: Any) -> Split:
    return x


@rule(F.dropout)
def _dropout(x: Split, p: float = 0.5, training: bool = True, inplace: bool = False) -> Split:
    if training and p > 0:
        raise InputError("Dropout is switched on; call model.eval() first.")
    return x


@rule(TENSOR.__getitem__)
def _getitem(x: Split, key: Any) -> Split:
    if not isinstance(key, tuple) or key[0] is not Ellipsis or len(key) != 2:
        raise InputError("Only features of all tokens can be picked while tokens are followed.")
    return x.reshaped(lambda values: values[key])


@rule(TENSOR.chunk, torch.chunk)
def _chunk(x: Split, chunks: int, dim: int = 0) -> list[Split]:
    _refuse_tokens(x, dim)
    size = -(-x.shape[dim] // chunks)
    return _parts(x, [(at, size) for at in range(0, x.shape[dim], size)], dim)


@rule(TENSOR.split, torch.split)
def _split(x: Split, sizes: Any, dim: int = 0) -> list[Split]:
    _refuse_tokens(x, dim)
    if isinstance(sizes, int):
        sizes = [min(sizes, x.shape[dim] - at) for at in range(0, x.shape[dim], sizes)]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return _parts(x, list(zip(starts, sizes, strict=True)), dim)


def _parts(x: Split, ranges: list[tuple[int, int]], dim: int) -> list[Split]:
    def piece(start: int, size: int) -> Split:
        return x.reshaped(lambda values: values.narrow(dim, start, size))

    return [piece(start, size) for start, size in ranges]


@rule(torch.cat)
def _cat(pieces: Sequence[Split], dim: int = 0) -> Split:
    return _joined(pieces, lambda values: torch.cat(values, dim), dim)


@rule(torch.stack)
def _stack(pieces: Sequence[Split], dim: int = 0) -> Split:
    if dim % (pieces[0].ndim + 1) <= pieces[0].axis:
        raise InputError("Tokens that are stacked before their axis cannot be followed.")
    return _joined(pieces, lambda values: torch.stack(values, dim), None)


def _joined(
    pieces: Sequence[Split], how: Callable[[list[Tensor]], Tensor], dim: int | None
) -> Split:
    if not all(isinstance(piece, Split) for piece in pieces):
        raise InputError("Tokens joined with other tensors cannot be followed.")
    first = pieces[0]
    if dim is not None:
        _refuse_tokens(first, dim)

    def joined(parts: list[Scaled]) -> Scaled:
        tops = [part.exponent for part in parts if part.exponent is not None]
        if not tops:
            return Scaled(how([part.values for part in parts]), None)
        top = max(tops)
        return scaled(how([part.at(top) for part in parts]), top)

    return replace(
        first, base=joined([p.base for p in pieces]), rest=joined([p.rest for p in pieces])
    )


def _refuse_tokens(x: Split, dim: int) -> None:
    if dim % x.ndim <= x.axis:
        raise InputError("A cut through the tokens cannot be followed.")


# --- activations -------------------------------------------------------------------------------


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
        # Far out the share is 0 or 1: of an infinite value only its sign is asked.
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


# --- norms -------------------------------------------------------------------------------------


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
    own = (base + shifted(rest, tiny)).square().mean(-1, keepdim=True) + eps_
    if not bool((own > 0.0).all()):
        raise InputError("A norm without eps meets a token that is zero beside the others.")
    shrunk = torch.where(t > -0.5, torch.rsqrt(1 + t), (variance / own).sqrt())
    # Near the end of float64 t has few digits left; there g / t is -1/2 to the last one.
    faint = t.abs() < FAINT
    safe = torch.where((t > -0.5) & ~faint, t, 1.0)
    per_t = torch.expm1(-0.5 * torch.log1p(safe)) / safe
    far = (shrunk - 1) / torch.where(faint, 1.0, t)
    per_t = torch.where(faint, -0.5, torch.where(t > -0.5, per_t, far))
    apart = (rest * shrunk + base * (t_ * per_t)) / sigma
    return _affine(x.settled(x.rounding(moved), scaled(apart, tiny)), weight, bias)


def _plainly(x: Split, unit: int, eps: float) -> Split:
    whole = x.base.at(unit) + x.rest.at(unit)
    size = (whole.square().mean(-1, keepdim=True) + eps).sqrt()
    if not bool((size > 0.0).all()):
        raise InputError("A norm without eps was given a token of zeros; give it an eps.")
    zero = Scaled(torch.zeros_like(x.base.values), None)
    return x.settled(zero, scaled(whole / size))


def _affine(x: Split, weight: Tensor | None, bias: Tensor | None) -> Split:
    if weight is not None:
        x = _mul(x, weight)
    return x if bias is None else x.raised(constant(bias, like=x))
