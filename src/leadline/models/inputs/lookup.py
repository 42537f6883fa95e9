"""Explain failed lookups in a model's tables: too many tokens, or an id that no table has.

Not every model says how many positions it has; running it shows. Where a table is too short, torch
raises an IndexError of four words; `lookup_refusal` finds out which table it was, and whether the
lookup was for a token or for a position.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leadline.errors import InputError
from leadline.models.inputs.batch import Inputs

__all__ = ["lookup_refusal"]

_FURTHEST_OFFSET = 8
"""Positions may count from a few above zero: from 2 in OPT, from behind the padding id in RoBERTa."""
_OUT_OF_BOUNDS = re.compile(r"index \d+ is out of bounds for dimension \d+ with size (\d+)")
_MISMATCH = re.compile(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)")


def lookup_refusal(error: Exception, model: nn.Module, batch: Inputs) -> InputError | None:
    """The sentence for inputs that a table of the model is too short for; None for other errors."""
    if isinstance(error, IndexError):
        lookup = _embedding_lookup(error)
        if lookup is not None:
            rows, indices = lookup[0].shape[0], lookup[1]
            table = _name(model, lookup[0])
            return _positions(model, batch, table, rows, int(indices.max())) or _ids(
                batch, table, rows, indices
            )
        match = _OUT_OF_BOUNDS.search(str(error))
        return _guessed(model, batch, int(match[1])) if match else None
    match = _MISMATCH.search(str(error)) if isinstance(error, RuntimeError) else None
    if match is None:
        return None
    rows, needed_rows = sorted(int(size) for size in match.groups())
    return _guessed(model, batch, rows, needed_rows - 1)


def _guessed(
    model: nn.Module, batch: Inputs, rows: int, furthest: int | None = None
) -> InputError | None:
    """The refusal where only sizes tell of a table: proved by running the model on fewer tokens.

    Sizes agree by accident: a width may be that of a table. A model that is short of positions runs
    on as many tokens as it has positions, and on one fewer.
    """
    for table in _tables_of(model, rows):
        refusal = _positions(model, batch, table, rows, furthest)
        if refusal is None:
            return None
        limit = refusal.limit
        return refusal if all(_runs(model, batch, size) for size in {limit, limit - 1}) else None
    return None


def _runs(model: nn.Module, batch: Inputs, size: int) -> bool:
    """Whether the model takes the first so many tokens of the inputs."""
    lengths = _lengths(batch)
    cut = {
        name: tensor[:, :size] if tensor.ndim >= 2 and tensor.shape[1] in lengths else tensor
        for name, tensor in batch.tensors.items()
    }
    if size < 1:
        return True
    try:
        with torch.no_grad():
            model(**cut)
    except Exception:  # whatever the model raises: it does not run
        return False
    return True


def _embedding_lookup(error: BaseException) -> tuple[Tensor, Tensor] | None:
    """The table and the indices of the torch embedding that raised the error."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is F.embedding.__code__:
            local: dict[str, Any] = trace.tb_frame.f_locals
            return local["weight"], local["input"]
        trace = trace.tb_next
    return None


def _positions(
    model: nn.Module, batch: Inputs, table: str, rows: int, furthest: int | None = None
) -> _TooLong | None:
    """The refusal of more tokens than positions, if `furthest` can be the last token's position."""
    for length in _lengths(batch):
        offset = 0 if furthest is None else furthest + 1 - length
        limit = rows - offset
        if 0 <= offset <= _FURTHEST_OFFSET and 0 < limit < length:
            return _TooLong(length, limit, table, rows)
    return None


class _TooLong(InputError):
    """More tokens than positions."""

    def __init__(self, length: int, limit: int, table: str, rows: int) -> None:
        super().__init__(
            f"{length} tokens were given and the model takes at most {limit}: its table "
            f"'{table}' has {rows} positions. Give {limit} tokens or fewer "
            f"(--random 4x{limit}, --windows 4x{limit} or a shorter text; "
            f"in Python ids[:, :{limit}])."
        )
        self.limit = limit


def _ids(batch: Inputs, table: str, rows: int, indices: Tensor) -> InputError | None:
    """The refusal of an input that holds an id beyond the table."""
    for name, tensor in batch.tensors.items():
        if tensor.numel() != indices.numel() or tensor.is_floating_point() or tensor.ndim != 2:
            continue
        if not torch.equal(tensor.flatten(), indices.flatten()):
            continue
        example, position = ((tensor < 0) | (tensor >= rows)).nonzero()[0].tolist()
        return InputError(
            f"Id {int(tensor[example, position])} in '{name}' (example {example + 1}, token "
            f"{position + 1}) is outside the model's table '{table}' of {rows} entries "
            f"(0 to {rows - 1}); use the tokenizer that belongs to this model."
        )
    return None


def _lengths(batch: Inputs) -> list[int]:
    """How many tokens the inputs have; encoder and decoder may differ."""
    lengths = {
        tensor.shape[1]
        for tensor in batch.tensors.values()
        if tensor.ndim == 2 and not tensor.is_floating_point()
    }
    return sorted(lengths, reverse=True)


def _tables_of(model: nn.Module, rows: int) -> Iterator[str]:
    """The parameters and buffers that may hold a row for each of so many positions."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.ndim > 1 and rows in tensor.shape[:-1]:
            yield name


def _name(model: nn.Module, table: Tensor) -> str:
    """The name of a table in the model."""
    for name, parameter in (*model.named_parameters(), *model.named_buffers()):
        if parameter is table:
            return name.removesuffix(".weight")
    return "embedding"
