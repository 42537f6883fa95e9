"""What one operation of torch costs: told by its name and the shapes of its tensors.

torch's own counter (`torch.utils.flop_counter`) knows flops of products on the GPU's names; here the
CPU's fused attention is among them, bytes are counted too, and views cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from leadline.instruments.cost.work import Operation

__all__ = ["operation_of"]

Tensor = torch.Tensor

_FREE = {
    "view", "_unsafe_view", "reshape", "t", "transpose", "permute", "expand", "unsqueeze", "squeeze",
    "slice", "select", "detach", "alias", "as_strided", "split", "split_with_sizes", "chunk", "unbind",
    "diagonal", "lift_fresh", "unfold", "movedim", "empty", "empty_like", "empty_strided", "new_empty",
    "sym_size", "device", "_local_scalar_dense", "scalar_tensor", "narrow", "view_as_real", "set_",
    "new_empty_strided", "_reshape_alias",
}  # fmt: skip
"""Operations that move no numbers."""
_FUNCTIONS = {
    "exp", "log", "tanh", "gelu", "gelu_backward", "silu", "silu_backward", "sigmoid", "erf",
    "_softmax", "_log_softmax", "_log_softmax_backward_data", "softplus", "pow", "cos", "sin", "mish",
    "logsumexp", "tanh_", "exp_", "log_sigmoid_forward",
}  # fmt: skip
"""Operations that compute exp or the like once for each number of their result."""
_SIMPLE_POWERS = {1.0, 2.0, 3.0, 0.5, -0.5, -1.0, -2.0}
"""Powers that torch computes by multiplications and roots."""
_LOOKUPS = {"embedding", "index_select", "gather", "index"}
"""Operations that read as many numbers of their first tensor as they return."""


def operation_of(name: str, args: tuple[Any, ...], output: Any) -> Operation | None:
    """The cost of one call; None where nothing is computed."""
    if name in _FREE:
        return None
    inputs, outputs = list(_tensors(args)), list(_tensors((output,)))
    if name in ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot"):
        return _product(inputs, outputs, biased=name in ("addmm", "baddbmm", "addmv"))
    if "scaled_dot_product" in name:
        return _attention(name, inputs, outputs)
    if "convolution" in name and len(inputs) > 1:
        return _convolution(name, inputs, outputs)
    if name in _LOOKUPS:
        return Operation("moving", bytes=2.0 * sum(_bytes(one) for one in outputs))
    moved = float(sum(_bytes(one) for one in (*inputs, *outputs)))
    if moved == 0:
        return None
    simple = name == "pow" and len(args) > 1 and args[1] in _SIMPLE_POWERS
    if name in _FUNCTIONS and not simple and outputs:
        return Operation("function", bytes=moved, numbers=float(outputs[0].numel()))
    return Operation("moving", bytes=moved)


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _bytes(tensor: Tensor) -> int:
    # An expanded tensor is read from fewer numbers than it has.
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride else min(size, 1)
    return count * tensor.element_size()


def _product(inputs: list[Tensor], outputs: list[Tensor], *, biased: bool) -> Operation:
    first, second = inputs[1:3] if biased else inputs[:2]
    k = first.shape[-1]
    matrices = first.shape[0] if first.ndim == 3 else 1
    flops = 2.0 * outputs[0].numel() * k
    return Operation(
        "product",
        flops=flops,
        bytes=float(sum(map(_bytes, (first, second, outputs[0])))),
        side=(flops / 2 / max(matrices, 1)) ** (1 / 3),
        double=first.dtype == torch.float64,
    )


def _attention(name: str, inputs: list[Tensor], outputs: list[Tensor]) -> Operation:
    """2 products forward; 5 backward, one of which computes the matrix again."""
    backward = "backward" in name
    query, key, value = inputs[1:4] if backward else inputs[:3]
    grid = query.shape[:-1].numel() * key.shape[-2]
    query_width, value_width = query.shape[-1], value.shape[-1]
    if backward:
        flops = 2.0 * grid * (3 * query_width + 2 * value_width)
    else:
        flops = 2.0 * grid * (query_width + value_width)
    return Operation(
        "attention",
        flops=flops,
        bytes=float(sum(map(_bytes, (*inputs, *outputs)))),
        numbers=float(grid),
        side=(query.shape[-2] * key.shape[-2] * query_width) ** (1 / 3),
        double=query.dtype == torch.float64,
    )


def _convolution(name: str, inputs: list[Tensor], outputs: list[Tensor]) -> Operation:
    """2 flops for each number of the result and of the kernel that makes it; backward twice that."""
    backward = "backward" in name
    weight = inputs[2] if backward else inputs[1]
    returned = inputs[0] if backward else outputs[0]
    per_number = weight.numel() / max(weight.shape[0], 1)
    flops = (4.0 if backward else 2.0) * returned.numel() * per_number
    moved = float(sum(map(_bytes, (*inputs, *outputs))))
    return Operation("product", flops=flops, bytes=moved, side=max(flops, 1.0) ** (1 / 3) / 2)
