"""A watched run is the same where forward passes change weights, objects, or what the model is made of."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.plain_gpt import PlainGPT
from tests.twin_runs import rows_of, run_twice

STEPS = [1, 2, 3]
PROBE = torch.arange(12).view(2, 6)


class Model(PlainGPT):
    def __init__(self):
        super().__init__(["none", "none"])


class Averaged(Model):
    """Reads through an average of its blocks as well, made anew in every pass (MoCo)."""

    def __init__(self):
        super().__init__()
        self.slow = copy.deepcopy(self.head).requires_grad_(False)

    def forward(self, tokens):
        with torch.no_grad():
            for slow, fast in zip(self.slow.parameters(), self.head.parameters(), strict=True):
                slow.mul_(0.9).add_(fast, alpha=0.1)
        x = self.wte(tokens)
        for block in self.h:
            x = block(x)
        return self.head(self.ln(x)) + 0.5 * self.slow(x)


class Normalised(Model):
    """Sets weights to unit length whenever they are used (EDM2)."""

    def forward(self, tokens):
        with torch.no_grad():
            for block in self.h:
                weight = block.attn.q.weight
                weight.div_(weight.norm(dim=1, keepdim=True))
        return super().forward(tokens)


class Initialised(Model):
    """Sets a buffer from the first batch (ActNorm)."""

    def forward(self, tokens):
        if not hasattr(self, "mean"):
            self.register_buffer("mean", self.wte(tokens).detach().mean((0, 1)))
        return super().forward(tokens) + self.mean.sum()


class Growing(Model):
    """Makes a layer when it needs it."""

    def __init__(self):
        super().__init__()
        self.extra = None

    def forward(self, tokens):
        if self.extra is None:
            self.extra = nn.Linear(97, 97)
        return self.extra(super().forward(tokens))


class Counting(Model):
    """Keeps what it has counted outside of what torch knows."""

    def __init__(self):
        super().__init__()
        self.usage, self.state = np.zeros(1), SimpleNamespace(calls=0)
        self.hidden = [nn.BatchNorm1d(97)]

    def forward(self, tokens):
        self.usage += 1
        self.state.calls += 1
        logits = super().forward(tokens)
        self.hidden[0](logits.detach().flatten(0, 1))
        scale = 1.0 + 0.1 * float(self.usage[0]) + 0.1 * self.state.calls
        return logits * scale + self.hidden[0].running_mean


class Renormed(Model):
    """Cuts the rows of its embedding to a largest norm whenever they are read."""

    def __init__(self):
        super().__init__()
        self.wte.max_norm = 0.5


def loop_of(kind, *, compiled=False, hook=False, **options):
    def loop(run):
        torch.manual_seed(0)
        model, features = kind(), []
        if hook:
            model.h[0].register_forward_hook(lambda _m, _a, output: features.append(output))
        called = torch.compile(model, backend="eager") if compiled else model
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        run.watch(model, optimizer, watched=called, **options)
        for step in STEPS:
            features.clear()
            tokens = torch.randint(97, (4, 8), generator=torch.Generator().manual_seed(step))
            loss = F.cross_entropy(called(tokens).flatten(0, 1), tokens.flatten())
            if hook:
                loss = loss + 0.1 * features[0].square().mean()
            run.loss(loss)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return loop


def check(loop, folder):
    plain, watched = run_twice(loop, folder)
    assert watched.differences(plain) == []
    assert sorted(rows_of(watched.path, "stream.norm")) == STEPS


KINDS = [Averaged, Normalised, Initialised, Growing, Counting, Renormed]


@pytest.mark.parametrize("kind", KINDS)
def test_passes_of_our_own_change_nothing(kind, tmp_path):
    check(loop_of(kind), tmp_path)


@pytest.mark.parametrize("kind", [Averaged, Normalised])
def test_nor_do_those_that_read_a_compiled_model(kind, tmp_path):
    check(loop_of(kind, compiled=True), tmp_path)


@pytest.mark.parametrize("kind", [Normalised, Counting])
def test_nor_do_those_of_a_fixed_batch(kind, tmp_path):
    check(loop_of(kind, probe=PROBE), tmp_path)


@pytest.mark.parametrize("compiled", [False, True])
def test_hooks_that_collect_features_hear_the_loop_alone(compiled, tmp_path):
    check(loop_of(Model, hook=True, compiled=compiled), tmp_path)
