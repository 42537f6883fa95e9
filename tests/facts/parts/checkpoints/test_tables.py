"""How tensors are joined and split: by hand, and back bit by bit."""

from __future__ import annotations

import pytest
import torch

from leadline.parts.checkpoints._table import (
    SAME,
    TRANSPOSED,
    HeadMajor,
    StackedTensors,
    WeightRow,
    linear_rows,
    norm_rows,
)


def test_a_turned_matrix_is_transposed_and_its_bias_is_not():
    theirs = torch.arange(6.0).view(2, 3)
    assert TRANSPOSED.join([theirs]).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert torch.equal(TRANSPOSED.split(TRANSPOSED.join([theirs]))[0], theirs)
    assert TRANSPOSED.of_bias() is SAME


def test_stacked_matrices_stand_under_each_other():
    parts = [torch.full((rows, 2), float(rows)) for rows in (1, 3, 2)]
    whole = StackedTensors((1, 3, 2)).join(parts)
    assert whole[:, 0].tolist() == [1, 3, 3, 3, 2, 2]
    back = StackedTensors((1, 3, 2)).split(whole)
    assert all(torch.equal(a, b) for a, b in zip(parts, back, strict=True))


@pytest.mark.parametrize("width", [None, 4])
def test_queries_of_all_heads_come_first(width):
    # Two heads of two features: theirs is q0 q0 k0 k0 v0 v0 q1 q1 k1 k1 v1 v1.
    theirs = torch.arange(12.0)
    if width is not None:
        theirs = theirs[:, None].expand(12, width).contiguous()
    ours = HeadMajor(2).join([theirs])
    first = ours if width is None else ours[:, 0]
    assert first.tolist() == [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]
    assert torch.equal(HeadMajor(2).split(ours)[0], theirs)


def test_one_tensor_stays_as_it_is():
    whole = torch.randn(3)
    assert SAME.join([whole]) is whole
    assert SAME.split(whole) == (whole,)
    with pytest.raises(ValueError, match="too many values"):
        SAME.join([whole, whole])


def test_rows_of_a_linear_map_are_its_weight_and_its_bias():
    stacked = StackedTensors((1, 1))
    assert list(linear_rows("a", ("b", "c"), bias=True, change=stacked)) == [
        WeightRow("a.weight", ("b.weight", "c.weight"), stacked),
        WeightRow("a.bias", ("b.bias", "c.bias"), stacked),
    ]
    assert list(linear_rows("a", "b", bias=False)) == [WeightRow("a.weight", ("b.weight",), SAME)]
    assert list(norm_rows("a", "b", bias=True))[1] == WeightRow("a.bias", ("b.bias",), SAME)
