"""Lipschitz constants: of activations against fine grids and mpmath, of MLPs by random pairs."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from leadline.errors import UnknownName
from leadline.theory.rank_collapse.lipschitz import composite_lipschitz, lip
from tests.synthetic_collapse import ACTS, composite, inf, one

CURVES = {
    "gelu": lambda x: x * mpmath.ncdf(x),
    "gelu_tanh": lambda x: (
        x * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3))) / 2
    ),
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
    "quick_gelu": lambda x: x / (1 + mpmath.exp(-mpmath.mpf("1.702") * x)),
}
FUNCTIONS = {
    "relu": lambda x: np.maximum(x, 0.0),
    "tanh": np.tanh,
    "gelu": ACTS["gelu"],
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
}


def test_gelu_has_the_closed_form_and_is_1129() -> None:
    normal = math.exp(-1.0) / math.sqrt(2 * math.pi)
    assert lip("gelu") == pytest.approx(
        0.5 * (1 + math.erf(1.0)) + math.sqrt(2) * normal, rel=4e-16
    )
    assert round(lip("gelu"), 3) == 1.129


@pytest.mark.parametrize(
    ("act", "digits"),
    [("gelu", "1.12890"), ("gelu_tanh", "1.12899"), ("silu", "1.09983"), ("quick_gelu", "1.09983")],
)
def test_the_constants_begin_with_these_digits(act: str, digits: str) -> None:
    assert f"{lip(act):.9f}".startswith(digits)


@pytest.mark.parametrize("act", list(CURVES))
def test_the_constant_is_the_largest_slope_to_full_precision(act: str) -> None:
    curve = CURVES[act]
    with mpmath.workdps(40):
        top = mpmath.findroot(lambda x: mpmath.diff(curve, x, 2), 1.5)
        assert lip(act) == pytest.approx(float(mpmath.diff(curve, top)), rel=1e-15)


@pytest.mark.parametrize("act", list(FUNCTIONS))
def test_no_slope_of_a_fine_grid_exceeds_the_constant_and_one_reaches_it(act: str) -> None:
    x = np.linspace(-8, 8, 400_001)
    slopes = np.abs(np.diff(FUNCTIONS[act](x)) / np.diff(x))
    assert slopes.max() <= lip(act) + 1e-9
    assert slopes.max() >= lip(act) - 1e-7


def test_relu_and_tanh_have_one() -> None:
    assert lip("relu") == lip("tanh") == 1.0


def test_an_unknown_activation_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match=r"geluu.*Did you mean 'gelu'"):
        lip("geluu")


def test_the_composite_constant_is_the_product_of_its_three_parts() -> None:
    expected = lip("gelu") * math.sqrt(2 * 8) * math.sqrt(3 * 27)
    assert composite_lipschitz("gelu", 2, 8, 3, 27) == pytest.approx(expected)
    assert composite_lipschitz("relu", up_1=2, up_inf=8, down_1=3, down_inf=27) == pytest.approx(36)


def test_norms_beyond_float_give_infinity_and_do_not_raise() -> None:
    assert composite_lipschitz("relu", 1e300, 1e300, 1e300, 1e300) == math.inf
    assert composite_lipschitz("relu", 1e300, 1e300, 0.0, 0.0) == 0.0


@pytest.mark.parametrize("act", ["relu", "gelu"])
def test_no_pair_of_inputs_is_stretched_by_more_than_lambda(act: str) -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        up, down = rng.normal(size=(3, 5)), rng.normal(size=(5, 3))
        b_up = rng.normal(size=5)
        bound = composite_lipschitz(act, one(up), inf(up), one(down), inf(down))
        z, y = rng.normal(size=(2, 4, 3)) * rng.choice([0.01, 1, 10])
        change = ACTS[act](z @ up + b_up) @ down - ACTS[act](y @ up + b_up) @ down
        assert composite(change) <= bound * composite(z - y) * (1 + 1e-12)
