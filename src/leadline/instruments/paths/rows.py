"""Paths by length as rows of a record, and read back from them: to the bit, and without torch.

A row stands at a number of hops (`Site.hops`) and at a point: `output`, the stream after the last
layer; `residual`, the same without the mean token of every example; `logits`. The size of a tensor
and what its components leave over of it belong to no length, and stand at the last layer. What rows
cannot hold is in the provenance, under `instrument`: the exact numbers of paths, the heads, the
rounding that is allowed, and the remarks.

A length that no sampled path has, has no row. Numbers of paths are rows too, as floats, with an
exponent beyond their range: value 2^exponent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from leadline.instruments.paths.result import Paths, SampledPaths, Shares
from leadline.record.record import Record
from leadline.record.rows.quantity import Quantity
from leadline.record.rows.reading import Reading
from leadline.record.rows.site import Site

__all__ = ["QUANTITIES", "paths_record", "read_paths"]

_SOURCE = "Dong, Cordonnier, Loukas 2021, arXiv 2103.03404"
_POINTS = ("output", "residual", "logits")
_STACK = "stack"
"""The name of the stream where the result is all that is known."""
_MOST_BITS = 14_000
"""Python writes and reads integers of at most 4,300 digits as text; longer ones are kept in hex."""


def _over_hops(name: str, title: str, symbol: str, formula: str, **words: Any) -> Quantity:
    return Quantity(
        f"path.{name}",
        title,
        symbol,
        formula,
        lives_on="path",
        headline="value",
        source=_SOURCE,
        **words,
    )


def _of_tensor(name: str, title: str, symbol: str, formula: str, **words: Any) -> Quantity:
    return Quantity(
        f"path.{name}", title, symbol, formula, lives_on="layer", headline="value", **words
    )


QUANTITIES = (
    _over_hops(
        "share",
        "Share of the paths of one length",
        "s_l",
        "<Z_l, X> / |X|^2",
        leads=True,
        meaning="How much of the tensor all paths with so many hops of attention give together.",
        high="most of the tensor comes along paths of this length",
        low="paths of this length give little, or their sum is cancelled by others",
    ),
    _over_hops(
        "norm_share",
        "Size of the paths of one length",
        "|Z_l|/|X|",
        "|Z_l| / |X|",
        scale="log",
        meaning="How large the sum of all paths with so many hops is beside the tensor.",
        high="paths of this length are large, or cancel against others",
        low="paths of this length can be left out",
    ),
    _over_hops(
        "bias_share",
        "Share of the biases of one length",
        "b_l",
        "<B_l, X> / |X|^2",
        meaning="How much of the tensor biases give, with so many hops since they joined.",
    ),
    _over_hops(
        "bias_norm_share",
        "Size of the biases of one length",
        "|B_l|/|X|",
        "|B_l| / |X|",
        scale="log",
        meaning="How large the sum of biases with so many hops is beside the tensor.",
    ),
    _over_hops(
        "loss_at_most",
        "Loss with at most so many hops",
        "loss_k",
        "loss(sum_{l <= k} Z_l + B_l)",
        better="low",
        meaning="The loss of the logits made of all components with at most so many hops.",
    ),
    _over_hops(
        "count",
        "Number of paths of one length",
        "C_l",
        "coefficient of t^l in prod_i (skip_i + H_i t)",
        scale="log",
        meaning="How many paths reach the stream after the last layer with so many hops.",
    ),
    _over_hops(
        "sampled_residual",
        "Residual of a sampled path",
        "|res Y|/|Y|",
        "mean of |res Y| / |Y| over sampled paths Y",
        scale="log",
        meaning="How far single paths of this length still tell tokens apart.",
        high="a path keeps the differences between tokens",
        low="a path makes all tokens equal",
    ),
    _over_hops(
        "sampled_error",
        "Error of sampling",
        "e_l",
        "|C_l mean(Y) - Z_l| / |Z_l|",
        scale="log",
        better="low",
        meaning="How far an estimate of all paths of this length by sampled ones is off.",
    ),
    _of_tensor("norm", "Size of the tensor", "|X|", "|X|_F", scale="log"),
    _of_tensor(
        "remainder",
        "Remainder of the worst token",
        "r",
        "|x - sum| / max(|x|, sqrt(sum |z_l|^2 + sum |b_l|^2))",
        scale="log",
        better="low",
        meaning="What the components leave over of a token: rounding, or it would be an error.",
    ),
    _of_tensor("remainder_eps", "Remainder in eps", "r/eps", "r / eps", unit="eps", scale="log"),
)
_SERIES = ("share", "norm_share", "bias_share", "bias_norm_share")
_SINGLE = ("norm", "remainder", "remainder_eps")


def paths_record(
    paths: Paths,
    *,
    stack: str = _STACK,
    depth: int | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Record:
    """Write a result into a record.

    `stack` and `depth` are the name and the number of blocks of the stack whose stream was
    followed; `facts` are further entries of the provenance, such as `model` and `anatomy`.
    """
    layer = paths.depth if depth is None else depth
    rows = list(_readings(paths, stack, layer))
    used = {row.quantity for row in rows}
    record = Record()
    with record.together():
        for quantity in QUANTITIES:
            if quantity.name in used:
                record.describe(quantity)
        known = dict(facts or {})
        model = {**known.pop("model", {}), "name": paths.model, "dtype": paths.dtype}
        for key, value in {"model": model, "input": dict(paths.input), **known}.items():
            record.note(key, value)
        if paths.loss_kind is not None or paths.loss is not None:
            record.note("loss", {"kind": paths.loss_kind, "value": paths.loss})
        record.note("instrument", _instrument(paths))
    record.append(rows)
    return record


def read_paths(record: Record) -> Paths:
    """Read the result from the rows and the provenance."""
    provenance = record.provenance
    kept = provenance["instrument"]
    tables: dict[tuple[str, str], dict[int | None, float]] = {}
    for quantity in record.quantities:
        for row in record.select(quantity):
            key = (quantity.removeprefix("path."), row.site.point)
            tables.setdefault(key, {})[row.site.hops] = row.value

    def series(name: str, point: str) -> tuple[float, ...]:
        values = tables.get((name, point), {})
        return tuple(values[length] for length in range(len(values)))

    def shares(point: str) -> Shares | None:
        if ("norm", point) not in tables:
            return None
        return Shares(
            norm=tables["norm", point][None],
            norm_share=series("norm_share", point),
            share=series("share", point),
            bias_norm_share=series("bias_norm_share", point),
            bias_share=series("bias_share", point),
            remainder=tables["remainder", point][None],
            remainder_eps=tables["remainder_eps", point][None],
        )

    sampled = kept["sampled"]
    output = shares("output")
    assert output is not None
    return Paths(
        model=provenance["model"]["name"],
        dtype=provenance["model"]["dtype"],
        heads=tuple(kept["heads"]),
        counts=None if kept["counts"] is None else tuple(map(_whole, kept["counts"])),
        output=output,
        residual=shares("residual"),
        logits=shares("logits"),
        loss=provenance.get("loss", {}).get("value"),
        loss_kind=provenance.get("loss", {}).get("kind"),
        loss_at_most=series("loss_at_most", "logits") if kept["has_losses"] else None,
        sampled=None
        if sampled is None
        else SampledPaths(
            samples=sampled["samples"],
            seed=sampled["seed"],
            residual=_with_gaps(tables, "sampled_residual", sampled["lengths"][0]),
            error=_with_gaps(tables, "sampled_error", sampled["lengths"][1]),
        ),
        precision=kept["precision"],
        allowed=kept["allowed"],
        input=provenance["input"],
        remarks=tuple(kept["remarks"]),
    )


def _readings(paths: Paths, stack: str, layer: int) -> Iterator[Reading]:
    """Every number of a result as a row."""

    def row(name: str, point: str, value: float, hops: int | None = None) -> Reading:
        return Reading(f"path.{name}", Site(stack, layer, point=point, hops=hops), "value", value)

    tensors = [(point, getattr(paths, point)) for point in _POINTS]
    for name in _SERIES:
        for point, shares in tensors:
            for length, value in enumerate(() if shares is None else getattr(shares, name)):
                yield row(name, point, value, length)
    for length, value in enumerate(paths.loss_at_most or ()):
        yield row("loss_at_most", "logits", value, length)
    for length, count in enumerate(paths.counts or ()):
        value, exponent = _scaled(count)
        site = Site(stack, layer, point="output", hops=length)
        yield Reading("path.count", site, "value", value, exponent=exponent)
    if paths.sampled is not None:
        drawn = {"sampled_residual": paths.sampled.residual, "sampled_error": paths.sampled.error}
        for name, values in drawn.items():
            for length, value in enumerate(values):
                if value is not None:
                    yield row(name, "output", value, length)
    for name in _SINGLE:
        for point, shares in tensors:
            if shares is not None:
                yield row(name, point, getattr(shares, name))


def _instrument(paths: Paths) -> dict[str, Any]:
    """What rows cannot hold."""
    sampled = paths.sampled
    return {
        "name": "paths",
        "heads": list(paths.heads),
        "counts": None if paths.counts is None else list(map(_kept, paths.counts)),
        "has_losses": paths.loss_at_most is not None,
        "sampled": None
        if sampled is None
        else {
            "samples": sampled.samples,
            "seed": sampled.seed,
            "lengths": [len(sampled.residual), len(sampled.error)],
        },
        "precision": paths.precision,
        "allowed": paths.allowed,
        "remarks": list(paths.remarks),
    }


def _with_gaps(
    tables: Mapping[tuple[str, str], Mapping[int | None, float]], name: str, lengths: int
) -> tuple[float | None, ...]:
    values = tables.get((name, "output"), {})
    return tuple(values.get(length) for length in range(lengths))


def _scaled(count: int) -> tuple[float, int | None]:
    """A number of paths as a float, with an exponent where it is beyond the range of float64."""
    if count.bit_length() < 1024:
        return float(count), None
    exponent = count.bit_length() - 64
    value, more = math.frexp(count >> exponent)
    return value, exponent + more


def _kept(count: int) -> int | str:
    return count if count.bit_length() <= _MOST_BITS else hex(count)


def _whole(count: int | str) -> int:
    return count if isinstance(count, int) else int(count, 16)
