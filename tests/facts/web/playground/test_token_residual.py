"""Residuals below rounding are those of `leadline.collapse`."""

from __future__ import annotations

import math

import pytest

import leadline
from leadline.web.playground.curves import curves_of
from leadline.web.playground.design import Design
from leadline.web.playground.token_residual import SINGLE

ATTENTION = {"connection": "none", "mlp": "none", "init": "xavier"}


@pytest.mark.parametrize(
    "fields",
    [
        {**ATTENTION, "norm": "none", "placement": "none", "mask": "full", "depth": 8},
        {**ATTENTION, "norm": "none", "placement": "none", "mask": "causal", "depth": 20},
        {**ATTENTION, "mask": "full", "positions": "rotary", "depth": 6},
        {"connection": "none", "mask": "full", "depth": 6, "norm": "rmsnorm"},
        {"placement": "post", "init": "xavier", "depth": 96},
        {
            "connection": "b2t",
            "placement": "post",
            "init": "xavier(gain=2.0)",
            "depth": 30,
            "mask": "full",
        },
    ],
    ids=["pure", "causal", "rotary", "mlp", "post-norm", "history"],
)
def test_below_rounding_residuals_are_those_of_collapse(fields: dict[str, object]) -> None:
    design = Design.from_json(fields)
    residual = curves_of(design).gauges.residual
    assert residual.beyond_single is not None and not residual.remark
    exact = leadline.collapse(design.model(), design.inputs(), facts=False).collapse
    expected = exact.log10_residual - exact.log10_norm
    assert min(expected) < math.log10(SINGLE)
    for layer in range(residual.beyond_single, design.depth + 1):
        # A logarithm of -10,000 is given to as many digits as its number.
        allowed = max(1e-6 / math.log(10), 1e-6 * abs(expected[layer]))
        assert residual.log10[layer] == pytest.approx(expected[layer], abs=allowed), layer


def test_values_beyond_floats_have_exponents() -> None:
    design = Design(**ATTENTION, norm="none", placement="none", mask="full", depth=10)
    curves = curves_of(design)
    (series,) = curves.curve("tokens.relative_residual").series
    assert len(series.exponents) == len(series.values)
    for value, exponent, log in zip(
        series.values, series.exponents, curves.gauges.residual.log10, strict=True
    ):
        assert value is not None and 1 <= value < 10
        assert math.log10(value) + exponent == pytest.approx(log, rel=1e-12)
    assert series.exponents[-1] < -1000


def test_lanes_are_not_followed_and_that_is_said() -> None:
    design = Design(connection="hyper(lanes=2)", mask="full", placement="post", gain=4.0, depth=8,
                    init="xavier(gain=3.0)", mlp="none")  # fmt: skip
    residual = curves_of(design).gauges.residual
    assert residual.beyond_single is None
    if min(residual.log10) < math.log10(SINGLE):
        assert "Lanes" in residual.remark
