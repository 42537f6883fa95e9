"""A record as strict JSON, in a form that stays the same: schema 1, described in docs/json.md.

JSON has no NaN and no infinity: NaN is null, an infinity the string "Infinity" or "-Infinity".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from leadline.reading.diagnosis.standing import standing_findings
from leadline.reading.page.headline import record_answer
from leadline.record.provenance import number_at, strict_json, strict_number, value_at
from leadline.record.rows.address import Address, address_of
from leadline.record.run.curve import curves_of, thin_curve
from leadline.record.run.scanned import is_of_checkpoint, is_scan
from leadline.record.words.shape import growth_json
from leadline.record.words.summary import headline_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.record import Finding, Profile, Record, Site
    from leadline.record.rows.quantity import Quantity
    from leadline.record.run.curve import Curve

__all__ = ["SCHEMA", "as_json"]

SCHEMA = 1
# Provenance entries that stand at the top of the JSON rather than under "provenance".
_AT_THE_TOP = ("model", "anatomy", "input", "loss", "passes")


def as_json(record: Record, *, most_points: int | None = None) -> dict[str, Any]:
    """Return the record as a dictionary that strict JSON can hold.

    Curves over steps of more than `most_points` points are thinned, and say of how many.
    """
    provenance = {
        key: value for key, value in record.provenance.items() if not is_of_checkpoint(key)
    }
    lines = {
        name: [] if quantity.lives_on == "run" or is_scan(record) else record.profiles(name)
        for name, quantity in record.quantities.items()
    }
    return {
        "schema": SCHEMA,
        **({"scan": record.scan.to_json()} if is_scan(record) else {}),
        "answer": record_answer(record),
        "model": strict_json(provenance.get("model") or {}),
        "anatomy": _anatomy(record, provenance),
        "input": strict_json(provenance.get("input") or {}),
        "loss": strict_json(provenance.get("loss") or {}),
        "passes": strict_json(provenance.get("passes") or {}),
        "quantities": _quantities(record, lines),
        "definitions": {
            name: {
                "title": quantity.title,
                "symbol": quantity.symbol,
                "formula": quantity.formula,
                "unit": quantity.unit,
                "lives_on": quantity.lives_on,
                "high": quantity.high,
                "low": quantity.low,
                "source": quantity.source,
                "scale": quantity.scale,
                "headline": quantity.headline,
            }
            for name, quantity in record.quantities.items()
        },
        "series": [
            _series(line, record.quantities[name])
            for name, profiles in lines.items()
            for line in profiles
        ],
        "curves": [_curve(curve, most_points) for curve in curves_of(record)],
        "findings": [_finding(finding) for finding in standing_findings(record)],
        "provenance": {
            key: strict_json(value) for key, value in provenance.items() if key not in _AT_THE_TOP
        },
    }


def _anatomy(record: Record, provenance: dict[str, Any]) -> dict[str, Any]:
    """Return the anatomy with its counts; the blocks themselves stand under `blocks`."""
    entry = cast(dict[str, Any], provenance.get("anatomy") or {})
    if is_scan(record):  # its models have anatomies of their own
        return {}
    rest = {key: value for key, value in entry.items() if key not in ("layers", "depth")}
    stacks = record.stacks
    depth = number_at(entry, "depth")
    if depth is None:
        depth = sum(record.depth(stack) for stack in stacks)
    return {
        "layers": int(depth),
        "sublayers": None,
        "balance_eps": None,
        "source": None,
        **strict_json(rest),
        "blocks": strict_json(value_at(entry, "layers") or []),
    }


def _quantities(record: Record, lines: dict[str, list[Profile]]) -> dict[str, list[Any]]:
    """Return one value per layer for every line of a headline statistic, by its address."""
    values: dict[str, list[Any]] = {}
    for name, quantity in record.quantities.items():
        headlines = headline_lines(lines[name], quantity.headline)
        for stack in dict.fromkeys(line.stack for line in headlines):
            here = [line for line in headlines if line.stack == stack]
            first = record.stacks[0]
            if quantity.lives_on == "sublayer":
                mean_address = Address(name, None if stack == first else stack)
                values[str(mean_address)] = _mean_over_sublayers(here)
            for line in here:
                address = str(address_of(line, here, first_stack=first))
                values[address] = [strict_number(value) for value in line.values]
    return values


def _mean_over_sublayers(lines: Sequence[Profile]) -> list[Any]:
    """Return the mean over the sublayers of each layer, in the order of the layers."""
    by_layer: dict[int, list[float]] = {}
    for line in lines:
        for layer, value in zip(line.layers, line.values, strict=True):
            by_layer.setdefault(layer, []).append(float(value))
    return [strict_number(_mean(by_layer[layer])) for layer in sorted(by_layer)]


def _mean(values: Sequence[float]) -> float:
    # Infinities of both signs have no mean; numpy would warn about it.
    if math.inf in values and -math.inf in values:
        return math.nan
    return float(np.mean(values))


def _series(line: Profile, quantity: Quantity) -> dict[str, Any]:
    return {
        "quantity": line.quantity,
        "statistic": line.statistic,
        "stack": line.stack,
        "point": line.point,
        "sublayer": line.sublayer,
        "layers": list(line.layers),
        "values": [strict_number(value) for value in line.values],
        "growth": growth_json(line, scale=quantity.scale, logarithm=quantity.nats_per_unit > 0),
    }


def _curve(curve: Curve, most: int | None) -> dict[str, Any]:
    kept = curve if most is None else thin_curve(curve, most)
    return {
        "quantity": curve.quantity,
        "run": curve.run,
        "seed": curve.seed,
        "steps": list(kept.steps),
        "values": [strict_number(float(value)) for value in kept.values],
        **({} if len(kept) == len(curve) else {"thinned_from": len(curve)}),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "severity": finding.severity,
        "verdict": finding.verdict,
        "code": finding.code,
        "name": finding.name,
        "details": strict_json(finding.details),
        "quantity": finding.quantity,
        "site": None if finding.site is None else _site(finding.site),
    }


def _site(site: Site) -> dict[str, Any]:
    return {
        "stack": site.stack,
        "layer": site.layer,
        "sublayer": site.sublayer,
        "point": site.point,
        "lane": site.lane,
        "head": site.head,
        "token": site.token,
        "rank": site.rank,
        "example": site.example,
        "hops": site.hops,
    }
