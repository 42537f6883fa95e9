"""Looking at attention reaches neither the loop nor the errors of its model."""

import pytest
import torch
from torch.overrides import _get_current_function_mode_stack

from leadline.lab.watch.watch import watch
from tests.plain_gpt import PlainGPT


@pytest.fixture
def run():
    """A watched loop that has made one update: its model, its watch, and a function for the next."""
    torch.manual_seed(0)
    model = PlainGPT(["", ""])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    watched = watch(model, optimizer, every=1, attention=True, quiet=True)
    tokens = torch.randint(97, (3, 9))

    def update():
        model(tokens).logsumexp(-1).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    update()
    yield model, watched, update
    watched.close()


def _hooks(model):
    return sum(
        len(one._forward_hooks) + len(one._forward_pre_hooks)
        for one in model.modules()
        if one is not model
    )


def test_an_error_of_the_model_is_the_one_that_the_loop_sees(run, monkeypatch):
    model, watched, update = run

    def fail(_):
        raise KeyError("of the model")

    with monkeypatch.context() as patch:
        patch.setattr(model.ln, "forward", fail)
        with pytest.raises(KeyError, match="of the model"):
            update()
    assert not _get_current_function_mode_stack()
    update()
    watched.close()
    assert _hooks(model) == 0
    steps = {one.step for one in watched.record.select("attention.entropy")}
    assert steps == {1, 2}


@pytest.mark.parametrize(
    "place",
    [
        "tap.attention.Eyes._score",
        "tap.attention.shaped_by_example",
        "tap.attention.AttentionSpy._leave",
        "tap.projections.Projections.passed",
        "tap.projections.Projections.product",
        "tap.projections.Projections.source",
    ],
)
def test_a_fault_of_the_spy_ends_the_sample_and_nothing_else(run, monkeypatch, place):
    model, watched, update = run

    def fail(*_, **__):
        raise RuntimeError("of the spy")

    watched._course._layers._heads.looks = True  # products are followed again
    with monkeypatch.context() as patch:
        patch.setattr(f"leadline.anatomy.{place}", fail)
        update()
    assert any("of the spy" in note for note in watched.notes)
    assert not _get_current_function_mode_stack()
    update()
    watched.close()
    assert _hooks(model) == 0
    assert {one.step for one in watched.record.select("attention.entropy")} == {1, 3}
