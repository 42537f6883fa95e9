"""What a model can be called with; anything else gets a sentence instead of torch's own error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from leadline.errors import InputError

if TYPE_CHECKING:
    from leadline.parts.transformer import Transformer

__all__ = ["check_inputs"]


def check_inputs(model: Transformer, given: Tensor, types: Tensor | None) -> None:
    """Refuse what is no batch of ids, or of streams where the model has no embedding."""
    if not isinstance(given, Tensor):
        raise InputError(
            f"A {type(given).__name__} was given; the model takes a torch tensor {_wanted(model)}."
        )
    shape = list(given.shape)
    if not model.embedding.takes_ids:
        width = model.recipe.width
        if given.ndim != 3 or shape[-1] != width or 0 in shape or not given.is_floating_point():
            raise InputError(f"{given.dtype} {shape} was given; the model takes {_wanted(model)}.")
        return
    if given.ndim != 2 or 0 in shape or given.is_floating_point() or given.is_complex():
        raise InputError(f"{given.dtype} {shape} was given; the model takes {_wanted(model)}.")
    _check_range(given, model.recipe.vocabulary, "ids", "vocabulary")
    rows = getattr(model.embedding, "types", None)
    if types is not None and rows is not None:
        _check_range(types, rows.num_embeddings, "token types", "table")


def _wanted(model: Transformer) -> str:
    if model.embedding.takes_ids:
        return "whole numbers [example, token], one token at least"
    return f"a stream [example, token, {model.recipe.width}], one token at least"


def _check_range(ids: Tensor, size: int, what: str, table: str) -> None:
    """Only on the processor: elsewhere it would wait for the device at every call."""
    if ids.device.type != "cpu":
        return
    low, high = int(ids.min()), int(ids.max())
    if not 0 <= low <= high < size:
        raise InputError(
            f"The {what} reach from {low} to {high}, and the {table} from 0 to {size - 1}; "
            "use the tokenizer of this model."
        )
