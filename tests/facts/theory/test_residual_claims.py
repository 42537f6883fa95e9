"""What the notes say of residuals and gradients and is false: counterexample, then what is true."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import leadline
from leadline.theory.norm_jacobian import layer_norm_jacobian, norm_singular_values
from leadline.theory.residual_products import product_band

A = np.array([[0.0, 2.0], [0.0, 0.0]])
B = np.array([[0.0, 0.0], [2.0, 0.0]])


def norm(matrix: np.ndarray) -> float:
    return float(np.linalg.norm(matrix, 2))


# --- "eigenvalues below 1 make the product decay" ------------------------------------------------


def test_factors_whose_eigenvalues_are_all_zero_can_have_a_product_that_explodes() -> None:
    assert np.linalg.eigvals(A).tolist() == [0.0, 0.0]
    assert np.linalg.eigvals(B).tolist() == [0.0, 0.0]
    assert norm(np.linalg.matrix_power(A @ B, 20)) == 4.0**20  # 1.1e12
    assert pytest.approx(1.1e12, rel=0.01) == 4.0**20


def test_factors_whose_largest_singular_value_is_below_one_decay() -> None:
    rng = np.random.default_rng(0)
    product = np.eye(4)
    for layers in range(1, 41):
        factor = rng.normal(size=(4, 4))
        product = 0.9 * factor / norm(factor) @ product
        assert norm(product) <= 0.9**layers * (1 + 1e-12)


def test_factors_whose_smallest_singular_value_is_above_one_grow() -> None:
    rng = np.random.default_rng(0)
    product = np.eye(4)
    for layers in range(1, 21):
        factor = rng.normal(size=(4, 4))
        factor *= 1.1 / np.linalg.svd(factor, compute_uv=False)[-1]
        product = factor @ product
        assert np.linalg.svd(product, compute_uv=False)[-1] >= 1.1**layers * (1 - 1e-9)


# --- "the 1 always lets the gradient flow" -------------------------------------------------------


def test_a_branch_that_undoes_the_skip_leaves_no_gradient() -> None:
    x = torch.tensor([0.3, -2.0], requires_grad=True)
    y = x + (-x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert gradient.tolist() == [0.0, 0.0]


def test_the_gradient_survives_where_the_branch_is_smaller_than_the_identity() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        branch = rng.normal(size=(5, 5)) * rng.uniform(0, 0.6)
        smallest = np.linalg.svd(np.eye(5) + branch, compute_uv=False)[-1]
        assert smallest >= 1.0 - norm(branch) - 1e-12


# --- "the identity path survives even if the branch or its norm breaks" --------------------------


def test_a_branch_behind_a_norm_can_make_the_block_singular() -> None:
    # x + W N(x) with W = -s on one direction that the norm lets through: N' W' has eigenvalue -1.
    x = np.array([1.0, -1.0, 2.0, -2.0])
    jacobian = layer_norm_jacobian(x, eps=0.0)
    s = math.sqrt(float(np.var(x)))
    through = np.array([1.0, 1.0, -1.0, -1.0]) / 2
    through -= x * (through @ x) / (x @ x)
    through /= np.linalg.norm(through)
    np.testing.assert_allclose(jacobian @ through, through / s, atol=1e-15)
    weight = -s * np.outer(through, through)
    whole = np.eye(4) + weight @ jacobian
    np.testing.assert_allclose(whole @ through, 0.0, atol=1e-15)
    assert np.linalg.svd(whole, compute_uv=False)[-1] < 1e-15


def test_the_block_keeps_every_direction_where_branch_times_norm_is_below_one() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=6)
    jacobian = layer_norm_jacobian(x)
    weight = rng.normal(size=(6, 6))
    weight *= 0.8 / norm(weight @ jacobian)
    smallest = np.linalg.svd(np.eye(6) + weight @ jacobian, compute_uv=False)[-1]
    assert smallest >= 0.2 - 1e-12


# --- "the LayerNorm Jacobian is I - 11'/d, of norm at most 1" ------------------------------------


def test_the_layernorm_jacobian_is_not_the_centring_matrix() -> None:
    x = np.random.default_rng(3).normal(size=8)
    centring = np.eye(8) - 1.0 / 8
    assert norm(layer_norm_jacobian(x, eps=0.0) - centring) > 0.5
    # The centring matrix has one eigenvalue 0 and seven of exactly 1, none strictly between.
    np.testing.assert_allclose(np.linalg.eigvalsh(centring), [0.0] + [1.0] * 7, atol=1e-15)
    # The Jacobian has two zero singular values and six of 1/s.
    values = norm_singular_values(x, norm="layernorm", eps=0.0)
    assert values.tolist() == [1.0 / np.std(x)] * 6 + [0.0, 0.0]


@pytest.mark.parametrize(("std", "amplifies"), [(0.1, True), (10.0, False)])
def test_layernorm_amplifies_gradients_of_small_streams_and_shrinks_those_of_large_ones(
    std: float, amplifies: bool
) -> None:
    x = torch.tensor(np.tile([std, -std], 32), requires_grad=True)
    jacobian = torch.autograd.functional.jacobian(
        lambda v: torch.nn.functional.layer_norm(v, v.shape), x
    )
    assert isinstance(jacobian, torch.Tensor)
    largest = float(torch.linalg.matrix_norm(jacobian, 2))
    assert (largest > 1.0) is amplifies
    assert largest == pytest.approx(1.0 / math.sqrt(std**2 + 1e-5))


# --- "dL/dx = dL/d(x + F) = 1 + dL/dF F'" --------------------------------------------------------


def test_the_gradient_of_the_loss_multiplies_the_one_too() -> None:
    c, at = 3.0, 0.7
    x = torch.tensor(at, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(c * (x + torch.sin(x)), x)
    noted = 1.0 + c * math.cos(at)
    assert float(gradient) == pytest.approx(c * (1.0 + math.cos(at)))
    assert float(gradient) == pytest.approx(5.2945, abs=5e-5)
    assert noted == pytest.approx(3.2945, abs=5e-5)
    # The noted formula is right only where dL/dy = 1.
    assert 1.0 * (1.0 + math.cos(at)) == pytest.approx(1.0 + 1.0 * math.cos(at))


# --- "the residual keeps the variance" -----------------------------------------------------------


def test_a_variance_of_a_sum_has_three_terms() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=100_000)
    branch = 0.5 * x + rng.normal(size=x.size)
    cov = float(np.mean(x * branch) - x.mean() * branch.mean())
    assert np.var(x + branch) == pytest.approx(np.var(x) + np.var(branch) + 2 * cov)
    assert np.var(x + branch) > 3 * np.var(x)


def test_the_stream_of_a_pre_norm_network_grows_with_every_block() -> None:
    model = leadline.Transformer(
        depth=12, width=64, heads=4, vocabulary=64, context=16, positions="none", mlp="relu",
        init="xavier",
    )  # fmt: skip
    inputs = leadline.random_tokens(model, examples=4, length=16, seed=0)
    variance = np.asarray(leadline.measure(model, inputs, probes="stream")["stream.variance"])
    assert (np.diff(variance) > 0).all()
    assert variance[-1] > 5 * variance[0]


# --- "small branches are enough for a product of order one" --------------------------------------


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_small_branches_multiply_to_anything_where_their_sum_is_not_bounded(sign: float) -> None:
    product = np.linalg.matrix_power(np.eye(3) * (1.0 + sign * 0.1), 96)
    grown = norm(product)
    assert grown == pytest.approx(9.4e3 if sign > 0 else 4.05e-5, rel=0.01)


def test_branches_whose_norms_sum_to_one_stay_between_bounds_of_order_one() -> None:
    rng = np.random.default_rng(5)
    for layers in (4, 96):
        product = np.eye(4)
        for _ in range(layers):
            branch = rng.normal(size=(4, 4))
            product = (np.eye(4) + branch / norm(branch) / layers) @ product
        values = np.linalg.svd(product, compute_uv=False)
        assert values[0] <= math.e
        assert values[-1] >= math.exp(product_band([1 / layers] * layers).log_lower)
        # (1 - 1/L)^L is at least (1 - 1/4)^4 from four layers on.
        assert product_band([1 / layers] * layers).log_lower >= 4 * math.log(0.75) - 1e-12
