"""What one process reads of its part of a batch, kept until the parts are joined.

No means and no medians are taken before: a median of medians is none. Numbers of tokens, examples and
heads are kept as they are; a number that stands for a whole part says how it is joined (`Join`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, Literal

import torch

from leadline.anatomy import Stack
from leadline.instruments.passes.collect import Collector, checked_results
from leadline.instruments.passes.probe import (
    At,
    Each,
    Join,
    PerHead,
    PerToken,
    Refused,
    Result,
    Single,
)
from leadline.instruments.passes.processes.mailbox import Message
from leadline.instruments.passes.reduction import joined_heads, real_tokens
from leadline.numerics.devices import widest_float
from leadline.numerics.tokens import Tokens
from leadline.record import Site

__all__ = ["PartCollector", "Piece", "pieces_in", "pieces_message"]

Tensor = torch.Tensor
Label = tuple[str, str, Site, str]


@dataclass(frozen=True)
class Piece:
    """Numbers of one quantity at one site: `columns` are those of the kind, None where there are none.

    tokens   every real token; those after the first
    each     values of all tokens and without the first, then the lower and the upper ends likewise
    heads    values, lower and upper ends, [example, head] in one row, for `heads` heads
    single   value, lower and upper end, numerator and denominator
    """

    kind: Literal["tokens", "each", "heads", "single"]
    quantity: str
    site: Site
    columns: tuple[Tensor | None, ...]
    statistic: str = ""
    join: Join | None = None
    heads: int = 0

    @property
    def label(self) -> Label:
        """What it is a piece of."""
        return self.kind, self.quantity, self.site, self.statistic


class PartCollector(Collector):
    """Keeps pieces in place of readings.

    Gradients at the stream are multiplied by `gradient_factor`: that of a share of the loss is a
    share.
    """

    def __init__(self, *args: Any, gradient_factor: float = 1.0, **options: Any) -> None:
        super().__init__(*args, **options)
        self._gradient_factor = gradient_factor
        self._pieces: dict[Label, Piece] = {}
        self._conditions: dict[Label, Single] = {}

    def gradient(self, stack: Stack, layer: int, sublayer: int | None, g: Tensor) -> None:
        scaled = g if self._gradient_factor == 1.0 else g * self._gradient_factor
        super().gradient(stack, layer, sublayer, scaled)

    def pieces(self) -> list[Piece]:
        """Everything that was read, fetched from the device; what turned out not to exist is refused."""
        pieces = dict(self._pieces)
        for (name, site), results in self._heads.items():
            result = joined_heads(results)
            tables = (result.values, result.lower, result.upper)
            piece = Piece("heads", name, site, _flat(tables), heads=result.values.shape[1])
            pieces[piece.label] = piece
        kept = [one for one in pieces.values() if not self._split(one.quantity, one.site)]
        conditions = [self._conditions.get(one.label) for one in kept]
        rows = _fetched(
            [
                (*one.columns, *_flat([None if condition is None else condition.exists]))
                for one, condition in zip(kept, conditions, strict=True)
            ]
        )
        existing: list[Piece] = []
        for piece, condition, (*columns, exists) in zip(kept, conditions, rows, strict=True):
            if exists is None or bool(exists.any()):
                existing.append(replace(piece, columns=tuple(columns)))
            elif condition is not None and condition.otherwise:
                refused = Refused((condition.quantity,), condition.otherwise)
                self.refused.append((refused, piece.site))
        return existing

    def _take(
        self, at: At, tokens: Tokens | None, results: Iterable[Result], heads_before: int = 0
    ) -> None:
        super()._take(at, tokens, self._kept(at, tokens, results, heads_before), heads_before)

    def _kept(
        self, at: At, tokens: Tokens | None, results: Iterable[Result], heads_before: int
    ) -> Iterator[Result]:
        """Keep pieces; go on with what is kept as in one process."""
        for result in checked_results(results, at):
            if isinstance(result, Refused | PerHead):
                yield result
                continue
            self.measured.add(result.quantity.name)
            site = result.site if result.site is not None else at.site
            if site.head is not None:
                site = replace(site, head=site.head + heads_before)
            mask = None if tokens is None else tokens.mask
            piece = _piece(result, site, mask, self._rows(mask))
            self._pieces[piece.label] = piece
            if isinstance(result, Single) and result.exists is not None:
                self._conditions[piece.label] = result


def _piece(
    result: PerToken | Each | Single, site: Site, mask: Tensor | None, rows: list[Tensor] | None
) -> Piece:
    name = result.quantity.name
    if isinstance(result, PerToken):
        every, rest = real_tokens(result.values.unsqueeze(0), mask, rows)
        return Piece("tokens", name, site, _flat((every, rest)))
    if isinstance(result, Each):
        tables = (result.values, result.lower, result.upper)
        ends = [end for one in tables for end in ((one.all, one.rest) if one else (None, None))]
        return Piece("each", name, site, _flat(ends))
    ends = [result.value, result.lower, result.upper, *(result.parts or (None, None))]
    return Piece("single", name, site, _flat(ends), result.statistic, result.join)


def _flat(tensors: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    return tuple(None if t is None else t.detach().flatten() for t in tensors)


def _fetched(rows: Sequence[Sequence[Tensor | None]]) -> list[tuple[Tensor | None, ...]]:
    """The same vectors in float64 on the CPU, by one transfer from each device."""
    flat = [one for row in rows for one in row if one is not None]
    there: dict[int, Tensor] = {}
    for device in {one.device for one in flat}:
        own = [one for one in flat if one.device == device]
        together = torch.cat([one.to(widest_float(device)) for one in own]).cpu().double()
        there |= zip(map(id, own), together.split([len(one) for one in own]), strict=True)
    return [tuple(None if one is None else there[id(one)] for one in row) for row in rows]


def pieces_message(pieces: Sequence[Piece]) -> Message:
    """Pieces as facts and numbers."""
    facts = [
        [
            one.kind,
            one.quantity,
            astuple(one.site),
            one.statistic,
            one.join,
            one.heads,
            [-1 if column is None else len(column) for column in one.columns],
        ]
        for one in pieces
    ]
    columns = [column for one in pieces for column in one.columns if column is not None]
    return Message({"pieces": facts}, torch.cat(columns).tolist() if columns else ())


def pieces_in(message: Message) -> list[Piece]:
    """The pieces of a message."""
    numbers = torch.tensor(list(message.numbers), dtype=torch.float64)
    first, pieces = 0, list[Piece]()
    for kind, quantity, site, statistic, join, heads, lengths in message.facts["pieces"]:
        columns: list[Tensor | None] = []
        for length in lengths:
            columns.append(None if length < 0 else numbers[first : first + length])
            first += max(length, 0)
        pieces.append(Piece(kind, quantity, Site(*site), tuple(columns), statistic, join, heads))
    return pieces
