"""What each operation of torch does to the components of a carried tensor.

A rule gets the operation with its arguments and its result, and returns the components of the
result, or None: then the result is frozen. Names are those of torch's own operations (aten), into
which all functions of torch come apart: `linear` arrives as `addmm`, attention as two `bmm` and a
softmax, whatever the model called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from leadline.instruments.paths.carried.books import mapped_rows
from leadline.instruments.paths.carried.carried import RULES, Carried, Journey, Parts, Rule
from leadline.instruments.paths.carried.products import (
    add,
    add_product,
    concatenate,
    divide,
    each,
    lerp,
    multiply,
    parts_of,
    product,
    product_and_sum,
    subtract,
    subtract_from,
    with_source,
)
from leadline.instruments.paths.carried.rows import ComponentRows, narrow_form

__all__ = ["RULES"]

Tensor = torch.Tensor
_SAME = ("alias", "clone", "detach", "lift_fresh", "_to_copy")
_VIEWS = ("_reshape_alias", "_unsafe_view", "view")
_LINEAR = (
    "constant_pad_nd",
    "diagonal",
    "expand",
    "flip",
    "gather",
    "index",
    "index_select",
    "mean",
    "neg",
    "permute",
    "repeat",
    "roll",
    "select",
    "slice",
    "split",
    "split_with_sizes",
    "squeeze",
    "sum",
    "t",
    "transpose",
    "tril",
    "triu",
    "unbind",
    "unfold",
    "unsqueeze",
)


def same(journey: Journey, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """Copies and casts; a cast to whole numbers is no linear map."""
    parts = parts_of(args[0])
    if parts is None or not out.is_floating_point():
        return None
    return each(journey, parts, lambda rows: rows, like=out)


def view(journey: Journey, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """Another shape. Rows may lie otherwise in memory than their tensor, so they are reshaped."""
    parts = parts_of(args[0])
    assert parts is not None

    def narrowed(rows: ComponentRows, first: int, end: int) -> ComponentRows | None:
        part = rows.features(first, end)
        if part is None:
            return None
        form = narrow_form(out, first=first, end=end)
        return mapped_rows(
            journey.book, [part], lambda stack: stack.reshape(-1, *form.shape), like=form
        )

    same_features = args[0].ndim > 0 and out.ndim > 0 and args[0].shape[-1] == out.shape[-1]
    return each(
        journey,
        parts,
        lambda rows: rows.reshape(-1, *out.shape),
        like=out,
        narrowed=narrowed if same_features and out.numel() else None,
    )


def _inside(arguments: Iterable[Any]) -> Iterator[Any]:
    for one in arguments:
        if isinstance(one, list | tuple):
            yield from one
        else:
            yield one


def linear(journey: Journey, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """Shapes, sums and choices: the operation itself on every component.

    Choices that depend on the stream (a carried or frozen index) are not of this kind. Sums over
    tokens have no owner, so they are frozen inside a block wherever that axis stands.
    """
    parts = parts_of(args[0])
    if parts is None or any(
        isinstance(one, Carried) for one in _inside([*args[1:], *kwargs.values()])
    ):
        return None
    name = func.overloadpacket.__name__
    if name == "constant_pad_nd" and len(args) > 2 and args[2] != 0:
        return None

    function = _on_stacks(func, args, kwargs)
    if isinstance(out, Tensor):
        return each(journey, parts, function, like=out)
    if name in ("split", "split_with_sizes") and _axis(args, kwargs) in (-1, args[0].ndim - 1):
        return _features_of(journey, parts, function, out)

    def piece(at: int) -> Callable[[Tensor], Tensor]:
        return lambda rows: function(rows)[at]

    return [each(journey, parts, piece(at), like=result) for at, result in enumerate(out)]


def _axis(args: Any, kwargs: Any) -> int:
    return args[2] if len(args) > 2 else kwargs.get("dim", 0)


def _features_of(
    journey: Journey, parts: Parts, function: Callable[[Tensor], Any], results: Any
) -> list[Parts]:
    """The pieces of a tensor that is split along its features, each computed alone if possible.

    Queries, keys and values often come out of one product, and only rows of values are needed.
    """

    def piece(rows: ComponentRows, at: int) -> ComponentRows:
        start = sum(one.shape[-1] for one in results[:at])
        alone: list[ComponentRows | None] = []

        def compute(first: int, end: int) -> Tensor:
            if not alone:
                alone.append(rows.features(start, start + results[at].shape[-1]))
            if alone[0] is not None:
                return alone[0].take(first, end)
            return function(rows.take(first, end))[at]

        return ComponentRows(
            rows.lengths, results[at], compute, sources=rows.sources, parents=[rows]
        )

    return [Parts(piece(parts.rows, at), activated=parts.activated) for at in range(len(results))]


_AXES = {
    "select": (1,),
    "slice": (1,),
    "split": (2,),
    "split_with_sizes": (2,),
    "transpose": (1, 2),
    "unsqueeze": (1,),
}
"""Which arguments of an operation are axes. Counted from the end they are those of stacks too."""


def _on_stacks(func: Any, args: Any, kwargs: Any) -> Callable[[Tensor], Any]:
    """An operation on rows that lie along a new first axis; a loop by vmap where axes are implied."""
    name = func.overloadpacket.__name__
    at = _AXES.get(name)
    if at is not None and not kwargs and len(args) > max(at):
        moved = [one + 1 if i in at and one >= 0 else one for i, one in enumerate(args[1:], 1)]
        return lambda rows: func(rows, *moved)
    if name == "permute":
        axes = [0, *(axis + 1 if axis >= 0 else axis for axis in args[1])]
        return lambda rows: func(rows, axes)
    if name == "expand" and len(args[1]) == args[0].ndim:
        return lambda rows: rows.expand(-1, *args[1])
    return torch.vmap(lambda x: func(x, *args[1:], **kwargs))


def gate(of: Callable[[Tensor], Tensor]) -> Rule:
    """f(x) = gate(x) x with the gate frozen; the gate is computed directly, so x = 0 is no case."""

    def rule(journey: Journey, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
        parts = parts_of(args[0])
        assert parts is not None
        x = args[0].value
        wide = torch.promote_types(x.dtype, torch.float32)
        factor = of(x.to(wide)).to(x.dtype)
        return each(journey, parts, lambda rows: rows * factor, like=out, activated=True)

    return rule


def gelu(journey: Journey, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """x Phi(x), or with approximate='tanh' x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2."""
    how = kwargs.get("approximate", args[1] if len(args) > 1 else "none")
    of = torch.special.ndtr if how == "none" else _tanh_gate
    return gate(of)(journey, func, args, kwargs, out)


def _tanh_gate(x: Tensor) -> Tensor:
    return (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def power(journey: Journey, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """The square of an activated tensor (ReLU^2): one factor is frozen as a whole."""
    parts = parts_of(args[0])
    if parts is None or not parts.activated or isinstance(args[1], Tensor) or args[1] != 2:
        return None
    factor = args[0].value
    return each(journey, parts, lambda rows: rows * factor, like=out)


def layer_norm(journey: Journey, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """(z - mean z) / sd(x) * gain, and the shift is a source. The statistics come out frozen."""
    entered, shape, weight, bias = args[:4]
    parts = parts_of(entered)
    if parts is None or any(isinstance(one, Carried) for one in (weight, bias)):
        return None
    axes = tuple(range(-len(shape), 0))
    normed, _, scale = out
    factor = scale if weight is None else scale * weight

    def function(rows: Tensor) -> Tensor:
        wide = rows.to(scale.dtype)
        return (wide - wide.mean(axes, keepdim=True)).mul_(factor)

    components = each(journey, parts, function, like=normed, activated=False)
    if bias is not None:
        components = with_source(journey, components, bias, like=normed)
    return components, None, None


RULES.update(
    {
        **dict.fromkeys(_SAME, same),
        **dict.fromkeys(_VIEWS, view),
        **dict.fromkeys(_LINEAR, linear),
        "relu": gate(lambda x: (x > 0).to(x.dtype)),
        "silu": gate(torch.sigmoid),
        "gelu": gelu,
        "pow": power,
        "native_layer_norm": layer_norm,
        "add": add,
        "sub": subtract,
        "rsub": subtract_from,
        "addcmul": add_product,
        "lerp": lerp,
        "cat": concatenate,
        "stack": concatenate,
        "mul": multiply,
        "div": divide,
        "mm": product,
        "bmm": product,
        "addmm": product_and_sum,
        "baddbmm": product_and_sum,
    }
)
