"""How readings become lines over depth, and how one of the lines is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leadline.errors import RecordError
from leadline.record.rows.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leadline.record.rows.quantity import Over
    from leadline.record.rows.reading import Reading

__all__ = ["choose_line", "group_into_lines"]


@dataclass(frozen=True, slots=True)
class _Key:
    """What tells one line of a quantity from another."""

    statistic: str
    stack: str
    point: str
    sublayer: int | None


def group_into_lines(readings: Iterable[Reading], *, over: Over = "layer") -> list[Profile]:
    """Group readings of one quantity into lines over depth, or over the length of paths.

    Writes of one role are one line, unless a block holds two of that role: then they are told
    apart by their number. Where several readings fall on one layer (seeds, heads, lanes), the
    summaries without head, lane, token, rank and example stand if there are any; several are
    averaged.
    """
    rows = list(readings)
    crowded = _points_that_repeat(rows)
    lines: dict[_Key, dict[int, list[Reading]]] = {}
    for reading in rows:
        site = reading.site
        apart = (site.stack, site.point) in crowded
        key = _Key(reading.statistic, site.stack, site.point, site.sublayer if apart else None)
        place = site.hops or 0 if over == "hops" else site.layer
        lines.setdefault(key, {}).setdefault(place, []).append(reading)
    return [_profile(key, layers, over) for key, layers in lines.items()]


def choose_line(
    lines: Sequence[Profile],
    *,
    quantity: str,
    statistic: str,
    stack: str,
    point: str | None,
    sublayer: int | None,
) -> Profile:
    """Return the one line that matches, or raise an error that lists the lines there are."""
    if not lines:
        raise RecordError(f"The record holds no readings of {quantity!r} here.")
    for noun, name, known in (
        ("stack", stack, _distinct(line.stack for line in lines)),
        ("statistic", statistic, _distinct(line.statistic for line in lines)),
    ):
        if name not in known:
            raise RecordError(
                f"{quantity!r} has no readings of the {noun} {name!r}. It has: {', '.join(known)}."
            )
    here = [line for line in lines if line.stack == stack and line.statistic == statistic]
    matches = [
        line
        for line in here
        if (point is None or line.point == point)
        and (sublayer is None or line.sublayer == sublayer)
    ]
    if len(matches) == 1:
        return matches[0]
    choices = "; ".join(_distinct(_how_to_ask(line, here) for line in matches or here))
    if matches:
        raise RecordError(
            f"{quantity!r} has {len(matches)} lines over depth. Choose one with {choices}."
        )
    wanted = ", ".join(
        f"{name}={value!r}"
        for name, value in (("point", point), ("sublayer", sublayer))
        if value is not None
    )
    raise RecordError(f"{quantity!r} has no line with {wanted}. It has: {choices}.")


def _how_to_ask(line: Profile, lines: Sequence[Profile]) -> str:
    twins = [other for other in lines if other.point == line.point]
    if len(twins) == 1:
        return f"point={line.point!r}"
    return f"point={line.point!r}, sublayer={line.sublayer}"


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _points_that_repeat(readings: Iterable[Reading]) -> set[tuple[str, str]]:
    sublayers_at: dict[tuple[str, str, int], set[int | None]] = {}
    for reading in readings:
        site = reading.site
        sublayers_at.setdefault((site.stack, site.point, site.layer), set()).add(site.sublayer)
    return {(stack, point) for (stack, point, _), writes in sublayers_at.items() if len(writes) > 1}


def _profile(key: _Key, layers: Mapping[int, list[Reading]], over: Over) -> Profile:
    ordered = sorted(layers)
    readings = [reading for layer in ordered for reading in layers[layer]]
    writes = {reading.site.sublayer for reading in readings}
    values = np.array([_summary(layers[layer]) for layer in ordered], dtype=np.float64)
    values.setflags(write=False)
    return Profile(
        quantity=readings[0].quantity,
        statistic=key.statistic,
        stack=key.stack,
        point=key.point,
        sublayer=writes.pop() if len(writes) == 1 else None,
        layers=tuple(ordered),
        values=values,
        over=over,
    )


def _summary(readings: Sequence[Reading]) -> float:
    summaries = [reading.number for reading in readings if _is_summary(reading)]
    values = summaries or [reading.number for reading in readings]
    return values[0] if len(values) == 1 else float(np.mean(values))


def _is_summary(reading: Reading) -> bool:
    site = reading.site
    return site.lane is site.head is site.token is site.rank is site.example is None
