"""A fault of the monitor never reaches the loop, wherever it happens.

Every function behind a watch raises in turn: from the start if the line itself calls it, else from
the first update on. The loop ends with the weights of a run without a watch, the fault is among the
notes, and nothing is left on the model, the optimizer or torch.
"""

import gc
import importlib
import inspect
import pkgutil
import sys
import types

import pytest
import torch
from torch.optim import optimizer as torch_optimizer
from torch.overrides import _get_current_function_mode_stack, _pop_mode

import leadline.lab.watch
import leadline.lab.watch.losses
import leadline.lab.watch.processes
import leadline.lab.watch.sampling
import leadline.lab.watch.updates
import leadline.lab.watch.weights
import leadline.reading.watch.alarms
from leadline.lab.watch.hooks import hidden_from_script
from leadline.lab.watch.losses import calls as losses
from leadline.lab.watch.sampling.engine_runs import engine_runs
from leadline.lab.watch.watch import watch
from tests.leftovers import leftovers
from tests.plain_gpt import PlainGPT

UPDATES = 2
LAST_LINE = {
    "Fence.shield", "Fence.__init__", "watch", "Watch.__init__", "Options.__init__", "Bell.__init__",
    "Pace.__init__", "History.__init__", "LossKeeper.__init__", "PassHooks.__init__",
    "EngineRun.__init__", "ExchangeStay.__init__", "_mark_scaled",
}  # fmt: skip
"""What stands outside of every fence: the line itself, what sets its attributes before it looks at
anything, and fences themselves."""
REMOVERS = {
    "UpdateCounter.end", "LayerReader.disarm", "Sample.close", "PassHooks.end", "WatchCourse._disarm",
    "WatchCourse._take_off", "WatchCourse.close", "Exchange.remove", "ExchangeStay.remove",
    "_OfAll.remove", "FencedSpy.stop", "_take_off", "_unwrap",
}  # fmt: skip
"""What takes hooks off: where it raises, they stay, and do nothing."""
ASKED = {
    "Watch.active", "Watch.batch", "Watch.close", "Watch.loss", "Watch.notes", "Watch.overhead",
    "Watch.path", "Watch.record", "Watch.should_stop", "Watch.step", "Watch.warnings",
    "Watch.__enter__", "Watch.__exit__",
}  # fmt: skip
"""What users call: exchanged, it would be the test that raises."""


class Injected(RuntimeError):
    """The fault."""


class Kept:
    """A sink that keeps what it gets."""

    def write(self, step, values):
        pass

    def warn(self, finding):
        pass

    def close(self):
        pass


def modules():
    """The modules behind a watch that runs in one process."""
    core = [
        f"{package.__name__}.{one.name}"
        for package in (
            leadline.lab.watch,
            leadline.lab.watch.processes,
            leadline.lab.watch.sampling,
            leadline.lab.watch.losses,
            leadline.lab.watch.updates,
            leadline.lab.watch.weights,
        )
        for one in pkgutil.iter_modules(package.__path__)
        if not one.ispkg
    ]
    names = list(core)
    names += ["leadline.anatomy.spread"]
    names += [f"leadline.instruments.passes.processes.{name}" for name in ("mailbox", "gathered")]
    alarms = [one.name for one in pkgutil.iter_modules(leadline.reading.watch.alarms.__path__)]
    names += [f"leadline.reading.watch.alarms.{name}" for name in alarms]
    names += ["leadline.reading.watch.alarm", "leadline.reading.watch.history"]
    names += ["leadline.lab.watch.sinks.sink", "leadline.lab.watch.sinks.names"]
    names += ["leadline.record.run.ring", "leadline.record.record"]
    return [importlib.import_module(name) for name in names]


def functions(module):
    """Every function and method that a module defines: its owner, its name, a label."""
    found = []
    for name, one in list(vars(module).items()):
        if inspect.isfunction(one) and one.__module__ == module.__name__:
            found.append((module, name, name))
        if not inspect.isclass(one) or one.__module__ != module.__name__:
            continue
        for attribute, member in list(vars(one).items()):
            plain = attribute == "__init__" or not attribute.startswith("__")
            written = inspect.isfunction(member) and member.__qualname__.startswith(one.__name__)
            if plain and (written or isinstance(member, property)):
                found.append((one, attribute, f"{one.__name__}.{attribute}"))
    return [one for one in found if one[2] not in LAST_LINE | ASKED]


def inject(patch, owner, name):
    """Make a function raise, under every name that it has; return how often it was called."""
    calls = []
    original = vars(owner)[name]

    def fail(*args, **kwargs):
        calls.append(name)
        raise Injected(f"injected into {name}")

    if isinstance(original, property):
        patch.setattr(owner, name, property(fail))
    elif inspect.isclass(owner):
        patch.setattr(owner, name, fail)
    else:
        for other in [one for one in sys.modules.values() if isinstance(one, types.ModuleType)]:
            if other.__name__.startswith("leadline") and vars(other).get(name) is original:
                patch.setattr(other, name, fail)
    return calls


def run(path=None, *, inject_at=lambda update: None, **options):
    """Train a small model; return its weights, and the watch with what it is set on.

    `inject_at` is called ahead of the line with 0, and ahead of every update with its number.
    """
    torch.manual_seed(0)
    model = PlainGPT(["none", "none"]).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    one = None
    inject_at(0)
    if path is not None:
        one = watch(model, optimizer, path, every=1, quiet=True, **options)
    for update in range(1, UPDATES + 1):
        inject_at(update)
        tokens = torch.randint(97, (2, 8), generator=torch.Generator().manual_seed(update))
        logits = model(tokens)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    if one is not None:
        one.close()
    return model, optimizer, one


@pytest.fixture(scope="module")
def alone():
    """The weights of the run without a watch."""
    return [one.detach().clone() for one in run()[0].parameters()]


def check(alone, model, optimizer, *, hooks=True):
    assert all(map(torch.equal, model.parameters(), alone)), "other weights"
    if hooks:
        assert leftovers(model, optimizer) == []


OPTIONS = {"attention": True, "snapshot": True, "sinks": [Kept()], "on_warning": lambda _: None}


@pytest.fixture(scope="module")
def called(tmp_path_factory):
    """The code that runs in a watched run: that of the line, and all of it."""
    seen, of_the_line = set(), set()
    sys.setprofile(lambda frame, event, _: seen.add(frame.f_code))
    try:
        run(
            tmp_path_factory.mktemp("called") / "run.leadline",
            inject_at=lambda update: of_the_line.update(seen) if update == 1 else None,
            **OPTIONS,
        )
    finally:
        sys.setprofile(None)
    return of_the_line, seen


def code_of(owner, name):
    member = vars(owner)[name]
    function = member.fget if isinstance(member, property) else inspect.unwrap(member)
    return function.__code__


def put_back():
    """Take off what a remover that raises has left, so that the next run begins as usual."""
    losses._listeners = ()
    while losses._originals:
        owner, name, original, _ = losses._originals.pop()
        setattr(owner, name, original)
    while _get_current_function_mode_stack():
        _pop_mode()
    torch_optimizer._global_optimizer_pre_hooks.clear()
    torch_optimizer._global_optimizer_post_hooks.clear()
    for exchange in (engine_runs, hidden_from_script):
        while exchange.standing:
            exchange.remove()


def faults(folder, alone, chosen):
    """Run once for every function and the update at which it begins to raise; say what is wrong."""
    found = []
    for number, ((owner, name, label), at) in enumerate(chosen):
        calls = []
        with pytest.MonkeyPatch.context() as patch:

            def raise_from_now_on(update, begin=at, owner=owner, name=name, patch=patch):
                if update == begin:
                    calls.append(inject(patch, owner, name))  # noqa: B023

            try:
                model, optimizer, one = run(
                    folder / f"{number}.leadline", inject_at=raise_from_now_on, **OPTIONS
                )
                check(alone, model, optimizer, hooks=label not in REMOVERS)
                told = [note for note in one.notes if "injected" in note]
                assert not calls[0] or told, f"called {len(calls[0])} times, and {one.notes}"
            except (AssertionError, Injected) as error:
                found.append(f"{label} from update {at}: {type(error).__name__} {error}"[:300])
        put_back()
    gc.collect()  # while warnings about files are expected
    return found


by_module = pytest.mark.parametrize(
    "module", modules(), ids=lambda one: one.__name__.removeprefix("leadline.")
)
# What raises when it should close a file leaves it to be closed by Python.
unclosed = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@unclosed
def test_one_function_of_every_module_that_raises_stops_nothing(tmp_path, alone, called):
    of_the_line, all_code = called
    chosen = []
    for module in modules():
        ran = [one for one in functions(module) if code_of(*one[:2]) in all_code]
        chosen += [(one, 0 if code_of(*one[:2]) in of_the_line else 1) for one in ran[-1:]]
    assert len(chosen) > 20
    assert faults(tmp_path, alone, chosen) == []


@pytest.mark.slow
@by_module
@unclosed
def test_a_function_that_raises_stops_nothing(tmp_path, alone, called, module):
    of_the_line, all_code = called
    chosen = [
        (one, 0 if code_of(*one[:2]) in of_the_line else 1)
        for one in functions(module)
        if code_of(*one[:2]) in all_code
    ]
    assert faults(tmp_path, alone, chosen) == []


@pytest.mark.slow
@by_module
@unclosed
def test_a_function_that_begins_to_raise_later_stops_nothing(tmp_path, alone, called, module):
    wanted = [one for one in functions(module) if code_of(*one[:2]) in called[1]]
    assert faults(tmp_path, alone, [(one, at) for one in wanted for at in (1, 2)]) == []


def test_the_functions_behind_a_watch_are_found(called):
    found = {label for module in modules() for *_, label in functions(module)}
    assert {"Delivery._write", "picked", "StepReading.end", "Record.append"} <= found
    assert len(found) > 200
