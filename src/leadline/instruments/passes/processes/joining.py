"""Make one reading of the pieces that several processes hold: sums over sums, never means of ratios.

tokens, examples, heads    side by side; mean, median and largest are taken of all of them
one number                 by its `Join`; a ratio as sum of numerators over sum of denominators
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from leadline.instruments.passes.probe import Each, PerHead
from leadline.instruments.passes.processes.part import Label, Piece
from leadline.instruments.passes.reduction import head_readings, means_of, token_columns
from leadline.numerics.tokens import PerExample
from leadline.record import Quantity, Reading

__all__ = ["SAME", "difference", "joined_readings"]

Tensor = torch.Tensor
SAME = 1e-3
"""Processes with the same inputs read numbers that differ by less, relative to the largest."""
_ROUNDING = 1e-6
"""Or by less than this: a cosine of nearly zero is rounding."""


def joined_readings(
    parts: Sequence[Sequence[Piece]], quantities: dict[str, Quantity]
) -> tuple[list[Reading], list[str]]:
    """The readings of all parts together, and the names of quantities that cannot be joined."""
    tables: dict[Label, list[Piece]] = {}
    for part in parts:
        for piece in part:
            tables.setdefault(piece.label, []).append(piece)
    largest = {
        (pieces[0].quantity, pieces[0].site): _place_of_largest(pieces)
        for pieces in tables.values()
        if pieces[0].join == "largest" and pieces[0].statistic == "value"
    }
    readings: list[Reading] = []
    unjoined: dict[str, None] = {}
    for pieces in tables.values():
        first = pieces[0]
        if first.kind == "tokens":
            readings += _of_tokens(pieces)
        elif first.kind == "each":
            readings += _of_examples(pieces, quantities[first.quantity])
        elif first.kind == "heads":
            readings += _of_heads(pieces, quantities[first.quantity])
        else:
            value = _of_singles(pieces, largest.get((first.quantity, first.site), 0))
            if value is None:
                unjoined[first.quantity] = None
            else:
                readings.append(Reading(first.quantity, first.site, first.statistic, *value))
    return readings, list(unjoined)


def _of_tokens(pieces: Sequence[Piece]) -> Iterator[Reading]:
    every, rest = (_side_by_side(pieces, at) for at in (0, 1))
    assert every is not None
    assert rest is not None
    for statistic, column in token_columns(every.unsqueeze(0), rest.unsqueeze(0)).items():
        yield Reading(pieces[0].quantity, pieces[0].site, statistic, float(column))


def _of_examples(pieces: Sequence[Piece], quantity: Quantity) -> Iterator[Reading]:
    ends = [_side_by_side(pieces, at) for at in range(6)]
    tables = [
        None if one is None or other is None else PerExample(one, other)
        for one, other in zip(ends[::2], ends[1::2], strict=True)
    ]
    assert tables[0] is not None
    for statistic, interval in means_of(Each(quantity, tables[0], None, tables[1], tables[2])):
        value, lower, upper = (None if end is None else float(end) for end in interval)
        assert value is not None
        yield Reading(quantity.name, pieces[0].site, statistic, value, lower, upper)


def _of_heads(pieces: Sequence[Piece], quantity: Quantity) -> list[Reading]:
    columns = [_side_by_side(pieces, at) for at in range(3)]
    tables = [None if one is None else one.reshape(-1, pieces[0].heads) for one in columns]
    assert tables[0] is not None
    return head_readings(PerHead(quantity, tables[0], tables[1], tables[2]), pieces[0].site)


def _side_by_side(pieces: Sequence[Piece], at: int) -> Tensor | None:
    columns = [one.columns[at] for one in pieces]
    known = [column for column in columns if column is not None]
    return torch.cat(known) if len(known) == len(columns) else None


def _of_singles(
    pieces: Sequence[Piece], place_of_largest: int
) -> tuple[float, float | None, float | None] | None:
    """Value, lower and upper end of one number; None where parts of a batch have no common one."""
    first = pieces[0]
    if len(pieces) == 1 or first.join == "same":
        value, lower, upper = (None if c is None else float(c) for c in first.columns[:3])
        assert value is not None
        return value, lower, upper
    values = _side_by_side(pieces, 0)
    sums, counts = _side_by_side(pieces, 3), _side_by_side(pieces, 4)
    assert values is not None
    if sums is not None and counts is not None:
        return float(sums.sum() / counts.sum()), None, None
    if first.join == "largest":
        return float(values.max()), None, None
    if first.join == "smallest":
        return float(values.min()), None, None
    if first.join == "root of squares":
        return float(torch.linalg.vector_norm(values)), None, None
    if first.join == "sum":
        return float(values.sum()), None, None
    if first.join == "beside largest":
        return float(values[place_of_largest]), None, None
    return None


def _place_of_largest(pieces: Sequence[Piece]) -> int:
    values = _side_by_side(pieces, 0)
    assert values is not None
    return int(values.argmax())


def difference(ours: Sequence[Piece], theirs: Sequence[Piece]) -> str:
    """Where two processes with the same inputs differ; empty where they do not."""
    other = {piece.label: piece for piece in theirs}
    for piece in ours:
        copy = other.get(piece.label)
        if copy is None:
            return f"only one of them has {piece.quantity} at {piece.site}"
        for one, two in zip(piece.columns, copy.columns, strict=True):
            if one is None or two is None:
                continue
            if one.shape != two.shape:
                return (
                    f"{piece.quantity} at {piece.site} is of {len(one)} and of {len(two)} numbers"
                )
            scale = float(one.abs().nan_to_num(0, 0, 0).max()) if len(one) else 0.0
            if not torch.allclose(one, two, rtol=0, atol=SAME * scale + _ROUNDING, equal_nan=True):
                worst = int((one - two).abs().nan_to_num(float("inf")).argmax())
                return f"{piece.quantity} at {piece.site} is {one[worst]:.6g} and {two[worst]:.6g}"
    return ""
