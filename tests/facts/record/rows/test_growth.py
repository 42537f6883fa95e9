"""Growth laws, on series whose law is known."""

from __future__ import annotations

import math
import re
from typing import get_args

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leadline.record import fit_growth
from leadline.record.rows.growth.stretch import LawName

LAYERS = np.arange(1, 25)
amplitudes = st.floats(1e-6, 1e6)
depths = st.integers(8, 96)
seeds = st.integers(0, 2**32 - 1)


def layers_to(depth: int) -> np.ndarray:
    return np.arange(depth + 1)


def noisy(values: np.ndarray, *, percent: float, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(0.0, percent / 100, size=len(values))
    return values * np.exp(noise)


# One of these is a law with an offset, and is named so.
ROOTS = {0.5: "root", 1.0: "linear", -0.5: "inverse root", -1.0: "inverse"}


@given(
    amplitudes,
    st.floats(0.3, 3.0).filter(lambda b: min(abs(b - 0.5), abs(b - 1)) > 0.05),
    depths,
    st.booleans(),
)
def test_exact_power_law_from_layer_1_on_is_named_with_its_exponent(
    amplitude: float, exponent: float, depth: int, falls: bool
) -> None:
    exponent = -exponent if falls else exponent
    layers = np.arange(1, depth + 1)
    growth = fit_growth(layers, amplitude * layers**exponent)
    assert growth.law == "power"
    assert growth.rate == pytest.approx(exponent, abs=1e-9)
    assert growth.r2 == pytest.approx(1.0)
    assert growth.text.startswith("falls as l^-" if falls else "grows as l^")


@given(amplitudes, st.floats(0.01, 100.0), depths, st.sampled_from(sorted(ROOTS)))
def test_exact_law_with_an_offset_is_named_with_its_rate(
    amplitude: float, slope: float, depth: int, power: float
) -> None:
    layers = layers_to(depth)
    values = amplitude * (1.0 + slope * layers) ** power
    growth = fit_growth(layers, values)
    if np.ptp(values) <= 0.05 * values.mean():
        assert growth.law == "flat"
        return
    assert growth.law == ROOTS[power]
    assert growth.rate == pytest.approx(amplitude ** (1 / power) * slope, rel=1e-6)
    assert growth.r2 == pytest.approx(1.0)
    assert growth.jump is None


@given(amplitudes, st.floats(1.5, 4.0), st.floats(0.1, 0.9), st.integers(12, 96))
def test_exact_approach_to_a_limit_is_named_with_its_half_life(
    amplitude: float, half_life: float, limit: float, depth: int
) -> None:
    falling = limit + (1 - limit) * 2.0 ** (-layers_to(depth) / half_life)
    growth = fit_growth(layers_to(depth), amplitude * falling)
    assert growth.law == "saturating"
    assert growth.rate == pytest.approx(half_life, rel=1e-3)
    said = re.match(r"falls towards (\S+), half-way in", growth.text)
    assert said is not None
    assert float(said[1]) == pytest.approx(amplitude * limit, rel=5e-3)


@given(
    amplitudes,
    st.floats(0.3, 5.0),
    st.booleans(),
    depths.flatmap(lambda depth: st.tuples(st.just(depth), st.integers(1, depth))),
)
def test_jump_between_two_levels_is_named_with_its_place_wherever_it_is(
    amplitude: float, size: float, drops: bool, place: tuple[int, int]
) -> None:
    depth, layer = place
    factor = math.exp(-size if drops else size)
    growth = fit_growth(
        layers_to(depth), amplitude * np.where(layers_to(depth) < layer, 1.0, factor)
    )
    assert growth.law == "jump"
    assert growth.rate == pytest.approx(factor)
    assert growth.jump is not None
    assert (growth.jump.after, growth.jump.layer) == (layer - 1, layer)
    assert growth.jump.factor == pytest.approx(factor)
    assert growth.jump.by == pytest.approx(amplitude * (factor - 1))
    assert f"{'drops' if drops else 'jumps'} ×" in growth.text
    assert f" at layer {layer}" in growth.text
    assert growth.text.startswith("flat (±< 0.1 %), then ") == (layer > 1)
    assert growth.text.endswith(", then flat (±< 0.1 %)") == (layer < depth)


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
@given(st.floats(0.3, 10.0), seeds)
def test_noise_of_two_percent_does_not_hide_a_root_of_depth(slope: float, seed: int) -> None:
    growth = fit_growth(
        layers_to(24), noisy((1 + slope * layers_to(24)) ** 0.5, percent=2, seed=seed)
    )
    assert growth.law == "root"
    # Each y² is known to 4 %; a line through 25 of them has a slope known to about 1.2 %.
    assert growth.rate == pytest.approx(slope, rel=0.08)
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
    assert growth.law == "linear"
    assert growth.rate == pytest.approx(slope, rel=0.05)


@given(st.floats(-1e9, 1e9).filter(lambda x: abs(x) > 1e-9), depths)
def test_constant_is_flat(level: float, depth: int) -> None:
    growth = fit_growth(layers_to(depth), np.full(depth + 1, level))
    assert (growth.law, growth.rate, growth.r2) == ("flat", 0.0, 0.0)
    assert growth.text == "flat (±< 0.1 %)"


def test_all_zero_is_flat() -> None:
    assert fit_growth(LAYERS, np.zeros(24)).text == "flat (all 0)"


@pytest.mark.parametrize("depth", [4, 6, 8, 12, 24])
def test_noise_around_a_constant_is_flat_unless_chance_makes_a_trend_of_it(depth: int) -> None:
    """By chance a line explains half of the variance as often as the t distribution says."""
    stats = pytest.importorskip("scipy.stats")
    series = 400
    growths = [
        fit_growth(layers_to(depth), noisy(np.full(depth + 1, 5.0), percent=4, seed=seed))
        for seed in range(10_000, 10_000 + series)
    ]
    chance = 2 * stats.t.sf(math.sqrt(depth - 1), depth - 1)
    trends = sum(growth.law != "flat" for growth in growths)
    assert trends <= series * chance + 3 * math.sqrt(series * chance) + 1
    for growth in growths:
        assert growth.law == "flat" or growth.text.startswith(("grows ×", "falls ×", "no simple"))


def line_and_zigzag(change: float, r2: float, layers: np.ndarray) -> np.ndarray:
    """A steady change from first to last, and a zigzag so large that a line explains R²."""
    line = math.log(change) * (layers - layers.mean()) / np.ptp(layers)
    zigzag = np.where(layers % 2 == 0, 1.0, -1.0)
    zigzag -= zigzag.mean()
    zigzag -= line * (line @ zigzag) / (line @ line)
    size = math.sqrt((1 / r2 - 1) * (line @ line) / (zigzag @ zigzag))
    return np.exp(line + size * zigzag)


@pytest.mark.parametrize(
    ("change", "r2", "text"),
    [
        (0.75, 0.86, "falls ×"),
        (1.30, 0.75, "grows ×"),
        (1.20, 0.55, "grows ×"),
        (1.20, 0.45, "flat (±"),
        (0.85, 0.45, "flat (±"),
    ],
)
def test_trend_that_explains_half_of_the_variance_is_not_flat(
    change: float, r2: float, text: str
) -> None:
    values = line_and_zigzag(change, r2, layers_to(12))
    growth = fit_growth(layers_to(12), values)
    assert np.ptp(values) / 2 < 0.2 * values.mean()
    assert growth.text.startswith(text)
    if text != "flat (±":
        assert growth.law == "undecided"
        assert growth.rate == pytest.approx(values[-1] / values[0])
        assert growth.r2 == pytest.approx(r2, abs=1e-6)
        assert growth.text.endswith(" from layer 0 to 12")
        assert growth.brief == f"×{growth.rate:.2f} in all"


def test_trend_behind_a_jump_is_not_flat() -> None:
    behind = line_and_zigzag(1.3, 0.75, np.arange(1, 13))
    growth = fit_growth(layers_to(12), [0.02, *behind])
    assert growth.law == "undecided"
    assert growth.text == (
        f"jumps ×{behind[0] / 0.02:.1f} at layer 1, "
        f"then grows ×{behind[-1] / behind[0]:.2f} from layer 1 to 12"
    )


@pytest.mark.parametrize(
    "values",
    [
        # The stream of a model of 6 layers: "towards 1.45".
        [0.159, 0.739, 1.087, 1.152, 1.228, 1.352, 1.561],
        # The updates of the attention of a random GPT-2: "towards 1.29".
        [0.303, 0.795, 1.011, 1.107, 1.174, 1.184, 1.223, 1.247, 1.328, 1.305, 1.294, 1.361],
        # A power of l + 1 never stops falling: "towards 0.389", and the last value is 0.381.
        [(l + 1) ** -0.3 for l in range(25)],
    ],
)
def test_limit_that_the_values_have_passed_is_not_said(values: list[float]) -> None:
    growth = fit_growth(range(len(values)), values)
    assert growth.law != "saturating"
    assert "towards" not in growth.text


def test_spread_of_a_flat_series_is_half_its_range_over_its_mean() -> None:
    values = np.array([98.0, 102.0] * 6)
    growth = fit_growth(np.arange(1, 13), values)
    assert (growth.text, growth.brief) == ("flat (±2 %)", "flat ±2 %")


def test_embedding_counts_as_the_first_value_beside_the_law_does() -> None:
    """A post-norm stream of width 128 whose embedding has a standard deviation of 0.028."""
    growth = fit_growth(range(13), [0.319, *[11.3] * 12])
    assert growth.law == "jump"
    assert growth.text == "jumps ×35.4 at layer 1, then flat (±< 0.1 %)"
    assert growth.brief == "×35 @1, flat"


@pytest.mark.parametrize("depth", [16, 32, 64])
def test_squares_that_add_up_have_one_rate_at_every_depth(depth: int) -> None:
    """A stream that every layer adds two orthogonal updates of norm sqrt(width) to."""
    width, start = 128, 0.3
    values = np.sqrt(start**2 + 2 * width * layers_to(depth))
    growth = fit_growth(layers_to(depth), noisy(values, percent=1, seed=depth))
    assert growth.law == "root"
    assert growth.rate == pytest.approx(2 * width, rel=0.02)
    assert growth.text.startswith("grows in square by 25")
    assert growth.jump is None


def test_jump_beside_a_law_is_said_with_it() -> None:
    behind = np.sqrt(100.0 + 256.0 * np.arange(16))
    lead = fit_growth(range(17), [0.2, *behind])
    assert (lead.law, lead.brief) == ("root", "×50 @1, y²+256")
    assert lead.text == "jumps ×50 at layer 1, then grows in square by 256 per layer (R² 1.000)"
    climb = fit_growth(range(18), [0.2, 1.5, *behind])
    assert climb.text.startswith("jumps ×50 over layers 1 to 2, then grows in square by 256")
    assert climb.jump is not None
    assert (climb.jump.after, climb.jump.layer) == (0, 2)
    end = fit_growth(range(17), [*behind, 6.0])
    assert end.text == "grows in square by 256 per layer (R² 1.000), then drops ×0.0956 at layer 16"


def test_jump_through_zero_is_said_by_its_difference() -> None:
    growth = fit_growth(range(7), [-0.1, -0.1, -0.1, 0.7, 0.7, 0.7, 0.7])
    assert (growth.law, growth.rate) == ("jump", pytest.approx(0.8))
    assert growth.text == "flat (±0), then jumps by 0.8 at layer 3, then flat (±0)"
    assert growth.jump is not None
    assert math.isnan(growth.jump.factor)


def test_zero_at_the_embedding_belongs_to_a_root_and_is_a_jump_otherwise() -> None:
    root = fit_growth(range(9), [3.0 * l**0.5 for l in range(9)])
    assert (root.law, root.rate, root.jump) == ("root", pytest.approx(9.0), None)
    level = fit_growth(range(9), [0.0, *[3.0] * 8])
    assert (level.law, level.rate) == ("jump", math.inf)
    assert level.text == "jumps from 0 at layer 1, then flat (±< 0.1 %)"
    growing = fit_growth(range(9), [0.0, *[1.2**l for l in range(8)]])
    assert growing.text == "jumps from 0 at layer 1, then ×1.20 per layer (R² 1.000)"
    below = fit_growth(range(9), [0.0, *[-3.0] * 8])
    assert below.text == "drops from 0 at layer 1, then flat (±< 0.1 %)"


def test_what_two_laws_tell_equally_well_is_only_said_to_grow() -> None:
    """Over 6 layers and 20 % a line and an exponential differ by less than the noise of 1 %."""
    values = noisy(1.03 ** layers_to(6), percent=1, seed=2)
    growth = fit_growth(layers_to(6), values)
    assert growth.law == "undecided"
    assert growth.rate == pytest.approx(values[-1] / values[0])
    assert growth.text == f"grows ×{values[-1] / values[0]:.2f} from layer 0 to 6"


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_fewer_than_four_blocks_have_no_law(count: int) -> None:
    growth = fit_growth(np.arange(count + 1), np.arange(count + 1) ** 2.0)
    assert growth.law == "none"
    assert math.isnan(growth.rate)
    assert growth.text == "too few layers for a law"


def test_four_blocks_have_a_law() -> None:
    assert fit_growth([1, 2, 3, 4], [2, 4, 8, 16]).law == "exponential"


def test_four_blocks_behind_an_embedding_show_a_jump() -> None:
    growth = fit_growth(range(5), [0.32, 11.3, 11.2, 11.4, 11.3])
    assert growth.text == "jumps ×35.3 at layer 1, then flat (±0.9 %)"


def test_values_that_are_not_finite_are_left_out_and_told() -> None:
    values = LAYERS**0.5
    values[[3, 7]] = math.nan, math.inf
    growth = fit_growth(LAYERS, values)
    assert growth.law == "root"
    assert growth.rate == pytest.approx(1.0, abs=1e-9)
    assert growth.text == "grows in square by 1 per layer (R² 1.000); 2 layers not finite"


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
    assert growth.law in get_args(LawName)
    assert 0.0 <= growth.r2 <= 1.0
    assert growth.text
    assert len(growth.brief) <= 20


@given(st.floats(1e-300, 1e290))
def test_the_unit_of_the_values_does_not_matter(unit: float) -> None:
    power = fit_growth(LAYERS, unit * LAYERS**2.0)
    assert (power.law, power.rate) == ("power", pytest.approx(2.0, abs=1e-9))
    line = fit_growth(LAYERS, unit * (3.0 + LAYERS))
    assert (line.law, line.rate) == ("linear", pytest.approx(unit, rel=1e-6))


@given(st.floats(1e-140, 1e140))
def test_the_rate_of_a_root_has_the_square_of_the_unit(unit: float) -> None:
    growth = fit_growth(LAYERS, unit * (3.0 + LAYERS) ** 0.5)
    assert (growth.law, growth.rate) == ("root", pytest.approx(unit**2, rel=1e-6))


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
        (LAYERS**0.7, "grows as l^0.70 (R² 1.000)", "l^0.70"),
        (LAYERS**-1.5, "falls as l^-1.50 (R² 1.000)", "l^-1.50"),
        ((7 + 2.5 * LAYERS) ** 0.5, "grows in square by 2.5 per layer (R² 1.000)", "y² +2.5/layer"),
        (
            (99 - 2.5 * LAYERS) ** 0.5,
            "falls in square by 2.5 per layer (R² 1.000)",
            "y² -2.5/layer",
        ),
        ((LAYERS + 2.3) ** -0.5, "falls as 1/sqrt(l + 2.3) (R² 1.000)", "1/sqrt(l + 2.3)"),
        ((LAYERS - 0.5) ** -1.0, "falls as 1/(l - 0.5) (R² 1.000)", "1/(l - 0.5)"),
        (5.0 / LAYERS, "falls as 1/l (R² 1.000)", "1/l"),
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


def exponential_and_zigzag(r2: float) -> np.ndarray:
    """An exponential plus a zigzag that no law follows, mixed to the wanted R² of all values."""
    trend = LAYERS - LAYERS.mean()
    zigzag = np.where(LAYERS % 2 == 0, 1.0, -1.0)
    zigzag -= trend * (trend @ zigzag) / (trend @ trend)
    trend, zigzag = trend / np.linalg.norm(trend), zigzag / np.linalg.norm(zigzag)
    return np.exp(3.0 * (math.sqrt(r2) * trend + math.sqrt(1 - r2) * zigzag))


@pytest.mark.parametrize(("r2", "named"), [(0.89, False), (0.93, True)])
def test_law_is_named_from_ninety_percent_of_the_variance_on(r2: float, named: bool) -> None:
    growth = fit_growth(LAYERS, exponential_and_zigzag(r2))
    assert (growth.law != "none") == named
    # Without the value at one end less of the variance is explained, and that counts.
    assert growth.r2 == pytest.approx(r2, abs=0.01 if named else 0.03)


@pytest.mark.parametrize(("r2", "text"), [(0.36, ""), (0.40, " (best R² 0.33)")])
def test_three_tenths_of_the_variance_are_the_least_hint_at_a_law(r2: float, text: str) -> None:
    values = exponential_and_zigzag(r2)
    growth = fit_growth(LAYERS, values)
    # What a straight line through all logarithms explains of those without the first one.
    logs = np.log(values)
    line = np.polyval(np.polyfit(LAYERS, logs, 1), LAYERS)
    rest = slice(1, None)
    expected = 1 - np.sum((logs - line)[rest] ** 2) / np.sum((logs[rest] - logs[rest].mean()) ** 2)
    assert growth.r2 == pytest.approx(expected, abs=0.01)
    assert (growth.law, growth.text) == ("none", f"no simple law{text}")


@pytest.mark.parametrize(("at_zero", "jumps"), [(0.04, False), (0.065, True)])
@pytest.mark.parametrize("power", [1.0, 0.5])
def test_law_goes_through_zero_if_it_has_a_twentieth_of_layer_1_there(
    at_zero: float, jumps: bool, power: float
) -> None:
    """y^(1/p) = a + l, but 0 at the embedding: the law has a / (a + 1) of its layer 1 there."""
    assert (at_zero / (at_zero + 1) > 0.05) == jumps
    values = [0.0, *((at_zero + np.arange(1, 13)) ** power)]
    growth = fit_growth(range(13), values)
    assert growth.law == ROOTS[power]
    assert growth.rate == pytest.approx(1.0)
    assert (growth.jump is not None) == jumps


@pytest.mark.parametrize(("half_life", "law"), [(7.5, "saturating"), (8.5, "exponential")])
def test_three_half_lives_have_to_lie_in_the_layers_for_a_limit(half_life: float, law: str) -> None:
    assert (24 / half_life > 3) == (law == "saturating")
    values = 1.0 + 9.0 * 2.0 ** (-layers_to(24) / half_life)
    assert fit_growth(layers_to(24), values).law == law


@pytest.mark.parametrize(("ratio", "law"), [(4.5, "none"), (5.5, "jump")])
def test_jump_is_at_least_five_times_the_median_step(ratio: float, law: str) -> None:
    step = 0.1
    zigzag = step * np.where(LAYERS % 2 == 0, 0.5, -0.5)
    logs = zigzag + np.where(LAYERS > 12, (ratio + 1) * step, 0.0)
    steps = np.abs(np.diff(logs))
    assert steps.max() == pytest.approx(ratio * np.median(steps))
    assert fit_growth(LAYERS, np.exp(logs)).law == law


@pytest.mark.parametrize(("ratio", "law"), [(4.5, "none"), (5.5, "jump")])
def test_jump_is_at_least_five_times_what_the_two_levels_leave(ratio: float, law: str) -> None:
    """A slow wave around two levels: its steps are small, its distance from them is not."""
    layers = np.arange(48)
    wave = 0.15 * np.cos(2 * math.pi * (layers + 0.5) / 24)  # a sine would have a trend
    jump = ratio * math.sqrt(float(np.mean(wave**2)))
    logs = wave + np.where(layers >= 24, jump - (wave[24] - wave[23]), 0.0)
    steps = np.abs(np.diff(logs))
    assert steps.max() == pytest.approx(jump)
    assert jump > 10 * np.median(steps)
    assert fit_growth(layers, np.exp(logs)).law == law


@pytest.mark.parametrize(("size", "rank"), [(0.45, 3), (0.33, 4)])
def test_jump_is_one_of_the_three_largest_steps(size: float, rank: int) -> None:
    """A line that begins near zero has large steps in its logarithm, then it drops to a level."""
    layers = np.arange(40)
    values = np.where(layers <= 16, 0.1 + layers, 16.1 * math.exp(-size))
    steps = np.abs(np.diff(np.log(values)))
    assert int(np.count_nonzero(steps >= steps[16])) == rank
    growth = fit_growth(layers, values)
    assert (growth.jump and growth.jump.layer) == (17 if rank == 3 else None)


def test_a_value_that_leaps_over_three_hundred_orders_of_magnitude_is_no_line() -> None:
    growth = fit_growth(range(6), [0.0, 1.0, 1.0, 1.0, 1.0, 6e307])
    assert growth.law != "linear"
    steady = fit_growth(range(6), [1.0, 1e-60, 1e-120, 1e-180, 1e-240, 1e-300])
    assert steady.law == "exponential"
    assert steady.rate == pytest.approx(1e-60, rel=1e-6)
