"""The numbers of the moving pictures, by routes of their own."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from leadline.claims.page.play import ten
from leadline.claims.page.shapes import (
    PLANE,
    attention_ellipse,
    gained_axes,
    layer_norm,
    powers,
    tokens,
    view,
)

LOGITS = [(0.0, 0.0), (2.5, 1.0), (-6.0, 6.0), (6.0, 6.0), (3.0, -3.0), (0.1, -4.2)]


@pytest.mark.parametrize(("epsilon", "depth"), [(0.1, 50), (0.01, 200), (0.5, 1)])
def test_powers_are_logarithms_of_the_products(epsilon: float, depth: int) -> None:
    found = powers(epsilon, depth)
    for value, factor in zip(found, (1 + epsilon, 1 - epsilon, epsilon), strict=True):
        assert value == pytest.approx(float(mpmath.log10(mpmath.mpf(factor) ** depth)), rel=1e-12)


@pytest.mark.parametrize(("s", "t"), LOGITS)
def test_the_longest_semi_axis_is_the_farthest_point_of_the_image(s: float, t: float) -> None:
    found = attention_ellipse(s, t)
    around = np.linspace(0, 2 * math.pi, 100_001)
    image = found.matrix @ np.stack([np.cos(around), np.sin(around)])
    lengths = np.linalg.norm(image, axis=0)
    assert found.long == pytest.approx(lengths.max(), rel=1e-8)
    assert found.short == pytest.approx(lengths.min(), abs=1e-4)
    assert np.linalg.norm(found.after) == pytest.approx(found.long, rel=1e-12)
    assert 1 - 1e-12 <= found.long <= found.bound + 1e-12
    np.testing.assert_allclose(found.matrix.sum(axis=1), 1, rtol=1e-15)


@pytest.mark.parametrize("token", tokens().tolist())
def test_layer_norm_lands_on_a_circle_of_radius_root_three(token: list[float]) -> None:
    found = layer_norm(token)
    assert np.linalg.norm(found) == pytest.approx(math.sqrt(3), rel=1e-12)
    assert found.sum() == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(PLANE @ (PLANE.T @ found), found, atol=1e-12)


@pytest.mark.parametrize("gains", [(1.0, 1.0, 1.0), (1.6, 0.6, 1.0), (0.2, 2.0, 2.0)])
def test_gains_stretch_the_circle_to_these_semi_axes(gains: tuple[float, ...]) -> None:
    around = np.linspace(0, 2 * math.pi, 100_001)
    circle = math.sqrt(3) * np.stack([np.cos(around), np.sin(around)], axis=1) @ PLANE.T
    lengths = np.linalg.norm(circle * np.array(gains), axis=1)
    long, short = gained_axes(gains)
    assert (long, short) == pytest.approx((lengths.max(), lengths.min()), rel=1e-8)


def test_an_eye_far_away_shortens_nothing_that_stands_across() -> None:
    turn = 0.7
    across = np.array([[-math.sin(turn), math.cos(turn), 0.0]])
    np.testing.assert_allclose(view(across, turn), [[1.0, 0.0]], atol=1e-12)
    assert np.linalg.norm(view(np.eye(3), turn) ** 2).item() < 3


@pytest.mark.parametrize(
    ("logarithm", "shown"),
    [
        (0.0, "1"),
        (2.0696, "117"),
        (-50.0, "1.00\u202f×\u202f10<sup>−50</sup>"),
        (-400.0, "1.00\u202f×\u202f10<sup>−400</sup>"),
        (7.99999, "1.00\u202f×\u202f10<sup>8</sup>"),
        (4.2, "15849"),
    ],
)
def test_a_logarithm_is_shown_as_its_number(logarithm: float, shown: str) -> None:
    assert ten(logarithm) == shown
