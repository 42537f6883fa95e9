"""A model that leaves layers out in training (layerdrop): the others are read where they are."""

import math

import pytest
import torch
from torch.nn import functional as F

from leadline.record import Record
from tests.plain_gpt import PlainGPT
from tests.twin_runs import run_twice

DEPTH = 5
LEFT_OUT = [set(), {2}, {0}, {4}, {0, 1, 3}, {3, 4}]
"""The blocks that every update leaves out, counted from 0."""
OF_LAYERS = ("stream.norm", "gradient.stream", "update.ratio")


class Dropping(PlainGPT):
    """Leaves out the blocks that it is told to, in training alone; keeps what passes by."""

    def __init__(self):
        super().__init__(["none"] * DEPTH)
        self.left_out = set()
        self.kept = []

    def forward(self, tokens):
        x = self.wte(tokens)
        kept = {0: x}
        for at, block in enumerate(self.h):
            if not (self.training and at in self.left_out):
                x = kept[at + 1] = block(x)
        self.kept.append(kept)
        if x.requires_grad:
            for one in kept.values():
                one.retain_grad()
        return self.head(self.ln(x))


def loop_of(kept):
    def loop(run):
        torch.manual_seed(1)
        model = Dropping()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        run.watch(model, optimizer)
        for left_out in LEFT_OUT:
            tokens = torch.randint(0, model.wte.num_embeddings, (3, 7))
            model.left_out, model.kept = left_out, []
            logits = model(tokens)
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
            run.loss(loss)
            loss.backward()
            if run.path is not None:
                kept.append(model.kept[-1])
            optimizer.step()
            optimizer.zero_grad()

    return loop


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    kept = []
    plain, run = run_twice(loop_of(kept), tmp_path_factory.mktemp("run"))
    return plain, run, kept


def values(path, quantity, step):
    record = Record.open(path)
    headline = record.quantities[quantity].headline
    return {
        (one.site.layer, one.site.sublayer): one.value
        for one in record.select(quantity, statistic=headline, step=step)
    }


def test_the_training_is_the_same_and_one_sentence_says_what_is_not_read(watched):
    plain, run, _ = watched
    assert run.differences(plain) == []
    (note,) = run.watcher.notes
    assert note == (
        "In some sampled updates the forward pass leaves layers out, as layerdrop does: nothing is "
        "read of a layer where it is left out."
    )


@pytest.mark.parametrize("step", range(1, len(LEFT_OUT) + 1))
def test_streams_and_gradients_stand_at_the_layers_that_they_passed(watched, step):
    _, run, kept = watched
    norms = values(run.path, "stream.norm", step)
    gradients = values(run.path, "gradient.stream", step)
    passed = {0} | {at + 1 for at in range(DEPTH) if at not in LEFT_OUT[step - 1]}
    assert norms.keys() == gradients.keys() == {(layer, None) for layer in passed}
    for layer in passed:
        x, gradient = kept[step - 1][layer].detach(), kept[step - 1][layer].grad
        assert norms[layer, None] == pytest.approx(float(x.double().norm(dim=-1).mean()), rel=1e-5)
        assert gradients[layer, None] == pytest.approx(float(gradient.double().norm()), rel=1e-5)


@pytest.mark.parametrize("step", range(1, len(LEFT_OUT) + 1))
def test_updates_are_those_of_their_own_layer(watched, step):
    _, run, _ = watched
    passed = {at + 1 for at in range(DEPTH) if at not in LEFT_OUT[step - 1]}
    ratios = values(run.path, "update.ratio", step)
    assert {layer for layer, _ in ratios} == passed
    assert all(math.isfinite(value) and value > 0 for value in ratios.values())
