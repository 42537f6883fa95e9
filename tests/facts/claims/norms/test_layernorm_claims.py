"""What the notes say about LayerNorm itself: verdicts, numbers by another route, and mutations."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from leadline.claims.measure.layernorm import GAIN_OF_PICTURE, PLANE_OF_PICTURE, draw_sphere
from leadline.experiments.outcome import exponent
from leadline.parts.norms.layernorm import LayerNorm
from leadline.theory import norm_jacobian
from tests.claims_ruled import ruled

VERDICTS = {
    "attention-sees-directions": ("holds under conditions", "holds"),
    "block-diagram": ("holds under conditions", "holds"),
    "dot-products-after-layernorm": ("false as stated", "holds"),
    "gpt3-layers": ("holds", None),
    "gpt4-layers": ("not checkable here", None),
    "layernorm-batch-free": ("holds", None),
    "layernorm-by-token": ("holds under conditions", "holds"),
    "layernorm-epsilon": ("holds under conditions", "holds"),
    "layernorm-feature-wise": ("false as stated", "holds"),
    "layernorm-jacobian-below-one": ("false as stated", "holds"),
    "layernorm-jacobian-eigenvalues": ("false as stated", "holds"),
    "layernorm-jacobian-is-centring": ("false as stated", "holds"),
    "layernorm-jacobian-whole-vector": ("holds", None),
    "layernorm-sphere": ("false as stated", "holds"),
    "layernorm-zero-mean-space": ("holds under conditions", "holds"),
    "mean-removal-is-radial": ("false as stated", "holds"),
    "norm-factors-shrink": ("false as stated", "holds"),
    "pre-norm-eigenvalues-near-one": ("holds under conditions", "holds"),
    "shift-in-the-jacobian": ("false as stated", "holds"),
}


@pytest.mark.parametrize("name", sorted(set(VERDICTS) - {"gpt4-layers"}))
def test_the_numbers_rule(name: str) -> None:
    found = ruled(name, seeds=(0, 1, 2))
    assert (found.verdict, found.correction) == VERDICTS[name]


def test_nothing_can_be_measured_of_gpt4() -> None:
    from leadline.claims import CLAIMS

    entry = CLAIMS.get("gpt4-layers")
    assert entry.measure is None and not entry.claim.checkable


def test_the_sphere_has_the_root_of_the_width_for_its_radius() -> None:
    numbers = ruled("layernorm-sphere", seeds=(0,)).numbers
    assert numbers is not None
    assert numbers["radius"][0] == pytest.approx(8.0, rel=1e-12)
    assert numbers["radius_large"][0] == pytest.approx(math.sqrt(768.0), rel=1e-12)


def test_the_drawn_circle_has_radius_sqrt_three_and_the_gain_makes_the_ellipse_of_numpy() -> None:
    lines = draw_sphere().lines
    circle = np.array(lines["LayerNorm without gain"])
    assert np.hypot(*circle) == pytest.approx(math.sqrt(3.0), rel=1e-12)
    # Back from the plane to three features, the gain, and to the plane again.
    axes = PLANE_OF_PICTURE / np.linalg.norm(PLANE_OF_PICTURE, axis=1, keepdims=True)
    ellipse = axes @ (GAIN_OF_PICTURE[:, None] * (axes.T @ circle))
    assert np.array(lines["with gain"]) == pytest.approx(ellipse, abs=1e-12)
    assert np.hypot(*np.array(lines["unit circle the note names"])) == pytest.approx(1.0)


def test_the_norm_of_the_jacobian_is_one_over_the_standard_deviation() -> None:
    numbers = ruled("layernorm-jacobian-below-one", seeds=(0,)).numbers
    assert numbers is not None
    assert numbers["norm_tenth"][0] == pytest.approx(1.0 / math.sqrt(0.01 + 1e-5), rel=1e-9)
    assert numbers["norm_embedding"][0] == pytest.approx(1.0 / math.sqrt(4e-4 + 1e-5), rel=1e-9)


def test_epsilon_decides_at_a_standard_deviation_of_a_thousandth() -> None:
    numbers = ruled("layernorm-epsilon", seeds=(0,)).numbers
    assert numbers is not None
    note, used = 1e-3 / (1e-3 + 1e-5), 1e-3 / math.sqrt(1e-6 + 1e-5)
    assert numbers["small"][0] == pytest.approx(note / used - 1.0, rel=1e-6)
    assert numbers["unit"][0] == pytest.approx(0.5e-5, rel=1e-3)


def test_gpt3_has_96_blocks_by_the_formula_of_its_parameters() -> None:
    numbers = ruled("gpt3-layers").numbers
    assert numbers is not None
    width = 12288
    assert numbers["block"][0] == 12 * width**2 + 13 * width
    rest = (50257 + 2048) * width + 2 * width
    assert numbers["layers"][0] == pytest.approx((175e9 - rest) / (12 * width**2 + 13 * width))


# --- mutations: a wrong formula is noticed --------------------------------------------------


def test_a_jacobian_without_the_direction_of_the_token_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mutant(x: object, *, gamma: object = None, eps: float = 1e-5) -> object:
        token, s = norm_jacobian.normed(x, norm="layernorm", eps=eps)  # type: ignore[arg-type]
        kept = (np.eye(len(token)) - 1.0 / len(token)) / s
        return kept if gamma is None else np.asarray(gamma)[:, None] * kept

    monkeypatch.setattr(norm_jacobian, "layer_norm_jacobian", mutant)
    assert ruled("layernorm-jacobian-is-centring", seeds=(0,)).correction == "fails"


def test_one_lost_direction_too_few_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(norm_jacobian._LOST, "layernorm", 1)
    with pytest.raises(ValueError, match="shapes"):
        ruled("layernorm-jacobian-eigenvalues", seeds=(0,))


def test_a_forgotten_eps_in_the_singular_values_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = norm_jacobian.norm_singular_values

    def mutant(x: object, *, norm: object, gamma: float = 1.0, eps: float = 1e-5) -> object:
        return real(x, norm=norm, gamma=gamma, eps=0.0)  # type: ignore[arg-type]

    monkeypatch.setattr(norm_jacobian, "norm_singular_values", mutant)
    assert ruled("layernorm-jacobian-below-one", seeds=(0,)).correction == "fails"
    assert ruled("layernorm-jacobian-eigenvalues", seeds=(0,)).correction == "fails"


@pytest.mark.parametrize("end", [0, 1])
def test_bounds_that_are_ten_times_too_loose_are_noticed(
    end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = norm_jacobian.norm_singular_bounds

    def mutant(x: object, *, norm: object, gamma: object, eps: float = 1e-5) -> object:
        ends = list(real(x, norm=norm, gamma=gamma, eps=eps))  # type: ignore[arg-type]
        ends[end] = ends[end] * (0.1, 10.0)[end]
        return tuple(ends)

    monkeypatch.setattr(norm_jacobian, "norm_singular_bounds", mutant)
    assert ruled("layernorm-jacobian-below-one", seeds=(0,)).correction == "fails"


def test_too_small_an_exponent_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = exponent.fit_exponent

    def mutant(depths: object, values: object) -> object:
        found = real(depths, values)  # type: ignore[arg-type]
        return replace(found, slope=found.slope / 1.7)

    monkeypatch.setattr(exponent, "fit_exponent", mutant)
    assert ruled("dot-products-after-layernorm", seeds=(0, 1, 2)).correction == "fails"


def test_the_theory_of_the_norm_with_the_note_s_epsilon_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mutant(x: np.ndarray, *, norm: str, eps: float) -> tuple[np.ndarray, float]:
        centred = x - x.mean() if norm == "layernorm" else x
        s = math.sqrt(float(np.mean(centred**2))) + eps
        return centred / s, s

    monkeypatch.setattr(norm_jacobian, "normed", mutant)
    assert ruled("layernorm-epsilon", seeds=(0,)).correction == "fails"
    assert ruled("layernorm-by-token", seeds=(0,)).correction == "fails"


def test_a_layernorm_that_divides_by_the_width_minus_one_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mutant(self: LayerNorm, x: Tensor) -> Tensor:
        s = (x.var(-1, keepdim=True, correction=1) + self.eps).sqrt()
        return self.weight * (x - x.mean(-1, keepdim=True)) / s + self.bias

    monkeypatch.setattr(LayerNorm, "forward", mutant)
    assert ruled("layernorm-sphere", seeds=(0,)).correction == "fails"
    assert ruled("layernorm-by-token", seeds=(0,)).correction == "fails"


def test_a_layernorm_that_keeps_the_mean_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def mutant(self: LayerNorm, x: Tensor) -> Tensor:
        return torch.nn.functional.rms_norm(x, x.shape[-1:], self.weight, self.eps) + self.bias

    monkeypatch.setattr(LayerNorm, "forward", mutant)
    assert ruled("layernorm-zero-mean-space", seeds=(0,)).correction == "fails"
    assert ruled("attention-sees-directions", seeds=(0,)).correction == "fails"
    assert ruled("layernorm-feature-wise", seeds=(0,)).correction == "fails"
