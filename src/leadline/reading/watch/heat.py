"""Layer by step: one quantity of all layers over the steps of a run, as a table of cells.

    groups = layer_series(history)               # one per quantity, stack and point
    heat = heat_map(groups[0], columns=60)       # rows are layers, columns stretches of steps

Columns are equally long in steps, so that a curve above the map has the same axis. A column stands
for several samples where there are more of these than columns: it shows their median, unless one
of them stands out, which is then shown instead, so that a spike of one sample is never lost. A
column without a sample shows the sample before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from leadline.reading.watch.levels import levels_of, noise_of, row_medians
from leadline.record.rows.address import WHOLE_POINTS, Address, parse_address
from leadline.record.rows.site import OUTSIDE, RUN
from leadline.record.run.training import TRAIN_LOSS, VALIDATION_LOSS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from leadline.reading.watch.history import History, Series
    from leadline.record import Quantity

__all__ = [
    "HeatMap",
    "LayerSeries",
    "chosen_series",
    "heat_map",
    "layer_series",
    "loss_of",
    "merge_rows",
    "row_parts",
    "series_by_column",
    "table_of",
]

STANDS_OUT = 6.0
"""A sample is shown in place of its column's median where it is so many times the row's noise away
from its neighbours in time; among a thousand samples of Gaussian noise none is."""
NEIGHBOURS = 4
"""So many samples on either side are the neighbours of one."""


@dataclass(frozen=True, eq=False)
class LayerSeries:
    """One quantity at one point of all layers, each with its series over steps.

    Tensors outside of the blocks make a group of their own, whose rows are their names.
    """

    quantity: Quantity
    address: Address
    series: tuple[Series, ...]

    @property
    def outside(self) -> bool:
        """Whether it is of tensors that belong to no block."""
        return self.address.stack == OUTSIDE

    @property
    def stack(self) -> str:
        """The stack of its sites."""
        return self.series[0].site.stack

    @property
    def point(self) -> str:
        """The point of its sites, such as attention; of the stream, stream."""
        return "" if self.outside else self.series[0].site.point

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the rows: numbers of layers, or names of tensors."""
        return tuple(one.site.point if self.outside else str(one.site.layer) for one in self.series)

    @property
    def title(self) -> str:
        """What it is in words: `Update over stream, attention`."""
        where = "outside of the blocks" if self.outside else self.address.stack or ""
        point = self.address.point or ""
        number = "" if self.address.sublayer is None else f"write {self.address.sublayer}"
        return ", ".join(word for word in (self.quantity.title, where, point, number) if word)

    @property
    def first(self) -> int:
        """The first step."""
        return min(int(one.steps[0]) for one in self.series)

    @property
    def last(self) -> int:
        """The last step."""
        return max(one.last_step for one in self.series)

    @property
    def samples(self) -> int:
        """How many samples the longest series has."""
        return max(map(len, self.series))


@dataclass(frozen=True, eq=False)
class HeatMap:
    """The cells of a map. `known` says which of them have a value; a value may be not finite.

    `edges` are the first step of every column and the step after the last one. `rows` are, for
    every row of cells, the series that it stands for: several where rows were merged.
    """

    group: LayerSeries
    edges: NDArray[np.float64]
    values: NDArray[np.float64]
    known: NDArray[np.bool_]
    rows: tuple[tuple[int, ...], ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the rows: `7`, or `7-8` where rows were merged."""
        names = self.group.labels
        return tuple(
            names[row[0]] if len(row) == 1 else f"{names[row[0]]}-{names[row[-1]]}"
            for row in self.rows
        )

    def column_of(self, step: float) -> int:
        """The column in which a step stands, the nearest one where it is beyond the map."""
        at = int(np.searchsorted(self.edges, step, side="right")) - 1
        return min(max(at, 0), self.values.shape[1] - 1)


def layer_series(history: History) -> list[LayerSeries]:
    """Group the series of every quantity that has layers: by stack, and by point of the block.

    Groups with a single step are left out, and so are ingredients of bounds. They come in the
    order of the quantities.
    """
    groups: dict[tuple[str, str, str, int | None], list[Series]] = {}
    first_stack = _first_stack(history)
    for name, sites in history.series.items():
        quantity = history.quantities[name]
        if quantity.ingredient_of or quantity.over == "step":
            continue
        lines = history.by_layer(name)
        twice = _repeated(lines)
        for one in lines:
            site = one.site
            if site == RUN or site not in sites:
                continue
            if site.stack == OUTSIDE:
                key = name, OUTSIDE, "", None
            else:
                number = site.sublayer if (site.stack, site.point) in twice else None
                key = name, site.stack, site.point, number
            groups.setdefault(key, []).append(one)
    return [
        LayerSeries(
            history.quantities[name],
            Address(
                name,
                stack=None if stack == first_stack else stack,
                point=None if point in (*WHOLE_POINTS, "") else point,
                sublayer=number,
            ),
            tuple(series),
        )
        for (name, stack, point, number), series in groups.items()
        if max(map(len, series)) > 1
    ]


def loss_of(history: History) -> Series | None:
    """Return the loss of the run: that of every update, or the validation loss where there is none."""
    series = (history.of_run(name) for name in (TRAIN_LOSS.name, VALIDATION_LOSS.name))
    return next((one for one in series if one is not None), None)


def chosen_series(groups: Sequence[LayerSeries], address: str) -> list[LayerSeries]:
    """Return the groups that an address names: all of a quantity, or `update.ratio[mlp]` alone."""
    points = {group.point for group in groups}
    wanted = parse_address(address, points=points)
    if wanted is None:
        return []
    return [
        group
        for group in groups
        if group.address.quantity == wanted.quantity
        and wanted.stack in (None, group.stack)
        and wanted.point in (None, group.point)
        and wanted.sublayer in (None, group.address.sublayer)
    ]


def heat_map(group: LayerSeries, *, columns: int, span: tuple[int, int] | None = None) -> HeatMap:
    """Return the cells of a group in at most `columns` columns over the steps of `span`.

    There are no more columns than samples. The span is that of the group unless it is given.
    """
    steps, table, read = table_of(group)
    first, last = span or (group.first, group.last)
    count = max(1, min(columns, len(steps)))
    edges = np.linspace(first, last + 1, count + 1)
    column = np.clip(np.searchsorted(edges, steps, side="right") - 1, 0, count - 1)
    logarithmic = group.quantity.scale == "log"
    levels = levels_of(table, logarithmic=logarithmic)
    apart, limits = _apart(levels, read), STANDS_OUT * noise_of(levels, read)
    values = np.full((len(table), count), np.nan)
    known = np.zeros((len(table), count), dtype=np.bool_)
    rows = np.arange(len(table), dtype=np.int64)
    for at in range(count):
        inside = np.flatnonzero(column == at)
        if len(inside):
            part = levels[:, inside], apart[:, inside], read[:, inside]
            values[:, at] = table[rows, inside[_one_column(*part, limits)]]
            known[:, at] = read[:, inside].any(axis=1)
        if at:  # what nobody read meanwhile stands as it was read before
            held = ~known[:, at] & known[:, at - 1]
            values[held, at], known[held, at] = values[held, at - 1], True
    return HeatMap(group, edges, values, known, tuple((int(at),) for at in rows))


def merge_rows(heat: HeatMap, most: int) -> HeatMap:
    """Return the map with at most `most` rows: neighbours are merged where there are more.

    A merged cell shows the layer in the middle, unless another one stands out from its own past.
    """
    if len(heat.rows) <= max(1, most):
        return heat
    parts = [np.array(part, dtype=np.int64) for part in row_parts(len(heat.rows), most)]
    levels = levels_of(heat.values, logarithmic=heat.group.quantity.scale == "log")
    apart = np.abs(levels - row_medians(levels, heat.known)[:, None])
    apart = np.where(heat.known, np.nan_to_num(apart, nan=np.inf), -np.inf)
    limits = STANDS_OUT * noise_of(levels, heat.known)
    chosen = [_merged(apart[part], limits[part]) + part[0] for part in parts]
    across = np.arange(heat.values.shape[1], dtype=np.int64)
    return replace(
        heat,
        values=np.stack([heat.values[row, across] for row in chosen]),
        known=np.stack([heat.known[row, across] for row in chosen]),
        rows=row_parts(len(heat.rows), most),
    )


def row_parts(count: int, most: int) -> tuple[tuple[int, ...], ...]:
    """Share `count` rows among at most `most` parts of neighbours, as alike in size as can be."""
    size = -(-count // max(1, most))
    parts = np.array_split(np.arange(count), -(-count // size))
    return tuple(tuple(int(at) for at in part) for part in parts)


def _merged(apart: NDArray[np.float64], limits: NDArray[np.float64]) -> NDArray[np.int64]:
    """Which of some rows stands for them in every column."""
    farthest = np.argmax(apart, axis=0)
    middle = np.full(apart.shape[1], len(apart) // 2)
    # The middle one may not have been read there.
    middle = np.where(apart[len(apart) // 2] == -np.inf, farthest, middle)
    over: NDArray[np.float64] = apart - limits[:, None]
    stands_out: NDArray[np.bool_] = np.max(over, axis=0) > 0
    return np.where(stands_out, np.argmax(over, axis=0), middle)


def series_by_column(series: Series, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median of a series in every column; one without a sample holds what was before."""
    steps, values = series.steps, series.values
    starts = np.searchsorted(steps, edges[:-1], side="left")
    ends = np.searchsorted(steps, edges[1:], side="left")
    held = float(values[0])
    columns = np.empty(len(starts))
    for at, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if end > start:
            part = values[start:end]
            # A loss that was not finite is never hidden among others that were.
            held = float(np.median(part)) if bool(np.all(np.isfinite(part))) else math.nan
        columns[at] = held
    return columns


def _first_stack(history: History) -> str:
    """The stack of the first reading in the model, which addresses leave out."""
    stacks = (site.stack for sites in history.series.values() for site in sites)
    return next((stack for stack in stacks if stack not in (RUN.stack, OUTSIDE)), "")


def _repeated(lines: Sequence[Series]) -> set[tuple[str, str]]:
    """The points that stand in a block twice, so that the number of the write tells them apart."""
    writes: dict[tuple[str, str, int], int] = {}
    for one in lines:
        place = one.site.stack, one.site.point, one.site.layer
        writes[place] = writes.get(place, 0) + 1
    return {(stack, point) for (stack, point, _), count in writes.items() if count > 1}


def table_of(
    group: LayerSeries,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]:
    """The steps of all samples, the values by row and sample, and which of them were read."""
    each = [one.steps for one in group.series]
    steps = each[0]
    if any(not np.array_equal(one, steps) for one in each):
        steps = np.unique(np.concatenate(each))
    values = np.full((len(each), len(steps)), np.nan)
    read = np.zeros(values.shape, dtype=np.bool_)
    for row, (own_steps, one) in enumerate(zip(each, group.series, strict=True)):
        places = np.searchsorted(steps, own_steps)
        values[row, places], read[row, places] = one.values, True
    return steps, values, read


def _one_column(
    levels: NDArray[np.float64],
    apart: NDArray[np.float64],
    read: NDArray[np.bool_],
    limits: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Which sample stands for those of one column, in every row.

    `apart` is how far each is from its neighbours in time, infinite where it is not finite.
    """
    rows = np.arange(len(levels), dtype=np.int64)
    if levels.shape[1] == 1:
        return np.zeros(len(levels), dtype=np.int64)
    shown = np.where(read, apart, -np.inf)
    farthest = np.argmax(shown, axis=1)
    distance = np.abs(levels - row_medians(levels, read)[:, None])
    usable: NDArray[np.float64] = np.where(read & np.isfinite(distance), distance, np.inf)
    nearest: NDArray[np.int64] = np.argmin(usable, axis=1)
    stands_out: NDArray[np.bool_] = shown[rows, farthest] > limits
    nearest[stands_out] = farthest[stands_out]
    return nearest


def _apart(levels: NDArray[np.float64], read: NDArray[np.bool_]) -> NDArray[np.float64]:
    """How far every sample is from the median of its neighbours in time."""
    finite = read & np.isfinite(levels)
    filled = np.where(finite, levels, row_medians(levels, read)[:, None])
    around = np.pad(filled, ((0, 0), (NEIGHBOURS, NEIGHBOURS)), mode="edge")
    windows: NDArray[np.float64] = np.lib.stride_tricks.sliding_window_view(
        around, 2 * NEIGHBOURS + 1, axis=1
    )
    middle: NDArray[np.float64] = np.median(windows, axis=-1)
    apart: NDArray[np.float64] = np.abs(filled - middle)
    return np.where(finite, apart, np.inf)
