"""The playground's numbers are those of the instruments, for every connection and every placement."""

from __future__ import annotations

import json
import math

import pytest

import leadline
from leadline.parts.recipe import PARTS
from leadline.web.playground.curves import DesignCurves, PlayCurve, curves_of, quantities
from leadline.web.playground.design import Design, DesignError

SMALL = {"depth": 3, "width": 32, "heads": 2, "text": "a line tells how deep"}
EQUAL = 1e-6


def designs() -> list[dict[str, object]]:
    """Every connection with a placement that it goes with, every placement, norm, MLP, init, mask."""
    every: list[dict[str, object]] = []
    for name in PARTS["connection"].names():
        for placement in ("pre", "post", "none", "keel"):
            fields = {**SMALL, "connection": name, "placement": placement}
            try:
                Design.from_json(fields).model()
            except DesignError:
                continue
            every.append(fields)
            break
        else:
            raise AssertionError(f"no placement goes with {name}")
    every += [{**SMALL, "placement": name} for name in PARTS["placement"].names()]
    every += [{**SMALL, "norm": name, "mask": "full"} for name in PARTS["norm"].names()]
    every += [{**SMALL, "mlp": name, "init": "xavier"} for name in PARTS["mlp"].names()]
    every += [{**SMALL, "init": name} for name in PARTS["init"].names()]
    every += [{**SMALL, "positions": name} for name in PARTS["positions"].names()]
    every += [
        {**SMALL, "gain": 2.5, "seed": 3},
        {**SMALL, "gain": 0.0},
        {**SMALL, "connection": "hyper(lanes=3)", "mask": "full", "gain": 3.0},
        {**SMALL, "connection": "denseformer", "placement": "post", "init": "xavier"},
        {**SMALL, "connection": "depth_attention", "mlp": "none", "init": "xavier"},
        {**SMALL, "placement": "parallel", "connection": "weighted(learned=true, alpha=0.5)"},
        {**SMALL, "placement": "parallel(norms=2)", "connection": "gtrxl"},
        {**SMALL, "mlp": "none", "mask": "full", "norm": "rmsnorm", "placement": "post"},
    ]
    return every


def measured(design: Design) -> leadline.Record:
    return leadline.measure(
        design.model(),
        design.inputs(),
        probes="stream,tokens,update,gradient,attention,jacobian(k=1, branch=false)",
    )


def line(
    record: leadline.Record, quantity: str, statistic: str, point: str | None = None
) -> dict[int, float]:
    """Numbers by layer, without those inside of blocks and of single heads."""
    return {
        one.site.layer: one.value
        for one in record.select(quantity, statistic=statistic)
        if one.site.head is None
        and one.site.rank is None
        and (one.site.sublayer is None if point is None else one.site.point == point)
    }


def values(curve: PlayCurve, label: str | None = None) -> dict[int, float | None]:
    series = next(one for one in curve.series if label is None or one.label == label)
    return dict(zip(series.layers, series.values, strict=True))


@pytest.mark.parametrize("fields", designs(), ids=lambda fields: str(sorted(fields.items())[0:9]))
def test_every_number_equals_that_of_measure(fields: dict[str, object]) -> None:
    design = Design.from_json(fields)
    curves, record = curves_of(design), measured(design)

    for quantity, statistic in (
        ("stream.norm", "mean"),
        ("gradient.stream", "total"),
        ("tokens.cosine", "mean"),
        ("jacobian.distance", "mean"),
    ):
        expected = line(record, quantity, statistic)
        assert values(curves.curve(quantity)) == pytest.approx(expected, rel=EQUAL, abs=1e-7), (
            quantity
        )
    # Attention and MLP that are one write belong to no attention sublayer: no instrument reads them.
    seen = "attention.spectral_norm" in record
    assert seen or (design.placement.startswith("parallel") and design.connection == "gtrxl")
    for label, statistic in (("mean of heads", "mean"), ("largest head", "max")) if seen else ():
        expected = line(record, "attention.spectral_norm", statistic, "attention")
        assert values(curves.curve("attention.spectral_norm"), label) == pytest.approx(
            expected, rel=EQUAL
        )
    ratios = curves.curve("update.ratio")
    roles = {one.site.point for one in record.select("update.ratio")}
    assert {
        series.label.replace("attention and mlp", "branch") for series in ratios.series
    } == roles
    for series in ratios.series:
        role = series.label.replace("attention and mlp", "branch")
        assert dict(zip(series.layers, series.values, strict=True)) == pytest.approx(
            line(record, "update.ratio", "mean", role), rel=EQUAL, abs=1e-9
        )
    residual = values(curves.curve("tokens.relative_residual"))
    beyond = curves.gauges.residual.beyond_single
    single = {layer: value for layer, value in residual.items() if beyond is None or layer < beyond}
    expected = line(record, "tokens.relative_residual", "mean")
    assert single == pytest.approx({layer: expected[layer] for layer in single}, rel=EQUAL)
    parameters = record.select("gradient.parameters", statistic="value")
    for role_line in curves.gauges.parameter_gradients:
        expected = {
            one.site.layer: one.value for one in parameters if one.site.point == role_line.role
        }
        assert dict(zip(role_line.layers, role_line.values, strict=True)) == pytest.approx(
            expected, rel=1e-5, abs=1e-9
        )


def test_a_deep_wide_design_equals_measure_too() -> None:
    design = Design(depth=24)
    curves, record = curves_of(design), measured(design)
    for quantity, statistic in (
        ("stream.norm", "mean"),
        ("gradient.stream", "total"),
        ("tokens.cosine", "mean"),
        ("tokens.relative_residual", "mean"),
        ("jacobian.distance", "mean"),
    ):
        expected = line(record, quantity, statistic)
        assert values(curves.curve(quantity)) == pytest.approx(expected, rel=EQUAL, abs=1e-7), (
            quantity
        )
    assert curves.facts["loss"] == pytest.approx(record.provenance["loss"]["value"], rel=EQUAL)
    assert curves.facts["parameters"] == record.provenance["model"]["parameters"]
    assert curves.facts["tokens"] == record.provenance["input"]["tokens"]


def test_the_curves_of_a_design_do_not_hang_on_those_asked_for_before() -> None:
    fresh = curves_of(Design(depth=4)).curves
    for other in (
        Design(depth=6, gain=3.0),
        Design(depth=4, placement="normformer"),
        Design(depth=4, connection="hyper", seed=9),
        Design(depth=4, placement="parallel", init="xavier"),
    ):
        curves_of(other)
    assert curves_of(Design(depth=4)).curves == fresh


def test_reading_a_model_leaves_it_as_it_was() -> None:
    import torch

    from leadline.web.playground.gauges import read_gauges

    design = Design(depth=2, connection="dropout(rate=0.5)")
    model = design.model()
    before = {name: one.clone() for name, one in model.state_dict().items()}
    random = torch.get_rng_state()
    read_gauges(model, design.inputs())
    assert model.training
    assert all(
        parameter.requires_grad and parameter.grad is None for parameter in model.parameters()
    )
    assert all(torch.equal(before[name], one) for name, one in model.state_dict().items())
    assert torch.equal(random, torch.get_rng_state())


def _exploding() -> DesignCurves:
    return curves_of(
        Design(depth=48, norm="none", placement="none", init="xavier(gain=4.0)", gain=4.0)
    )


@pytest.mark.filterwarnings("error")
def test_numbers_that_are_not_finite_become_null_with_a_flag_and_no_warning() -> None:
    curves = _exploding()
    text = json.dumps(curves.to_json(), allow_nan=False)
    assert "NaN" not in text
    stream = values(curves.curve("stream.norm"))
    first = curves.facts["not_finite"]["stream.norm"]
    assert stream[first] is None and all(
        value is not None and math.isfinite(value)
        for layer, value in stream.items()
        if layer < first
    )


def test_every_curve_covers_its_sites_in_the_order_of_the_page() -> None:
    curves = curves_of(Design(depth=5))
    assert [one.quantity for one in curves.curves] == [one.name for one in quantities()]
    for curve, quantity in zip(curves.curves, quantities(), strict=True):
        sites = range(6) if quantity.lives_on == "stream" else range(1, 6)
        assert all(series.layers == tuple(sites) for series in curve.series)
    assert [one.label for one in curves.curve("update.ratio").series] == ["attention", "mlp"]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"placement": "post", "mask": "full"},
        {"placement": "sandwich", "mlp": "relu", "gain": 3.0},
    ],
)
def test_products_that_are_written_out_are_those_of_autograd(fields: dict[str, object]) -> None:
    import torch

    from leadline.web.playground.plain_blocks import plain_pull
    from leadline.web.playground.walk import walk

    design = Design.from_json({**SMALL, "init": "xavier", **fields})
    model = design.model().eval()
    record = walk(model, design.inputs())
    for block, state in zip(model.blocks, record.states, strict=True):
        pull = plain_pull(block, state, record.run)
        assert pull is not None
        u = torch.randn(3, *state.shape[1:], generator=torch.Generator().manual_seed(1))
        for one, product in zip(u, pull(u), strict=True):
            _, expected = torch.autograd.functional.vjp(
                lambda x, block=block: block(x, record.run), state.detach(), one[None]
            )
            assert torch.allclose(product, expected[0], rtol=1e-4, atol=1e-5)
