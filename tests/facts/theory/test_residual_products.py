"""Products of residual Jacobians between their bounds, against dense products and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from leadline.errors import InputError
from leadline.theory.residual_products import product_band, product_bands


def test_every_random_product_lies_between_the_ends() -> None:
    rng = np.random.default_rng(0)
    for trial in range(40):
        layers = [rng.normal(size=(5, 5)) * rng.uniform(0, 0.3) for _ in range(1 + trial % 7)]
        product = np.eye(5)
        for layer in layers:
            product = (np.eye(5) + layer) @ product
        values = np.linalg.svd(product, compute_uv=False)
        band = product_band([float(np.linalg.norm(layer, 2)) for layer in layers])
        assert math.exp(band.log_lower) <= values[-1] * (1 + 1e-12)
        assert values[0] <= math.exp(band.log_upper) * (1 + 1e-12)
        assert band.log_upper <= band.total


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_both_ends_are_attained_by_multiples_of_the_identity(sign: float) -> None:
    norms = [0.1, 0.5, 0.25]
    value = math.prod(1.0 + sign * norm for norm in norms)
    band = product_band(norms)
    assert math.exp(band.log_upper if sign > 0 else band.log_lower) == pytest.approx(value)


def test_nine_tenths_to_the_hundredth() -> None:
    # 0.9^100 = 2.6561e-5, by whole numbers: 9^100 / 10^100.
    exact = 9**100 / 10**100
    assert exact == pytest.approx(2.6561e-5, rel=1e-4)
    assert math.exp(product_band([0.1] * 100).log_lower) == pytest.approx(exact, rel=1e-12)


def test_a_tenth_in_each_of_96_layers_allows_four_orders_either_way() -> None:
    band = product_band([0.1] * 96)
    assert math.exp(band.log_upper) == pytest.approx(1.1**96)
    assert math.exp(band.log_upper) == pytest.approx(9.4e3, rel=0.01)
    assert math.exp(band.log_lower) == pytest.approx(4.05e-5, rel=0.01)


@pytest.mark.parametrize("norm", [1.0, 1.5])
def test_one_branch_as_large_as_the_identity_leaves_no_lower_bound(norm: float) -> None:
    band = product_band([0.1, norm, 0.1])
    assert band.log_lower == -math.inf
    assert math.isfinite(band.log_upper)


def test_a_branch_a_little_smaller_than_the_identity_still_leaves_a_lower_bound() -> None:
    assert math.exp(product_band([0.99]).log_lower) == pytest.approx(0.01)


def test_the_sum_decides_whether_a_product_stays_of_order_one() -> None:
    # 1/L in each of L layers: at most e. 1/sqrt(L) in each: beyond any bound.
    for layers in (10, 1000):
        assert math.exp(product_band([1 / layers] * layers).log_upper) < math.e
    assert product_band([10000**-0.5] * 10000).log_upper > 99


def test_no_depth_overflows() -> None:
    band = product_band([3.0] * 100_000)
    assert band.log_upper == pytest.approx(100_000 * math.log(4.0))


def test_there_is_a_band_after_every_layer_and_the_first_is_the_identity() -> None:
    bands = product_bands([0.5, 0.5])
    assert [band.total for band in bands] == [0.0, 0.5, 1.0]
    assert (bands[0].log_lower, bands[0].log_upper) == (0.0, 0.0)
    assert product_band([]) == bands[0]


def test_a_norm_that_is_not_known_stays_unknown() -> None:
    band = product_band([0.1, math.nan, 2.0])
    assert math.isnan(band.log_upper)
    assert math.isnan(product_bands([0.1, math.nan])[2].log_lower)


def test_a_negative_norm_is_refused() -> None:
    with pytest.raises(InputError, match="layer 2 is"):
        product_band([0.1, -0.1])
