"""What a bfloat16 stream loses of a write."""

from __future__ import annotations

import pytest
import torch

from leadline.numerics.bf16 import write_loss
from leadline.numerics.reference import bf16_write_loss
from leadline.numerics.tokens import Tokens


def test_loss_equals_rounding_by_hand() -> None:
    g = torch.Generator().manual_seed(0)
    stream = torch.randn(1, 3, 64, generator=g)
    update = 0.02 * torch.randn(1, 3, 64, generator=g)
    fast = write_loss(Tokens(update), Tokens(stream))
    for token in range(3):
        slow = bf16_write_loss(update[0, token], stream[0, token])
        assert float(fast[0, token]) == pytest.approx(slow, rel=1e-5)


@pytest.mark.parametrize(
    ("share", "lost"), [(0.1, 0.02), (0.01, 0.17), (0.003, 0.49), (0.001, 0.80)]
)
def test_small_writes_drown(share: float, lost: float) -> None:
    g = torch.Generator().manual_seed(1)
    stream = torch.randn(1, 64, 512, generator=g)
    update = share * torch.randn(1, 64, 512, generator=g)
    assert float(write_loss(Tokens(update), Tokens(stream)).mean()) == pytest.approx(lost, rel=0.2)


def test_a_write_that_fits_is_not_lost() -> None:
    assert float(write_loss(Tokens(torch.ones(1, 1, 4)), Tokens(torch.ones(1, 1, 4)))) == 0.0


def test_no_write_loses_nothing() -> None:
    assert float(write_loss(Tokens(torch.zeros(1, 1, 4)), Tokens(torch.ones(1, 1, 4)))) == 0.0
