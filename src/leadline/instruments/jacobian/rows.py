"""The rows of `jacobian` and `lyapunov`, and their results read back from rows.

Where a probe of `measure` writes the same number, the rows have the same quantity and the same
site, with mean and largest over the examples; those of single examples stand beside them. What rows
cannot hold to the last bit stands in the provenance under `instrument`: the errors, of which rows
show value - error and value + error, and logarithms of numbers beyond float64. Singular vectors are
not written; they are there as long as the record is in the memory of the process that measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.instruments.jacobian.quantities import (
    BRANCH,
    DISTANCE,
    EXPONENT,
    FORWARD_EXPONENT,
    FORWARD_GROWTH,
    GROWTH,
    LEAK,
    NORM,
    PARTIAL,
    PRODUCT,
    SINGULAR,
    SMALLEST,
    STRONGEST,
    THROUGH,
    WEAKEST,
)
from leadline.instruments.jacobian.result import Direction, Jacobian, Lyapunov
from leadline.instruments.jacobian.row_tables import (
    cells,
    example_rows,
    power_rows,
    ranked_rows,
    rows_at,
    summaries,
    table_of,
)
from leadline.record import Quantity, Reading, Record, Site

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["jacobian_record", "lyapunov_record", "read_jacobian", "read_lyapunov"]

_ERRORS = ("errors", "smallest_errors", "norm_error", "distance_error", "branch_error")
_FACTS = ("model", "stack", "precision", "kernel", "remarks", "shape")


def jacobian_record(
    result: Jacobian, facts: Mapping[str, Any], *, role: str = "block", depth: int | None = None
) -> Record:
    """Write a Jacobian as a record.

    `role` is that of the write where one sublayer was measured, `depth` that of the stack.
    """
    site = _site(result.stack, result.start, result.end, result.sublayer, role)
    rows = [
        *ranked_rows(SINGULAR, result.values, result.errors, site),
        *ranked_rows(SMALLEST, result.smallest, result.smallest_errors, site),
        *example_rows(NORM, result.norm, result.norm_error, site),
        *example_rows(DISTANCE, result.distance, result.distance_error, site),
        *([] if result.shape[1] < 2 else [Reading(LEAK.name, site, "max", result.leak)]),
        *_direction_rows(STRONGEST, result.strongest, site),
        *_direction_rows(WEAKEST, result.weakest, site),
        *_single_blocks(result),
    ]
    if not np.isnan(result.branch).all():
        rows += example_rows(BRANCH, result.branch, result.branch_error, site)
    if site.point.startswith(_FROM) and result.start == 0 and result.values.shape[1]:
        end = Site(result.stack, result.end)
        rows += example_rows(THROUGH, result.values[:, 0], result.errors[:, 0], end)
    if result.end == depth and result.sublayer is None:
        rows += example_rows(
            PARTIAL, result.norm, result.norm_error, Site(result.stack, result.start)
        )
    exact = {name: getattr(result, name) for name in _ERRORS}
    fields = ("start", "end", "sublayer", "causal", "probes", "products", *_FACTS)
    record = _record(
        "jacobian",
        facts,
        rows,
        {name: getattr(result, name) for name in fields} | {"role": role, "exact": exact},
    )
    record.in_memory |= {"left": result.left, "right": result.right}
    return record


def read_jacobian(record: Record) -> Jacobian:
    """Read the Jacobian that a record holds; vectors only where this process measured it."""
    known = dict(record.provenance["instrument"])
    exact = _exact(known)
    start, end, stack = known["start"], known["end"], known["stack"]
    examples = known["shape"][0]
    site = _site(stack, start, end, known["sublayer"], known["role"])
    ranks = (exact["errors"].shape[1], exact["smallest_errors"].shape[1])
    values, smallest = (
        table_of(record, quantity, site, examples, "rank", count)
        for quantity, count in zip((SINGULAR, SMALLEST), ranks, strict=True)
    )
    norm, distance, branch = (
        table_of(record, quantity, site, examples)[:, 0] for quantity in (NORM, DISTANCE, BRANCH)
    )
    singles = [_site(stack, layer - 1, layer, None, "block") for layer in range(start + 1, end + 1)]
    has_blocks = end > start + 1 and bool(cells(record, SINGULAR, singles[0]))
    leaks = [one.value for one in rows_at(record, LEAK, site)]
    return Jacobian(
        **_shared(known),
        start=start,
        end=end,
        sublayer=known["sublayer"],
        values=values,
        smallest=smallest,
        norm=norm,
        distance=distance,
        branch=branch,
        **exact,
        blocks=np.stack(
            [table_of(record, SINGULAR, one, examples, "rank", 1)[:, 0] for one in singles]
        )
        if has_blocks
        else None,
        leak=leaks[0] if leaks else 0.0,
        causal=known["causal"],
        strongest=_direction(record, STRONGEST, site, values, known["shape"]),
        weakest=_direction(record, WEAKEST, site, smallest, known["shape"]),
        left=record.in_memory.get("left"),
        right=record.in_memory.get("right"),
        probes=known["probes"],
        products=known["products"],
    )


def lyapunov_record(result: Lyapunov, facts: Mapping[str, Any]) -> Record:
    """Write the growth of directions as a record."""
    growth, exponent = _growth_and_exponent(result.backward)
    stack, depth = result.stack, result.depth
    rows: list[Reading] = []
    for layer in range(1, depth + 1):
        here = result.growth[layer - 1]
        rows += ranked_rows(growth, here, None, _site(stack, layer - 1, layer, None, "block"))
    for site in range(depth) if result.backward else range(1, depth + 1):
        passed = result.growth[site:] if result.backward else result.growth[:site]
        mean = -np.sort(-passed.sum(0) / len(passed), axis=1)
        whole = len(passed) == depth
        rows += ranked_rows(exponent, result.exponents if whole else mean, None, Site(stack, site))
        where = Site(stack, site) if result.backward else Site(stack, site, None, f"{_FROM}0")
        logs, errors = result.log10_norm[site], result.log10_norm_error[site]
        rows += power_rows(PARTIAL if result.backward else NORM, logs, errors, where)
    exact = {"log10_norm": result.log10_norm, "log10_norm_error": result.log10_norm_error}
    more = {name: getattr(result, name) for name in ("backward", *_FACTS)}
    return _record("lyapunov", facts, rows, more | {"growth": result.growth.shape, "exact": exact})


def read_lyapunov(record: Record) -> Lyapunov:
    """Read the growth of directions that a record holds."""
    known = dict(record.provenance["instrument"])
    stack, backward = known["stack"], known["backward"]
    growth, exponent = _growth_and_exponent(backward)
    depth, examples, k = known["growth"]
    layers = [
        table_of(record, growth, _site(stack, i, i + 1, None, "block"), examples, "rank", k)
        for i in range(depth)
    ]
    whole = Site(stack, 0 if backward else depth)
    return Lyapunov(
        **_shared(known),
        backward=backward,
        exponents=table_of(record, exponent, whole, examples, "rank", k),
        growth=np.stack(layers),
        **_exact(known),
    )


# --- writing --------------------------------------------------------------------------------------

_FROM = "from site "


def _site(stack: str, start: int, end: int, sublayer: int | None, role: str) -> Site:
    return Site(stack, end, sublayer, role if end == start + 1 else f"{_FROM}{start}")


def _record(
    instrument: str, facts: Mapping[str, Any], rows: Iterable[Reading], more: Mapping[str, Any]
) -> Record:
    record, rows = Record(), list(rows)
    names = {reading.quantity for reading in rows}
    with record.together():
        for quantity in _ALL:
            if quantity.name in names:
                record.describe(quantity)
        record.append(rows)
        for key, value in facts.items():
            record.note(key, value)
        record.note("instrument", {"name": instrument} | _plain(more))
    return record


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


def _direction_rows(
    quantities: tuple[Quantity, Quantity, Quantity], path: Direction | None, site: Site
) -> Iterator[Reading]:
    if path is None:
        return
    for quantity, shares in zip(quantities, (path.entry, path.exit), strict=False):
        yield from summaries(quantity, shares.max(1), None, site)
        for token in range(shares.shape[1]):
            yield from example_rows(
                quantity, shares[:, token], None, replace(site, token=token + 1)
            )
    yield from example_rows(quantities[2], path.overlap, None, site)


def _single_blocks(result: Jacobian) -> Iterator[Reading]:
    """sigma_1 of every block of a longer stretch, and from the first on their products."""
    if result.blocks is None:
        return
    for i, values in enumerate(result.blocks):
        layer = result.start + i + 1
        block = _site(result.stack, layer - 1, layer, None, "block")
        yield from ranked_rows(SINGULAR, values[:, None], None, block)
        with np.errstate(over="ignore"):
            product = np.prod(result.blocks[: i + 1], axis=0)
        if result.start == 0 and np.isfinite(product).all():
            yield from example_rows(PRODUCT, product, None, Site(result.stack, layer))


# --- reading --------------------------------------------------------------------------------------


def _growth_and_exponent(backward: bool) -> tuple[Quantity, Quantity]:
    return (GROWTH, EXPONENT) if backward else (FORWARD_GROWTH, FORWARD_EXPONENT)


def _shared(known: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that both results have."""
    facts = {name: known[name] for name in _FACTS}
    return facts | {"remarks": tuple(facts["remarks"]), "shape": tuple(facts["shape"])}


def _exact(known: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.array(value, dtype=np.float64) for name, value in known["exact"].items()}


def _direction(
    record: Record,
    quantities: tuple[Quantity, Quantity, Quantity],
    site: Site,
    values: Floats,
    shape: tuple[int, int, int],
) -> Direction | None:
    enters, leaves, overlap = quantities
    if not cells(record, overlap, site):
        return None
    examples, tokens, _ = shape
    return Direction(
        value=values[:, 0].copy(),
        entry=table_of(record, enters, site, examples, "token", tokens),
        exit=table_of(record, leaves, site, examples, "token", tokens),
        overlap=table_of(record, overlap, site, examples)[:, 0],
    )


_ALL = (
    SINGULAR,
    SMALLEST,
    NORM,
    DISTANCE,
    BRANCH,
    LEAK,
    PARTIAL,
    PRODUCT,
    THROUGH,
    *STRONGEST,
    *WEAKEST,
    GROWTH,
    EXPONENT,
    FORWARD_GROWTH,
    FORWARD_EXPONENT,
)
