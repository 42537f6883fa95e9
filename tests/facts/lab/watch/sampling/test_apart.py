"""What a watch computes is apart from what stands around the loop's own passes."""

from functools import partial

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from leadline.lab.watch.sampling.apart import (
    apart,
    is_recomputed,
    is_surrounded,
    is_transformed,
)
from tests.plain_gpt import PlainGPT
from tests.twin_runs import rows_of, run_twice

STEPS = [1, 2, 3]


def save_products(_, operation, *args, **kwargs):
    saved = any(name in str(operation) for name in ("mm", "norm", "sum", "mul", "amax"))
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE


CHECKPOINTS = {
    "plain": {"use_reentrant": False},
    "to the end": {"use_reentrant": False, "early_stop": False},
    "selective": {
        "use_reentrant": False,
        "context_fn": partial(create_selective_checkpoint_contexts, save_products),
    },
    "reentrant": {"use_reentrant": True},
}


def trained_by(call, **options):
    """A loop that makes one update for every step; `call(model, tokens)` returns logits."""

    def loop(run):
        model = PlainGPT(["none", "none"])
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        run.watch(model, optimizer, **options)
        for step in STEPS:
            tokens = torch.randint(97, (4, 8), generator=torch.Generator().manual_seed(step))
            loss = F.cross_entropy(call(model, tokens).flatten(0, 1), tokens.flatten())
            run.loss(loss)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return loop


@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_a_checkpoint_around_the_whole_model(tmp_path, kind, attention):
    def call(model, tokens):
        # A reentrant one trains nothing unless something that enters carries a gradient.
        leaf = torch.ones((), requires_grad=True)
        return checkpoint(lambda x, _: model(x), tokens, leaf, **CHECKPOINTS[kind])

    alone, beside = run_twice(trained_by(call), tmp_path, attention=attention)
    assert beside.differences(alone) == []
    assert beside.watcher.notes == []
    for quantity in ("stream.norm", "gradient.stream"):
        # Once each, though the model runs once more during backward.
        counts = {step: len(rows) for step, rows in rows_of(beside.path, quantity).items()}
        assert counts == dict.fromkeys(STEPS, 3), quantity


def test_selective_checkpoints_of_blocks_whose_anatomy_is_known(tmp_path):
    import leadline

    def call(model, tokens):
        for block in model.h:
            if "forward" not in vars(block):
                block.forward = partial(checkpoint, block.forward, **CHECKPOINTS["selective"])
        return model(tokens)

    torch.manual_seed(0)
    anatomy = leadline.anatomy_of(PlainGPT(["none", "none"]), torch.zeros(4, 8).long())
    alone, beside = run_twice(trained_by(call, anatomy=anatomy), tmp_path, attention=True)
    assert beside.differences(alone) == []
    assert beside.watcher.notes == []
    assert sorted(rows_of(beside.path, "update.norm")) == STEPS


TOKENS = torch.zeros(2, 4, dtype=torch.long)


def gradients_of_a_function(model):
    def value(parameters):
        return torch.func.functional_call(model, parameters, (TOKENS,)).sum()

    gradients = torch.func.grad(value)(dict(model.named_parameters()))
    return torch.stack([one.sum() for one in gradients.values()]).tolist()


class Small(torch.nn.Module):
    """Blocks that TorchScript compiles."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(97, 16)
        self.h = torch.nn.ModuleList(SmallBlock() for _ in range(2))
        self.head = torch.nn.Linear(16, 97)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        for block in self.h:
            x = block(x)
        return self.head(x)


class SmallBlock(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.mlp = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.mix(x.mean(1, keepdim=True).expand_as(x))
        return x + self.mlp(torch.relu(x))


GRAPHS = {
    "script": lambda model: torch.jit.script(model).code,
    "trace": lambda model: str(torch.jit.trace(model, TOKENS).graph).count("aten::"),
    "make_fx": lambda model: make_fx(model)(TOKENS).code,
    "export": lambda model: str(torch.export.export(model, (TOKENS,)).graph),
    "func": gradients_of_a_function,
    "vmap": lambda model: torch.func.vmap(model)(TOKENS[None]).tolist(),
}


@pytest.mark.filterwarnings("ignore")  # TorchScript is old
@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("kind", GRAPHS)
def test_graphs_made_of_the_model_in_a_sampled_update(tmp_path, kind, at):
    graphs = []

    def loop(run):
        torch.manual_seed(0)
        model = Small()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        run.watch(model, optimizer, attention=True)
        for step in (1, 2):
            if step == at:
                graphs.append(GRAPHS[kind](model))
            loss = model(TOKENS + step).logsumexp(-1).mean()
            run.loss(loss)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    alone, beside = run_twice(loop, tmp_path)
    assert graphs[0] == graphs[1]
    assert beside.differences(alone) == []
    assert beside.watcher.notes == []
    assert sorted(rows_of(beside.path, "gradient.stream")) == [1, 2]


def test_nothing_stands_around_what_is_computed_apart():
    packed = []

    def pack(tensor):
        packed.append(tensor)
        return tensor

    x = torch.ones(2, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one):
        assert is_surrounded() and not is_recomputed()
        with apart():
            assert not is_surrounded()
            _ = x * x
        assert packed == []
        _ = x * x
    assert packed and not is_surrounded()


def test_hooks_on_saved_tensors_come_back_after_an_error():
    with torch.autograd.graph.saved_tensors_hooks(lambda one: one, lambda one: one):
        with pytest.raises(KeyError), apart():
            raise KeyError("inside")
        assert is_surrounded()


def test_a_plain_pass_is_no_transformed_one():
    assert not is_transformed()
    assert torch.func.vmap(lambda x: x + is_transformed())(torch.zeros(1)).tolist() == [1.0]
