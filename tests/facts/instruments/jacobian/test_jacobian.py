"""What jacobian and lyapunov return: numbers, words, JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from leadline.instruments.jacobian.result import Direction, Jacobian, Lyapunov
from leadline.record.words.numbers import sparkline


def direction():
    return Direction(
        value=np.array([3.0]),
        entry=np.array([[0.25, 0.75]]),
        exit=np.array([[0.9, 0.1]]),
        overlap=np.array([0.5]),
    )


def jacobian(**changes):
    fields = {
        "model": "toy",
        "stack": "decoder",
        "start": 2,
        "end": 3,
        "shape": (1, 2, 4),
        "values": np.array([[3.0, 2.0]]),
        "errors": np.array([[1e-6, 2e-6]]),
        "smallest": np.array([[0.5]]),
        "smallest_errors": np.array([[1e-3]]),
        "norm": np.array([1.25]),
        "norm_error": np.array([0.01]),
        "distance": np.array([0.75]),
        "distance_error": np.array([0.02]),
        "branch": np.array([3.5]),
        "branch_error": np.array([1e-6]),
        "leak": 0.0,
        "causal": True,
        "strongest": direction(),
        "probes": 32,
        "precision": "float32",
        "kernel": "the model's own",
        "remarks": ("A remark.",),
    }
    return Jacobian(**(fields | changes))


def test_one_block_is_bounded_by_one_plus_its_branch():
    found = jacobian()
    assert found.lipschitz == pytest.approx([4.5])
    assert found.looseness == pytest.approx([1.5])
    assert found.size == 8


def test_several_blocks_are_bounded_by_the_product_of_their_norms():
    found = jacobian(start=0, end=3, blocks=np.array([[2.0], [3.0], [4.0]]))
    assert found.lipschitz == pytest.approx([24.0])
    assert found.looseness == pytest.approx([8.0])
    assert "product of the blocks' sigma_1" in str(found)


def test_without_singular_values_there_is_no_looseness():
    none = np.zeros((1, 0))
    found = jacobian(values=none, errors=none, branch=np.array([np.nan]), strongest=None)
    assert np.isnan(found.looseness).all()
    text = str(found)
    assert "sigma_1" not in text and "|J - I|_F / sqrt N" in text
    assert found.to_json()["values"] == [[]] and found.to_json()["branch"] == [None]


def test_the_text_names_the_place_the_numbers_and_their_errors():
    text = str(jacobian())
    for part in (
        "Jacobian of toy: decoder layer 3",
        "1 example, 2 tokens, width 4, N = 8; float32; attention: the model's own",
        "no token is moved by a later one",
        "enters most at token 2 (75%) and leaves most at token 1 (90%), <u, v> = 0.500",
        "A remark.",
    ):
        assert part in text
    rows = {line[:20].strip(): line[20:].split() for line in text.splitlines()}
    assert rows["sigma_1"] == ["3", "1.0e-06"]
    assert rows["|J - I|_F / sqrt N"] == ["0.75", "2.0e-02"]
    assert rows["that over sigma_1"] == ["1.5"]


def path(value, **changes):
    fields = vars(direction()) | {"value": np.array([value])}
    return Direction(**(fields | changes))


def test_a_zero_jacobian_has_no_path():
    text = str(jacobian(strongest=path(0.0), weakest=path(0.0)))
    assert "Strongest path: none, the Jacobian is 0." in text
    assert "Weakest path: none, the Jacobian is 0." in text
    assert "%" not in text


def test_a_path_that_is_lost_does_not_leave():
    text = str(jacobian(weakest=path(0.0)))
    assert "Weakest path: enters most at token 2 (75%), and nothing of it leaves." in text
    assert "Strongest path: enters most at token 2 (75%) and leaves most at token 1 (90%)" in text


def test_the_title_says_which_write_or_which_sites():
    assert "layer 3, sublayer 2" in str(jacobian(sublayer=2))
    assert "from site 0 to site 3 (3 layers)" in str(jacobian(start=0))
    assert "tokens see later ones (leak 2.0e-01)" in str(jacobian(leak=0.2, causal=False))
    assert "Causality" not in str(jacobian(causal=None))


def test_several_examples_are_told_by_mean_and_range():
    two = {
        name: np.concatenate([value, 2 * value])
        for name, value in vars(jacobian()).items()
        if isinstance(value, np.ndarray)
    }
    text = str(jacobian(**two, shape=(2, 2, 4)))
    row = next(line.split() for line in text.splitlines() if line.startswith("sigma_1 "))
    assert row[1:] == ["4.5", "3", "6", "2.0e-06"]


def test_everything_goes_into_json_and_html():
    found = jacobian(left=np.zeros((2, 1, 2, 4)))
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert told["values"] == [[3.0, 2.0]] and told["looseness"] == [1.5]
    assert told["strongest"]["overlap"] == [0.5] and told["weakest"] is None
    assert "left" not in told
    assert "<table" in found._repr_html_() and "A remark." in found._repr_html_()


def lyapunov(**changes):
    fields = {
        "model": "toy",
        "stack": "decoder",
        "backward": True,
        "shape": (1, 2, 4),
        "exponents": np.array([[0.2, -0.1]]),
        "growth": np.array([[[0.1, -0.2]], [[0.3, 0.0]]]),
        "log10_norm": np.array([[0.5], [0.25], [0.0]]),
        "log10_norm_error": np.array([[0.01], [0.02], [0.03]]),
        "precision": "float32",
        "kernel": "the model's own",
    }
    return Lyapunov(**(fields | changes))


def test_exponents_are_told_with_the_factor_of_a_layer():
    text = str(lyapunov())
    row = next(line.split() for line in text.splitlines() if line.startswith("1   "))
    assert row[:3] == ["1", "0.20000", "1.22140"]  # exp(0.2)
    assert "decoder, 2 layers, from the last site to the first (J')" in text
    assert "|J|_F / sqrt N is 0.500 +- 0.010" in text


def test_directions_that_hardly_change_neither_grow_nor_fade():
    growth = np.full((12, 1, 1), 0.0064)
    found = lyapunov(exponents=np.array([[0.0064]]), growth=growth).to_json()["answer"]
    assert found == [
        "Gradients hardly change: on their way through all 12 layers the strongest direction is "
        "multiplied by 1.08, by 1.006 per layer in the geometric mean."  # exp(12 * 0.0064)
    ]


def test_a_layer_that_gives_nearly_all_of_the_growth_is_named():
    growth = np.log([30.0, 1.05, 1.0, 1.0])[:, None, None]
    found = lyapunov(exponents=growth.mean(0), growth=growth).to_json()["answer"][0]
    assert found.endswith("is multiplied by 31.5, nearly all of it in layer 1 (30).")
    even = lyapunov(exponents=np.array([[0.5]]), growth=np.full((4, 1, 1), 0.5))
    assert "Gradients grow: " in str(even) and "nearly all" not in str(even)


def test_the_growth_by_layer_stands_beside_the_exponent_that_it_sums_to():
    # The second column of the frame grows more, so that it is the first exponent.
    growth = np.array([[[0.0, 1.0]], [[0.0, 2.0]], [[0.0, 6.0]]])
    text = str(lyapunov(exponents=np.array([[3.0, 0.0]]), growth=growth))
    rows = {line[:1]: line.split() for line in text.splitlines() if line[:4] in ("1   ", "2   ")}
    assert rows["1"][-1] == sparkline([1.0, 2.0, 6.0], scale="linear")
    assert rows["2"][-1] == sparkline([0.0, 0.0, 0.0], scale="linear")


def test_a_product_that_is_zero_is_told_without_logarithms():
    dead, unknown = np.full((3, 1), -np.inf), np.full((3, 1), np.nan)
    text = str(lyapunov(log10_norm=dead, log10_norm_error=unknown))
    assert "Whole product: 0, no direction arrives." in text and "nan" not in text
    half = np.array([[0.5, -np.inf]] * 3)
    text = str(lyapunov(log10_norm=half, log10_norm_error=np.array([[0.01, np.nan]] * 3)))
    assert (
        "is 0.500 +- 0.010 (one standard error) in 1 of 2 examples; in the others it is 0." in text
    )


def test_one_direction_has_no_standard_error():
    text = str(lyapunov(log10_norm_error=np.full((3, 1), np.nan)))
    assert "|J|_F / sqrt N is 0.500." in text and "nan" not in text


def test_forward_the_whole_product_stands_at_the_last_site():
    text = str(lyapunov(backward=False))
    assert "from first to last (J)" in text and "is 0.000 +- 0.030" in text


def test_a_lyapunov_goes_into_json_and_html():
    found = lyapunov(remarks=("Said.",))
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert told["depth"] == 2 == found.depth and told["exponents"] == [[0.2, -0.1]]
    assert "<table" in found._repr_html_() and "Said." in found._repr_html_()
