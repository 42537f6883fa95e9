"""How a Split does sums, products, linear maps and changes of shape.

With x the reference and R the rest: x W + b and R W; shapes alike on both; of a product
(a + A)(b + B) the rest is aB + Ab + AB. Numbers of their own for every token (rotary positions)
are split like tokens. Nothing that moves or cuts the token axis is followed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.nn import functional as F

from leadline.errors import InputError
from leadline.instruments.collapse.split.scaled import Scaled, added, scaled, times
from leadline.instruments.collapse.split.split import Split, constant, rule

__all__: list[str] = []

Tensor = torch.Tensor
TENSOR = torch.Tensor


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
