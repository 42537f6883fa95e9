"""Parts of tensors: every how many-th number of the whole, and who counts a part."""

from types import SimpleNamespace

import pytest
import torch

from leadline.anatomy import spread
from leadline.anatomy.spread import is_addend, is_counted, is_spread, local_part


@pytest.mark.parametrize("step", [1, 3, 7])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_parts_together_hold_every_how_many_th_number_of_the_whole(axis, step):
    whole = torch.arange(4 * 6 * 5).reshape(4, 6, 5)
    found = []
    first = 0
    for part in whole.split(2, axis):
        offset = tuple(first if at == axis else 0 for at in range(3))
        chosen = spread._indices(tuple(whole.shape), tuple(part.shape), offset, step)
        found += part.flatten()[chosen].tolist()
        first += part.shape[axis]
    assert sorted(found) == list(range(0, whole.numel(), step))


def test_a_plain_tensor_is_its_own_part_and_counted_by_the_first_process():
    tensor = torch.ones(3)
    assert not is_spread(tensor)
    assert local_part(tensor) is tensor
    assert is_counted(tensor, first=True)
    assert not is_counted(tensor, first=False)
    assert not is_addend(tensor)


def _placed(kind):
    return SimpleNamespace(
        is_replicate=lambda: kind == "replicate", is_partial=lambda: kind == "partial"
    )


def _spread(monkeypatch, kinds, where):
    monkeypatch.setattr(spread, "is_spread", lambda _: True)
    mesh = SimpleNamespace(get_coordinate=lambda: where)
    return SimpleNamespace(device_mesh=mesh, placements=[_placed(kind) for kind in kinds])


@pytest.mark.parametrize(
    ("kinds", "where", "counted"),
    [
        (["shard"], [3], True),
        (["replicate"], [0], True),
        (["replicate"], [1], False),
        (["replicate", "shard"], [0, 5], True),
        (["replicate", "shard"], [2, 0], False),
        (["shard"], None, False),
    ],
)
def test_of_those_that_hold_the_same_part_the_first_counts_it(monkeypatch, kinds, where, counted):
    tensor = _spread(monkeypatch, kinds, where)
    assert is_counted(tensor, first=False) is counted


def test_a_tensor_whose_parts_have_to_be_added_up_is_told(monkeypatch):
    assert is_addend(_spread(monkeypatch, ["shard", "partial"], [0, 0]))
    assert not is_addend(_spread(monkeypatch, ["shard", "replicate"], [0, 0]))
