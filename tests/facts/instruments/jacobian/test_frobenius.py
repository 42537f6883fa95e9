"""Frobenius norms by random probes."""

from __future__ import annotations

import pytest
import torch

from leadline.errors import InputError
from leadline.instruments.jacobian.frobenius import TOGETHER, both_norms, frobenius
from leadline.numerics.linear.linear_maps import Dense


def _matrices(seed: int = 0, *, examples: int = 2, size: int = 64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(examples, size, size, generator=generator, dtype=torch.float64)
    return torch.eye(size, dtype=torch.float64) + 0.1 * noise


def test_a_diagonal_matrix_is_known_exactly() -> None:
    """|D u| is the same for all signs u."""
    given = Dense(torch.diag_embed(torch.tensor([[3.0, 4.0], [1.0, 2.0]])).double())
    found = frobenius(given, probes=3)
    torch.testing.assert_close(found.value, torch.tensor([5.0, 5.0**0.5]).double())
    torch.testing.assert_close(found.error, torch.zeros(2).double())


def test_the_identity_has_no_distance_to_itself() -> None:
    plain, apart = both_norms(Dense(torch.eye(9).double().unsqueeze(0)), probes=4)
    assert float(plain.value) == pytest.approx(3.0)
    assert (float(apart.value), float(apart.error)) == (0.0, 0.0)


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_the_error_is_that_of_many_repetitions(shift: float) -> None:
    """Over 200 seeds: mean right to its own error, spread equal to the stated standard error."""
    matrices = _matrices(examples=1)
    given = Dense(matrices)
    found = [frobenius(given, probes=16, seed=seed, shift=shift) for seed in range(200)]
    values = torch.cat([one.value for one in found])
    errors = torch.cat([one.error for one in found])
    truth = torch.linalg.matrix_norm(matrices - shift * torch.eye(64))[0]
    assert float(values.mean()) == pytest.approx(float(truth), abs=4 * float(values.std()) / 14.0)
    assert float(errors.mean()) == pytest.approx(float(values.std()), rel=0.15)


def test_both_norms_are_the_two_norms_of_the_same_probes() -> None:
    given = Dense(_matrices())
    plain, apart = both_norms(given, probes=11, seed=5)
    torch.testing.assert_close(plain.value, frobenius(given, probes=11, seed=5).value)
    torch.testing.assert_close(apart.value, frobenius(given, probes=11, seed=5, shift=1.0).value)


@pytest.mark.parametrize("probes", [TOGETHER - 1, TOGETHER, 2 * TOGETHER + 3])
def test_so_many_probes_are_used_as_were_asked_for(probes: int) -> None:
    seen: list[int] = []

    class Counted(Dense):
        def adjoint(self, u: torch.Tensor) -> torch.Tensor:
            seen.append(u.shape[0])
            assert set(u.flatten().tolist()) == {-1.0, 1.0}
            return super().adjoint(u)

    assert frobenius(Counted(_matrices()), probes=probes).probes == probes
    assert sum(seen) == probes


@pytest.mark.parametrize("probes", [1, 0, -2, 2.5, True])
def test_fewer_than_two_probes_have_no_error_and_are_refused(probes: object) -> None:
    with pytest.raises(InputError, match="whole number from 2 on"):
        frobenius(Dense(_matrices()), probes=probes)  # type: ignore[arg-type]
