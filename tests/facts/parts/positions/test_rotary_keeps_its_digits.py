"""Frequencies of rotary positions are never rounded, and positions may be given."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from leadline.parts import Transformer
from leadline.parts.positions.rotary import Rotary

TINY = {"depth": 2, "width": 16, "heads": 2, "vocabulary": 23, "context": 16}


def _expected(base, turned):
    return [float(np.float32(base ** (-i / turned))) for i in range(0, turned, 2)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_model_of_any_number_type_has_frequencies_in_float32(dtype):
    rotary = Rotary(64, 16, 16, base=500.0, share=0.75).to(dtype)
    assert rotary.frequencies.dtype == torch.float32
    assert rotary.frequencies.tolist() == _expected(500.0, 12)
    assert rotary.state_dict() == {}


def test_frequencies_come_back_after_a_stay_on_meta():
    with torch.device("meta"):
        rotary = Rotary(64, 16, 8)
    assert rotary.frequencies.is_meta
    assert rotary.to_empty(device="cpu").frequencies.tolist() == _expected(10000.0, 8)


def test_late_positions_are_told_apart_in_half_precision():
    # Rounded to bfloat16, the frequencies would turn late positions elsewhere.
    rotary = Rotary(8, 512, 8, base=50.0)
    exact = rotary.rotation(torch.tensor([500]), torch.float32)
    half = rotary.to(torch.bfloat16).rotation(torch.tensor([500]), torch.float32)
    assert exact is not None and half is not None
    x = torch.ones(1, 1, 1, 8)
    assert torch.equal(half(x), exact(x))


@torch.no_grad()
def test_given_positions_count_for_every_example_on_its_own():
    model = Transformer(**TINY).eval()
    ids = torch.randint(23, (2, 5), generator=torch.Generator().manual_seed(0))
    shifted = torch.stack((torch.arange(5) + 2, torch.arange(5) + 7))
    found = model(ids, positions=shifted)
    for row in (0, 1):
        alone = model(ids[row : row + 1], positions=shifted[row])
        assert torch.allclose(found[row], alone[0], atol=1e-6)
    assert torch.equal(model(ids, positions=torch.arange(5)), model(ids))
    assert not torch.allclose(found, model(ids), atol=1e-3)
    table = model.embedding.positions.table.weight
    first = model.stream(ids[:, :1], positions=torch.tensor([4]))
    with_table = Transformer(**TINY).eval()
    with_table.embedding.positions.table.weight[0] = table[4]
    assert torch.allclose(with_table.stream(ids[:, :1]), first, atol=1e-6)


@torch.no_grad()
def test_turned_queries_and_keys_see_distances_only():
    model = Transformer(**TINY, positions="rotary").eval()
    ids = torch.randint(23, (2, 5), generator=torch.Generator().manual_seed(0))
    shifted = torch.stack((torch.arange(5) + 3, torch.arange(5) + 9))
    assert torch.allclose(model(ids, positions=shifted), model(ids), atol=1e-5)
    stretched = model(ids, positions=2 * torch.arange(5))
    assert not torch.allclose(stretched, model(ids), atol=1e-5)
