"""Laws beside curves: only where they apply, and on the right side of what was measured."""

from __future__ import annotations

import json

import pytest

import leadline
from leadline.web.playground.curves import curves_of
from leadline.web.playground.design import Design
from leadline.web.playground.laws import LawCurve, law_labels, laws_beside

PURE = {"connection": "none", "norm": "none", "placement": "none", "mlp": "none", "heads": 1,
        "init": "xavier"}  # fmt: skip


def laws(**fields: object) -> dict[tuple[str, str, str], LawCurve]:
    beside = laws_beside(curves_of(Design.from_json(fields)))
    json.dumps([one.to_json() for one in beside], allow_nan=False)
    assert all(one.source and one.formula for one in beside)
    assert {one.label for one in beside} <= law_labels()
    return {(one.quantity, one.name, one.label): one for one in beside}


def names(**fields: object) -> set[str]:
    return {name for _, name, _ in laws(**fields)}


def test_the_band_of_xiong_is_that_of_the_bounds_command() -> None:
    design = Design(depth=6, init="xavier")
    record = leadline.measure(design.model(), design.inputs(), probes="stream")
    ends = {
        one.side: {row.layer: row.predicted for row in one.rows}
        for one in leadline.bounds(record, names=["xiong-stream"], initial=True).bounds
    }
    drawn = [one for one in laws_beside(curves_of(design)) if one.name == "xiong-stream"]
    for curve, side in zip(drawn, ("lower", "upper"), strict=True):
        for layer, value in zip(curve.series.layers[1:], curve.series.values[1:], strict=True):
            predicted = ends[side][layer]
            assert predicted is not None
            assert value == pytest.approx((design.width * predicted) ** 0.5, rel=1e-6)
    measured = curves_of(design).gauges.stream_norm
    assert drawn[0].series.values[-1] < measured[-1] < drawn[1].series.values[-1]  # type: ignore[operator]


def test_laws_of_a_draw_are_silent_where_the_draw_was_changed() -> None:
    assert "xiong-stream" in names(depth=4, init="xavier")
    assert "xiong-stream" not in names(depth=4, init="xavier", gain=2.0)
    assert "xiong-stream" not in names(depth=4, init="xavier", placement="post")
    assert "gpt2-scaling" in names(depth=4)


@pytest.mark.parametrize("mask", ["causal", "full"])
@pytest.mark.parametrize(
    "fields", [{}, {"init": "xavier", "positions": "rotary"}, {"placement": "post"}]
)
def test_attention_lies_between_its_bounds(mask: str, fields: dict[str, object]) -> None:
    design = Design.from_json({"depth": 4, "mask": mask, **fields})
    curves = curves_of(design)
    sides = [one for one in laws_beside(curves) if one.quantity == "attention.spectral_norm"]
    assert {one.kind for one in sides} == {"upper", "lower"}
    mean, largest = curves.curve("attention.spectral_norm").series
    for bound in sides:
        line = mean if bound.kind == "lower" else largest
        for value, end in zip(line.values, bound.series.values, strict=True):
            assert value is not None and end is not None
            assert value <= end * (1 + 1e-6) if bound.kind == "upper" else value >= end * (1 - 1e-6)


def test_what_the_skip_alone_carries_is_a_power() -> None:
    design = Design(connection="deepscalelm(k=9.5)", gain=0.0, depth=50)
    curves = curves_of(design)
    alone = [one for one in laws_beside(curves) if one.name == "skip-alone"]
    assert [one.quantity for one in alone] == ["stream.norm", "gradient.stream"]
    for one in alone:
        (line,) = curves.curve(one.quantity).series
        assert one.series.values == pytest.approx(line.values, rel=1e-4)
    assert "skip-alone" not in names(depth=3)
    assert "skip-alone" not in names(depth=3, connection="deepnorm", placement="post")


def test_the_cubic_law_follows_pure_attention() -> None:
    design = Design.from_json({**PURE, "mask": "full", "depth": 8})
    curves = curves_of(design)
    law = next(one for one in laws_beside(curves) if one.name == "collapse-cubic-law")
    log = curves.gauges.residual.log10
    assert law.series.exponents
    last = law.series.exponents[-1]
    assert last == pytest.approx(log[-1], abs=1.5)
    assert "collapse-causal-rate" in names(**PURE, depth=4, mask="causal")
    assert "collapse-cubic-law" not in names(
        **{**PURE, "connection": "identity"}, depth=4, mask="full"
    )
