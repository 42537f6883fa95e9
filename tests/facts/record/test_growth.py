"""Growth laws, on series whose law is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leadline.record import fit_growth

LAYERS = np.arange(1, 25)
amplitudes = st.floats(1e-6, 1e6)
depths = st.integers(8, 96)
seeds = st.integers(0, 2**32 - 1)


def layers_to(depth: int) -> np.ndarray:
    return np.arange(depth + 1)


def noisy(values: np.ndarray, *, percent: float, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(0.0, percent / 100, size=len(values))
    return values * np.exp(noise)


@given(amplitudes, st.floats(0.3, 3.0).filter(lambda b: abs(b - 1) > 0.05), depths, st.booleans())
def test_exact_power_law_is_named_with_its_exponent(
    amplitude: float, exponent: float, depth: int, falls: bool
) -> None:
    exponent = -exponent if falls else exponent
    layers = layers_to(depth)
    values = np.r_[123.0, amplitude * layers[1:] ** exponent]
    growth = fit_growth(layers, values)
    assert growth.law == "power"
    assert growth.rate == pytest.approx(exponent, abs=1e-9)
    assert growth.r2 == pytest.approx(1.0)
    assert growth.text.startswith("falls as l^-" if falls else "grows as l^")


@given(amplitudes, st.floats(0.02, 0.5), depths, st.booleans())
def test_exact_exponential_is_named_with_its_factor_per_layer(
    amplitude: float, rate: float, depth: int, falls: bool
) -> None:
    factor = math.exp(-rate if falls else rate)
    layers = layers_to(depth)
    growth = fit_growth(layers, amplitude * factor**layers)
    assert growth.law == "exponential"
    assert growth.rate == pytest.approx(factor, rel=1e-9)
    assert growth.r2 == pytest.approx(1.0)
    assert growth.text.endswith("per layer (R² 1.000)")
    assert growth.text.startswith("×")


@given(amplitudes, st.floats(0.05, 5.0), depths)
def test_exact_straight_line_is_named_with_its_slope(
    amplitude: float, slope: float, depth: int
) -> None:
    layers = layers_to(depth)
    growth = fit_growth(layers, amplitude * (1.0 + slope * layers))
    assert growth.law == "linear"
    assert growth.rate == pytest.approx(amplitude * slope, rel=1e-6)
    assert growth.r2 == pytest.approx(1.0)


@given(st.floats(0.5, 4.0), depths)
def test_falling_straight_line_has_a_negative_slope(start: float, depth: int) -> None:
    layers = layers_to(depth)
    values = start * (1.0 - 0.9 * layers / depth)
    growth = fit_growth(layers, values)
    assert growth.law == "linear"
    assert growth.rate == pytest.approx(-0.9 * start / depth, rel=1e-6)
    assert growth.text.startswith("-")


def test_proportional_growth_is_called_linear_not_power_one() -> None:
    growth = fit_growth(LAYERS, 3.0 * LAYERS)
    assert growth.law == "linear"
    assert growth.text == "+3 per layer (R² 1.000)"


@settings(max_examples=200)
@given(st.floats(0.4, 0.8), seeds)
def test_noise_of_two_percent_does_not_hide_a_root_of_depth(exponent: float, seed: int) -> None:
    values = noisy(LAYERS**exponent, percent=2, seed=seed)
    growth = fit_growth(LAYERS, values)
    assert growth.law == "power"
    # The slope of log y on log l has standard deviation 0.02 / sqrt(Σ (log l - mean)²) = 0.005.
    assert growth.rate == pytest.approx(exponent, abs=0.03)
    assert 0.97 < growth.r2 < 1.0


@settings(max_examples=200)
@given(st.floats(1.15, 1.6), seeds)
def test_noise_of_five_percent_does_not_hide_an_exponential(factor: float, seed: int) -> None:
    growth = fit_growth(LAYERS, noisy(factor**LAYERS, percent=5, seed=seed))
    assert growth.law == "exponential"
    assert growth.rate == pytest.approx(factor, rel=0.01)


@settings(max_examples=200)
@given(st.floats(0.3, 2.0), seeds)
def test_noise_of_one_percent_does_not_hide_a_straight_line(slope: float, seed: int) -> None:
    # Far from zero at the first layer, so that it is neither a power nor an exponential.
    values = 1.0 + slope * np.arange(1, 49)
    growth = fit_growth(np.arange(1, 49), noisy(values, percent=1, seed=seed))
    if growth.law == "power":
        # A steep line is nearly proportional: then the exponent must say so.
        assert growth.rate == pytest.approx(1.0, abs=0.25)
    else:
        assert growth.law == "linear"
        assert growth.rate == pytest.approx(slope, rel=0.05)


@given(st.floats(-1e9, 1e9).filter(lambda x: abs(x) > 1e-9), depths)
def test_constant_is_flat(level: float, depth: int) -> None:
    growth = fit_growth(layers_to(depth), np.full(depth + 1, level))
    assert (growth.law, growth.rate, growth.r2) == ("flat", 0.0, 0.0)
    assert growth.text == "flat (±< 0.1 %)"


def test_all_zero_is_flat() -> None:
    assert fit_growth(LAYERS, np.zeros(24)).text == "flat (all 0)"


@given(seeds)
def test_noise_around_a_constant_is_flat(seed: int) -> None:
    growth = fit_growth(LAYERS, noisy(np.full(24, 5.0), percent=3, seed=seed))
    assert growth.law == "flat"


def test_spread_of_a_flat_series_is_half_its_range_over_its_mean() -> None:
    values = np.array([98.0, 102.0] * 6)
    assert fit_growth(np.arange(1, 13), values).text == "flat (±2 %)"


def test_embedding_does_not_count() -> None:
    values = np.r_[1e9, LAYERS**0.5]
    assert fit_growth(np.arange(25), values) == fit_growth(LAYERS, LAYERS**0.5)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_fewer_than_four_blocks_have_no_law(count: int) -> None:
    growth = fit_growth(np.arange(count + 1), np.arange(count + 1) ** 2.0)
    assert growth.law == "none"
    assert math.isnan(growth.rate)
    assert growth.text == "too few layers for a law"


def test_four_blocks_have_a_law() -> None:
    assert fit_growth([1, 2, 3, 4], [2, 4, 8, 16]).law == "exponential"


def test_values_that_are_not_finite_are_left_out_and_told() -> None:
    values = LAYERS**0.5
    values[[3, 7]] = math.nan, math.inf
    growth = fit_growth(LAYERS, values)
    assert growth.law == "power"
    assert growth.rate == pytest.approx(0.5, abs=1e-9)
    assert growth.text == "grows as l^0.50 (R² 1.000); 2 layers not finite"


def test_nothing_finite_has_no_law() -> None:
    growth = fit_growth(LAYERS, np.full(24, math.nan))
    assert growth.law == "none"
    assert growth.text == "too few layers for a law; 24 layers not finite"


def test_series_through_zero_can_only_be_a_line() -> None:
    growth = fit_growth(LAYERS, 10.0 - LAYERS)
    assert growth.law == "linear"
    assert growth.rate == pytest.approx(-1.0)


def test_negative_values_grow_as_their_size_does() -> None:
    up, down = fit_growth(LAYERS, 1.2**LAYERS), fit_growth(LAYERS, -(1.2**LAYERS))
    assert (up.law, up.rate) == (down.law, down.rate)
    line = fit_growth(LAYERS, -1.0 - 2.0 * LAYERS)
    assert line.law == "linear"
    assert line.rate == pytest.approx(-2.0)


def test_a_jump_and_a_fall_have_no_law() -> None:
    values = np.r_[np.ones(4), np.full(16, 300.0), np.ones(4)]
    growth = fit_growth(LAYERS, values)
    assert growth.law == "none"
    assert growth.text.startswith("no simple law")
    assert growth.brief == "no law"


@example([0.0, 1.0, 1.0, 1.0, 6e307])
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=64), min_size=0, max_size=40))
def test_any_series_gets_an_answer(values: list[float]) -> None:
    growth = fit_growth(range(len(values)), values)
    assert growth.law in ("flat", "linear", "power", "exponential", "none")
    assert 0.0 <= growth.r2 <= 1.0
    assert growth.text
    assert len(growth.brief) <= 16


@given(st.floats(1e-300, 1e290), st.sampled_from([0.5, 2.0]))
def test_the_unit_of_the_values_does_not_matter(unit: float, exponent: float) -> None:
    here = fit_growth(LAYERS, unit * LAYERS**exponent)
    assert here.law == "power"
    assert here.rate == pytest.approx(exponent, abs=1e-9)


def test_line_is_fitted_where_relative_errors_are_least() -> None:
    """The fit of log(a + b l) equals that of a general optimiser."""
    optimize = pytest.importorskip("scipy.optimize")
    values = noisy(2.0 + 0.7 * np.arange(1, 41), percent=2, seed=3)
    layers = np.arange(1, 41)

    def residual(line: np.ndarray) -> np.ndarray:
        return np.log(line[0] + line[1] * layers) - np.log(values)

    found = optimize.least_squares(residual, [1.0, 1.0], xtol=1e-15, ftol=1e-15, gtol=1e-15)
    growth = fit_growth(layers, values)
    assert growth.law == "linear"
    assert growth.rate == pytest.approx(found.x[1], rel=1e-6)
    total = np.sum((np.log(values) - np.log(values).mean()) ** 2)
    assert growth.r2 == pytest.approx(1 - 2 * found.cost / total, rel=1e-9)


@pytest.mark.parametrize(
    ("values", "text", "brief"),
    [
        (1.08**LAYERS, "×1.080 per layer (R² 1.000)", "×1.080/layer"),
        (2.5**LAYERS, "×2.50 per layer (R² 1.000)", "×2.50/layer"),
        (LAYERS**0.52, "grows as l^0.52 (R² 1.000)", "l^0.52"),
        (LAYERS**-0.5, "falls as l^-0.50 (R² 1.000)", "l^-0.50"),
        (10 + 4.0 * LAYERS, "+4 per layer (R² 1.000)", "+4/layer"),
    ],
)
def test_words_of_a_law(values: np.ndarray, text: str, brief: str) -> None:
    growth = fit_growth(LAYERS, values)
    assert str(growth) == text
    assert growth.brief == brief


@pytest.mark.parametrize(("percent", "law"), [(4.9, "flat"), (5.1, "linear")])
def test_trend_within_five_percent_of_the_mean_is_flat(percent: float, law: str) -> None:
    values = 1.0 + percent / 100 * (LAYERS - 12.5) / 23
    assert fit_growth(LAYERS, values).law == law


@pytest.mark.parametrize(("r2", "named"), [(0.77, False), (0.83, True)])
def test_law_is_named_from_eighty_percent_of_the_variance_on(r2: float, named: bool) -> None:
    """The series is an exponential plus a zigzag that no law follows, mixed to the wanted R²."""
    trend = LAYERS - LAYERS.mean()
    zigzag = np.where(LAYERS % 2 == 0, 1.0, -1.0)
    zigzag -= trend * (trend @ zigzag) / (trend @ trend)
    trend, zigzag = trend / np.linalg.norm(trend), zigzag / np.linalg.norm(zigzag)
    values = np.exp(3.0 * (math.sqrt(r2) * trend + math.sqrt(1 - r2) * zigzag))
    growth = fit_growth(LAYERS, values)
    assert (growth.law != "none") == named
    assert growth.r2 == pytest.approx(r2, abs=0.01)


def test_a_value_that_leaps_over_three_hundred_orders_of_magnitude_is_no_line() -> None:
    growth = fit_growth(range(6), [0.0, 1.0, 1.0, 1.0, 1.0, 6e307])
    assert growth.law != "linear"
    steady = fit_growth(range(6), [1.0, 1e-60, 1e-120, 1e-180, 1e-240, 1e-300])
    assert steady.law == "exponential"
    assert steady.rate == pytest.approx(1e-60, rel=1e-6)
