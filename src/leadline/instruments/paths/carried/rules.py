"""What each operation of torch does to the components of a carried tensor.

A rule gets the operation with its arguments and its result, and returns the components of the
result, or None: then the result is frozen. Names are those of torch's own operations (aten), into
which all functions of torch come apart: `linear` arrives as `addmm`, attention as two `bmm` and a
softmax, whatever the model called.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

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
    return each(journey, parts, lambda rows: rows.reshape(-1, *out.shape), like=out)


def linear(journey: Journey, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """Shapes, sums and choices: the operation itself on every component.

    Choices that depend on the stream (a carried or frozen index) are not of this kind. Sums over
    tokens have no owner, so they are frozen inside a block wherever that axis stands.
    """
    parts = parts_of(args[0])
    rest = tree_flatten((args[1:], kwargs))[0]
    if parts is None or any(isinstance(one, Carried) for one in rest):
        return None
    name = func.overloadpacket.__name__
    if name == "constant_pad_nd" and len(args) > 2 and args[2] != 0:
        return None

    def on_rows(at: int | None, result: Tensor) -> Parts:
        def function(rows: Tensor) -> Tensor:
            mapped = torch.vmap(lambda x: func(x, *args[1:], **kwargs))(rows)
            return mapped if at is None else mapped[at]

        return each(journey, parts, function, like=result)

    if isinstance(out, Tensor):
        return on_rows(None, out)
    return [on_rows(at, result) for at, result in enumerate(out)]


def gate(of: Callable[[Tensor], Tensor]) -> Rule:
    """f(x) = gate(x) x with the gate frozen; the gate is computed directly, so x = 0 is no case."""

    def rule(journey: Journey, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
        parts = parts_of(args[0])
        assert parts is not None
        x = args[0].value
        wide = torch.promote_types(x.dtype, torch.float32)
        factor = of(x.to(wide)).to(x.dtype)
        return each(journey, parts, lambda rows: rows * factor, like=out)._replace(activated=True)

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

    def function(rows: Tensor) -> Tensor:
        wide = rows.to(scale.dtype)
        wide = (wide - wide.mean(axes, keepdim=True)) * scale
        return wide if weight is None else wide * weight

    components = each(journey, parts, function, like=normed)._replace(activated=False)
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
