"""How many heads an attention layer has, counted on the tokens that met in its products.

A head is a weight for every pair of tokens, so a layer of H heads multiplies each pair (i asks, j
is asked) H times, however its products are laid out: heads beside examples, windows, queries in
pieces, heads among the rows. Where pairs are met unequally often there is no such number. A number
that the model's configuration gives must be the same; where it is another (a pattern that is used
twice), neither is claimed.

Paths of single heads can be drawn only where it is known which rows belong to one head: the k-th
row of a token is that of head k, and the rows of a head lie in a regular pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from leadline.instruments.paths.carried.tokens import Meeting

__all__ = ["LayerHeads", "declared_heads", "heads_of_layer", "heads_of_rows"]

Tensor = torch.Tensor
_NAMES = ("num_attention_heads", "n_head", "n_heads", "num_heads", "heads")
_PIECE = 2**22
"""Pairs that are counted at once."""


class LayerHeads(NamedTuple):
    """The heads of one layer, and which of them each of its products holds.

    `held` has (first, number) for every product, None where that is not proved.
    """

    number: int | None
    held: tuple[tuple[int, int], ...] | None = None


def heads_of_rows(queries: Tensor) -> Tensor:
    """How often the token of a row asked before, row by row, batch after batch."""
    flat = queries.flatten()
    ordered, order = torch.sort(flat, stable=True)
    first = torch.searchsorted(ordered, ordered)
    heads = torch.empty_like(order)
    heads[order] = torch.arange(flat.numel(), device=flat.device) - first
    return heads.view(queries.shape)


def heads_of_layer(meetings: Sequence[Meeting], *, places: int, tokens: int) -> LayerHeads:
    """Count the heads of products that lie side by side. `places` = examples * tokens."""
    pairs: Tensor | None = None
    queries_so_far = torch.zeros(places, dtype=torch.long)
    held: list[tuple[int, int]] | None = []
    for queries, keys in meetings:
        if queries is None or bool((queries < 0).any()):
            return LayerHeads(None)
        met_pairs = _pairs(queries, keys, places=places, tokens=tokens)
        if met_pairs is None:
            return LayerHeads(None)
        pairs = met_pairs if pairs is None else pairs + met_pairs
        here = torch.bincount(queries.flatten().cpu(), minlength=places)
        before, count = _only(queries_so_far[here > 0]), _only(here[here > 0])
        if held is not None and before is not None and count and _is_regular(queries, count):
            held.append((before, count))
        else:
            held = None
        queries_so_far = queries_so_far + here
    number = None if pairs is None else _only(pairs[pairs > 0])
    if number is None or bool((queries_so_far[queries_so_far > 0] < number).any()):
        return LayerHeads(None)  # a key stands several times among those that one query sees
    if held is None or _only(queries_so_far[queries_so_far > 0]) != number:
        return LayerHeads(number)
    return LayerHeads(number, tuple(held))


def declared_heads(model: nn.Module, path: str) -> int | None:
    """The number of heads that a block's own configuration gives, or its model's; None: none."""
    names = path.split(".") if path else []
    for end in range(len(names), -1, -1):
        module = model.get_submodule(".".join(names[:end]))
        for settings in (getattr(module, "config", None), getattr(module, "recipe", None)):
            number = _declared(settings)
            if number is not None:
                return number
    within = model.get_submodule(path).modules()
    numbers = [m.num_heads for m in within if isinstance(m, nn.MultiheadAttention)]
    return numbers[0] if len(numbers) == 1 else None


def _declared(settings: Any) -> int | None:
    for name in _NAMES:
        number = getattr(settings, name, None)
        if isinstance(number, int) and not isinstance(number, bool) and number > 0:
            return number
    return None


def _pairs(queries: Tensor, keys: Tensor, *, places: int, tokens: int) -> Tensor | None:
    """How often each token met each token of its example; None: tokens of two examples met."""
    rows, columns = queries.reshape(-1, queries.shape[-1]), keys.reshape(-1, keys.shape[-1])
    real = columns >= 0
    if bool(((columns // tokens != rows[:, :1] // tokens) & real).any()) or bool(
        (rows // tokens != rows[:, :1] // tokens).any()
    ):
        return None
    counts = torch.zeros(places * tokens, dtype=torch.long)
    step = max(1, _PIECE // max(1, rows.shape[1] * columns.shape[1]))
    for at in range(0, rows.shape[0], step):
        asking = rows[at : at + step, :, None].long() * tokens
        met = asking + columns[at : at + step, None, :] % tokens
        met = met[real[at : at + step, None, :].expand(met.shape)]
        counts += torch.bincount(met.cpu(), minlength=places * tokens)
    return counts


def _only(values: Tensor) -> int | None:
    """The one number that all values are; None where they differ."""
    return int(values[0]) if values.numel() and bool((values == values[0]).all()) else None


def _is_regular(queries: Tensor, number: int) -> bool:
    """Whether the rows of a head lie in one pattern: (entry // s) % number, or alike in all."""
    heads = heads_of_rows(queries).reshape(-1, queries.shape[-1])
    if bool((heads == heads[:1]).all()):
        return True
    if not bool((heads == heads[:, :1]).all()):
        return False
    entry = torch.arange(heads.shape[0], device=heads.device)
    steps = [s for s in range(1, heads.shape[0] + 1) if heads.shape[0] % s == 0]
    return any(bool((heads[:, 0] == (entry // s) % number).all()) for s in steps)
