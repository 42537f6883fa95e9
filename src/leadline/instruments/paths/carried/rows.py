"""The components of a tensor, one row each, computed when they are needed.

A tensor that was computed from a stream by affine steps is x = sum of its rows. What is done to x
is done to every row; a row that nobody reads (of queries, keys, gates) is never computed. Two
books are kept in this form:

    ByLength   row k: all paths with k hops. A hop moves row k to row k + 1.
    ByPlan     row s: one path, which takes given heads at given hops and skips the others.

A hop is a product with a pattern that was itself computed from the stream: softmax times values.
Rows are computed in groups of at most LIMIT bytes, so that a wide tensor in the middle of a chain
never exists for all rows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import torch

__all__ = [
    "ENTRY",
    "LIMIT",
    "Book",
    "ByLength",
    "ByPlan",
    "ComponentRows",
    "Form",
    "Hop",
    "Ways",
    "added_rows",
    "both_families",
    "constant",
    "family",
    "mapped_rows",
    "narrow_form",
]

Tensor = torch.Tensor
LIMIT = 2**28
"""Bytes of the widest tensor that is computed for several rows at once."""


class Form(NamedTuple):
    """What one row looks like."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


class Ways(NamedTuple):
    """By which paths a tensor can be reached: by none (`fresh`), or over one of the `last` hops.

    Every hop knows the ways of its values, so all paths can be counted from here.
    """

    fresh: bool
    last: frozenset[int]


ENTRY = Ways(True, frozenset())
"""The ways to the stream where it enters."""
_NO_WAY = Ways(False, frozenset())
"""Those of a source: no path of the stream leads there."""


class ComponentRows:
    """Components [row, *shape]; `lengths` says how many hops each has behind it.

    The last `sources` rows are of what joined on the way, those before them of the stream as it
    entered. They lie in one stack, so that every operation goes over both at once.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        like: Tensor | ComponentRows | Form,
        compute: Callable[[int, int], Tensor],
        *,
        sources: int = 0,
        parents: Sequence[ComponentRows] = (),
        ways: Ways | None = None,
        narrowed: Callable[[int, int], ComponentRows | None] | None = None,
    ) -> None:
        self.lengths = lengths if type(lengths) is tuple else tuple(lengths)
        self.sources = sources
        self.shape = like.shape
        self.dtype, self.device = like.dtype, like.device
        self.coarsest = _coarsest(self.dtype, parents)
        """The number type with the largest eps on the way to these rows."""
        self.ways = _all_ways(parents) if ways is None else ways
        """By which paths the rows of inputs were reached."""
        self.held: Tensor | None = None
        self._compute: Callable[[int, int], Tensor] | None = compute
        self._narrowed = narrowed
        self._parents = parents

    @property
    def count(self) -> int:
        return len(self.lengths)

    @property
    def inputs(self) -> int:
        """How many rows are of the stream as it entered."""
        return len(self.lengths) - self.sources

    @property
    def bytes(self) -> int:
        """Of the widest tensor on the way to one row."""
        row_bytes = self.shape.numel() * self.dtype.itemsize
        return max([row_bytes, *(one.bytes for one in self._parents if one.held is None)])

    def features(self, first: int, end: int) -> ComponentRows | None:
        """The features first to end - 1 of all rows, computed alone; None where that cannot be."""
        if self.held is not None or self._narrowed is None:
            return None
        return self._narrowed(first, end)

    def take(self, first: int, end: int) -> Tensor:
        """Rows first to end - 1. All of them, once computed, are kept."""
        if self.held is not None:
            return self.held[first:end]
        assert self._compute is not None
        rows = self._compute(first, end)
        if rows.shape[1:] != self.shape:
            rows = rows.expand(-1, *self.shape)
        if rows.dtype != self.dtype:
            rows = rows.to(self.dtype)
        if first == 0 and end == len(self.lengths):
            self._keep(rows)
        return rows

    def row(self, index: int) -> Tensor:
        """One row."""
        return self.take(index, index + 1)[0]

    def fits(self) -> bool:
        """Whether all rows may be computed at once."""
        return self.held is not None or self.count * self.bytes <= LIMIT

    def hold(self) -> Tensor:
        """Compute all rows and let go of what they were computed from."""
        if self.held is None:
            if self.fits():
                self.take(0, self.count)
            else:
                step = max(1, LIMIT // max(1, self.bytes))
                groups = range(0, self.count, step)
                self._keep(torch.cat([self.take(a, min(a + step, self.count)) for a in groups]))
        assert self.held is not None
        return self.held

    def _keep(self, rows: Tensor) -> None:
        self.held, self._compute, self._narrowed, self._parents = rows, None, None, ()


def _coarsest(dtype: torch.dtype, parents: Sequence[ComponentRows]) -> torch.dtype:
    for parent in parents:
        if parent.coarsest is not dtype:
            dtype = max(dtype, parent.coarsest, key=lambda one: torch.finfo(one).eps)
    return dtype


def _all_ways(parents: Sequence[ComponentRows]) -> Ways:
    if not parents:
        return ENTRY
    ways = parents[0].ways
    for parent in parents[1:]:
        if parent.ways is not ways:
            ways = Ways(ways.fresh or parent.ways.fresh, ways.last | parent.ways.last)
    return ways


class Hop(Protocol):
    """One product of a pattern with values: which one it is, and how its heads lie."""

    @property
    def index(self) -> int: ...

    @property
    def numbers(self) -> Tensor | None:
        """The head of every row of the result, [..., row]; None: there is one."""
        ...

    @property
    def features(self) -> int:
        """The axis of the result along which the features of a row lie."""
        ...


class Book(Protocol):
    """What the rows mean."""

    def opened(self, x: Tensor) -> ComponentRows:
        """The rows of the stream as it enters."""
        ...

    def source(self, tensor: Tensor, like: Tensor) -> ComponentRows | None:
        """The rows of something that joins on the way; None where it is not followed."""
        ...

    def joined(self, stacks: Sequence[ComponentRows]) -> list[ComponentRows]:
        """The same rows, in stacks of one height, ready to be added or set side by side."""
        ...

    def hop(
        self, rows: ComponentRows, hop: Hop, product: Callable[[Tensor], Tensor], *, like: Tensor
    ) -> ComponentRows:
        """The rows behind a hop."""
        ...


class ByLength:
    """Row k is the sum of all paths with k hops."""

    def opened(self, x: Tensor) -> ComponentRows:
        return constant(x, x)

    def source(self, tensor: Tensor, like: Tensor) -> ComponentRows | None:
        return constant(tensor, like, joins=True)

    def joined(self, stacks: Sequence[ComponentRows]) -> list[ComponentRows]:
        if len(stacks) == 1:
            return list(stacks)
        inputs, sources = (max(rows.inputs for rows in stacks), max(r.sources for r in stacks))
        return [
            rows
            if (rows.inputs, rows.sources) == (inputs, sources)
            else _taller(rows, inputs=inputs, sources=sources)
            for rows in stacks
        ]

    def hop(
        self, rows: ComponentRows, hop: Hop, product: Callable[[Tensor], Tensor], *, like: Tensor
    ) -> ComponentRows:
        inputs, sources = rows.inputs + 1, rows.sources + (rows.sources > 0)

        def compute(first: int, end: int) -> Tensor:
            size = _Size(inputs, sources, like.shape, like.dtype, like.device)
            return _placed(rows, first, end, size, product, lead=1)

        return ComponentRows(
            (*range(inputs), *range(sources)),
            like,
            compute,
            sources=sources,
            parents=[rows],
            ways=Ways(False, frozenset([hop.index])),
        )


class ByPlan:
    """Row s follows plan s alone: hop index -> the head that it takes there.

    A hop that is not in the plan gives nothing. Where two tensors meet, the one with more hops
    behind it is the plan's: the other skipped a hop that the plan takes. Biases are not followed.
    """

    def __init__(self, plans: Sequence[Mapping[int, int]]) -> None:
        self.plans = tuple(plans)

    def opened(self, x: Tensor) -> ComponentRows:
        count = len(self.plans)
        return ComponentRows([0] * count, x, lambda first, end: x.expand(end - first, *x.shape))

    def source(self, tensor: Tensor, like: Tensor) -> ComponentRows | None:
        return None

    def joined(self, stacks: Sequence[ComponentRows]) -> list[ComponentRows]:
        most = [max(lengths) for lengths in zip(*(rows.lengths for rows in stacks), strict=True)]
        return [rows if list(rows.lengths) == most else _leading(rows, most) for rows in stacks]

    def hop(
        self, rows: ComponentRows, hop: Hop, product: Callable[[Tensor], Tensor], *, like: Tensor
    ) -> ComponentRows:
        heads = [plan.get(hop.index) for plan in self.plans]
        numbers = hop.numbers if any(head is not None for head in heads) else None
        lengths = [n + (head is not None) for n, head in zip(rows.lengths, heads, strict=True)]

        def compute(first: int, end: int) -> Tensor:
            taken = torch.zeros((end - first, *like.shape), dtype=like.dtype, device=like.device)
            for at in range(first, end):
                head = heads[at]
                if head is None:
                    continue
                mixed = product(rows.take(at, at + 1))[0]
                if numbers is not None:
                    mixed = mixed * (numbers == head).unsqueeze(hop.features).to(mixed.dtype)
                taken[at - first] = mixed
            return taken

        return ComponentRows(lengths, like, compute, parents=[rows])


def constant(tensor: Tensor, like: Tensor | Form, *, joins: bool = False) -> ComponentRows:
    """One row without a hop behind it. `joins`: it is a source."""

    def compute(first: int, end: int) -> Tensor:
        return tensor.expand(like.shape).unsqueeze(0)

    def narrowed(first: int, end: int) -> ComponentRows:
        form = narrow_form(like, first=first, end=end)
        return constant(tensor.expand(like.shape)[..., first:end], form, joins=joins)

    ways = _NO_WAY if joins else ENTRY
    return ComponentRows((0,), like, compute, sources=int(joins), ways=ways, narrowed=narrowed)


def both_families(inputs: ComponentRows, sources: ComponentRows) -> ComponentRows:
    """Two stacks as one: the rows of what entered, and behind them those of what joined."""

    def compute(first: int, end: int) -> Tensor:
        middle = max(first, min(end, inputs.count))
        pieces = [inputs.take(first, middle)] if middle > first else []
        if end > middle:
            pieces.append(sources.take(middle - inputs.count, end - inputs.count))
        return torch.cat(pieces)

    return ComponentRows(
        (*inputs.lengths, *sources.lengths),
        inputs,
        compute,
        sources=sources.count,
        parents=[inputs, sources],
        ways=inputs.ways,
    )


def family(rows: ComponentRows, *, sources: bool) -> ComponentRows:
    """The rows of inputs alone, or those of sources."""
    start, count = (rows.inputs, rows.sources) if sources else (0, rows.inputs)
    if count == rows.count:
        return rows

    def compute(first: int, end: int) -> Tensor:
        return rows.take(start + first, start + end)

    return ComponentRows(rows.lengths[start : start + count], rows, compute, parents=[rows])


def narrow_form(like: Tensor | Form, *, first: int, end: int) -> Form:
    """The form of a row with a part of its features."""
    return Form(torch.Size((*like.shape[:-1], end - first)), like.dtype, like.device)


def mapped_rows(
    book: Book,
    stacks: Sequence[ComponentRows],
    function: Callable[..., Tensor],
    *,
    like: Tensor | Form,
    narrowed: Callable[[int, int], ComponentRows | None] | None = None,
) -> ComponentRows:
    """Apply a function, linear in all its arguments together, to the rows of one or more stacks.

    `narrowed` computes a part of the features alone, where that is less work.
    """
    level = book.joined(stacks)

    def compute(first: int, end: int) -> Tensor:
        return function(*(rows.take(first, end) for rows in level))

    return ComponentRows(
        level[0].lengths,
        like,
        compute,
        sources=level[0].sources,
        parents=level,
        narrowed=narrowed,
    )


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
    kept = ComponentRows(
        (*range(inputs), *range(sources)),
        like,
        lambda first, end: _sum_of_two(one, other, first, end, factor=factors[1], size=size),
        sources=sources,
        parents=stacks,
        narrowed=narrowed,
    )
    size = _Size(inputs, sources, like.shape, like.dtype, like.device)
    return kept


class _Size(NamedTuple):
    """How many rows of both families there are, and what one row looks like."""

    inputs: int
    sources: int
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    def new(self, make: Callable[..., Tensor], count: int) -> Tensor:
        return make((count, *self.shape), dtype=self.dtype, device=self.device)


def _sum_of_two(
    one: ComponentRows, other: ComponentRows, first: int, end: int, *, factor: float, size: _Size
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
    for start, at, count in ((0, 0, other.inputs), (one.inputs, other.inputs, other.sources)):
        low, high = max(first - start, 0), min(end - start, count)
        if high > low:
            summand = other.take(at + low, at + high)
            total[start + low - first : start + high - first].add_(summand, alpha=factor)
    return total


def _placed(
    rows: ComponentRows,
    first: int,
    end: int,
    size: _Size,
    function: Callable[[Tensor], Tensor],
    *,
    lead: int = 0,
) -> Tensor:
    """A function of rows that lie in a larger stack, among zeros: `lead` of them in front."""
    every = None
    if (first, end) == (0, size.inputs + size.sources):
        every = function(rows.take(0, rows.count))
    pieces: list[Tensor] = []
    for start, count, at, there in (
        (0, size.inputs, 0, rows.inputs),
        (size.inputs, size.sources, rows.inputs, rows.sources),
    ):
        low, high = max(first - start, 0), min(end - start, count)
        if low >= high:
            continue
        begin, stop = max(low - lead, 0), max(min(high - lead, there), 0)
        zeros = min(high, lead) - low
        if zeros > 0:
            pieces.append(size.new(torch.zeros, zeros))
        if stop > begin:
            among = slice(at + begin, at + stop)
            pieces.append(
                function(rows.take(among.start, among.stop)) if every is None else every[among]
            )
        zeros = high - max(low, lead + there)
        if zeros > 0:
            pieces.append(size.new(torch.zeros, zeros))
    return torch.cat(pieces) if len(pieces) > 1 else pieces[0]


def _taller(rows: ComponentRows, *, inputs: int, sources: int) -> ComponentRows:
    """The rows of both families with rows of zeros behind them."""
    size = _Size(inputs, sources, rows.shape, rows.dtype, rows.device)

    def compute(first: int, end: int) -> Tensor:
        return _placed(rows, first, end, size, lambda stack: stack)

    lengths = (*range(inputs), *range(sources))
    return ComponentRows(lengths, rows, compute, sources=sources, parents=[rows])


def _leading(rows: ComponentRows, lengths: Sequence[int]) -> ComponentRows:
    """The rows with zeros where another tensor is further on its way."""
    kept = torch.tensor(
        [length == most for length, most in zip(rows.lengths, lengths, strict=True)]
    )
    kept = kept.to(rows.device)

    def compute(first: int, end: int) -> Tensor:
        components = rows.take(first, end)
        keep = kept[first:end].reshape(-1, *[1] * (components.ndim - 1))
        return torch.where(
            keep, components, torch.zeros((), dtype=components.dtype, device=components.device)
        )

    return ComponentRows(lengths, rows, compute, parents=[rows])
