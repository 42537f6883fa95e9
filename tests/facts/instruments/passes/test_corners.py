"""Corners of a measurement: in-place blocks, shared modules, unequal examples, broken values."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import leadline
from leadline.anatomy import Tap, read_anatomy
from leadline.numerics.bf16 import write_loss
from leadline.numerics.ridge import held_out_r2
from leadline.numerics.tokens import Tokens, dot, ranks
from leadline.testing.zoo import ZOO

W = 16


class Mean(nn.Module):
    def forward(self, x):
        return 0.5 * x.mean(1, keepdim=True).expand_as(x)


class Scale(nn.Module):
    def forward(self, x):
        return 0.25 * x


class InPlace(nn.Module):
    """Changes its input and returns it."""

    def __init__(self):
        super().__init__()
        self.attention, self.mlp = Mean(), Scale()

    def forward(self, x):
        x += self.attention(x)
        x += self.mlp(x)
        return x


class Blk(nn.Module):
    def __init__(self, mlp=None):
        super().__init__()
        self.attention = nn.Linear(W, W)
        self.norm, self.norm2 = nn.LayerNorm(W), nn.LayerNorm(W)
        self.mlp = mlp or nn.Sequential(nn.Linear(W, W), nn.GELU(), nn.Linear(W, W))

    def forward(self, x):
        x = x + self.attention(self.norm(x).mean(1, keepdim=True).expand_as(x))
        return x + self.mlp(self.norm2(x))


class Tower(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        x = x.clone()
        for layer in self.layers:
            x = layer(x)
        return x


def stream(tokens=6, seed=0):
    return torch.randn(2, tokens, W, generator=torch.Generator().manual_seed(seed))


WRITES = leadline.declare(blocks="layers", writes=["attention", "mlp"])


def test_a_model_is_read_under_no_grad():
    model = ZOO["gpt2"].build(0).eval()
    tensors = dict(ZOO["gpt2"].inputs(model, 1))
    with torch.no_grad():
        assert leadline.anatomy_of(model, tensors).stacks[0].depth == 3


def test_blocks_that_return_their_changed_input_have_a_norm_of_their_own():
    x = stream()
    record = leadline.measure(
        Tower(*(InPlace() for _ in range(3))), x, probes="stream", anatomy=WRITES
    )
    expected = [float(x.norm(dim=-1).mean())]
    for _ in range(3):
        x = 1.25 * (x + 0.5 * x.mean(1, keepdim=True))
        expected.append(float(x.norm(dim=-1).mean()))
    found = record.by_layer("stream.norm", statistic="mean").values
    assert list(found) == pytest.approx(expected, rel=1e-5)


def test_a_first_block_that_works_in_place_is_measured_with_gradients():
    class Embedded(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Linear(W, W)
            self.layers = nn.ModuleList(InPlace() for _ in range(2))

        def forward(self, x):
            x = self.embedding(x)
            for layer in self.layers:
                x = layer(x)
            return x

    record = leadline.measure(Embedded(), stream(), loss="random", anatomy=WRITES)
    assert record.by_layer("gradient.stream").layers == (0, 1, 2)


def test_a_block_that_works_in_place_cannot_be_left_out_whole():
    with pytest.raises(leadline.ProbeError, match="use the unit 'sublayer'"):
        leadline.measure(
            Tower(*(InPlace() for _ in range(3))),
            stream(),
            probes="stream",
            ablate="block",
            loss=lambda output, inputs: output.square().sum(),
            anatomy=WRITES,
        )


def test_the_encoders_padding_is_not_the_decoders():
    model = ZOO["t5"].build(0).eval()
    ids = dict(ZOO["t5"].inputs(model, 1))["input_ids"]
    mask = torch.ones_like(ids)
    mask[0, ids.shape[1] // 2 :] = 0
    decoder = torch.randint(0, 50, ids.shape, generator=torch.Generator().manual_seed(0))
    tensors = {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": decoder}
    record = leadline.measure(model, tensors, loss="random")
    with torch.no_grad():
        first = model(**tensors, output_hidden_states=True).decoder_hidden_states[0]
    found = record.by_layer("stream.norm", stack="decoder", statistic="mean").values[0]
    assert found == pytest.approx(float(first.norm(dim=-1).mean()), rel=1e-5)


def test_a_declared_stack_knows_its_token_axis_and_its_parameters():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(W, 4, 32, dropout=0.0, norm_first=True, batch_first=False)
    model, x = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), torch.randn(6, 2, W)
    found = leadline.anatomy_of(model, x).stacks[0]
    declared = leadline.anatomy_of(
        model, x, anatomy=leadline.declare(blocks="layers", writes=["dropout1", "dropout2"])
    ).stacks[0]
    assert declared.token_axis == found.token_axis == 0
    for mine, theirs in zip(declared.blocks[0].sublayers, found.blocks[0].sublayers, strict=True):
        assert set(mine.parameters) == set(theirs.parameters)


def test_a_tower_used_twice_is_refused_with_what_to_do():
    class Siamese(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.tower = Tower(Blk(), Blk())

        def forward(self, x):
            return self.tower(x).mean() + self.tower(3 * x[:, :4]).mean()

    with pytest.raises(leadline.AnatomyError, match="measure the part that is used twice"):
        leadline.measure(Siamese(), stream(), loss=lambda output, inputs: output)


def test_blocks_may_share_a_module():
    torch.manual_seed(0)
    mlp = nn.Linear(W, W)
    anatomy = leadline.anatomy_of(Tower(Blk(mlp), Blk(mlp)), stream())
    assert [b.sublayers[1].module for b in anatomy.stacks[0].blocks] == [
        "layers.0.mlp",
        "layers.1.mlp",
    ]


def test_a_weight_tied_across_layers_is_told():
    torch.manual_seed(0)
    model = Tower(Blk(), Blk())
    model.layers[1].mlp[0].weight = model.layers[0].mlp[0].weight
    record = leadline.measure(model, stream(), loss="random")
    assert record.provenance["coverage"]["refused"]


def test_nan_is_not_zero():
    broken = torch.ones(1, 2, 4)
    broken[0, 0, 0] = math.nan
    sound = Tokens(torch.ones(1, 2, 4))
    assert math.isnan(dot(Tokens(broken), sound)[0, 0])
    assert math.isnan(write_loss(Tokens(broken), sound)[0, 0])


def test_one_short_text_does_not_spoil_the_batch():
    model = ZOO["gpt2"].build(0).eval()
    ids, mask = torch.randint(0, 50, (2, 6)), torch.ones(2, 6)
    mask[0, 1:] = 0
    record = leadline.measure(model, {"input_ids": ids, "attention_mask": mask}, loss="random")
    assert not record.findings


def test_more_layers_than_were_read_is_an_error():
    class Adaptive(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.ModuleList([Blk()])

        def forward(self, x):
            for _ in range(3 if x.shape[1] == 6 else 5):
                x = self.layers[0](x)
            return x

    model = Adaptive().eval()
    anatomy = read_anatomy(model, lambda: model(stream()), lambda: model(stream()))
    with Tap(model, anatomy) as tap, torch.no_grad():
        model(stream(9))
    with pytest.raises(leadline.AnatomyError):
        tap.balance()


def test_the_users_input_gets_no_gradient():
    x = stream().requires_grad_(True)
    leadline.measure(Tower(Blk(), Blk()), x, loss="random")
    assert x.grad is None


def test_a_block_whose_stream_is_not_its_first_output_is_left_out():
    class Second(Blk):
        def forward(self, x):
            return None, super().forward(x)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.ModuleList(Second() for _ in range(3))

        def forward(self, x):
            for layer in self.layers:
                _, x = layer(x)
            return x

    record = leadline.measure(Model(), stream(), loss=lambda o, i: o.square().sum(), ablate="block")
    assert all(r.value != 0 for r in record.select("ablation.block"))


def test_zero_tokens_count_as_pairs_of_cosine_zero():
    x = torch.zeros(1, 3, 4)
    x[0, 1:, 0] = 1
    assert float(Tokens(x).cosine.all) == pytest.approx(1 / 3)


def test_recall_of_a_stream_that_is_not_finite_is_nan():
    x = torch.randn(8, 4)
    x[0, 0] = math.nan
    assert math.isnan(held_out_r2(x, torch.randn(8, 4), ridge=1e-3, seed=0))


def test_the_rank_of_huge_tokens_is_not_zero():
    stable, _ = ranks(Tokens(1e21 * torch.randn(1, 9, 6)).gram()[0])
    assert math.isnan(float(stable)) or float(stable) > 1


def test_a_declared_block_that_works_against_autograd_still_has_an_anatomy():
    class Against(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.norm = nn.Linear(W, W), nn.LayerNorm(W)

        def forward(self, x):
            x += self.attention(self.norm(x).mean(1, keepdim=True).expand_as(x))
            return x

    model = Tower(Against(), Against())
    anatomy = leadline.anatomy_of(
        model, stream(), anatomy=leadline.declare(blocks="layers", writes=["attention"])
    )
    assert anatomy.stacks[0].blocks[0].sublayers[0].role == "branch"


def test_a_context_encoder_is_no_text_stack():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.context = Tower(Blk(), Blk())

        def forward(self, x):
            return self.context(x)

    assert leadline.anatomy_of(Model(), stream()).stacks[0].name == "encoder"


def test_the_middle_gradient_of_a_flattened_update_keeps_its_examples():
    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(W, W)

        def forward(self, x):
            return self.out(x.mean(1, keepdim=True).expand_as(x)).reshape(-1, W)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.mlp = Flat(), nn.Linear(W, W)
            self.norm, self.norm2 = nn.LayerNorm(W), nn.LayerNorm(W)

        def forward(self, x):
            self.middle = x + self.attention(self.norm(x)).view(x.shape)
            return self.middle + self.mlp(self.norm2(self.middle))

    torch.manual_seed(0)
    model = Tower(Block(), Block()).eval()
    weights = stream(seed=5)
    record = leadline.measure(model, stream(), loss=lambda o, i: (o * weights).sum())
    output = model(stream())
    middle = model.layers[0].middle
    middle.retain_grad()
    (output * weights).sum().backward()
    (row,) = record.select("gradient.stream", layer=1, sublayer=1, statistic="mean_without_first")
    assert row.value == pytest.approx(float(middle.grad[:, 1:].norm(dim=-1).mean()), rel=1e-5)


def test_passes_count_the_trial_pass_of_the_fit():
    model, count = Tower(Blk(), Blk()), 0

    def counting(module, args):
        nonlocal count
        count += 1

    handle = model.register_forward_pre_hook(counting)
    passes = leadline.measure(model, stream(), loss="random").provenance["passes"]
    handle.remove()
    assert passes["anatomy_forward"] + passes["forward"] == count


def test_what_would_balance_is_said_of_the_stack_that_missed():
    from dataclasses import replace

    model = ZOO["t5"].build(0).eval()
    tensors = dict(ZOO["t5"].inputs(model, 1))
    anatomy = leadline.anatomy_of(model, tensors)
    encoder, decoder = anatomy.stacks
    blocks = tuple(
        replace(b, sublayers=tuple(replace(s, gain=0.5) for s in b.sublayers))
        for b in decoder.blocks
    )
    wrong = replace(
        anatomy, stacks=(encoder, replace(decoder, blocks=blocks)), source="user", balance=None
    )
    with pytest.raises(leadline.BalanceError, match=r"would balance: decoder\."):
        leadline.anatomy_of(model, tensors, anatomy=wrong)


def test_a_module_shared_by_blocks_is_silenced_in_the_layer_named():
    torch.manual_seed(0)
    mlp = nn.Linear(W, W)
    model, x = Tower(Blk(mlp), Blk(mlp), Blk(mlp)).eval(), stream()

    def loss(left_out):
        y = x
        for number, layer in enumerate(model.layers, start=1):
            y = y + layer.attention(layer.norm(y).mean(1, keepdim=True).expand_as(y))
            y = y + (0 if number == left_out else 1) * layer.mlp(layer.norm2(y))
        return float(y.detach().square().sum())

    record = leadline.measure(
        model, x, probes="stream", ablate="sublayer", loss=lambda o, i: o.square().sum()
    )
    for layer in (1, 2, 3):
        (row,) = record.select("ablation.sublayer", layer=layer, sublayer=2)
        assert row.value == pytest.approx(loss(layer) - loss(None), rel=1e-4)


def test_the_padding_of_a_text_is_not_that_of_an_image():
    model = ZOO["clip"].build(0).eval()
    tensors = dict(ZOO["clip"].inputs(model, 1))
    seen = []
    block = model.get_submodule(
        leadline.anatomy_of(model, tensors).stack("vision").blocks[0].module
    )
    handle = block.register_forward_pre_hook(
        lambda m, a, k: seen.append((a[0] if a else k["hidden_states"]).detach()), with_kwargs=True
    )
    model(**tensors)
    patches = seen[0].shape[1]
    ids = torch.randint(1, 40, (2, patches), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[0, patches // 2 :] = 0
    record = leadline.measure(
        model, {**tensors, "input_ids": ids, "attention_mask": mask}, loss="random"
    )
    handle.remove()
    found = record.by_layer("stream.norm", stack="vision", statistic="mean").values[0]
    assert found == pytest.approx(float(seen[0].norm(dim=-1).mean()), rel=1e-5)


def test_a_block_that_returns_a_named_tuple_is_left_out():
    from typing import NamedTuple

    class Output(NamedTuple):
        hidden: torch.Tensor
        weights: object

    class Named(Blk):
        def forward(self, x):
            return Output(super().forward(x), None)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.ModuleList(Named() for _ in range(3))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x).hidden
            return x

    record = leadline.measure(
        Model(), stream(), probes="stream", loss=lambda o, i: o.square().sum(), ablate="block"
    )
    assert all(r.value != 0 for r in record.select("ablation.block"))


def test_a_block_that_cannot_be_replayed_is_refused_in_a_sentence():
    class Popping(Blk):
        def forward(self, x):
            self.left.pop()
            return super().forward(x)

    class Model(Tower):
        def forward(self, x):
            left = [1, 2, 3]
            for layer in self.layers:
                layer.left = left
                x = layer(x)
            return x

    with pytest.raises(leadline.AnatomyError, match="could not be run again"):
        leadline.anatomy_of(Model(Popping(), Popping(), Popping()), stream())


def test_a_write_with_a_bias_of_its_own_cannot_be_left_out():
    model = ZOO["zaya"].build(0).eval()
    tensors = dict(ZOO["zaya"].inputs(model, 1))
    with pytest.raises(leadline.ProbeError, match="writes a bias"):
        leadline.measure(model, tensors, probes="stream", ablate="sublayer")
