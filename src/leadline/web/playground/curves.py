"""Curves over depth: what a page draws of a design.

    curves_of(design).to_json()

Each curve is one quantity; it has one series per line, with the layers that it is known at. A value
that is not finite is None. Where a value lies beyond the range of floats the series has `exponents`,
and the value is v * 10^e.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from leadline.web.playground.design import Design

if TYPE_CHECKING:
    from leadline.parts import Transformer
    from leadline.record import Quantity
    from leadline.web.playground.gauges import PlayGauges, WriteLine

__all__ = [
    "CurveLine",
    "DesignCurves",
    "HeadWeights",
    "PlayCurve",
    "curves_of",
    "curves_of_model",
    "depth_curves",
    "of_logs",
    "of_values",
    "quantities",
]

SMALLEST = -290.0
"""log10 of what is written as a plain number; smaller ones have an exponent of their own."""


@dataclass(frozen=True)
class CurveLine:
    """One line of a curve."""

    label: str
    layers: tuple[int, ...]
    values: tuple[float | None, ...]
    exponents: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it without the exponents where there are none."""
        fields = {"label": self.label, "layers": list(self.layers), "values": list(self.values)}
        return fields | ({"exponents": list(self.exponents)} if self.exponents else {})


@dataclass(frozen=True)
class PlayCurve:
    """One quantity over the depth of a design."""

    quantity: str
    series: tuple[CurveLine, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"quantity": self.quantity, "series": [one.to_json() for one in self.series]}


@dataclass(frozen=True)
class HeadWeights:
    """What bounds on attention ask of a layer: largest singular values of W_Q and W_K of every head.

    `gain` and `shift` are those of the norm before them, None where there is none.
    """

    gain: float | None
    shift: float | None
    query: tuple[float | None, ...]
    key: tuple[float | None, ...]


@dataclass(frozen=True)
class DesignCurves:
    """All curves of a design, the numbers they were made of, and facts for the foot of a page."""

    design: Design
    gauges: PlayGauges
    curves: tuple[PlayCurve, ...]
    facts: dict[str, Any]
    provenance: dict[str, Any]
    attention_weights: tuple[HeadWeights, ...]

    def curve(self, quantity: str) -> PlayCurve:
        """Return the curve of a quantity."""
        return next(one for one in self.curves if one.quantity == quantity)

    def to_json(self) -> dict[str, Any]:
        """Return the part of an answer that has the curves."""
        return {
            "part": "curves",
            "design": self.design.to_json(),
            "curves": [one.to_json() for one in self.curves],
            "facts": self.facts,
        }


@cache
def quantities() -> tuple[Quantity, ...]:
    """The quantities of the page in their order, as the instruments define them."""
    from leadline.instruments.jacobian.quantities import DISTANCE
    from leadline.instruments.passes.probes import attention, gradient, stream, update
    from leadline.instruments.passes.token_quantities import COSINE, RELATIVE

    return (
        stream.NORM,
        gradient.STREAM,
        COSINE,
        RELATIVE,
        update.RATIO,
        attention.NORM,
        DISTANCE,
    )


def curves_of(design: Design) -> DesignCurves:
    """Build the model of a design and read it; DesignError where it cannot be built."""
    from leadline.web.playground.pooled_model import pooled_model

    started = time.perf_counter()
    return curves_of_model(design, pooled_model(design), started=started)


def curves_of_model(
    design: Design, model: Transformer, *, started: float | None = None
) -> DesignCurves:
    """Read a model of a design, trained or not, on the design's own text; `started` is for the time."""
    from leadline.web.playground.gauges import read_gauges

    started = time.perf_counter() if started is None else started
    gauges = read_gauges(model, design.inputs())
    curves = depth_curves(gauges)
    provenance = {"anatomy": model.anatomy().to_json(), "model": _model_facts(model)}
    weights = _head_weights(model) if gauges.attention_norm else ()
    facts = _facts(design, model, gauges, curves, started)
    return DesignCurves(design, gauges, curves, facts, provenance, weights)


def depth_curves(gauges: PlayGauges) -> tuple[PlayCurve, ...]:
    """Draw up the curves of a model that has been read."""
    sites, blocks = range(gauges.depth + 1), range(1, gauges.depth + 1)
    attention = gauges.attention_norm
    mean = [sum(heads) / len(heads) for heads in attention]
    largest = [math.nan if any(map(math.isnan, heads)) else max(heads) for heads in attention]
    return (
        PlayCurve("stream.norm", (of_values("stream", sites, gauges.stream_norm),)),
        PlayCurve("gradient.stream", (of_values("gradient", sites, gauges.gradient),)),
        PlayCurve("tokens.cosine", (of_values("tokens", sites, gauges.cosine),)),
        PlayCurve("tokens.relative_residual", (of_logs("tokens", sites, gauges.residual.log10),)),
        PlayCurve("update.ratio", tuple(_of_writes(one) for one in gauges.update_ratio)),
        PlayCurve(
            "attention.spectral_norm",
            (of_values("mean of heads", blocks, mean), of_values("largest head", blocks, largest)),
        ),
        PlayCurve("jacobian.distance", (of_values("block", blocks, gauges.jacobian_distance),)),
    )


def of_values(label: str, layers: Iterable[int], values: Sequence[float]) -> CurveLine:
    """Return a line of numbers; what is not finite becomes None."""
    return CurveLine(
        label, tuple(layers), tuple(one if math.isfinite(one) else None for one in values)
    )


def _of_writes(line: WriteLine) -> CurveLine:
    label = "attention and mlp" if line.role == "branch" else line.role
    return of_values(label, line.layers, line.values)


def of_logs(label: str, layers: Iterable[int], logs: Sequence[float]) -> CurveLine:
    """Return a line of 10^log; all values have exponents where one of them needs one."""
    needed = any(one < SMALLEST for one in logs if math.isfinite(one))
    # Exactly equal tokens are a zero, which a logarithmic axis cannot show and a number can.
    zero = [one == -math.inf for one in logs]
    if not needed:
        values = [0.0 if z else 10.0**one for one, z in zip(logs, zero, strict=True)]
        return of_values(label, layers, values)
    exponents = [math.floor(one) if math.isfinite(one) else 0 for one in logs]
    values = [
        0.0 if z else 10.0 ** (one - e) for one, e, z in zip(logs, exponents, zero, strict=True)
    ]
    plain = of_values(label, layers, values)
    return CurveLine(label, plain.layers, plain.values, tuple(float(one) for one in exponents))


def _model_facts(model: Transformer) -> dict[str, Any]:
    return {"name": model.label, "source": "playground", "recipe": model.recipe.to_json()}


def _head_weights(model: Transformer) -> tuple[HeadWeights, ...]:
    """Of every attention, in the order of the layers; a norm on queries leaves the weights out."""
    import torch

    from leadline.parts.branches.attention.multihead import MultiHead

    calls = [
        (sublayer.enter or getattr(sublayer.branch, "attention_norm", None), part)
        for sublayer in model.sublayers()
        for part in sublayer.branch.modules()
        if isinstance(part, MultiHead)
    ]
    weights = torch.stack([part.qkv.weight.detach().double() for _, part in calls])
    heads, size = calls[0][1].heads, calls[0][1].size
    grid = weights.unflatten(1, (3, heads, size))[:, :2]
    # Rounded up by what the eigenvalues may be off: a bound may only grow by it.
    sizes = torch.linalg.eigvalsh(grid @ grid.mT)[..., -1].clamp_min(0).sqrt() * (1 + 1e-12)
    lines: list[HeadWeights] = []
    for (norm, part), (query, key) in zip(calls, sizes.tolist(), strict=True):
        gain, shift = _gain_and_shift(model, norm)
        unknown = (None,) * heads
        normed = part.query_norm is not None
        lines.append(
            HeadWeights(
                gain, shift, unknown if normed else tuple(query), unknown if normed else tuple(key)
            )
        )
    return tuple(lines)


def _gain_and_shift(model: Transformer, norm: object) -> tuple[float | None, float | None]:
    """Of a LayerNorm or RMSNorm of the recipe as it is; a norm with a scale behind it has neither."""
    from leadline.parts.norms import NORMS

    choice = model.recipe.choice("norm")
    if choice.name not in ("layernorm", "rmsnorm") or type(norm) is not NORMS.get(choice.name):
        return None, None
    weight, bias = norm.weight, getattr(norm, "bias", None)  # pyright: ignore
    gain = float((weight.detach() + getattr(norm, "offset", 0.0)).abs().max())
    return gain, 0.0 if bias is None else float(bias.detach().norm())


def _facts(
    design: Design,
    model: Transformer,
    gauges: PlayGauges,
    curves: Sequence[PlayCurve],
    started: float,
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "tokens": design.tokens,
        "loss": gauges.loss if math.isfinite(gauges.loss) else None,
        "init": str(model.recipe.choice("init")),
        "formula": model.first.formula,
    }
    if broken := _not_finite(curves):
        facts["not_finite"] = broken
    if gauges.residual.beyond_single is not None:
        facts["cancellation_free_from"] = gauges.residual.beyond_single
    if gauges.residual.remark:
        facts["remark"] = gauges.residual.remark
    return facts | {"seconds": round(time.perf_counter() - started, 4)}


def _not_finite(curves: Sequence[PlayCurve]) -> dict[str, int]:
    """The first layer at which a curve has no finite value."""
    broken: dict[str, int] = {}
    for curve in curves:
        places = [
            layer
            for series in curve.series
            for layer, value in zip(series.layers, series.values, strict=True)
            if value is None
        ]
        if places:
            broken[curve.quantity] = min(places)
    return broken
