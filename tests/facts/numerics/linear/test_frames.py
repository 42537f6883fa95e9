"""Directions carried through depth."""

from __future__ import annotations

import math

import pytest
import torch

from leadline.numerics.linear.frames import DEPENDENT, Frame, orthonormal
from leadline.numerics.linear.linear_maps import Chain, Dense, dense


def _layers(count: int, *, size: int = 12, examples: int = 2, gain: float = 0.4) -> list[Dense]:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(count, examples, size, size, generator=generator, dtype=torch.float64)
    return [Dense(torch.eye(size).double() + gain * one / size**0.5, tokens=3) for one in noise]


def _carried(layers: list[Dense], k: int, *, adjoint: bool = False, seed: int = 0) -> Frame:
    frame = Frame.random(layers[0].shape, k, dtype=torch.float64, seed=seed)
    for one in reversed(layers) if adjoint else layers:
        frame = frame.through(one, adjoint=adjoint)
    return frame


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("apart", [1.0, 1e-3, 1e-7])
def test_vectors_become_orthonormal_and_come_back(dtype: torch.dtype, apart: float) -> None:
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(4, 2, 5, 8, generator=generator, dtype=torch.float64)
    start[1] = start[0] + apart * start[1]
    q, r = orthonormal(start.to(dtype))
    rows = q.flatten(2).transpose(0, 1).double()
    unit = torch.eye(4, dtype=torch.float64).expand(2, 4, 4)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(rows @ rows.mT, unit, rtol=0, atol=8 * eps)
    again = torch.einsum("eij,iers->jers", r, q.double())
    torch.testing.assert_close(again, start.to(dtype).double(), rtol=0, atol=32 * eps)
    assert bool((r.diagonal(dim1=-2, dim2=-1) >= 0).all())
    assert float(torch.tril(r, -1).abs().max()) < 1e-12


def test_dependent_vectors_are_not_left_to_cholesky() -> None:
    """The Gram matrix of unit vectors loses an angle below the root of rounding."""
    assert 1e3 * torch.finfo(torch.float64).eps ** 0.5 > DEPENDENT > 1e-2 * 2**-26
    x = torch.randn(1, 1, 3, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    q, r = orthonormal(torch.cat([x, x]))
    rows = q.flatten(2)[:, 0]
    torch.testing.assert_close(rows @ rows.mT, torch.eye(2).double())
    assert float(r[0, 1, 1]) < 1e-14 * float(r[0, 0, 0])


def test_zero_vectors_have_minus_infinity_for_a_logarithm() -> None:
    frame = Frame.random((1, 2, 3), 2, dtype=torch.float64, seed=0)
    gone = frame.through(Dense(torch.zeros(1, 6, 6).double(), tokens=2))
    assert bool((gone.growth == -math.inf).all())
    assert float(gone.log_frobenius) == -math.inf


def test_all_directions_together_grow_like_the_determinant() -> None:
    """With k = N the sum of all logarithms is log |det| of the product, exactly."""
    layers = _layers(6)
    found = _carried(layers, 12).total.sum(1)
    expected = torch.linalg.slogdet(dense(Chain(layers))).logabsdet
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("adjoint", [False, True])
def test_exponents_tend_to_the_logarithms_of_the_singular_values(adjoint: bool) -> None:
    layers = _layers(400, size=6, examples=1, gain=1.0)
    found = _carried(layers, 4, adjoint=adjoint).total[0] / 400
    frame = torch.eye(6, dtype=torch.float64)
    total = torch.zeros(6, dtype=torch.float64)
    # The independent route: subspace iteration on P'P, 3 times there and back.
    for sweep in range(3):
        total.zero_()
        for one in layers:
            frame, r = torch.linalg.qr(one.matrices[0] @ frame)
            total += r.diagonal().abs().log()
        if sweep < 2:
            for one in reversed(layers):
                frame, _ = torch.linalg.qr(one.matrices[0].mT @ frame)
    torch.testing.assert_close(found, total[:4] / 400, rtol=0, atol=0.01)


def test_diagonal_maps_have_their_logarithms_as_exponents() -> None:
    size = torch.tensor([8.0, 4.0, 2.0, 0.5]).double()
    layers = [Dense(torch.diag(size).unsqueeze(0), tokens=2)] * 200
    found = _carried(layers, 4)
    torch.testing.assert_close(found.growth[0], size.log(), rtol=0, atol=1e-9)
    # Only the first layers, in which the directions turn, differ.
    torch.testing.assert_close(found.total[0] / 200, size.log(), rtol=0, atol=0.03)


def test_what_would_overflow_is_kept_as_a_logarithm() -> None:
    layers = [Dense(1e30 * torch.eye(6).double().unsqueeze(0), tokens=2)] * 40
    found = _carried(layers, 3)
    torch.testing.assert_close(found.total[0], torch.full((3,), 1200 * math.log(10)).double())
    assert float(found.log_frobenius) == pytest.approx(1200 * math.log(10), abs=2.0)


def test_the_norm_of_the_start_estimates_that_of_the_product() -> None:
    """Over many starts, the mean of |P u|^2 is |P|_F^2."""
    layers = _layers(5, examples=1)
    truth = float(torch.linalg.matrix_norm(dense(Chain(layers)))[0])
    squares = [
        float((2 * _carried(layers, 4, seed=seed).log_frobenius).exp()) for seed in range(400)
    ]
    mean = sum(squares) / len(squares)
    spread = torch.tensor(squares).std().item() / len(squares) ** 0.5
    assert mean == pytest.approx(truth**2, abs=4 * spread)
    assert spread < 0.03 * truth**2


def test_the_squares_are_those_of_the_start_directions() -> None:
    layers = _layers(5, examples=2)
    frame = _carried(layers, 3, seed=7)
    generator = torch.Generator().manual_seed(7)
    start = torch.randn(3, *layers[0].shape, generator=generator, dtype=torch.float64)
    expected = Chain(layers).forward(start).square().sum((2, 3)).T
    squares, level = frame.squares
    torch.testing.assert_close(squares * (2 * level).exp().unsqueeze(1), expected)
    torch.testing.assert_close(
        (2 * frame.log_frobenius).exp(), expected.mean(1), rtol=1e-12, atol=0
    )
