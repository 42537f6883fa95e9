"""A loop's own pass gets the inputs that the loop gave, whatever the model does to them."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import leadline
from tests.plain_gpt import PlainGPT
from tests.twin_runs import rows_of, run_twice

STEPS = [1, 2, 3]
WIDTH = 48


class Model(PlainGPT):
    def __init__(self):
        super().__init__(["none", "none"])

    def run(self, x):
        for block in self.h:
            x = block(x)
        return self.head(self.ln(x))

    def embedded(self, tokens):
        return self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]


class InPlace(Model):
    def forward(self, x):
        x.sub_(0.5).mul_(2.0)
        return self.run(x)


class Popped(Model):
    def forward(self, batch):
        return self.run(self.embedded(batch.pop("tokens")))


class PoppedFromList(Model):
    def forward(self, batch):
        return self.run(self.embedded(batch.pop()))


class Rewritten(Model):
    def forward(self, data):
        data.x = self.embedded(data.x)
        for block in self.h:
            data.x = block(data.x)
        return self.head(self.ln(data.x))


class Masked(Model):
    def forward(self, tokens):
        tokens[torch.rand(tokens.shape) < 0.3] = 0
        return super().forward(tokens)


class Drawn(Model):
    def forward(self, tokens):
        return super().forward(next(tokens))


class Joined(Model):
    """Takes a module, and a tensor with a graph and an attribute."""

    def forward(self, tokens, parts):
        prefix = parts["prefix"]
        x = self.embedded(tokens) * prefix.scale + prefix
        x = x + parts["module"](x)
        parts.clear()
        return self.run(x)


def features(tokens):
    generator = torch.Generator().manual_seed(int(tokens.sum()))
    return torch.rand(*tokens.shape, WIDTH, generator=generator)


def drawn(tokens):
    yield tokens


CALLS = {
    "in place": (InPlace, lambda model, tokens: model(features(tokens))),
    "popped": (Popped, lambda model, tokens: model({"tokens": tokens})),
    "from a list": (PoppedFromList, lambda model, tokens: model([tokens])),
    "object": (Rewritten, lambda model, tokens: model(SimpleNamespace(x=tokens))),
    "masked": (Masked, lambda model, tokens: model(tokens.clone())),
    "iterator": (Drawn, lambda model, tokens: model(iter([tokens]))),
}


def loop_of(kind, call, *, compiled=False, **options):
    def loop(run):
        model = kind()
        called = torch.compile(model, backend="eager") if compiled else model
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        run.watch(model, optimizer, watched=called, **options)
        for step in STEPS:
            tokens = torch.randint(97, (4, 8), generator=torch.Generator().manual_seed(step))
            loss = F.cross_entropy(call(called, tokens).flatten(0, 1), tokens.flatten())
            run.loss(loss)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return loop


@pytest.mark.parametrize("case", CALLS)
def test_the_loop_gets_its_inputs_as_it_gave_them(case, tmp_path):
    plain, watched = run_twice(loop_of(*CALLS[case]), tmp_path)
    assert watched.differences(plain) == []
    assert sorted(rows_of(watched.path, "stream.norm")) == STEPS
    assert watched.watcher.notes == []


def test_the_pass_of_a_compiled_model_that_is_read_uses_nothing_up(tmp_path):
    loop = loop_of(*CALLS["in place"], compiled=True)
    plain, watched = run_twice(loop, tmp_path)
    assert watched.differences(plain) == []
    assert sorted(rows_of(watched.path, "stream.norm")) == STEPS


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_a_generator_cannot_be_copied_and_is_left_to_the_loop(tmp_path, given, compiled):
    tokens = torch.arange(32).view(4, 8)
    anatomy = leadline.anatomy_of(Model(), tokens) if given else None
    call = lambda model, tokens: model(drawn(tokens))  # noqa: E731
    loop = loop_of(Drawn, call, anatomy=anatomy, compiled=compiled)
    plain, watched = run_twice(loop, tmp_path)
    assert watched.differences(plain) == []
    assert sorted(rows_of(watched.path, "weights.update_ratio")) == STEPS
    reads = given and not compiled
    assert sorted(rows_of(watched.path, "stream.norm")) == (STEPS if reads else [])
    notes = watched.watcher.notes
    assert len(notes) == (not reads)
    assert reads or "cannot be copied (TypeError: cannot pickle 'generator' object)" in notes[0]


def test_modules_and_graphs_among_the_arguments(tmp_path):
    def loop(run):
        model, module = Joined(), nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(8))
        parameters = [*model.parameters(), *module.parameters()]
        optimizer = torch.optim.AdamW(parameters, lr=1e-2)
        run.watch(model, optimizer)
        for step in STEPS:
            tokens = torch.randint(97, (4, 8), generator=torch.Generator().manual_seed(step))
            leaf = torch.full((WIDTH,), 0.1, requires_grad=True)
            prefix = leaf * 2.0
            prefix.scale = 0.5
            logits = model(tokens, {"prefix": prefix, "module": module})
            loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
            run.loss(loss)
            loss.backward()
            run.loss(leaf.grad)
            run.loss(module[1].running_mean)
            optimizer.step()
            optimizer.zero_grad()

    plain, watched = run_twice(loop, tmp_path)
    assert watched.differences(plain) == []
    assert sorted(rows_of(watched.path, "stream.norm")) == STEPS


@pytest.mark.parametrize("examples", [1, 4])
def test_a_cache_among_the_arguments(tmp_path, examples):
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        vocab_size=32,
        max_position_embeddings=64,
    )

    def loop(run):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        run.watch(model, optimizer)
        for step in STEPS:
            generator = torch.Generator().manual_seed(step)
            tokens = torch.randint(32, (examples, 12), generator=generator)
            cache = DynamicCache()
            losses = [
                model(part, labels=part, past_key_values=cache, use_cache=True).loss
                for part in tokens.split(6, dim=1)
            ]
            run.loss(sum(losses))
            sum(losses).backward()
            optimizer.step()
            optimizer.zero_grad()

    plain, watched = run_twice(loop, tmp_path)
    assert watched.differences(plain) == []
    assert sorted(rows_of(watched.path, "stream.norm")) == STEPS
