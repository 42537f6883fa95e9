"""Losses: which one a model gets, and its value by an independent route."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from leadline.errors import InputError
from leadline.models.inputs import Inputs, as_inputs, choose_loss, random_inputs, random_tokens
from leadline.testing.zoo import ZOO

pytest.importorskip("transformers")


def _value(name, value=None, **options):
    model = ZOO[name].build(0)
    inputs = (
        random_inputs(model, examples=2, length=8) if value is None else as_inputs(value, model)
    )
    loss, inputs = choose_loss(model, inputs, **options)
    with torch.no_grad():
        output = model(**inputs.tensors)
        return loss, inputs, output, loss.compute(output, inputs).item()


def _by_hand(logits, pairs):
    """Mean of log(sum exp) minus the logit of the target, in float64, one position at a time."""
    terms = []
    for (example, position), target in pairs:
        row = logits[example, position].double().tolist()
        terms.append(math.log(sum(math.exp(x) for x in row)) - row[target])
    return sum(terms) / len(terms)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gpt2", "next-token"),
        ("openai-gpt", "next-token"),
        ("t5", "next-token"),
        ("bart", "next-token"),
        ("whisper", "next-token"),
        ("bert", "masked"),
        ("modernbert", "masked"),
        ("xlnet", "random cotangent"),
        ("vit", "random cotangent"),
        ("wav2vec2", "random cotangent"),
        ("clip", "random cotangent"),
        ("glm5_next_text", "random cotangent"),
    ],
)
def test_loss_follows_the_head(name, kind):
    loss, _, _, value = _value(name)
    assert loss.kind == kind
    assert math.isfinite(value)


def test_next_token_loss_is_the_mean_over_real_successors():
    batch = {
        "input_ids": torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]),
    }
    loss, _, output, value = _value("gpt2", batch)
    pairs = [((0, 0), 6), ((0, 1), 7), ((0, 2), 8), ((1, 0), 10)]
    assert loss.kind == "next-token"
    assert value == pytest.approx(_by_hand(output.logits, pairs), rel=1e-5)


def test_next_token_loss_equals_that_of_transformers():
    model = ZOO["llama"].build(0)
    inputs = random_tokens(model, examples=3, length=9, seed=1)
    loss, inputs = choose_loss(model, inputs)
    with torch.no_grad():
        output = model(**inputs.tensors, labels=inputs.tensors["input_ids"])
        assert loss.compute(output, inputs).item() == pytest.approx(output.loss.item(), rel=1e-5)


def test_decoder_of_a_pair_predicts_its_own_next_token():
    batch = {
        "input_ids": torch.tensor([[5, 6, 7, 8, 9]]),
        "decoder_input_ids": torch.tensor([[2, 11, 12]]),
    }
    _, _, output, value = _value("t5", batch)
    assert value == pytest.approx(_by_hand(output.logits, [((0, 0), 11), ((0, 1), 12)]), rel=1e-5)


def test_labels_of_the_user_are_used_as_transformers_uses_them():
    ids = torch.tensor([[5, 6, 7, 8]])
    labels = torch.tensor([[5, 6, -100, 9]])
    _, _, output, value = _value("gpt2", {"input_ids": ids, "labels": labels})
    assert value == pytest.approx(_by_hand(output.logits, [((0, 0), 6), ((0, 2), 9)]), rel=1e-5)

    batch = {"input_ids": ids, "decoder_input_ids": ids, "labels": labels}
    _, _, output, value = _value("t5", batch)
    pairs = [((0, 0), 5), ((0, 1), 6), ((0, 3), 9)]
    assert value == pytest.approx(_by_hand(output.logits, pairs), rel=1e-5)


def test_masked_loss_is_the_mean_over_masked_tokens():
    model = ZOO["bert"].build(0)
    inputs = random_tokens(model, examples=2, length=40, seed=3)
    loss, masked = choose_loss(model, inputs, seed=7, mask_token_id=4)
    before, after = inputs.tensors["input_ids"], masked.tensors["input_ids"]
    chosen = masked.labels != -100
    # 15 % of 40 is 6.
    assert chosen.sum(dim=1).tolist() == [6, 6]
    assert bool((after[chosen] == 4).all())
    assert torch.equal(masked.labels[chosen], before[chosen])
    assert torch.equal(after[~chosen], before[~chosen])
    with torch.no_grad():
        output = model(**masked.tensors)
    pairs = [(tuple(at), int(before[tuple(at)])) for at in chosen.nonzero().tolist()]
    value = loss.compute(output, masked).item()
    assert value == pytest.approx(_by_hand(output.logits, pairs), rel=1e-5)


def test_masks_are_a_function_of_the_seed():
    model = ZOO["bert"].build(0)
    inputs = random_tokens(model, examples=2, length=40)
    labels = [choose_loss(model, inputs, seed=s, mask_token_id=4)[1].labels for s in (1, 1, 2)]
    assert torch.equal(labels[0], labels[1])
    assert not torch.equal(labels[0], labels[2])


def test_padding_and_special_tokens_are_never_masked():
    model = ZOO["bert"].build(0)
    ids = torch.tensor([[1, 20, 21, 2, 0, 0], [1, 30, 2, 0, 0, 0]])
    inputs = as_inputs({"input_ids": ids, "attention_mask": (ids != 0).long()}, model)
    for seed in range(20):
        labels = choose_loss(model, inputs, "masked", seed=seed, mask_token_id=4)[1].labels
        assert (labels != -100).sum(dim=1).tolist() == [1, 1]
        assert set(labels[labels != -100].tolist()) <= {20, 21, 30}


def test_random_tokens_without_a_mask_token_take_the_last_id():
    loss, masked, _, _ = _value("bert")
    assert bool((masked.tensors["input_ids"][masked.labels != -100] == 98).all())
    assert "last id stands for the mask" in loss.reason


def test_tokens_of_the_user_without_a_mask_token_get_the_random_cotangent():
    loss, inputs, _, _ = _value("bert", torch.tensor([[5, 6, 7]]))
    assert loss.kind == "random cotangent"
    assert "no mask token is known" in loss.reason
    assert inputs.labels is None


def test_random_cotangent_is_a_weighted_sum_of_the_main_output():
    model = nn.Linear(3, 4)
    inputs = Inputs({"input": torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))})
    loss, inputs = choose_loss(model, inputs, "random", seed=11)
    output = model(**inputs.tensors)
    weights = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(11))
    expected = (weights.double() * output.double()).sum() / math.sqrt(40)
    assert loss.compute(output, inputs).item() == pytest.approx(expected.item(), rel=1e-5)
    assert (loss.kind, loss.seed) == ("random cotangent", 11)


def test_random_cotangent_sends_no_gradient_into_padding():
    mask = torch.tensor([[True, True, False], [True, False, False]])
    inputs = Inputs({"input": torch.randn(2, 3, 4)}, mask=mask)
    loss, inputs = choose_loss(nn.Identity(), inputs, "random", seed=1)
    output = inputs.tensors["input"].clone().requires_grad_()
    loss.compute(output, inputs).backward()
    assert bool((output.grad[~mask] == 0).all())
    assert bool((output.grad[mask] != 0).all())
    # Three real tokens of width four: the weights are divided by sqrt(12).
    weights = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(output.grad[mask], weights[mask] / math.sqrt(12))


def test_random_cotangent_finds_the_first_tensor_of_real_numbers():
    loss, inputs = choose_loss(nn.Identity(), Inputs({"x": torch.ones(2)}), "random", seed=2)
    plain = loss.compute(torch.ones(2), inputs)
    nested = loss.compute({"ids": torch.tensor([1, 2]), "out": (torch.ones(2),)}, inputs)
    assert plain.item() == nested.item()
    with pytest.raises(InputError, match="without a tensor of real numbers"):
        loss.compute({"ids": torch.tensor([1])}, inputs)


def test_function_of_the_user_gets_output_and_inputs():
    inputs = Inputs({"x": torch.ones(2)})

    def twice(output, given):
        assert given is inputs
        return 2 * output.sum()

    loss, same = choose_loss(nn.Identity(), inputs, twice)
    assert same is inputs
    assert loss.kind == "user"
    assert loss.compute(torch.ones(3), inputs).item() == 6
    loss, _ = choose_loss(nn.Identity(), inputs, lambda output, _: output)
    with pytest.raises(InputError, match="must return a tensor with one number"):
        loss.compute(torch.ones(3), inputs)


def test_half_precision_losses_are_computed_in_float32():
    model = ZOO["gpt2"].build(0).to(torch.bfloat16)
    inputs = random_tokens(model, examples=2, length=8)
    for kind in ("next-token", "random"):
        loss, inputs = choose_loss(model, inputs, kind)
        assert loss.compute(model(**inputs.tensors), inputs).dtype == torch.float32


@pytest.mark.parametrize(
    ("name", "value", "loss", "expected"),
    [
        ("gpt2", torch.tensor([[5, 6]]), "next", "No loss is called 'next'"),
        ("gpt2", torch.tensor([[5]]), "next-token", "at least two tokens"),
        ("vit", torch.zeros(1, 3, 16, 16), "next-token", "needs token ids"),
        ("vit", torch.zeros(1, 3, 16, 16), "masked", "needs token ids"),
        ("bert", torch.tensor([[5, 6]]), "masked", "needs a mask token"),
    ],
)
def test_loss_that_cannot_be_is_refused(name, value, loss, expected):
    model = ZOO[name].build(0)
    with pytest.raises(InputError, match=expected):
        choose_loss(model, as_inputs(value, model), loss)


def test_single_token_gets_the_random_cotangent():
    loss, *_ = _value("gpt2", torch.tensor([[5]]))
    assert loss.kind == "random cotangent"


def test_logits_of_another_shape_are_refused():
    model = ZOO["gpt2"].build(0)
    loss, inputs = choose_loss(model, as_inputs(torch.tensor([[5, 6, 7]]), model))
    with pytest.raises(InputError, match="logits of shape"):
        loss.compute(torch.zeros(1, 1, 99), inputs)
