"""Sums of rows: what meets is added in one place, and what does not is copied there.

After a hop a stack is one row higher than the stream that it is added to, and a bias is one row
alone. Filling the lower stack with zeros first would cost a copy of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from leadline.instruments.paths.carried.books import Book, ByLength, mapped_rows
from leadline.instruments.paths.carried.rows import ComponentRows, Form, SumSize, narrow_form

__all__ = ["added_rows"]

Tensor = torch.Tensor


def added_rows(
    book: Book,
    terms: Sequence[tuple[ComponentRows, float]],
    *,
    like: Tensor | Form,
    in_place: bool = False,
) -> ComponentRows:
    """The sum of factor times rows. Rows that a lower stack does not have are copied.

    `in_place`: the first stack is new and nobody else's, so the sum may be written into it.
    """
    stacks, factors = [rows for rows, _ in terms], [factor for _, factor in terms]

    def narrowed(first: int, end: int) -> ComponentRows | None:
        parts = [rows.features(first, end) for rows in stacks]
        kept = [
            (part, factor) for part, factor in zip(parts, factors, strict=True) if part is not None
        ]
        form = narrow_form(like, first=first, end=end)
        if len(kept) < len(parts):
            return None
        return added_rows(book, kept, like=form, in_place=in_place)

    if len(terms) != 2 or not isinstance(book, ByLength) or factors[0] != 1:

        def function(*stacks: Tensor) -> Tensor:
            result = stacks[0] * factors[0] if factors[0] != 1 else stacks[0]
            for stack, factor in zip(stacks[1:], factors[1:], strict=True):
                result = torch.add(result, stack, alpha=factor)
            return result

        return mapped_rows(book, stacks, function, like=like, narrowed=narrowed)

    one, other = stacks
    if (
        in_place
        and one.inputs >= other.inputs
        and one.sources >= other.sources
        and one.shape == like.shape
    ):
        return ComponentRows(
            one.lengths,
            like,
            lambda first, end: _added_to(one, other, first, end, factor=factors[1]),
            sources=one.sources,
            parents=stacks,
            narrowed=narrowed,
        )
    if (one.inputs, one.sources) == (other.inputs, other.sources):
        return mapped_rows(
            book, stacks, partial(torch.add, alpha=factors[1]), like=like, narrowed=narrowed
        )
    inputs, sources = max(one.inputs, other.inputs), max(one.sources, other.sources)
    size = SumSize(inputs, sources, like.shape, like.dtype, like.device)
    return ComponentRows(
        (*range(inputs), *range(sources)),
        like,
        lambda first, end: _sum_of_two(one, other, first, end, factor=factors[1], size=size),
        sources=sources,
        parents=stacks,
        narrowed=narrowed,
    )


def _sum_of_two(
    one: ComponentRows, other: ComponentRows, first: int, end: int, *, factor: float, size: SumSize
) -> Tensor:
    """Rows of one + factor * other, written into one place: what only one of them has is copied."""
    total = size.new(torch.empty, end - first)
    every = (first, end) == (0, size.inputs + size.sources)

    def part(rows: ComponentRows, start: int, low: int, high: int) -> Tensor:
        if every:  # computed once for both families, and kept
            return rows.take(0, rows.count)[start + low : start + high]
        return rows.take(start + low, start + high)

    for start, count, one_at, one_count, other_at, other_count in (
        (0, size.inputs, 0, one.inputs, 0, other.inputs),
        (size.inputs, size.sources, one.inputs, one.sources, other.inputs, other.sources),
    ):
        low, high = max(first - start, 0), min(end - start, count)
        middle = max(low, min(high, one_count, other_count))
        at = start - first
        if middle > low:
            torch.add(
                part(one, one_at, low, middle),
                part(other, other_at, low, middle),
                alpha=factor,
                out=total[at + low : at + middle],
            )
        if high > middle and one_count > other_count:
            total[at + middle : at + high] = part(one, one_at, middle, high)
        elif high > middle:
            rest = part(other, other_at, middle, high)
            total[at + middle : at + high] = rest if factor == 1 else rest * factor
    return total


def _added_to(
    one: ComponentRows, other: ComponentRows, first: int, end: int, *, factor: float
) -> Tensor:
    """Rows of one + factor * other, the second stack no higher than the first: written into it."""
    total = one.take(first, end)
    if 0 in total.stride():  # several rows or features share their memory
        total = total.clone()
    for start, at, count in ((0, 0, other.inputs), (one.inputs, other.inputs, other.sources)):
        low, high = max(first - start, 0), min(end - start, count)
        if high > low:
            summand = other.take(at + low, at + high)
            total[start + low - first : start + high - first].add_(summand, alpha=factor)
    return total
