"""The result of `collapse` as rows of a record, and read back from them to the bit.

Per example and site: the residual with its exact exponent (`tokens.residual`, its interval by the
estimated error), its share of the stream, the error, and the logarithms of residual, share and
norm. Beside the rows of the examples stand those without an example, which sum them up. With facts
there are also the numbers of every layer that theorems ask for, under the names of the probe
`collapse`. The provenance, under `instrument`, has what rows cannot hold: the remarks, and the
facts that are no numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.instruments.collapse import quantities as q
from leadline.instruments.collapse.result import Collapse
from leadline.instruments.passes.token_quantities import RELATIVE, RESIDUAL
from leadline.reading.bounds.rank_collapse.exact import OF_HEADS, RESIDUAL_ROWS, exact_facts
from leadline.record import Quantity, Reading, Record, Site
from leadline.theory import StackFacts

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["collapse_record", "read_collapse"]

_LOGS = {
    "log10_residual": q.LOG_RESIDUAL,
    "log10_relative": q.LOG_RELATIVE,
    "log10_norm": q.LOG_NORM,
}
_OF_LAYERS = (
    *(q.QUERY_KEY, q.VALUE_OUTPUT_1, q.VALUE_OUTPUT_INF, q.SCALING, q.GAMMA, q.JOINT),
    *(q.LIPSCHITZ, q.ALIGNMENT, q.OVERLAP, q.DIAGONAL, q.GAIN, q.CUBIC),
)
_BY_FIELD = {quantity.name.removeprefix("collapse."): quantity for quantity in _OF_LAYERS}
_AT_WRITES = ("alignment", "overlap")
_SUMMARIES = {"max": max, "min": min, "value": max}


def collapse_record(
    result: Collapse, *, anatomy: Mapping[str, Any], notes: Mapping[str, Any] | None = None
) -> Record:
    """Return a record of the result; `anatomy` is that of its one stack, as provenance has it.

    `notes` are further entries of the provenance.
    """
    examples = result.examples or (result,)
    stack = next(iter(anatomy["stacks"]))
    facts = [one.facts for one in examples if one.facts is not None]
    record = Record()
    with record.together():
        for quantity in (q.LOG_RESIDUAL, q.LOG_RELATIVE, q.LOG_NORM, RESIDUAL, RELATIVE, q.ERROR):
            record.describe(quantity)
        record.append(_site_rows(examples, stack))
        if facts:
            for quantity in (*_OF_LAYERS, q.LOG_COMPOSITE, q.LOG_SMALLEST):
                record.describe(quantity)
            record.append(_fact_rows(facts, stack, anatomy))
        record.note(
            "instrument",
            {
                "name": "collapse",
                "examples": len(examples),
                "causal": result.causal,
                "model": result.name,
                "remarks": list(result.remarks),
                "example_remarks": [list(one.remarks) for one in examples],
                "facts": [_entry(one) for one in facts] or None,
            },
        )
        record.note("anatomy", anatomy)
        for key, value in (notes or {}).items():
            record.note(key, value)
    return record


def read_collapse(record: Record) -> Collapse:
    """Return the result that the rows of a record hold."""
    instrument = record.provenance["instrument"]
    facts = exact_facts(record)
    results = [
        Collapse(
            log10_residual=_along(record, q.LOG_RESIDUAL, example),
            log10_norm=_along(record, q.LOG_NORM, example),
            error=_along(record, q.ERROR, example),
            mantissa=_along(record, RESIDUAL, example),
            exponent=tuple(row.exponent for row in _rows(record, RESIDUAL, example)),
            causal=instrument["causal"],
            name=instrument["model"],
            remarks=tuple(instrument["example_remarks"][example - 1]),
            facts=facts[example - 1] if facts else None,
        )
        for example in range(1, instrument["examples"] + 1)
    ]
    if len(results) == 1:
        return results[0]
    return Collapse(
        log10_residual=np.stack([one.log10_residual for one in results]),
        log10_norm=np.stack([one.log10_norm for one in results]),
        error=np.stack([one.error for one in results]),
        mantissa=np.stack([one.mantissa for one in results]),
        exponent=tuple(one.exponent for one in results),
        causal=instrument["causal"],
        name=instrument["model"],
        remarks=tuple(instrument["remarks"]),
        examples=tuple(results),
    )


def _rows(record: Record, quantity: Quantity, example: int) -> list[Reading]:
    rows = [row for row in record.select(quantity.name) if row.site.example == example]
    return sorted(rows, key=lambda row: row.site.layer)


def _along(record: Record, quantity: Quantity, example: int) -> NDArray[np.float64]:
    return np.array([row.value for row in _rows(record, quantity, example)], dtype=np.float64)


# --- residuals -----------------------------------------------------------------------------------


def _site_rows(examples: Sequence[Collapse], stack: str) -> Iterator[Reading]:
    for layer in range(examples[0].depth + 1):
        site = Site(stack, layer)
        residuals: list[Reading] = []
        for number, one in enumerate(examples, start=1):
            here = replace(site, example=number)
            residuals.append(_residual(one, layer, here))
            yield residuals[-1]
            yield _share(one, layer, here)
            yield Reading(q.ERROR.name, here, "value", float(one.error[layer]))
            for field, quantity in _LOGS.items():
                yield Reading(quantity.name, here, "value", float(getattr(one, field)[layer]))
        yield _mean(residuals, site)
        yield _mean([_share(one, layer, site) for one in examples], site)
        largest = max(residuals, key=_size)
        yield replace(largest, site=site, statistic="max")
        yield Reading(q.ERROR.name, site, "max", max(float(one.error[layer]) for one in examples))
        for field, quantity in _LOGS.items():
            values = [float(getattr(one, field)[layer]) for one in examples]
            yield Reading(quantity.name, site, "mean", math.fsum(values) / len(values))


def _residual(one: Collapse, layer: int, site: Site) -> Reading:
    """The residual as it is, its interval by the estimated error."""
    value, error = float(one.mantissa[layer]), float(one.error[layer])
    lower = None if math.isnan(error) else max(0.0, value * (1.0 - error))
    upper = value * (1.0 + error) if math.isfinite(error) else None
    exponent = one.exponent[layer]
    return Reading(RESIDUAL.name, site, "value", value, lower, upper, exponent=exponent)


def _share(one: Collapse, layer: int, site: Site) -> Reading:
    """The residual over the norm of the tokens, of which the logarithm is known."""
    value, exponent = float(one.mantissa[layer]), one.exponent[layer]
    norm = float(one.log10_norm[layer])
    if value > 0 and math.isfinite(norm):
        power = math.floor(norm / math.log10(2.0))
        value /= 10.0 ** (norm - power * math.log10(2.0))
        exponent = (exponent or 0) - power
    return Reading(RELATIVE.name, site, "value", value, exponent=exponent)


def _size(row: Reading) -> tuple[float, float]:
    """What orders numbers with exponents: their logarithm, then the mantissa where it has no digits."""
    return row.log10, row.value


def _mean(rows: Sequence[Reading], site: Site) -> Reading:
    """The mean of numbers with exponents: at the largest of these, where the rest may vanish."""
    if len(rows) == 1:
        return replace(rows[0], site=site, statistic="mean")
    top = max((row.exponent for row in rows if row.exponent is not None), default=None)
    values = [
        replace(row, exponent=(row.exponent or 0) - (top or 0)).number if row.value else row.value
        for row in rows
    ]
    mean = math.fsum(values) / len(values)
    return Reading(rows[0].quantity, site, "mean", mean, exponent=top)


# --- facts ---------------------------------------------------------------------------------------


def _entry(facts: StackFacts) -> dict[str, Any]:
    """The facts that no row holds."""
    in_rows = ("layers", *RESIDUAL_ROWS)
    names = [field.name for field in fields(StackFacts) if field.name not in in_rows]
    return {"depth": facts.depth, **{name: getattr(facts, name) for name in names}}


def _fact_rows(
    facts: Sequence[StackFacts], stack: str, anatomy: Mapping[str, Any]
) -> Iterator[Reading]:
    for field, quantity in (
        ("log10_composite", q.LOG_COMPOSITE),
        ("log10_smallest", q.LOG_SMALLEST),
    ):
        sites = zip(*(getattr(one, field) for one in facts), strict=True)
        for layer, values in enumerate(sites):
            yield from _with_summary(quantity, Site(stack, layer), values)
    for layer, block in enumerate(anatomy["layers"], start=1):
        places = _places(stack, layer, block["sublayers"])
        layers = [one.layers[layer - 1] for one in facts]
        for field, quantity in _BY_FIELD.items():
            values = [getattr(one, field) for one in layers]
            if field in OF_HEADS:
                for head, of_head in enumerate(zip(*values, strict=True), start=1):
                    yield from _with_summary(quantity, replace(places[field], head=head), of_head)
            elif None not in values:
                yield from _with_summary(quantity, places[field], values)


def _with_summary(quantity: Quantity, site: Site, values: Sequence[float]) -> Iterator[Reading]:
    for number, value in enumerate(values, start=1):
        yield Reading(quantity.name, replace(site, example=number), "value", value)
    summary = _SUMMARIES[quantity.headline](values)
    yield Reading(quantity.name, site, quantity.headline, summary)


def _places(stack: str, layer: int, writes: Sequence[Mapping[str, Any]]) -> dict[str, Site]:
    """Where each number of a layer stands: at its write, or at the block if several share it."""
    block = Site(stack, layer, point="block")
    sites = [Site(stack, layer, int(w["sublayer"]), str(w["role"])) for w in writes]
    attention = next((site for site in sites if site.point == "attention"), block)
    others = [site for site in sites if site.point != "attention"]
    places = dict.fromkeys(_BY_FIELD, attention)
    places["lipschitz"] = others[0] if len(others) == 1 else block
    return places | dict.fromkeys(_AT_WRITES, sites[0] if len(sites) == 1 else block)
