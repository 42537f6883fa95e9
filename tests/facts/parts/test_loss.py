"""The streamed cross-entropy equals torch's own, and never holds more than a piece."""

import pytest
import torch
from torch.nn import functional as F

import leadline
from leadline.errors import InputError
from leadline.parts import loss as streamed
from leadline.parts.loss import linear_cross_entropy


def example(tokens=11, width=6, vocabulary=9, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(tokens, width, generator=generator, dtype=dtype).requires_grad_()
    weight = torch.randn(vocabulary, width, generator=generator, dtype=dtype).requires_grad_()
    bias = torch.randn(vocabulary, generator=generator, dtype=dtype).requires_grad_()
    targets = torch.randint(vocabulary, (tokens,), generator=generator)
    return x, weight, bias, targets


@pytest.mark.parametrize("rows", [1, 4, 11, 100])
@pytest.mark.parametrize("ignored", [0, 3])
def test_value_and_gradients_are_those_of_the_logits(monkeypatch, rows, ignored):
    monkeypatch.setattr(streamed, "PIECE", 1)
    monkeypatch.setattr(streamed, "ROWS", rows)
    x, weight, bias, targets = example(dtype=torch.float32)
    targets[:ignored] = streamed.IGNORED
    mine = linear_cross_entropy(x, weight, targets, bias=bias)
    grads = torch.autograd.grad(3 * mine, (x, weight, bias))
    wanted = F.cross_entropy(F.linear(x.double(), weight.double(), bias.double()), targets)
    wanted_grads = torch.autograd.grad(3 * wanted, (x, weight, bias))
    assert mine.item() == pytest.approx(wanted.item(), rel=1e-6)
    for got, want in zip(grads, wanted_grads, strict=True):
        assert torch.allclose(got, want, atol=1e-6)


def test_large_logits_do_not_overflow():
    x, weight, _, targets = example(dtype=torch.float32)
    mine = linear_cross_entropy(1e4 * x, weight, targets)
    wanted = F.cross_entropy(F.linear(1e4 * x, weight), targets)
    assert mine.item() == pytest.approx(wanted.item(), rel=1e-5)


def test_only_the_gradients_that_are_asked_for_are_made():
    x, weight, _, targets = example(dtype=torch.float32)
    linear_cross_entropy(x, weight.detach(), targets).backward()
    assert x.grad is not None and weight.grad is None
    with torch.no_grad():
        assert not linear_cross_entropy(x, weight, targets).requires_grad


def test_a_piece_holds_a_mebi_of_logits_and_at_least_128_rows(monkeypatch):
    seen = []
    linear = F.linear

    def watched(x, weight, bias=None):
        seen.append(x.shape[0])
        return linear(x, weight, bias)

    monkeypatch.setattr(streamed.F, "linear", watched)
    x = torch.zeros(300, 2)
    linear_cross_entropy(x, torch.zeros(1 << 13, 2), torch.zeros(300, dtype=torch.long))
    assert seen == [128, 128, 44]
    seen.clear()
    linear_cross_entropy(x, torch.zeros(1 << 12, 2), torch.zeros(300, dtype=torch.long))
    assert seen == [256, 44]


def test_no_target_at_all_gives_nan_like_torch():
    x, weight, _, targets = example(dtype=torch.float32)
    assert linear_cross_entropy(x, weight, torch.full_like(targets, -100)).isnan()


def tiny(**fields):
    return leadline.Transformer(depth=2, width=16, heads=2, vocabulary=20, context=8, **fields)


@pytest.mark.parametrize("head", ["linear", "linear(bias=true)", "tied"])
def test_the_loss_of_a_causal_model_is_that_of_each_next_token(head):
    model = tiny(head=head)
    ids = torch.arange(16).view(2, 8)
    logits = model(ids)[:, :-1].flatten(0, 1)
    wanted = F.cross_entropy(logits, ids[:, 1:].flatten())
    assert torch.allclose(model.loss(ids), wanted, atol=1e-6)


def test_padding_is_not_counted():
    model = tiny()
    ids = torch.arange(16).view(2, 8)
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    logits = model(ids, mask)
    wanted = torch.cat(
        [
            F.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="none"),
            F.cross_entropy(logits[1, :4], ids[1, 1:5], reduction="none"),
        ]
    ).mean()
    assert torch.allclose(model.loss(ids, attention_mask=mask), wanted, atol=1e-6)


def test_a_masked_model_needs_targets_and_counts_only_those():
    model = tiny(attention="multihead(causal=false)", head="masked", embedding="token")
    ids = torch.arange(16).view(2, 8)
    targets = torch.full_like(ids, -100)
    targets[0, 3], targets[1, 6] = 7, 9
    wanted = F.cross_entropy(model(ids)[[0, 1], [3, 6]], torch.tensor([7, 9]))
    assert torch.allclose(model.loss(ids, targets), wanted, atol=1e-6)
    with pytest.raises(InputError, match="A bidirectional model sees its next token"):
        model.loss(ids)


def test_targets_of_another_shape_and_models_without_a_head_are_refused():
    with pytest.raises(InputError, match=r"The targets are \[2, 7\] and the tokens \[2, 8\]"):
        tiny().loss(torch.zeros(2, 8, dtype=torch.long), torch.zeros(2, 7, dtype=torch.long))
    with pytest.raises(InputError, match="The model has no head"):
        tiny(head="none").loss(torch.zeros(2, 8, dtype=torch.long))
