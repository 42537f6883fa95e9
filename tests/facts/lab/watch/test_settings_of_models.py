"""A watched run computes what the same run computes alone, bit for bit, with every kind of model."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from leadline.parts import Recipe, Transformer
from leadline.testing.zoo import ZOO
from tests.plain_gpt import PlainGPT
from tests.twin_runs import UPDATES, batches, rows_of, run_twice, sampled_steps, train
from tests.watched import tiny_gpt2

MEMORY = "ignore:torch.utils.checkpoint:UserWarning"


def check(loop, folder, *, updates=UPDATES, notes=(), gradients=True, every=2):
    """Run a loop alone and watched; every layer is read in every sample, and nothing differs."""
    plain, watched = run_twice(loop, folder, every=every, attention=True)
    assert watched.differences(plain) == []
    for sentence, expected in zip(watched.watcher.notes, notes, strict=True):
        assert expected in sentence
    quantities = [
        "stream.norm",
        "weights.update_ratio",
        *(["gradient.stream"] if gradients else []),
    ]
    for quantity in quantities:
        assert sorted(rows_of(watched.path, quantity)) == sampled_steps(updates, every), quantity
    return watched


def test_dropout_is_drawn_as_without_a_watch(tmp_path):
    def loop(run):
        model = tiny_gpt2(dropout=0.5)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        run.watch(model, optimizer)
        train(run, model, optimizer, batches())
        run.loss(torch.rand(3))  # the random numbers go on where they would have

    check(loop, tmp_path, every=1)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.filterwarnings(MEMORY)
def test_gradient_checkpointing(tmp_path, reentrant, frozen):
    def loop(run):
        model = tiny_gpt2().train()
        if frozen:
            model.transformer.wte.weight.requires_grad_(False)
            model.transformer.wpe.weight.requires_grad_(False)
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        run.watch(model, optimizer)
        train(run, model, optimizer, batches())

    watched = check(loop, tmp_path)
    sites = {row.site.layer for row in rows_of(watched.path, "gradient.stream")[4]}
    assert sites == {0, 1, 2}


class Checkpointed(PlainGPT):
    """A model that checkpoints its blocks by hand, with the loss beside it."""

    def forward(self, idx, reentrant):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.h:
            x = checkpoint(block, x, use_reentrant=reentrant)
        return self.head(self.ln(x))


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.filterwarnings("ignore:None of the inputs:UserWarning")
def test_checkpoints_by_hand(tmp_path, reentrant, frozen):
    def loop(run):
        model = Checkpointed(["none", "none"])
        for embedding in (model.wte, model.wpe):
            embedding.weight.requires_grad_(not frozen)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        run.watch(model, optimizer)
        for batch in batches():
            tokens = batch["input_ids"]
            logits = model(tokens, reentrant)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
            run.loss(loss)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    check(loop, tmp_path, gradients=not (frozen and reentrant))


@pytest.mark.parametrize("reentrant", [None, True, False])
@pytest.mark.filterwarnings(MEMORY)
def test_lora(tmp_path, reentrant):
    peft = pytest.importorskip("peft")

    def loop(run):
        config = peft.LoraConfig(
            target_modules=["c_attn"], r=2, lora_dropout=0.1, fan_in_fan_out=True
        )
        model = peft.get_peft_model(tiny_gpt2(), config).train()
        if reentrant is not None:
            base = model.get_base_model()
            base.enable_input_require_grads()
            base.gradient_checkpointing_enable({"use_reentrant": reentrant})
        adapters = [one for one in model.parameters() if one.requires_grad]
        optimizer = torch.optim.AdamW(adapters, lr=1e-2)
        run.watch(model, optimizer)
        train(run, model, optimizer, batches())

    watched = check(loop, tmp_path)
    assert {row.site.layer for row in rows_of(watched.path, "gradient.parameters")[4]} == {1, 2}


@pytest.mark.parametrize("side", ["right", "left"])
def test_padded_batches(tmp_path, side):
    def loop(run):
        model = tiny_gpt2()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        run.watch(model, optimizer)
        padded = []
        for batch in batches(examples=3):
            mask = torch.ones_like(batch["input_ids"])
            mask[1, 7:] = 0
            mask = mask if side == "right" else mask.flip(1)
            labels = batch["labels"].masked_fill(mask == 0, -100)
            padded.append({**batch, "labels": labels, "attention_mask": mask})
        train(run, model, optimizer, padded)

    check(loop, tmp_path)


NAMES = ("t5", "bart", "bert", "albert", "llama", "mixtral", "gemma2", "gpt_neox", "mamba", "vit")


@pytest.mark.parametrize("name", NAMES)
def test_families(tmp_path, name):
    specimen = ZOO[name]

    def loop(run):
        model = specimen.build(0).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        run.watch(model, optimizer)
        torch.manual_seed(5)
        for at in range(4):
            output = model(**specimen.inputs(model, at))
            loss = (output.logits if "logits" in output else output[0]).square().mean()
            run.loss(loss)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    check(loop, tmp_path, updates=4, notes=["functional dropout"] if name == "bart" else [])


OWN = {
    "pre-norm": {},
    "lanes": {"connection": "hyper(lanes=2)"},
    "post-norm": {"placement": "post"},
}


@pytest.mark.parametrize("name", OWN)
def test_our_own_models(tmp_path, name):
    def loop(run):
        recipe = Recipe(width=16, heads=2, depth=2, vocabulary=64, context=12, **OWN[name])
        model = Transformer(recipe, seed=0).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        run.watch(model, optimizer)
        for batch in batches():
            tokens = batch["input_ids"]
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            run.loss(loss)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    check(loop, tmp_path)
