"""Attention in a watched run is what a measurement says about the first example."""

import copy

import pytest
import torch
from torch import nn

import leadline
from leadline.lab.watch.watch import watch
from leadline.testing.zoo import ZOO
from tests.plain_gpt import PlainGPT
from tests.watched import tiny_gpt2

QUANTITIES = ("attention.logit_std", "attention.logit_span", "attention.entropy")


def first_of(inputs):
    return {name: tensor[:1] for name, tensor in inputs.items()}


def compare(model, inputs, *, rel=1e-4):
    """Measure the first example in evaluation mode, then watch an update with all of them."""
    model = model.eval()
    record = leadline.measure(copy.deepcopy(model), first_of(inputs), probes="attention")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with watch(model, optimizer, None, attention=True, quiet=True) as one:
        output = model(**inputs)
        output = output if isinstance(output, torch.Tensor) else output[0]
        output.square().mean().backward()
        optimizer.step()
        assert one.notes == []
        rows = one.record.select()
    for quantity in QUANTITIES:
        expected = {
            row.site: row.value
            for row in record.select(quantity, statistic="mean")
            if row.site.head is None
        }
        found = {row.site: row.value for row in rows if row.quantity == quantity}
        assert expected
        assert found == pytest.approx(expected, rel=rel, abs=1e-6), quantity
    return {row.quantity: row.value for row in rows}


def tokens(examples=3, length=12, vocabulary=64):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(vocabulary, (examples, length), generator=generator)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("examples", [1, 2, 3])  # the model has two heads
def test_gpt2(implementation, examples):
    model = tiny_gpt2(dropout=0.0)
    model.set_attn_implementation(implementation)
    compare(model, {"input_ids": tokens(examples)})


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_of_the_first_example_is_left_out(implementation, side):
    model = tiny_gpt2(dropout=0.0)
    model.set_attn_implementation(implementation)
    mask = torch.ones(3, 12, dtype=torch.long)
    mask[0, 7:] = 0
    mask = mask if side == "right" else mask.flip(1)
    compare(model, {"input_ids": tokens(), "attention_mask": mask})


NAMES = {
    "llama": "heads share keys",
    "gemma2": "a soft cap and a sliding window",
    "mistral": "a sliding window",
    "bert": "all tokens see each other",
    "t5": "a bias and cross-attention",
    "gpt_neox": "a part of each head is turned",
    "mixtral": "experts",
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_families(name, implementation):
    implementation = "eager" if name in ("t5", "gemma2") else implementation  # without a kernel
    specimen = ZOO[name]
    model = specimen.build(0)
    model.set_attn_implementation(implementation)
    compare(model, dict(specimen.inputs(model, 0)))


def test_attention_that_is_written_out():
    torch.manual_seed(0)
    model = PlainGPT(["none", "no scale"])
    compare(model, {"idx": tokens()})


def test_attention_of_torch_itself():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(64, 32)
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(
                    32, 4, 64, dropout=0.0, batch_first=True, norm_first=True
                )
                for _ in range(2)
            )

        def forward(self, idx):
            x = self.embed(idx)
            for layer in self.layers:
                x = layer(x)
            return x

    torch.manual_seed(0)
    compare(Encoder(), {"idx": tokens()})


def test_logits_of_any_size_are_seen_by_a_mask_and_not_by_their_size():
    model = tiny_gpt2(dropout=0.0)
    with torch.no_grad():
        for block in model.transformer.h:
            block.attn.c_attn.weight.mul_(700.0)  # a run that comes apart
    assert compare(model, {"input_ids": tokens()})["attention.logit_span"] > 2000.0
