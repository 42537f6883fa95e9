"""Who sees whom."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from leadline.errors import ProbeError
from leadline.instruments.jacobian.leak import CUTS, leak_of
from leadline.numerics.linear.linear_maps import Dense
from leadline.numerics.linear.linearised import Linearised


def _mixing(pattern: Tensor) -> Dense:
    """Every token a mixture of tokens, one feature each."""
    return Dense(pattern.double().expand(2, -1, -1), tokens=pattern.shape[0])


def test_a_triangle_does_not_leak() -> None:
    found = leak_of(_mixing(torch.tril(torch.rand(9, 9) + 0.1)))
    assert found.values.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("later", [(0, 1), (7, 8), (0, 8), (3, 5)])
def test_one_weight_on_a_later_token_leaks(later: tuple[int, int]) -> None:
    pattern = torch.eye(9)
    pattern[later] = 0.5
    assert float(leak_of(_mixing(pattern)).values.min()) > 0.0


def test_windows_leak_also_where_they_end_at_the_middle() -> None:
    """Two windows of four tokens: nothing crosses the middle, and yet it is not causal."""
    found = leak_of(_mixing(torch.block_diag(torch.ones(4, 4), torch.ones(4, 4))))
    assert float(found.values.min()) > 0.0


@pytest.mark.parametrize("tokens", [1, 2, 9, CUTS + 1, CUTS + 2, 200])
def test_a_text_is_cut_at_all_places_up_to_64(tokens: int) -> None:
    assert CUTS == 64
    found = leak_of(Dense(torch.eye(tokens).double().unsqueeze(0), tokens=tokens))
    assert found.products == min(tokens - 1, CUTS)
    assert found.proved == (tokens - 1 <= CUTS)


@pytest.mark.parametrize("first", range(11))
def test_two_neighbours_that_see_each_other_are_found_wherever_they_stand(first: int) -> None:
    pattern = torch.eye(12)
    pattern[first, first + 1] = 1e-3
    assert float(leak_of(_mixing(pattern)).values.min()) > 0.0


def test_a_long_text_is_cut_from_end_to_end() -> None:
    for pair in ((0, 1), (198, 199)):
        pattern = torch.eye(200)
        pattern[pair] = 1.0
        assert float(leak_of(_mixing(pattern)).values.min()) > 0.0


def test_one_token_has_no_later_one() -> None:
    assert bool(leak_of(_mixing(torch.eye(1))).values.isnan().all())


def test_every_example_has_a_number_of_its_own() -> None:
    both = torch.stack([torch.tril(torch.ones(5, 5)), torch.ones(5, 5)]).double()
    found = leak_of(Dense(both, tokens=5)).values
    assert float(found[0]) == 0.0
    assert float(found[1]) > 0.0


@pytest.mark.parametrize("examples", [2, 3, 5, 8])
def test_every_pair_of_examples_is_looked_at(examples: int) -> None:
    """One example reads one other, in any direction."""
    x = torch.randn(examples, 3, 2, generator=torch.Generator().manual_seed(0))
    for reader in range(examples):
        for read in set(range(examples)) - {reader}:

            def f(z: Tensor, reader: int = reader, read: int = read) -> Tensor:
                rows = list(z)
                rows[reader] = rows[reader] + 0.1 * rows[read]
                return torch.stack(rows)

            with pytest.raises(ProbeError, match="see each other"):
                leak_of(Linearised(f, x))


@pytest.mark.parametrize(("examples", "products"), [(1, 0), (2, 2), (3, 4), (4, 4), (9, 8)])
def test_the_meetings_of_examples_take_twice_the_digits_of_their_number(
    examples: int, products: int
) -> None:
    one = torch.eye(4).double().expand(examples, 4, 4)
    assert leak_of(Dense(one, tokens=2)).products == products + 1


def test_examples_that_do_not_meet_are_not_refused() -> None:
    x = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0))
    found = leak_of(Linearised(lambda z: z - z.mean(1, keepdim=True), x))
    assert bool((found.values > 0).all())
