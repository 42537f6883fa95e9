"""AdamW over flat buffers gives what torch's own gives tensor by tensor."""

import copy

import pytest
import torch
from torch import nn

from leadline.errors import LabError
from leadline.lab.optimizer import BETAS, EPS, FlatAdamW
from leadline.parts import Transformer


def small(**fields):
    return Transformer(depth=2, width=16, heads=2, vocabulary=32, context=8, **fields)


def by_tensor(model, decay):
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": decay},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.999), eps=1e-8, foreach=False)


def test_the_constants_are_those_of_the_paper():
    assert (BETAS, EPS) == ((0.9, 0.999), 1e-8)


@pytest.mark.parametrize("head", ["linear", "tied"])
def test_ten_updates_are_those_of_torch(head):
    model = small(head=head).double()  # in float32 a tiny gradient may change its sign
    other = copy.deepcopy(model)
    flat, plain = FlatAdamW(model, decay=0.1), by_tensor(other, 0.1)
    for step in range(10):
        ids = torch.randint(32, (2, 8), generator=torch.Generator().manual_seed(step))
        flat.zero()
        model.loss(ids).backward()
        flat.step(0.01)
        plain.zero_grad()
        other.loss(ids).backward()
        plain.step()
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-7, atol=1e-9)


def test_only_matrices_decay():
    model = small()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    flat = FlatAdamW(model, decay=0.5)
    flat.zero()
    flat.step(0.1)
    for name, p in model.named_parameters():
        expected = before[name] * (0.95 if p.ndim >= 2 else 1.0)
        torch.testing.assert_close(p.detach(), expected)


def test_the_norm_is_that_of_all_gradients():
    model = small()
    flat = FlatAdamW(model, decay=0.0)
    flat.zero()
    model.loss(torch.arange(16).view(2, 8)).backward()
    every = torch.cat([p.grad.flatten() for p in model.parameters()])
    torch.testing.assert_close(flat.norm(), every.norm())
    flat.scale(0.5)
    torch.testing.assert_close(flat.norm(), every.norm() / 2)


def test_frozen_weights_stay():
    model = small()
    model.embedding.requires_grad_(False)
    before = model.embedding.tokens.weight.clone()
    flat = FlatAdamW(model, decay=0.1)
    flat.zero()
    model.loss(torch.arange(16).view(2, 8)).backward()
    flat.step(0.1)
    assert torch.equal(model.embedding.tokens.weight, before)


def test_number_types_have_buffers_of_their_own():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3).double())
    assert len(FlatAdamW(model, decay=0.0).buffers) == 4


def test_a_model_without_weights_is_refused():
    with pytest.raises(LabError, match="nothing can be trained"):
        FlatAdamW(nn.ReLU(), decay=0.0)


def test_the_state_comes_back():
    model, other = small(), small()
    one, two = FlatAdamW(model, decay=0.1), FlatAdamW(other, decay=0.1)
    for _ in range(3):
        one.zero()
        model.loss(torch.arange(16).view(2, 8)).backward()
        one.step(0.01)
    two.load({name: tensor.clone() for name, tensor in one.state().items()})
    for optimizer, m in ((one, model), (two, other)):
        optimizer.zero()
        m.loss(torch.arange(16).view(2, 8)).backward()
        optimizer.step(0.01)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)
