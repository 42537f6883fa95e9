"""Gram matrices by their lower triangle, and eigenvalues of several matrices by several threads."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from leadline.numerics import symmetric
from leadline.numerics.symmetric import eigenvalues, lower_gram


@pytest.mark.parametrize("rows", [1, 7, 64, 65, 127, 300, 384])
def test_the_lower_triangle_is_that_of_the_whole_product(rows: int) -> None:
    x = torch.randn(2, rows, 40, generator=torch.Generator().manual_seed(rows))
    exact = (x.double() @ x.double().mT).tril()
    torch.testing.assert_close(lower_gram(x).tril().double(), exact, rtol=1e-5, atol=1e-4)


def test_eigenvalues_are_those_of_the_whole_matrix() -> None:
    x = torch.randn(3, 300, 320, generator=torch.Generator().manual_seed(0))
    exact = torch.linalg.svdvals(x.double()).square().flip(-1)
    found = eigenvalues(lower_gram(x))
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=1e-5 * float(exact.max()))


def test_strips_leave_out_nearly_half_of_the_products_at_768_rows() -> None:
    x = torch.zeros(768, 8)
    counts = []
    for product in (lower_gram, lambda x: x @ x.mT):
        with FlopCounterMode(display=False) as counter:
            product(x)
        counts.append(counter.get_total_flops())
    assert counts[0] / counts[1] == pytest.approx(13 / 24)


@pytest.mark.parametrize(("width", "threads"), [(128, 0), (512, 3)])
def test_wide_matrices_of_a_batch_get_a_thread_each(monkeypatch, width: int, threads: int) -> None:
    begun: list[int] = []

    class Pool(symmetric.ThreadPoolExecutor):
        def __init__(self, count: int, **options) -> None:
            begun.append(count)
            super().__init__(count, **options)

    monkeypatch.setattr(symmetric, "ThreadPoolExecutor", Pool)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        matrices = torch.eye(width).repeat(2, 1, 1) * torch.tensor([2.0, 5.0])[:, None, None]
        values = eigenvalues(matrices)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert values.shape == (2, width)
    assert values.amin(1).tolist() == values.amax(1).tolist() == [2.0, 5.0]
    assert sum(begun) == threads


def test_one_matrix_alone_needs_no_thread_of_its_own(monkeypatch) -> None:
    monkeypatch.setattr(symmetric, "ThreadPoolExecutor", None)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert eigenvalues(torch.eye(300)).sum() == 300
    assert eigenvalues(torch.eye(300)[None]).sum() == 300
