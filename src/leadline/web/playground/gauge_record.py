"""The numbers of the playground as a record in memory, for laws and rules that read records.

The inputs are called random tokens: of a model as it was drawn rules then expect what is usual before
training. For a model that has been trained they are called a text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from leadline.record import Reading, Record, Site
from leadline.web.playground.curves import quantities

if TYPE_CHECKING:
    from leadline.web.playground.gauges import PlayGauges

__all__ = ["gauge_record"]


def gauge_record(
    gauges: PlayGauges, provenance: Mapping[str, Any], *, trained: bool = False
) -> Record:
    """Return a record with one row per number; `provenance` has the model and its anatomy."""
    from leadline.instruments.passes.probes.gradient import PARAMETERS
    from leadline.instruments.passes.probes.stream import VARIANCE

    stack = next(iter(provenance["anatomy"]["stacks"]))
    record = Record()
    with record.together():
        for quantity in (*quantities(), VARIANCE, PARAMETERS):
            record.describe(quantity)
        record.append(_readings(gauges, stack))
    for name, value in provenance.items():
        record.note(name, value)
    record.note("input", {"kind": "text" if trained else "random tokens"})
    return record


def _readings(gauges: PlayGauges, stack: str) -> Iterator[Reading]:
    for layer in range(gauges.depth + 1):
        site = Site(stack, layer)
        yield Reading("stream.norm", site, "mean", gauges.stream_norm[layer])
        yield Reading("stream.norm", site, "median", gauges.stream_norm_median[layer])
        yield Reading("stream.variance", site, "mean", gauges.stream_variance[layer])
        yield Reading("tokens.cosine", site, "mean", gauges.cosine[layer])
        log = gauges.residual.log10[layer]
        yield Reading(
            "tokens.relative_residual", site, "mean", math.nan if math.isnan(log) else 10.0**log
        )
        if not math.isnan(gauges.gradient[layer]):
            yield Reading("gradient.stream", site, "total", gauges.gradient[layer])
    for name, statistic, lines in (
        ("update.ratio", "mean", gauges.update_ratio),
        ("gradient.parameters", "value", gauges.parameter_gradients),
    ):
        for sublayer, line in enumerate(lines, 1):
            for layer, value in zip(line.layers, line.values, strict=True):
                yield Reading(name, Site(stack, layer, sublayer, line.role), statistic, value)
    for layer, value in enumerate(gauges.jacobian_distance, 1):
        yield Reading("jacobian.distance", Site(stack, layer, None, "block"), "mean", value)
    for layer, heads in enumerate(gauges.attention_norm, 1):
        site = Site(stack, layer, 1, "attention")
        yield Reading("attention.spectral_norm", site, "mean", sum(heads) / len(heads))
        yield Reading("attention.spectral_norm", site, "max", max(heads))
