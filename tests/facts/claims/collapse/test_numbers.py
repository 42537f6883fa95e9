"""Numbers of the claims on rank collapse, each by another route."""

from __future__ import annotations

import math

import numpy as np
import pytest

from leadline.claims import CLAIMS
from tests.claims_ruled import ruled


def numbers(name: str, seed: int = 0) -> dict[str, float]:
    found = ruled(name, seeds=(seed,)).numbers
    assert found is not None
    return {key: values[0] for key, values in found.items()}


def test_two_tokens_grow_as_the_scalar_map_says():
    a = 4.0
    for _ in range(40):
        a = 1.05 * a * math.tanh(0.3 * a * a)
    found = numbers("small-factor-suffices-for-collapse")
    assert found["grown"] == pytest.approx(a / 4.0, rel=1e-9)
    # gamma = sqrt(2)/2 for two tokens, beta = 0.3 * 1.05.
    assert found["factor"] == pytest.approx(4 * math.sqrt(0.5) * 0.3 * 1.05, rel=1e-12)


def test_a_residual_below_one_grows_as_the_scalar_map_says():
    a = 0.5
    for _ in range(20):
        a = 2.0 * a * math.tanh(10.0 * a * a)
    found = numbers("residual-below-one-suffices")
    assert found["grown"] == pytest.approx(a / 0.5, rel=1e-9)
    assert found["start"] == pytest.approx(math.sqrt(0.5))


def test_the_composite_measure_of_a_row_and_a_column_of_ones():
    found = numbers("composite-is-a-norm")
    assert found["sum"] == 101.0 and found["triangle"] == pytest.approx(101 / 20)


def test_four_tokens_measure_three_over_two_root_two_at_their_mean():
    found = numbers("mean-is-the-argmin")
    # At the mean 1/4: column sum 3/4 + 3/4, largest row 3/4; at 0 both are 1.
    assert found["composite"] == pytest.approx(math.sqrt(1.5 * 0.75), rel=1e-6)


def test_wide_queries_break_the_notes_hypothesis_by_the_width_over_its_constants():
    found = numbers("query-and-key-norms-suffice")
    # Near tokens reach sqrt(2)/8 of the published bound; the note's beta is 64 times too small.
    assert found["written"] == pytest.approx(64 * math.sqrt(2) / 8, rel=1e-3)
    assert found["right"] == pytest.approx(math.sqrt(2) / 8, rel=1e-3)


def test_the_gamma_that_is_needed_grows_like_the_root_of_the_tokens_over_their_logarithm():
    entry = CLAIMS.get("gamma-is-a-constant")
    picture = entry.run(0, {}).picture
    assert picture is not None
    tokens, needed = (np.array(axis) for axis in picture.lines["this family"])
    scale = np.sqrt(tokens) / (np.log(tokens) + 6.0)
    assert np.ptp(needed[4:] / scale[4:]) < 1e-3 * needed[-1]
    # By hand for ten tokens, with every entry of the pattern.
    own, common = math.log(10) + 6, math.log(10) + 3
    logits = np.zeros((10, 10))
    logits[:, 0] = common
    marked = [1, 3, 5, 7, 9]
    logits[marked, marked] = own
    weights = np.exp(logits)
    column = weights[:, 0] / weights.sum(1)
    apart = np.abs(column - column.mean())
    after = math.sqrt(apart.sum() * apart.max())
    assert needed[0] == pytest.approx(after / (4 * own * 1.8**3), rel=1e-12)


def test_the_causal_rate_is_one_half_and_the_ratio_of_logarithms_that_of_a_line():
    found = numbers("causal-attention-collapses-doubly")
    step = math.log10(0.5)
    assert found["ratio"] == pytest.approx(found["last"] / (found["last"] - step), rel=1e-3)


def test_gpt2_has_thirteen_twelfths_to_the_power_twelve_times_as_many_paths():
    found = numbers("many-more-paths-with-skip")
    assert found["gpt2"] == pytest.approx((13 / 12) ** 12) and found["one"] == 2**12
    short = sum(math.comb(12, l) * 12**l for l in range(4)) / 13**12
    assert found["short"] == pytest.approx(short)


def test_copying_an_outlier_raises_the_residual_by_five_thirds():
    # One of ten apart: 1 - 1/10 squared in all; five of ten apart: 10/4.
    found = numbers("attention-flattens-differences")
    assert found["copied"] == pytest.approx(math.sqrt(2.5 / 0.9), rel=1e-4)


def test_a_clipping_mlp_of_gain_two_holds_two_tokens_at_one():
    a = 0.9
    for _ in range(30):
        a = min(1.0, 2.0 * a * math.tanh(a * a))
    assert a == 1.0


def test_the_exponent_as_printed_is_too_small_by_one_and_a_half_for_two_layers():
    found = numbers("mlp-exponent-is-linear-in-depth")
    factor = 4 * math.sqrt(0.5) * 1e6 * 2.0
    gap = found["written"] - math.log10(found["right"])
    assert gap == pytest.approx(1.5 * math.log10(factor), rel=1e-9)


def made_up(**changes: list[float]) -> dict[str, dict[str, dict[str, list[float]]]]:
    """A figure in which float32 shows the truth: 13 sites that fall like a tower of cubes."""
    falling = [1.5, 0.3, -0.6, *(-4.0 * 3.0**site for site in range(10))]
    shown = [10.0 ** max(value, -300.0) for value in falling]
    level = [34.0 + 0.05 * site for site in range(13)]
    drawn = {"SAN only": shown, "MLP only": shown, "skip only": level, "skip + MLP": level}
    true = {name: [math.log10(v) for v in curve] for name, curve in drawn.items()}
    true |= {"SAN only": falling, "MLP only": falling}
    relative = {name: [v - 1.5 for v in curve] for name, curve in true.items()}
    return {"note-figure": {"drawn": drawn | changes, "true": true, "relative": relative}}


def outcome(name: str, figure: dict[str, dict[str, dict[str, list[float]]]], number: str) -> bool:
    entry = CLAIMS.get(name)
    (check,) = (one for one in entry.claim.checks if one.number == number)
    return check.allows(entry.run(0, figure).numbers[number])


def test_a_figure_without_a_floor_would_show_the_residual():
    assert outcome("figure-floor-is-the-residual", made_up(), "off")
    floored = made_up(**{"SAN only": [34.0, 2.0, 0.25, 1e-4, *[1.7e-6] * 9]})
    assert not outcome("figure-floor-is-the-residual", floored, "off")


def test_a_flat_curve_does_not_show_a_double_exponential():
    early = [10.0 ** (-4.0 * 3.0**site) for site in range(4)]
    deep = made_up(**{"SAN only": [34.0, 2.0, 0.25, 0.1, *early, *early[-1:] * 5]})
    assert not outcome("figure-shows-double-exponential", deep, "drawn")


def test_lines_that_lie_apart_would_not_coincide():
    assert outcome("figure-lines-coincide", made_up(), "share")
    apart = made_up(**{"skip + MLP": [35.0] * 13})
    assert not outcome("figure-lines-coincide", apart, "share")


def test_an_mlp_that_keeps_more_in_both_layers_would_be_slower():
    slower = made_up(**{"MLP only": [34.0, 3.0, 1.0, *[1e-3] * 10]})
    assert outcome("figure-mlp-is-slower", slower, "second")
    faster = made_up(**{"MLP only": [34.0, 3.0, 0.1, *[1e-3] * 10]})
    assert not outcome("figure-mlp-is-slower", faster, "second")
