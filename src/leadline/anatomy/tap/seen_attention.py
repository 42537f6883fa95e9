"""One call of attention, brought into one form whatever route it took."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch

from leadline.anatomy.tap.projections import Source

__all__ = ["SeenAttention", "as_products", "outlined", "shaped_by_example"]

Tensor = torch.Tensor


@dataclass(frozen=True)
class SeenAttention:
    """One call of attention, tensors lent: queries and keys are [example, head, token, feature].

    Of a kernel, `logits` and `weights` are None: they follow from queries, keys, mask and scaling.
    Of weights, queries and keys are None where the scores are no product of two tensors. `sink` is
    whether every row gives a part of its weight to no key.
    """

    module: str
    route: Literal["kernel", "weights"]
    value: Tensor
    output: Tensor
    query: Tensor | None = None
    key: Tensor | None = None
    mask: Tensor | None = None
    causal: bool = False
    scaling: float | None = None
    soft_cap: float | None = None
    logits: Tensor | None = None
    weights: Tensor | None = None
    sink: bool = False
    ambiguous: bool = False
    """Whether heads and examples could be taken for each other by their numbers alone."""
    query_source: Source | None = None
    key_source: Source | None = None
    value_source: Source | None = None
    """Looked for only where the heads are followed to what they write."""

    @property
    def heads(self) -> int:
        grid = self.weights if self.weights is not None else self.query
        assert grid is not None
        return grid.shape[1]


def outlined(attention: SeenAttention) -> SeenAttention:
    """The same call with shapes, types and devices alone: its tensors are let go."""

    def source(one: Source | None) -> Source | None:
        if one is None:
            return None
        return replace(
            one, weight=_outline(one.weight), bias=_outline(one.bias), entered=_outline(one.entered)
        )

    return replace(
        attention,
        query=_outline(attention.query),
        key=_outline(attention.key),
        value=attention.value.new_empty(()).expand(attention.value.shape),
        output=attention.output.new_empty(()).expand(attention.output.shape),
        mask=_outline(attention.mask),
        logits=_outline(attention.logits),
        weights=_outline(attention.weights),
        query_source=source(attention.query_source),
        key_source=source(attention.key_source),
        value_source=source(attention.value_source),
    )


def _outline(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.new_empty(()).expand(tensor.shape)


def as_products(
    weights: str, value: Tensor, value_label: str, output: Tensor, output_label: str
) -> tuple[Tensor, Tensor]:
    """Values and output of an einsum in the order of a plain product, where its labels allow it."""
    features = [axis for axis in value_label if axis not in weights]
    leading, row, column = weights[:-2], weights[-2], weights[-1]
    axes = {*leading, column, *features}
    if (
        len(features) != 1
        or set(value_label) != axes
        or set(output_label) != (axes - {column} | {row})
    ):
        return value, output
    ordered = torch.einsum(f"{value_label}->{leading}{column}{features[0]}", value)
    return ordered, torch.einsum(f"{output_label}->{leading}{row}{features[0]}", output)


def shaped_by_example(attention: SeenAttention, examples: int | None) -> SeenAttention | None:
    """Bring every tensor into [example, head, token, feature]; None where that is impossible."""

    def four(tensor: Tensor | None) -> Tensor | None:
        if tensor is None or tensor.ndim == 4:
            return tensor
        if tensor.ndim == 3 and examples and tensor.shape[0] % examples == 0:
            return tensor.reshape(examples, -1, *tensor.shape[1:])
        if tensor.ndim == 3 and examples is None:
            return tensor.unsqueeze(1)
        return None

    leading = attention.weights if attention.weights is not None else attention.query
    first = four(leading)
    if first is None or (examples is not None and first.shape[0] != examples):
        return None
    query, key = four(attention.query), four(attention.key)
    mask = attention.mask
    if mask is not None and mask.ndim == 3:
        heads_apart = leading is not None and leading.ndim == 4
        by_head = mask.shape[0] == first.shape[0] * first.shape[1]
        split = (first.shape[0], first.shape[1], *mask.shape[1:])
        mask = mask.unsqueeze(0) if heads_apart or not by_head else mask.reshape(split)
    scaling = attention.scaling
    if attention.route == "kernel" and scaling is None:
        assert query is not None
        scaling = query.shape[-1] ** -0.5
    # As many examples as heads, or both along one axis: their order is known only where the
    # queries were followed back to what each example was projected to.
    joined = leading is not None and leading.ndim == 3
    ambiguous = first.shape[0] > 1 and (
        (joined and first.shape[1] > 1) or (not joined and first.shape[0] == first.shape[1])
    )
    value, output = four(attention.value), four(attention.output)
    return replace(
        attention,
        query=query,
        key=key,
        value=attention.value if value is None else value,
        output=attention.output if output is None else output,
        mask=mask.detach() if mask is not None else None,
        scaling=scaling,
        logits=four(attention.logits),
        weights=four(attention.weights),
        ambiguous=ambiguous,
    )
