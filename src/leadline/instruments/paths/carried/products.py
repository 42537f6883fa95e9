"""Sums and products of carried tensors: what they do to the components.

A frozen term freezes a sum, a plain term is a source. A product is linear in its carried factor;
with a frozen matrix it is a hop if it sums over tokens with a weight for each pair of them, and
frozen otherwise. Two carried factors give a frozen tensor (scores), but for one that came through
an activation: that one is frozen as a whole (SwiGLU, GEGLU).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from leadline.instruments.paths.carried.books import mapped_rows
from leadline.instruments.paths.carried.carried import Carried, FrozenBy, Journey, Parts
from leadline.instruments.paths.carried.rows import ComponentRows, Form, narrow_form
from leadline.instruments.paths.carried.sums import added_rows
from leadline.instruments.paths.carried.tokens import is_own_gate, meeting

__all__ = [
    "add",
    "add_product",
    "concatenate",
    "divide",
    "each",
    "lerp",
    "multiply",
    "parts_of",
    "product",
    "product_and_sum",
    "subtract",
    "subtract_from",
    "with_source",
]

Tensor = torch.Tensor
Operand = Any
"""A carried tensor, a frozen one, a plain tensor or a number."""


def parts_of(operand: Operand) -> Parts | None:
    """The components of a carried tensor; None for anything else."""
    return operand.parts if isinstance(operand, Carried) else None


def is_frozen(operand: Operand) -> bool:
    return isinstance(operand, Carried) and operand.parts is None


def value_of(operand: Operand) -> Any:
    return operand.value if isinstance(operand, Carried) else operand


Narrowed = Callable[[ComponentRows, int, int], ComponentRows | None]
"""Rows and a range of features of what a function makes of them -> these features alone."""


def each(
    journey: Journey,
    parts: Parts,
    function: Callable[[Tensor], Tensor],
    *,
    like: Tensor,
    activated: bool | None = None,
    narrowed: Narrowed | None = None,
) -> Parts:
    """Apply a linear function of stacked rows. `activated`: what the result is, if not as before."""

    features = None if narrowed is None else partial(narrowed, parts.rows)
    rows = mapped_rows(journey.book, [parts.rows], function, like=like, narrowed=features)
    return Parts(rows, activated=parts.activated if activated is None else activated)


# --- sums -----------------------------------------------------------------------------------------


def total(
    journey: Journey, terms: Sequence[tuple[Operand | Parts, float]], *, like: Tensor
) -> Parts | None:
    """The sum of factor times operand. A frozen term freezes it; a plain one is a source.

    Components without a tensor come from a rule that has just made them, for this sum alone.
    """
    rows: list[tuple[ComponentRows, float]] = []
    for operand, factor in terms:
        if is_frozen(operand):
            return None
        parts = operand if isinstance(operand, Parts) else parts_of(operand)
        if parts is None:
            tensor = torch.as_tensor(operand, device=like.device)
            if tensor.ndim > 1 and tensor.shape == like.shape and tensor.shape[-2] > 1:
                journey.joined.add(journey.module)
            joining = journey.book.source(tensor.to(like.dtype), like)
            rows += [] if joining is None else [(joining, factor)]
            continue
        rows.append((_fitted(journey, parts.rows, like), factor))
    new = isinstance(terms[0][0], Parts) and len(terms) == 2 and parts_of(terms[1][0]) is None
    return Parts(added_rows(journey.book, rows, like=like, in_place=new))


def with_source(journey: Journey, parts: Parts, tensor: Tensor, *, like: Tensor) -> Parts:
    """The components of a sum with a plain tensor."""
    parts_of_sum = total(journey, [(parts, 1), (tensor, 1)], like=like)
    assert parts_of_sum is not None
    return parts_of_sum


def _fitted(journey: Journey, rows: ComponentRows, like: Tensor) -> ComponentRows:
    """Rows with as many axes as the result has, so that they broadcast as their tensor does."""
    more = like.ndim - len(rows.shape)
    if more <= 0:
        return rows
    form = Form(torch.Size((*[1] * more, *rows.shape)), rows.dtype, rows.device)
    return mapped_rows(
        journey.book, [rows], lambda stack: stack.reshape(-1, *form.shape), like=form
    )


def add(journey: Journey, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """a + alpha b."""
    alpha = kwargs.get("alpha", args[2] if len(args) > 2 else 1)
    return total(journey, [(args[0], 1), (args[1], alpha)], like=out)


def subtract(journey: Journey, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """a - alpha b."""
    alpha = kwargs.get("alpha", args[2] if len(args) > 2 else 1)
    return total(journey, [(args[0], 1), (args[1], -alpha)], like=out)


def subtract_from(journey: Journey, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """rsub: b - alpha a."""
    alpha = kwargs.get("alpha", args[2] if len(args) > 2 else 1)
    return total(journey, [(args[1], 1), (args[0], -alpha)], like=out)


def add_product(journey: Journey, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """addcmul: a + value b c."""
    factor = kwargs.get("value", 1)
    product = multiplied(journey, args[1], args[2], like=out)
    terms = _product_term(product, args[1], args[2])
    return None if terms is None else total(journey, [(args[0], 1), (terms, factor)], like=out)


def lerp(journey: Journey, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """a + w (b - a), w a number, a plain or a frozen tensor."""
    first, second, weight = args[:3]
    plain = not isinstance(first, Carried) or not isinstance(second, Carried)
    if parts_of(weight) is not None or (is_frozen(weight) and plain):
        return None
    rest = 1 - value_of(weight)
    halves: list[Any] = []
    for operand, factor in ((first, rest), (second, value_of(weight))):
        half_product = multiplied(journey, operand, factor, like=out)
        halves.append(_product_term(half_product, operand, factor))
    if any(half is None for half in halves):
        return None
    return total(journey, [(half, 1) for half in halves], like=out)


def _product_term(product: Parts | None, first: Operand, second: Operand) -> Any:
    """What a sum takes for a product: its components, or the plain product; None: it is frozen."""
    if product is not None:
        return product
    if isinstance(first, Carried) or isinstance(second, Carried):
        return None
    return first * second


def concatenate(journey: Journey, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """cat and stack; what is plain among the tensors is a source."""
    # An empty vector among tensors of more axes is what a cache starts with.
    tensors = [one for one in args[0] if tuple(one.shape) != (0,)]
    axis = args[1] if len(args) > 1 else kwargs.get("dim", 0)
    if any(is_frozen(one) for one in tensors):
        return None
    components = [parts_of(one) for one in tensors]
    there = [
        journey.book.source(value_of(one), value_of(one)) if parts is None else parts.rows
        for one, parts in zip(tensors, components, strict=True)
    ]

    def function(*stacked: Tensor) -> Tensor:
        count, filled = stacked[0].shape[0], iter(stacked)
        pieces = [
            next(filled)
            if rows is not None
            else torch.zeros((count, *one.shape), dtype=out.dtype, device=out.device)
            for rows, one in zip(there, tensors, strict=True)
        ]
        return func(pieces, axis + 1 if axis >= 0 else axis)

    stacks = [rows for rows in there if rows is not None]
    activated = all(parts is not None and parts.activated for parts in components)
    return Parts(mapped_rows(journey.book, stacks, function, like=out), activated=activated)


# --- products -------------------------------------------------------------------------------------


def multiplied(journey: Journey, first: Operand, second: Operand, *, like: Tensor) -> Parts | None:
    """Element by element. Of two carried factors an activated one is frozen as a whole.

    An activated tensor and a frozen one, feature by feature, give a frozen one: then both are
    gates, and what they gate (the scan of a state-space model) was not followed. A carried tensor
    that is repeated along an axis, to meet other numbers there, is an outer product and no gate:
    with a sum behind it, it would be a product with a matrix. Inside a block a gate must be made
    of the token that it gates: with other tokens in it, it would mix them unseen.
    """
    one, two = parts_of(first), parts_of(second)
    if one is not None and two is not None:
        if one.activated == two.activated:
            return None
        if one.activated:
            first, second, one = second, first, two
    elif one is None:
        first, second, one = second, first, two
    if one is None or not _may_gate(journey, first, second, like=like):
        return None
    factor = value_of(second)
    wide = isinstance(factor, Tensor) and factor.ndim > 0 and factor.shape[-1] == like.shape[-1]
    gated = isinstance(second, Carried) and wide and like.shape[-1] > 1
    if gated and is_frozen(second) and one.activated:
        return None

    def function(stack: Tensor) -> Tensor:
        return stack * factor

    fitted = Parts(_fitted(journey, one.rows, like), activated=one.activated or gated)
    return each(journey, fitted, function, like=like)


def _no_gate(journey: Journey, name: str, factor: Carried) -> FrozenBy:
    """Name what made the factor where its owners were lost, and else the product."""
    if factor.origin is None or factor.tokens:
        return FrozenBy(name, journey.module, _NO_GATE)
    return factor.origin._replace(deed=_NO_GATE)


def _is_outer(x: Tensor, factor: Tensor, like: Tensor) -> bool:
    """Whether x is the same along an axis along which the factor is not."""
    return any(
        like.shape[axis] > 1 and _is_flat(x, axis) and not _is_flat(factor, axis)
        for axis in range(-like.ndim, 0)
    )


def _is_flat(x: Tensor, axis: int) -> bool:
    return -axis > x.ndim or x.shape[axis] == 1 or x.stride(axis) == 0


def multiply(journey: Journey, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """a b, element by element."""
    components = multiplied(journey, args[0], args[1], like=out)
    for x, factor in (args[:2], args[1::-1]):
        met = parts_of(x) is not None and is_frozen(factor)
        if components is None and met and not _may_gate(journey, x, factor, like=out):
            return _no_gate(journey, "mul", factor)
    return components


def _may_gate(journey: Journey, x: Carried, factor: Operand, *, like: Tensor) -> bool:
    if not isinstance(factor, Carried):
        return True
    if _is_outer(x.value, factor.value, like):
        return False
    if not journey.inside:
        return True
    about = factor.tokens, x.tokens
    return journey.answer(
        ("gate", like.shape, *(tuple(map(id, tokens)) for tokens in about)),
        lambda: is_own_gate(*about, like.shape),
        about=about,
    )


def divide(journey: Journey, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """By a plain or frozen divisor; rounding modes are no linear maps."""
    parts = parts_of(args[0])
    if parts is None or parts_of(args[1]) is not None or kwargs.get("rounding_mode"):
        return None
    if not _may_gate(journey, args[0], args[1], like=out):
        return _no_gate(journey, "div", args[1])
    divisor = value_of(args[1])
    fitted = Parts(_fitted(journey, parts.rows, out), activated=parts.activated)
    return each(journey, fitted, lambda stack: stack / divisor, like=out)


def contracted(
    journey: Journey, first: Operand, second: Operand, *, like: Tensor
) -> Parts | FrozenBy | None:
    """mm and bmm. With a frozen pattern it is a hop; two carried factors are frozen (scores)."""
    left, right = parts_of(first), parts_of(second)
    if (left is None) == (right is None):
        return None
    parts = left if right is None else right
    carried_factor, other = (first, second) if right is None else (second, first)
    assert parts is not None
    factor = value_of(other)
    function = _from_left(factor) if right is not None else _from_right(factor)
    if not isinstance(other, Carried):

        def narrowed(rows: ComponentRows, first: int, end: int) -> ComponentRows:
            form = narrow_form(like, first=first, end=end)
            return mapped_rows(journey.book, [rows], _from_right(factor[:, first:end]), like=form)

        by_columns = right is None and factor.ndim == 2
        return each(
            journey,
            parts,
            function,
            like=like,
            activated=False,
            narrowed=narrowed if by_columns else None,
        )
    about = other.tokens, carried_factor.tokens
    met = journey.answer(
        ("meeting", right is None, *(tuple(map(id, tokens)) for tokens in about)),
        lambda: meeting(*about, from_left=right is not None),
        about=about,
    )
    if met is None:
        return FrozenBy("mm" if like.ndim == 2 else "bmm", journey.module, _NO_PATTERN)
    event = journey.hop(parts.rows, met, features=-1 if right is not None else -2)

    def taken(rows: Tensor) -> Tensor:
        journey.taken.add(event.index)
        return function(rows)

    return Parts(journey.book.hop(parts.rows, event, taken, like=like))


_NO_GATE = (
    "gives it a factor that is neither a gate of the same token nor an attention pattern over "
    "tokens that meets values"
)
_NO_PATTERN = (
    "multiplies it with a matrix computed from the stream that is no attention pattern over tokens"
)


def _from_right(factor: Tensor) -> Callable[[Tensor], Tensor]:
    """rows @ factor. For batches the rows go side by side, so that the factor is not repeated."""
    if factor.ndim == 2:
        return lambda rows: rows @ factor

    def function(rows: Tensor) -> Tensor:
        count, batch, height, width = rows.shape
        flat = rows.transpose(0, 1).reshape(batch, count * height, width)
        return torch.bmm(flat, factor).view(batch, count, height, -1).transpose(0, 1)

    return function


def _from_left(factor: Tensor) -> Callable[[Tensor], Tensor]:
    """factor @ rows."""
    if factor.ndim == 2:
        return lambda rows: factor @ rows

    def function(rows: Tensor) -> Tensor:
        count, batch, height, width = rows.shape
        flat = rows.permute(1, 2, 0, 3).reshape(batch, height, count * width)
        return torch.bmm(factor, flat).view(batch, -1, count, width).permute(2, 0, 1, 3)

    return function


def product(journey: Journey, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """mm and bmm."""
    return contracted(journey, args[0], args[1], like=out)


def product_and_sum(journey: Journey, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """addmm and baddbmm: beta c + alpha a b."""
    terms = contracted(journey, args[1], args[2], like=out)
    if terms is None or isinstance(terms, FrozenBy):
        return terms
    alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)
    added = [] if beta == 0 else [(args[0], beta)]
    return total(journey, [(terms, alpha), *added], like=out)
