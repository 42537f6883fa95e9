"""The Jacobians of norms, against autograd of torch in float64, finite differences and the SVD."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from leadline.errors import InputError
from leadline.theory.norm_jacobian import (
    NormKind,
    layer_norm_jacobian,
    norm_jacobian_of_stream,
    norm_singular_bounds,
    norm_singular_values,
    normed,
    rms_norm_jacobian,
)

WIDTH = 12
KINDS: tuple[NormKind, ...] = ("layernorm", "rmsnorm")
EPSES = (0.0, 1e-5, 0.3)


def token(seed: int = 0, *, std: float = 1.0, width: int = WIDTH) -> np.ndarray:
    return 0.7 + std * np.random.default_rng(seed).normal(size=width)


def gammas(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=WIDTH)


def torch_norm(x: torch.Tensor, norm: NormKind, gamma: np.ndarray | None, eps: float):
    weight = None if gamma is None else torch.from_numpy(gamma)
    if norm == "layernorm":
        return functional.layer_norm(x, x.shape, weight, eps=eps)
    return functional.rms_norm(x, x.shape, weight, eps=eps)


def ours(x: np.ndarray, norm: NormKind, gamma: np.ndarray | None, eps: float) -> np.ndarray:
    found = layer_norm_jacobian if norm == "layernorm" else rms_norm_jacobian
    return found(x, gamma=gamma, eps=eps)


@pytest.mark.parametrize("norm", KINDS)
@pytest.mark.parametrize("eps", EPSES)
@pytest.mark.parametrize("scaled", [False, True])
def test_the_jacobian_is_that_of_autograd(norm: NormKind, eps: float, scaled: bool) -> None:
    x, gamma = token(), gammas() if scaled else None
    known = torch.autograd.functional.jacobian(
        lambda v: torch_norm(v, norm, gamma, eps), torch.from_numpy(x)
    )
    assert isinstance(known, torch.Tensor)
    np.testing.assert_allclose(ours(x, norm, gamma, eps), known.numpy(), rtol=0, atol=1e-13)


@pytest.mark.parametrize("norm", KINDS)
@pytest.mark.parametrize("eps", EPSES)
def test_the_jacobian_is_that_of_finite_differences(norm: NormKind, eps: float) -> None:
    x, gamma, step = token(3), gammas(), 1e-6
    columns = []
    for at in range(WIDTH):
        ends = []
        for sign in (1.0, -1.0):
            moved = x.copy()
            moved[at] += sign * step
            ends.append(gamma * normed(moved, norm=norm, eps=eps)[0])
        columns.append((ends[0] - ends[1]) / (2 * step))
    np.testing.assert_allclose(ours(x, norm, gamma, eps), np.stack(columns, 1), atol=1e-8)


@pytest.mark.parametrize("norm", KINDS)
@pytest.mark.parametrize("eps", EPSES)
@pytest.mark.parametrize("gamma", [1.0, -2.5])
def test_the_singular_values_are_those_of_the_matrix(
    norm: NormKind, eps: float, gamma: float
) -> None:
    x = token(5)
    known = np.linalg.svd(ours(x, norm, np.full(WIDTH, gamma), eps), compute_uv=False)
    found = norm_singular_values(x, norm=norm, gamma=gamma, eps=eps)
    assert len(found) == WIDTH
    np.testing.assert_allclose(found, known, atol=1e-14)


def test_the_mean_of_a_token_does_not_reach_the_output_of_layernorm() -> None:
    # The zero singular value along 1 is there with any eps.
    for eps in EPSES:
        jacobian = layer_norm_jacobian(token(), eps=eps)
        np.testing.assert_allclose(jacobian @ np.ones(WIDTH), 0.0, atol=1e-14)
        assert norm_singular_values(token(), norm="layernorm", eps=eps)[-1] == 0.0


@pytest.mark.parametrize("norm", KINDS)
def test_without_eps_the_size_of_a_token_does_not_reach_the_output(norm: NormKind) -> None:
    along, _ = normed(token(), norm=norm, eps=0.0)
    np.testing.assert_allclose(ours(token(), norm, None, 0.0) @ along, 0.0, atol=1e-14)
    lost = 2 if norm == "layernorm" else 1
    values = norm_singular_values(token(), norm=norm, eps=0.0)
    assert np.count_nonzero(values == 0.0) == lost


@pytest.mark.parametrize("norm", KINDS)
def test_with_eps_the_size_reaches_the_output_as_eps_over_s_cubed(norm: NormKind) -> None:
    x, eps = token(), 0.3
    along, s = normed(x, norm=norm, eps=eps)
    np.testing.assert_allclose(ours(x, norm, None, eps) @ along, eps / s**3 * along, atol=1e-14)
    assert norm_singular_values(x, norm=norm, eps=eps)[WIDTH - (2 if norm == "layernorm" else 1)] \
        == pytest.approx(eps / s**3)  # fmt: skip


@pytest.mark.parametrize(("std", "expected"), [(0.1, 9.995), (1.0, 1.0), (10.0, 0.1)])
def test_the_norm_of_the_jacobian_is_one_over_the_spread_of_the_token(
    std: float, expected: float
) -> None:
    # A token whose variance is std² exactly; eps = 1e-5 takes 9.995 from 10.
    x = np.tile([std, -std], 32)
    largest = np.linalg.norm(layer_norm_jacobian(x), 2)
    assert largest == pytest.approx(1.0 / math.sqrt(std**2 + 1e-5))
    assert largest == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("norm", KINDS)
def test_the_output_lies_on_the_sphere_of_radius_root_d(norm: NormKind) -> None:
    for width in (4, 64):
        out, _ = normed(token(width=width), norm=norm, eps=0.0)
        assert np.linalg.norm(out) == pytest.approx(math.sqrt(width))
        with_eps, s = normed(token(width=width), norm=norm, eps=0.3)
        assert np.linalg.norm(with_eps) == pytest.approx(math.sqrt(width * (s**2 - 0.3)) / s)


@pytest.mark.parametrize("norm", KINDS)
@pytest.mark.parametrize("eps", EPSES)
def test_singular_values_of_any_gamma_lie_between_its_ends(norm: NormKind, eps: float) -> None:
    for seed in range(20):
        x, gamma = token(seed), gammas(seed + 100)
        known = np.linalg.svd(ours(x, norm, gamma, eps), compute_uv=False)
        low, high = norm_singular_bounds(x, norm=norm, gamma=gamma, eps=eps)
        assert (known >= low - 1e-13).all()
        assert (known <= high + 1e-13).all()
        # The ends are min and max of |gamma| over s, for all that the norm does not take out.
        _, s = normed(x, norm=norm, eps=eps)
        assert low[0] == pytest.approx(np.abs(gamma).min() / s)
        assert high[0] == pytest.approx(np.abs(gamma).max() / s)


def test_both_ends_are_attained_by_a_constant_gamma() -> None:
    low, high = norm_singular_bounds(token(), norm="layernorm", gamma=np.full(WIDTH, -3.0))
    np.testing.assert_array_equal(low, high)


def test_equal_features_without_eps_have_no_derivative() -> None:
    assert not np.isfinite(layer_norm_jacobian(np.ones(4), eps=0.0)).any()


@pytest.mark.parametrize("x", [np.ones((2, 3)), np.ones(1), 3.0])
def test_what_is_not_one_token_is_refused(x: object) -> None:
    with pytest.raises(InputError, match="one token"):
        layer_norm_jacobian(x)  # type: ignore[arg-type]


def test_a_gamma_of_another_width_is_refused() -> None:
    with pytest.raises(InputError, match="12 features"):
        rms_norm_jacobian(token(), gamma=np.ones(3))


@pytest.mark.parametrize("norm", KINDS)
def test_a_norm_does_not_mix_tokens(norm: NormKind) -> None:
    x = torch.from_numpy(np.stack([token(0), token(1), token(2)]))
    gamma = torch.from_numpy(gammas())

    def whole(v: torch.Tensor) -> torch.Tensor:
        if norm == "layernorm":
            return functional.layer_norm(v, (WIDTH,), gamma, eps=0.1)
        return functional.rms_norm(v, (WIDTH,), gamma, eps=0.1)

    known = torch.autograd.functional.jacobian(whole, x)
    assert isinstance(known, torch.Tensor)
    found = norm_jacobian_of_stream(x.numpy(), norm=norm, gamma=gamma.numpy(), eps=0.1)
    np.testing.assert_allclose(found, known.reshape(3 * WIDTH, 3 * WIDTH).numpy(), atol=1e-13)


def test_one_token_is_no_stream() -> None:
    with pytest.raises(InputError, match="token, width"):
        norm_jacobian_of_stream(token(), norm="layernorm")
