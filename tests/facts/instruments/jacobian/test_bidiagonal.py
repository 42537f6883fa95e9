"""Singular values of maps known by their products."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from leadline.errors import InputError, ProbeError
from leadline.instruments.jacobian import bidiagonal
from leadline.instruments.jacobian.bidiagonal import (
    FAINTEST,
    MOST,
    OUT,
    ROOM,
    ROUNDING,
    SMALL_ENOUGH,
    SPARE,
    Singular,
    largest,
    smallest,
)
from leadline.numerics.linear.linear_maps import Dense, Shifted


def _noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def _kinds() -> dict[str, Tensor]:
    one = torch.eye(160).double()
    return {
        "identity": one.unsqueeze(0),
        "near the identity": one + 1e-4 * _noise(2, 160, 160),
        "identity and noise": one + 0.3 * _noise(3, 160, 160) / 160**0.5,
        "noise": _noise(2, 160, 160) / 160**0.5,
        "a projection": (one - torch.ones(160, 160) / 160).unsqueeze(0),
        "a permutation": one[torch.randperm(160, generator=torch.Generator().manual_seed(3))][None],
        "rank two": _noise(1, 160, 2) @ _noise(1, 2, 160, seed=1),
        "falling fast": torch.diag(10.0 ** (-torch.arange(160.0) / 4)).double().unsqueeze(0),
        "one far above": (one + 50.0 * _noise(160, 1) @ _noise(1, 160, seed=2) / 160).unsqueeze(0),
        "four times the same": torch.diag(
            torch.tensor([3.0] * 4 + [1.0] * 156, dtype=torch.float64)
        ).unsqueeze(0),
        "large": 1e12 * _noise(1, 160, 160),
        "small": 1e-12 * _noise(1, 160, 160),
        "causal": torch.tril(_noise(2, 160, 160)) / 160**0.5,
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", _kinds())
@pytest.mark.parametrize("k", [1, 4])
def test_the_largest_values_are_those_of_the_matrix(kind: str, k: int, dtype: torch.dtype) -> None:
    matrices = _kinds()[kind].to(dtype)
    found = largest(Dense(matrices), k, tolerance=1e-6)
    truth = torch.linalg.svdvals(matrices.double())
    miss = (found.values - truth[:, :k]).abs()
    assert bool(found.converged.all())
    # Relative to the value, or where it is far below the largest, to rounding of that.
    floor = ROUNDING * torch.finfo(dtype).eps * truth[:, :1]
    assert bool((miss <= torch.maximum(1e-6 * truth[:, :k], 4 * floor)).all())
    own = 64 * torch.finfo(torch.float64).eps * truth[:, :1]  # what the reference itself may miss
    assert bool((miss <= found.errors + own).all())


@pytest.mark.parametrize("kind", ["identity and noise", "noise", "causal", "one far above"])
def test_the_error_estimate_lies_above_the_error_at_every_tolerance(kind: str) -> None:
    matrices = _kinds()[kind]
    truth = torch.linalg.svdvals(matrices)[:, :4]
    for tolerance in (1e-1, 1e-2, 1e-3, 1e-5):
        for seed in range(5):
            found = largest(Dense(matrices), 4, tolerance=tolerance, seed=seed)
            assert bool(((found.values - truth).abs() <= found.errors).all())
            assert bool((found.errors <= 1.01 * tolerance * found.values).all())


def test_a_tighter_tolerance_costs_more_products() -> None:
    given = Dense(_kinds()["noise"])
    counts = [largest(given, 4, tolerance=t).products for t in (1e-1, 1e-3, 1e-6)]
    assert counts == sorted(set(counts))


def test_a_block_has_as_many_directions_as_values_are_wanted() -> None:
    """On a few values far above the others one step more than the last of them needs is enough."""
    apart = torch.diag(torch.cat([torch.tensor([5.0] * 4), torch.ones(156)])).double().unsqueeze(0)
    assert largest(Dense(apart), 4).products == 2 * 2 * 4
    assert largest(Dense(apart), 4, block=7).products == 2 * 2 * 7
    assert SPARE == 2  # of the smallest values alone


def test_wider_blocks_cost_more_products() -> None:
    """Why the largest values have no spare directions."""
    given = Dense(_kinds()["noise"])
    counts = [largest(given, 4, tolerance=1e-5, block=block).products for block in (4, 5, 6, 8)]
    assert counts[0] < counts[2] < counts[3] and counts[0] <= counts[1]


def test_equal_values_are_not_taken_for_one() -> None:
    """As many copies as values are wanted, in a crowd; a block of one would see one of each."""
    sizes = torch.cat([torch.full((4,), 2.0), torch.linspace(0.1, 1.9, 156)]).double()
    turn = torch.linalg.qr(_noise(160, 160)).Q
    matrices = (turn * sizes @ turn.mT).unsqueeze(0)
    for seed in range(5):
        found = largest(Dense(matrices), 4, tolerance=1e-5, seed=seed)
        torch.testing.assert_close(
            found.values, torch.full((1, 4), 2.0).double(), rtol=1e-5, atol=0
        )


def test_bases_that_outgrow_their_room_stay_what_they_are() -> None:
    assert ROOM == 32
    matrices = _noise(2, 160, 160)
    found = largest(Dense(matrices), 4, tolerance=1e-12)
    assert found.products > 2 * 2 * ROOM
    _check_vectors(matrices, found, atol=1e-5)  # the root of the values' tolerance


def _check_vectors(matrices: Tensor, found: Singular, atol: float) -> None:
    left, right = found.left.flatten(2).double(), found.right.flatten(2).double()
    values = found.values.T.unsqueeze(2)
    forward = torch.einsum("eij,kej->kei", matrices, right)
    torch.testing.assert_close(forward, values * left, rtol=0, atol=atol)
    back = torch.einsum("eij,kei->kej", matrices, left)
    torch.testing.assert_close(back, values * right, rtol=0, atol=atol)
    unit = torch.eye(left.shape[0]).double().expand(left.shape[1], -1, -1)
    torch.testing.assert_close(torch.einsum("aen,ben->eab", left, left), unit, rtol=0, atol=1e-6)
    torch.testing.assert_close(torch.einsum("aen,ben->eab", right, right), unit, rtol=0, atol=1e-6)


def test_the_vectors_belong_to_the_values() -> None:
    matrices = _kinds()["identity and noise"]
    found = largest(Dense(matrices, tokens=4), 3, tolerance=1e-12)
    assert found.left.shape == (3, 3, 4, 40)
    _check_vectors(matrices, found, atol=1e-4)
    _check_vectors(matrices, smallest(Dense(matrices, tokens=4), 2), atol=1e-10)


def test_all_values_of_a_small_matrix_come_out() -> None:
    matrices = _noise(2, 9, 9)
    found = largest(Dense(matrices), 9)
    torch.testing.assert_close(found.values, torch.linalg.svdvals(matrices))


def test_the_search_ends_at_the_most_directions_and_says_so() -> None:
    found = largest(Dense(_kinds()["noise"]), 4, tolerance=1e-9, most=24)
    assert found.products == 48
    assert not bool(found.converged.any())
    truth = torch.linalg.svdvals(_kinds()["noise"])[:, :4]
    assert bool(((found.values - truth).abs() <= found.errors).all())


def test_without_a_limit_the_search_ends_after_512_directions() -> None:
    """The upper end of these values is so crowded that 128 steps do not part them."""
    assert MOST == 512
    crowded = torch.cos(torch.arange(1200.0).double() / 1200)
    found = largest(Dense(torch.diag(crowded).unsqueeze(0)), 4, tolerance=1e-12)
    assert found.products == 2 * (MOST // 4) * 4
    assert not bool(found.converged)


def test_what_is_no_direction_is_not_kept() -> None:
    """A map of rank two has no third direction: rounding must not be taken for one."""
    assert FAINTEST == 1.0
    matrices = _kinds()["rank two"].float()
    found = largest(Dense(matrices), 4)
    assert bool((found.values[:, 2:] <= found.errors[:, 2:]).all())


@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize("kind", ["identity", "identity and noise", "noise", "a projection"])
def test_the_smallest_values_are_those_of_the_matrix(
    kind: str, made: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not made:
        monkeypatch.setattr(bidiagonal, "SMALL_ENOUGH", 0)
    matrices = _kinds()[kind]
    found = smallest(Dense(matrices), 3, tolerance=1e-6)
    truth = torch.linalg.svdvals(matrices)
    miss = found.values - truth.flip(1)[:, :3]
    assert bool(found.converged.all())
    assert bool((miss.abs() <= found.errors).all())
    assert bool((miss >= -1e-12).all())
    assert bool((found.errors <= 1.01e-6 * truth[:, :1]).all())


def test_small_matrices_are_made_and_large_ones_are_not() -> None:
    assert SMALL_ENOUGH == 1024
    small = smallest(Dense(torch.eye(32).double().unsqueeze(0)))
    assert small.products == 32
    large = smallest(Dense(torch.eye(SMALL_ENOUGH + 1).double().unsqueeze(0)))
    assert large.products == 2 * (1 + SPARE)


def test_a_smallest_value_that_was_not_reached_lies_above_the_truth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bidiagonal, "SMALL_ENOUGH", 0)
    matrices = _kinds()["noise"]
    found = smallest(Dense(matrices), 1, most=12)
    assert not bool(found.converged.any())
    assert bool((found.values[:, 0] > torch.linalg.svdvals(matrices)[:, -1]).all())


def test_every_product_is_told() -> None:
    told: list[int] = []
    found = largest(Dense(_kinds()["noise"]), 4, tell=told.append)
    assert told == list(range(4, found.products + 1, 4))


@pytest.mark.parametrize("k", [0, -1, 161, 1.0, True])
def test_a_wrong_number_of_values_is_refused(k: object) -> None:
    for search in (largest, smallest):
        with pytest.raises(InputError, match="has 1 to 160"):
            search(Dense(_kinds()["identity"]), k)  # type: ignore[arg-type]


def test_products_that_overflow_are_refused() -> None:
    with pytest.raises(ProbeError, match="leaves the range of float32"):
        largest(Dense(torch.full((1, 8, 8), 3e38)), 1)


@pytest.mark.parametrize("size", [7, 10, 13, 40])
def test_a_matrix_that_whole_blocks_do_not_fill_is_right(size: int) -> None:
    matrices = _noise(2, size, size)
    found = largest(Dense(matrices), 4, tolerance=1e-12)
    assert bool(found.converged.all())
    torch.testing.assert_close(found.values, torch.linalg.svdvals(matrices)[:, :4])
    _check_vectors(matrices, found, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("above", [1e-5, 1e-4, 1e-2])
def test_one_value_hidden_in_a_crowd_of_ones_is_not_missed(
    above: float, dtype: torch.dtype
) -> None:
    """A random start has a 600th of it, and the residual shows a tenth of its distance."""
    assert OUT == 0.1
    turn = torch.linalg.qr(_noise(600, 600)).Q
    sizes = torch.ones(600).double()
    sizes[0] += above
    matrices = (turn * sizes @ turn.mT).to(dtype).unsqueeze(0)
    truth = torch.linalg.svdvals(matrices.double())
    for k in (1, 4):
        for seed in range(3):
            found = largest(Dense(matrices), k, seed=seed)
            assert bool(((found.values - truth[:, :k]).abs() <= found.errors).all())


def test_what_may_be_hidden_is_counted_until_values_part_from_the_crowd() -> None:
    theta = torch.tensor([[1.001, 1.0, 1.0, 1.0]]).double()
    near, far = torch.full((1, 4), 2e-4).double(), torch.full((1, 4), 5e-5).double()
    # Distance to the crowd 1e-3: a residual of 2e-4 is above a tenth of it, 5e-5 is below.
    assert float(bidiagonal._errors(theta, near, 400)[0, 0]) == pytest.approx(2e-3)
    assert float(bidiagonal._errors(theta, far, 400)[0, 0]) <= 5e-5


@pytest.mark.parametrize("size", [1e-2, 1e-4, 1e-6])
def test_rounding_of_what_was_subtracted_counts(size: float) -> None:
    """J - I of a float32 map J near the identity is known to the rounding of J alone."""
    exact = torch.eye(300).double() + size * _noise(1, 300, 300) / 300**0.5
    given = exact.float()
    truth = torch.linalg.svdvals(exact - torch.eye(300))[:, 0]
    found = largest(Shifted(Dense(given), 1.0), 1)
    assert bool(((found.values[:, 0] - truth).abs() <= found.errors[:, 0]).all())
    assert float(found.errors[0, 0]) >= ROUNDING * torch.finfo(torch.float32).eps


def test_rounding_is_16_eps_of_the_largest_value() -> None:
    assert ROUNDING == 16.0
    found = largest(Dense(3.0 * torch.eye(20).unsqueeze(0)), 2)
    floor = 3.0 * 16.0 * torch.finfo(torch.float32).eps
    assert floor <= float(found.errors.min()) <= float(found.errors.max()) <= 1.1 * floor
