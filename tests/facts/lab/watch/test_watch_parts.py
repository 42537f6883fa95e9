"""The small parts of a watch: fence, pace, hooks, and the counting of updates."""

import copy
import io
import logging

import pytest
import torch
from torch import nn

from leadline.errors import InputError, TrainingStopped
from leadline.lab.watch import bell, fence, gauges, layers, pace
from leadline.lab.watch.exchange import Exchange
from leadline.lab.watch.fence import Fence
from leadline.lab.watch.hooks import LookingHook, has_compiled_parts
from leadline.lab.watch.pace import Pace
from leadline.lab.watch.sampling import outputs
from leadline.lab.watch.updates.counting import UpdateCounter, is_skipped, steps_made
from leadline.lab.watch.weights import picked, second_moments
from leadline.lab.watch.weights.optimizers import StepReading, readings_of
from leadline.lab.watch.weights.parameter_groups import ParameterGroups
from leadline.numerics.patterns import matrix_group


def fail(*_):
    raise ValueError("broken")


def test_constants():
    """Numbers that were chosen: a change is a decision."""
    assert (fence.MOST_FAULTS, fence.MOST_NOTES) == (3, 50)
    assert pace.MOST_KEPT == 512
    assert picked.MOST_NUMBERS == 4096
    assert second_moments.SECOND_MOMENTS == ("max_exp_avg_sq", "exp_avg_sq", "square_avg")
    assert bell.SLOTS == 256
    assert (outputs.LOGIT_TOKENS, layers.MOST_PROOFS) == (64, 3)
    assert (gauges.HIDDEN, gauges.EMPTY) == (matrix_group.HIDDEN, matrix_group.EMPTY)


# --- fence ---------------------------------------------------------------------------------------


def test_a_guard_turns_a_fault_into_a_note_that_names_the_place(caplog):
    one = Fence()
    with caplog.at_level(logging.WARNING, logger="leadline.watch"):
        assert one.guard("Reading", fail)() is None
        assert one.guard("Reading", fail)() is None
    assert len(one.notes) == len(caplog.records) == 1
    assert one.notes[0].startswith("Reading failed: ValueError: broken (")
    assert "test_watch_parts.py:" in one.notes[0]


def test_a_fault_of_our_own_says_no_place():
    one = Fence(quiet=True)

    def refuse():
        raise InputError("Give another one.")

    one.guard("Reading", refuse)()
    assert ".py" not in one.notes[0]


def test_after_three_faults_without_a_sample_in_between_the_watch_is_off():
    one = Fence(quiet=True)

    def sample(*, useful):
        one.guard("A", fail)()
        one.guard("B", fail)()  # of one sample they count once
        one.sample_ended(useful=useful)

    for useful in (False, False, True, False, False):
        sample(useful=useful)
    assert not one.off
    sample(useful=False)
    assert one.off
    assert "switched itself off" in one.notes[-1]
    assert one.why_off == one.notes[-1]
    assert one.guard("A", lambda: 3)() is None


def test_a_second_fault_while_the_first_is_cleared_away_switches_off():
    one = Fence(quiet=True)
    one.on_fault = fail
    one.guard("A", fail)()
    assert one.off
    assert "The watch is off" in one.notes[-1]


def test_what_the_user_hands_in_may_fail_as_often_as_it_likes():
    one = Fence(quiet=True)
    for _ in range(9):
        assert one.lenient("on_warning", fail)() is None
        one.sample_ended(useful=True)
    assert not one.off
    (note,) = one.notes
    assert note.startswith("on_warning failed: ValueError: broken (")
    assert note.endswith("Training and watch continue.")
    assert one.lenient("on_warning", lambda: 3)() == 3


def test_what_gets_past_every_guard_is_logged_as_well(caplog):
    one = Fence()
    with caplog.at_level(logging.WARNING, logger="leadline.watch"):
        one.shield(fail)()
        one.shield(fail)()
    assert [record.getMessage() for record in caplog.records] == [
        "leadline.watch: The watch is off: ValueError: broken. Training continues."
    ]


def test_a_shield_lets_nothing_through_but_the_end_that_was_asked_for():
    one = Fence(quiet=True)
    assert one.shield(lambda x: x + 1)(1) == 2
    assert one.shield(fail)() is None
    assert one.off
    assert one.shield(lambda: 3)() == 3  # what ends a watch runs although it is off

    def stop():
        raise TrainingStopped("enough")

    with pytest.raises(TrainingStopped):
        one.shield(stop)()
    with pytest.raises(KeyboardInterrupt):
        one.shield(lambda: (_ for _ in ()).throw(KeyboardInterrupt))()


def test_notes_are_said_once_and_not_without_end(caplog):
    one = Fence()
    one.note("It is 3.", about="size")
    one.note("It is 4.", about="size")
    one.note("It is 3.")
    assert one.notes == ["It is 3."]
    for at in range(100):
        one.note(f"Number {at}.")
    assert len(one.notes) == fence.MOST_NOTES


def test_a_quiet_fence_keeps_notes_and_logs_none(caplog):
    Fence(quiet=True).note("Hush.")
    assert caplog.records == []


# --- pace ----------------------------------------------------------------------------------------


class Clock:
    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(pace.time, "perf_counter", lambda: self.now)

    def update(self, one, seconds, *, sampled):
        self.now += seconds
        one.update(sampled=sampled)


def test_the_pace_is_that_of_medians_without_the_first_sample(monkeypatch):
    clock = Clock(monkeypatch)
    one = Pace()
    clock.update(one, 50.0, sampled=True)
    for _ in range(3):
        clock.update(one, 1.0, sampled=False)
    clock.update(one, 1.2, sampled=True)
    clock.update(one, 100.0, sampled=False)  # an evaluation
    clock.update(one, 1.2, sampled=True)
    overhead = one.overhead()
    assert (overhead.updates, overhead.samples, overhead.first_seconds) == (7, 3, 50.0)
    assert overhead.sampled_ratio == pytest.approx(1.2)
    # Two samples of 0.2 seconds each, of six updates after the first.
    assert overhead.share == pytest.approx(0.4 / 6.4)
    assert "a sampled update took 1.20 times an idle one, 6.2 % of the time" in str(overhead)


def test_too_few_updates_say_nothing_about_the_cost(monkeypatch):
    clock = Clock(monkeypatch)
    one = Pace()
    clock.update(one, 1.0, sampled=True)
    assert one.overhead().sampled_ratio is None
    assert "too few" in str(one.overhead())


# --- hooks ---------------------------------------------------------------------------------------


def hooked():
    model = nn.Linear(2, 2)
    calls = []
    hook = LookingHook(lambda *args: calls.append(args), lambda: calls.append("traced"))
    model.register_forward_pre_hook(hook, with_kwargs=True)
    model.register_forward_hook(hook, always_call=True)
    return model, calls


def test_hooks_stay_behind_when_a_model_is_copied_or_saved():
    model, calls = hooked()
    model(torch.ones(2))
    assert len(calls) == 2
    file = io.BytesIO()
    torch.save(model, file)
    assert b"leadline" not in file.getvalue()
    file.seek(0)
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        assert torch.equal(other(torch.ones(2)), model.forward(torch.ones(2)))
        other(input=torch.ones(2))
    assert len(calls) == 2


def test_compiled_parts_are_found_wherever_they_are():
    def model():
        return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))

    assert not has_compiled_parts(model())
    in_place, by_forward, exchanged = model(), model(), model()
    in_place[1].compile(backend="eager")
    by_forward[1].forward = torch.compile(by_forward[1].forward, backend="eager")
    exchanged[1] = torch.compile(exchanged[1], backend="eager")
    assert all(map(has_compiled_parts, (in_place, by_forward, exchanged)))


# --- counting ------------------------------------------------------------------------------------


def test_how_many_updates_an_optimizer_has_made():
    weight = nn.Parameter(torch.ones(2))
    adam = torch.optim.Adam([weight])
    assert steps_made(adam) == 0
    weight.grad = torch.ones(2)
    for _ in range(3):
        adam.step()
    assert steps_made(adam) == 3
    loaded = torch.optim.Adam([weight])
    loaded.load_state_dict(adam.state_dict())
    assert steps_made(loaded) == 3
    plain = torch.optim.SGD([weight], lr=0.1)
    plain.step()
    assert steps_made(plain) == 0
    plain.param_groups[0]["step"] = 7  # some count in their groups
    assert steps_made(plain) == 7


def test_whether_a_fused_optimizer_is_about_to_skip():
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    assert not is_skipped(optimizer)
    optimizer.found_inf = torch.tensor(0.0)
    assert not is_skipped(optimizer)
    optimizer.found_inf = torch.tensor(1.0)
    assert is_skipped(optimizer)


def counted(optimizers, model, *, named=True):
    """An UpdateCounter that says what it calls."""
    said = []
    counter = UpdateCounter(
        model,
        optimizers if named else None,
        before=lambda one: said.append("before"),
        after=lambda: said.append("after"),
        waiting=lambda: said.append("waiting"),
        fence=Fence(quiet=True),
    )
    counter.begin()
    return counter, said


@pytest.mark.parametrize("named", [True, False])
def test_an_update_is_over_when_all_have_stepped_or_the_loop_goes_on(named):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    first, second = (torch.optim.SGD(part.parameters(), lr=0.1) for part in model)
    other = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    counter, said = counted([first, second], model, named=named)
    first.step()
    other.step()
    second.step()
    assert said == ["before", "waiting", "before", "after"]
    said.clear()
    first.step()
    counter.go_on()
    counter.go_on()
    assert said == ["before", "waiting", "after"]
    said.clear()
    second.step()
    second.step()
    assert said == ["before", "waiting", "after", "before", "waiting"]
    counter.end()
    said.clear()
    first.step()
    assert said == []


# --- numbers of a part of the weights ------------------------------------------------------------


@pytest.mark.parametrize("count", [4096, 4097, 100_000])
def test_of_large_tensors_some_numbers_stand_for_all(count):
    errors = []
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        weight = nn.Parameter(torch.randn(count, generator=generator))
        change = torch.randn(count, generator=generator) * 0.01
        module = nn.ParameterDict({"w": weight})
        optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
        weight.grad = -change
        before = weight.detach().clone()
        reading = StepReading(ParameterGroups(module, None))
        reading.begin(optimizer)
        optimizer.step()
        (one,) = readings_of(reading.end())
        exact = ((weight.detach() - before).norm() / before.norm()).item()
        errors.append(one.update_ratio / exact - 1)
        assert one.gradient == pytest.approx(change.norm().item(), rel=1e-5)
    spread = sum(error**2 for error in errors) ** 0.5 / len(errors) ** 0.5
    if count == picked.MOST_NUMBERS:
        assert spread < 1e-5
    else:
        assert 0.002 < spread < 0.03  # 1 / sqrt(4096) is 1.6 %, less where much of it is read


def test_a_function_is_exchanged_until_the_last_who_needs_it_has_left():
    class Owner:
        @staticmethod
        def say():
            return "theirs"

    original = Owner.say
    exchange = Exchange(Owner, "say", lambda _: lambda: "ours")
    first, second = exchange.begin(), exchange.begin()
    assert Owner.say() == "ours"
    first.remove()
    first.remove()  # once more does nothing: the second still needs it
    assert Owner.say() == "ours"
    second.remove()
    assert Owner.say is original
    assert exchange.standing == 0
    assert exchange.begin() and Owner.say() == "ours"
