"""Statistics of rows in pieces, and what is done otherwise on a GPU."""

from __future__ import annotations

import pytest
import torch

from leadline.numerics.devices import as_on_a_gpu, by_rows, is_far, widest_float
from leadline.numerics.tokens import Tokens, ranks, row_norms


@pytest.mark.parametrize("shape", [(3, 5, 7), (4, 200, 768), (2, 1, 300_000), (2, 3, 0)])
def test_a_statistic_in_pieces_is_that_of_the_whole_to_the_last_bit(shape) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    y = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    assert torch.equal(by_rows(torch.linalg.vecdot, x, y), torch.linalg.vecdot(x, y))


def test_pieces_are_of_a_megabyte_on_a_cpu_and_whole_elsewhere() -> None:
    sizes: list[int] = []

    def note(x: torch.Tensor) -> torch.Tensor:
        sizes.append(x.numel())
        return x.sum(-1)

    x = torch.zeros(4, 256, 768)
    by_rows(note, x)
    assert sizes == [341 * 768] * 3 + [768]
    sizes.clear()
    by_rows(note, x.transpose(0, 1))
    with as_on_a_gpu():
        by_rows(note, x)
    assert sizes == [x.numel(), x.numel()]


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_a_gpu_gets_the_same_numbers_without_a_look_at_the_values(scale: float) -> None:
    x = torch.randn(2, 90, 40, generator=torch.Generator().manual_seed(0)) * scale
    here = row_norms(x), *ranks(Tokens(x).gram()[0])
    with as_on_a_gpu():
        there = row_norms(x), *ranks(Tokens(x).gram()[0])
    for one, other in zip(here, there, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-6, atol=0, equal_nan=True)


def test_a_cpu_is_near_but_for_the_pretence() -> None:
    x = torch.zeros(1)
    assert not is_far(x) and is_far(torch.zeros(1, device="meta"))
    with as_on_a_gpu():
        assert is_far(x)
    assert not is_far(x)


def test_sums_are_taken_in_float64_where_the_device_has_it() -> None:
    kinds = [widest_float(torch.device(name)) for name in ("cpu", "cuda", "mps")]
    assert kinds == [torch.float64, torch.float64, torch.float32]
