"""Checks of what a model is called with, so that a wrong input is explained before torch fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from leadline.errors import InputError

if TYPE_CHECKING:
    from leadline.parts.transformer import Transformer

__all__ = ["check_inputs"]


def check_inputs(model: Transformer, inputs: Tensor, types: Tensor | None) -> None:
    """Refuse anything but a batch of ids, or of streams if the model has no embedding."""
    if not isinstance(inputs, Tensor):
        raise InputError(
            f"A {type(inputs).__name__} was given; the model takes a torch tensor {_expected_input(model)}."
        )
    shape = list(inputs.shape)
    if not model.embedding.takes_ids:
        width = model.recipe.width
        if inputs.ndim != 3 or shape[-1] != width or 0 in shape or not inputs.is_floating_point():
            raise InputError(
                f"{inputs.dtype} {shape} was given; the model takes {_expected_input(model)}."
            )
        return
    if inputs.ndim != 2 or 0 in shape or inputs.is_floating_point() or inputs.is_complex():
        raise InputError(
            f"{inputs.dtype} {shape} was given; the model takes {_expected_input(model)}."
        )
    _check_range(inputs, model.recipe.vocabulary, "ids", "vocabulary")
    rows = getattr(model.embedding, "types", None)
    if types is not None and rows is not None:
        _check_range(types, rows.num_embeddings, "token types", "table")


def _expected_input(model: Transformer) -> str:
    if model.embedding.takes_ids:
        return "whole numbers [example, token], one token at least"
    return f"a stream [example, token, {model.recipe.width}], one token at least"


def _check_range(ids: Tensor, size: int, what: str, table: str) -> None:
    """Refuse ids out of range, on the CPU only: elsewhere every call would wait for the device."""
    if ids.device.type != "cpu":
        return
    low, high = int(ids.min()), int(ids.max())
    if not 0 <= low <= high < size:
        raise InputError(
            f"The {what} reach from {low} to {high}, and the {table} from 0 to {size - 1}; "
            "use the tokenizer of this model."
        )
