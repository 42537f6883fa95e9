"""Who sees whom."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from leadline.errors import ProbeError
from leadline.numerics.leak import CUTS, leak_of
from leadline.numerics.linear_maps import Dense
from leadline.numerics.linearised import Linearised


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


@pytest.mark.parametrize(("tokens", "cuts"), [(1, 0), (2, 1), (3, 2), (8, 7), (9, 7), (50, 7)])
def test_there_are_at_most_seven_cuts(tokens: int, cuts: int) -> None:
    assert CUTS == 7
    assert leak_of(_mixing(torch.eye(tokens))).products == cuts + 1


def test_one_token_has_no_later_one() -> None:
    assert bool(leak_of(_mixing(torch.eye(1))).values.isnan().all())


def test_every_example_has_a_number_of_its_own() -> None:
    both = torch.stack([torch.tril(torch.ones(5, 5)), torch.ones(5, 5)]).double()
    found = leak_of(Dense(both, tokens=5)).values
    assert float(found[0]) == 0.0
    assert float(found[1]) > 0.0


def test_examples_that_see_each_other_are_refused() -> None:
    x = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ProbeError, match="see each other"):
        leak_of(Linearised(lambda z: z - z.mean(0), x))
