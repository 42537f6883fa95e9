"""However a watched loop ends, nothing is left on its model, its optimizer or torch."""

import copy
import io

import pytest
import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

import leadline
from leadline.anatomy import Tap
from leadline.lab.watch.watch import watch
from tests.leftovers import leftovers
from tests.plain_gpt import PlainGPT

TOKENS = torch.zeros(3, 9, dtype=torch.long)


class Loop:
    """A watched loop."""

    def __init__(self, **options):
        torch.manual_seed(0)
        self.model = PlainGPT(["none", "none"])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.watched = watch(
            self.model, self.optimizer, every=1, attention=True, quiet=True, **options
        )

    def update(self):
        self.model(TOKENS).logsumexp(-1).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def steps(self):
        for step in range(3):
            self.update()
            yield step


def raise_at(kind, loop):
    """Let something of the loop's own raise at its next update; return what takes it off again."""

    def fail(*_):
        raise kind("of the loop")

    block = loop.model.h[1]
    return {
        "forward": lambda: block.mlp[1].register_forward_pre_hook(fail),
        "behind a module": lambda: block.register_forward_hook(fail),
        "behind the model": lambda: loop.model.register_forward_hook(fail),
        "ahead of the model": lambda: loop.model.register_forward_pre_hook(fail),
        "backward": lambda: block.ln1.weight.register_hook(fail),
        "step": lambda: loop.optimizer.register_step_pre_hook(fail),
    }


PLACES = [
    "forward",
    "behind a module",
    "behind the model",
    "ahead of the model",
    "backward",
    "step",
]


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("kind", [KeyError, KeyboardInterrupt])
@pytest.mark.parametrize("place", PLACES)
def test_an_error_in_a_sampled_update(place, kind, ahead):
    loop = Loop()
    for _ in range(ahead):
        loop.update()
    handle = raise_at(kind, loop)[place]()
    with pytest.raises(kind, match="of the loop"):
        loop.update()
    handle.remove()
    loop.watched.close()
    assert leftovers(loop.model, loop.optimizer) == []
    torch.save(loop.model, io.BytesIO())


@pytest.mark.parametrize("kind", [KeyError, KeyboardInterrupt])
@pytest.mark.parametrize("place", PLACES)
def test_a_loop_that_goes_on_after_an_error(place, kind):
    loop = Loop()
    loop.update()
    handle = raise_at(kind, loop)[place]()
    with pytest.raises(kind, match="of the loop"):
        loop.update()
    handle.remove()
    loop.optimizer.zero_grad()
    loop.update()
    loop.watched.close()
    assert leftovers(loop.model, loop.optimizer) == []
    assert loop.watched.notes == []
    assert {row.step for row in loop.watched.record.select("stream.norm")} == {1, 2}


def test_loops_that_end_early_or_late():
    for updates in (0, 1, 2, 3):
        loop = Loop()
        steps = loop.steps()
        for _ in range(updates):
            next(steps)
        steps.close()
        loop.watched.close()
        assert leftovers(loop.model, loop.optimizer) == []


def test_an_interrupt_while_the_watch_ends_leaves_nothing(monkeypatch):
    loop = Loop()
    loop.update()

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop.watched._course._layers, "give_up", interrupt)
    monkeypatch.setattr(loop.watched._course._writer, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        loop.watched.close()
    assert leftovers(loop.model, loop.optimizer) == []


@pytest.mark.parametrize("depth", [1, 2])
def test_modes_of_the_loop_are_those_that_it_has_itself(depth):
    """An interrupt leaves a mode of the loop on the stack in place of ours."""
    loop = Loop()
    handle = raise_at(KeyboardInterrupt, loop)["forward"]()
    outer, inner = DeviceContext(torch.device("cpu")), DeviceContext(torch.device("cpu"))
    with outer if depth == 2 else torch.no_grad():
        with pytest.raises(KeyboardInterrupt), inner, torch.enable_grad():
            loop.model(TOKENS)
        handle.remove()
        loop.watched.close()
        assert _get_current_function_mode_stack() == ([outer] if depth == 2 else [])
    assert leftovers(loop.model, loop.optimizer) == []


# --- copies --------------------------------------------------------------------------------------


def copies(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return [copy.deepcopy(model), torch.load(file, weights_only=False)]


def test_a_model_that_is_copied_and_saved_inside_of_a_sampled_pass():
    loop = Loop()
    made = []

    def copy_it(module, *_):
        if not made:
            made.extend(copies(module))

    loop.update()
    loop.model.ln.register_forward_hook(lambda *_: copy_it(loop.model.h[0]))
    loop.update()
    for one in made:
        # It reads into no sample.
        assert one(torch.zeros(1, 2, 48)).shape == (1, 2, 48)
    loop.update()
    loop.watched.close()
    assert loop.watched.notes == []
    assert len(loop.watched.record.select("stream.norm")) == 9


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.filterwarnings("ignore")  # TorchScript is old
def test_copies_of_a_watched_model_have_no_hooks_and_can_be_scripted(closed):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    watched = watch(model, torch.optim.SGD(model.parameters(), lr=0.1), quiet=True)
    model.register_forward_pre_hook(print, with_kwargs=True)  # somebody else's
    made = copies(model)
    tables = [name for name in vars(model) if "_hooks" in name]
    if closed:
        watched.close()
    for one in made:
        assert sum(len(getattr(one, name)) for name in tables) == 2
        one._forward_pre_hooks.clear()
        one._forward_pre_hooks_with_kwargs.clear()
        assert torch.jit.script(one)(torch.ones(2)).shape == (2,)
    watched.close()
    assert all(not getattr(getattr(model, name), "__dict__", None) for name in tables)


def test_a_tap_stays_with_its_model():
    model = PlainGPT(["none", "none"])
    anatomy = leadline.anatomy_of(model, TOKENS)
    seen = []

    class Listener:
        def stream(self, *_):
            seen.append("stream")

        update = block = gradient = stream

    with Tap(model, anatomy, Listener()):
        for one in copies(model):
            one(TOKENS)
        assert seen == []
        model(TOKENS)
    assert seen


def test_a_model_that_holds_its_watch_is_copied_and_saved():
    loop = Loop()
    loop.model.watched = loop.watched
    loop.model.register_forward_hook(HandingOn(loop.watched))
    loop.update()
    copied, loaded = copies(loop.model)
    assert copied.watched is loop.watched
    assert not loaded.watched.active
    for one in (copied, loaded):
        one(TOKENS)
    loaded.watched.close()
    loop.update()
    loop.watched.close()
    assert loop.watched.notes == []
    assert {row.step for row in loop.watched.record.select("stream.norm")} == {1, 2}


class HandingOn:
    """A hook of the user's own that holds the watch."""

    def __init__(self, watched):
        self.name_batch = watched.batch

    def __call__(self, *_):
        self.name_batch("a batch")
