"""Two processes in one: how long the first waits, what it says, and who stops."""

import itertools
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from leadline.anatomy import Anatomy
from leadline.errors import AnatomyError
from leadline.instruments.passes.processes import gathered, mailbox
from leadline.lab.watch.fence import Fence
from leadline.lab.watch.processes import ranks
from leadline.lab.watch.processes.parts import RankPart
from leadline.lab.watch.processes.ranks import Ranks
from leadline.lab.watch.weights.optimizers import GroupSums
from leadline.record import Reading, Site
from leadline.record.rows.site import RUN
from tests.facts.instruments.passes.processes.test_mailbox import Clock
from tests.plain_gpt import PlainGPT

SITES = [Site("decoder", 1, 1, "attention")]
WIDTHS = itertools.count(1)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for module in (mailbox, ranks, gathered):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def pair(monkeypatch, clock):
    """The two processes of a run, in one; their parameters are replicated unless told otherwise."""
    store = dist.HashStore()
    monkeypatch.setattr(ranks, "process_store", lambda: store)
    module = torch.nn.Linear(2, next(WIDTHS))

    def rank(number):
        group = SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: True,
            get_world_size=lambda: 2,
            get_rank=lambda: number,
        )
        monkeypatch.setattr(ranks, "dist", group)
        return Ranks(module, Fence(quiet=True), path=None)

    both = [rank(0), rank(1)]
    for one in both:
        one.open(every=5)
    yield both
    for one in both:
        one.leave()


def _part(gradient=9.0):
    return RankPart(
        {SITES[0]: GroupSums(gradient=gradient)},
        [Reading("stream.norm", SITES[0], "mean", 1.0)],
        {("stream.norm", SITES[0]): 2.0},
        [Reading("train.loss", RUN, "value", 3.0, step=4)],
    )


def _sharded(pair):
    for one in pair:
        one.sharding = "fsdp"
    return pair


def test_what_all_read_is_joined_by_the_first(pair, clock):
    first, other = pair
    other.send(4, _part(), SITES)
    whole = first.join(4, _part(), SITES)
    assert whole.sums[SITES[0]].gradient == 9.0  # replicas: not added up
    assert first.facts == {"count": 2, "sharding": "replicated", "layers": "all"}
    assert first._fence.notes == []
    assert clock.now == 0.0


def test_sums_of_sharded_parameters_are_added_up(pair):
    first, other = _sharded(pair)
    other.send(4, _part(16.0), SITES)
    assert first.join(4, _part(), SITES).sums[SITES[0]].gradient == 25.0


def test_the_first_waits_half_a_minute_for_another_once(pair, clock):
    first, _ = _sharded(pair)
    assert first.join(4, _part(), SITES).sums is None
    assert 30.0 <= clock.now < 30.1
    first.join(9, _part(), SITES)
    assert clock.now < 30.1
    assert any("nothing comes from process 1" in note for note in first._fence.notes)


def test_who_does_not_watch_is_not_waited_for(pair, clock):
    first, other = pair
    other.leave()
    whole = first.join(4, _part(), SITES)
    assert whole.layers == _part().layers
    assert first.facts["layers"] == "first"
    assert clock.now == 0.0


def test_processes_with_other_gradients_are_not_joined(pair):
    first, other = pair
    other.send(4, _part(10.0), SITES)
    assert first.join(4, _part(), SITES).losses[0].value == 3.0
    assert any("do not train one model together" in note for note in first._fence.notes)


def test_notes_of_others_are_told_once_with_their_number(pair):
    first, other = pair
    first._fence.note("both")
    for sentence in ("both", "mine"):
        other._fence.note(sentence)
    other.send(4, _part(), SITES)
    first.join(4, _part(), SITES)
    assert first._fence.notes == ["both", "Process 1: mine"]


def test_the_last_losses_are_waited_for_a_moment(pair, clock):
    first, other = pair
    other.send(4, _part(), SITES)
    first.join(4, _part(), SITES)
    last = [Reading("train.loss", RUN, "value", 1.0, step=5)]
    assert first.join_losses(last) == last
    assert 2.0 <= clock.now < 2.1
    assert any("from step 5 on" in note for note in first._fence.notes)


def test_the_last_losses_of_all_are_joined(pair):
    first, other = pair
    other.send(4, _part(), SITES)
    first.join(4, _part(), SITES)
    other.send_losses([Reading("train.loss", RUN, "value", 3.0, step=5)], SITES)
    (joined,) = first.join_losses([Reading("train.loss", RUN, "value", 1.0, step=5)])
    assert joined.value == 2.0


def test_squares_at_full_rate_are_added_up_where_parameters_are_sharded(pair):
    first, other = _sharded(pair)
    assert other.join_squares(4, {SITES[0]: 16.0}, SITES) == {}
    assert first.join_squares(4, {SITES[0]: 9.0}, SITES) == {SITES[0]: 25.0}


def test_squares_of_other_groups_are_not_added_up(pair):
    first, other = _sharded(pair)
    other.join_squares(4, {}, [*SITES, RUN])
    assert first.join_squares(4, {SITES[0]: 9.0}, SITES) == {}


def test_all_sample_as_often_as_the_first(pair):
    assert pair[1].every_of_first(3) == 5


# --- stopping --------------------------------------------------------------------------------------


def test_all_stop_once_the_first_says_so(pair):
    first, _ = pair
    first.tell(4, stop=False)
    assert [one.verdict(4) for one in pair] == [False, False]
    first.tell(8, stop=True)
    assert [one.verdict(8) for one in pair] == [True, True]
    first.tell(12, stop=False)
    assert [one.verdict(12) for one in pair] == [True, True]


def test_nobody_stops_where_one_would_not_hear_of_it(pair):
    first, other = pair
    other.leave()
    first.join(4, _part(), SITES)
    first.tell(4, stop=True)
    assert not first.verdict(4)


def test_a_verdict_that_never_comes_is_no_stop(pair, clock):
    assert not pair[1].verdict(4)
    assert 1800.0 <= clock.now < 1800.1


def test_verdicts_are_taken_back_when_all_have_read_them(pair):
    first, _ = pair
    for step in (1, 2, 3):
        first.tell(step, stop=False)
    assert [first._mailbox.has(f"verdict {step}", 0) for step in (1, 2, 3)] == [False, True, True]


# --- the proof -------------------------------------------------------------------------------------

ANATOMY = Anatomy((), "family test")


def _never():
    raise AssertionError("no proof is tried")


def test_a_proof_waits_two_minutes_for_a_process_that_does_not_come(pair, clock):
    first, _ = _sharded(pair)
    with pytest.raises(AnatomyError, match="Process 1 did not take part"):
        first.prove(_never)
    assert 120.0 <= clock.now < 120.1


def test_a_process_that_is_ready_takes_its_word_back_when_nobody_answers(pair, clock):
    first, other = _sharded(pair)
    with pytest.raises(AnatomyError, match="said nothing"):
        other.prove(_never)
    assert 120.0 <= clock.now < 120.1
    with pytest.raises(AnatomyError, match="Process 1 did not take part"):
        first.prove(_never)


@pytest.mark.parametrize("number", [0, 1])
def test_a_process_that_declines_is_not_waited_for(pair, clock, number):
    _sharded(pair)
    pair[number].decline("it failed")
    with pytest.raises(AnatomyError, match="it failed"):
        pair[1 - number].prove(_never)
    assert clock.now == 0.0


def test_a_proof_is_tried_once(pair):
    first, other = _sharded(pair)
    other.decline("it failed")
    for _ in range(2):
        with pytest.raises(AnatomyError):
            first.prove(_never)


def test_the_first_process_proves_and_the_others_get_the_anatomy(pair):
    first, other = _sharded(pair)
    other._mailbox.mark("answer", gathered.READY)
    assert first.prove(lambda: ANATOMY) == ANATOMY
    answer = other._mailbox.read("anatomy", 0, until=0.0)
    assert gathered.anatomy_from_facts(answer.facts["anatomy"]) == ANATOMY


def test_a_proof_that_fails_is_told_to_the_others(pair):
    first, other = _sharded(pair)
    other._mailbox.mark("answer", gathered.READY)
    with pytest.raises(AnatomyError, match="division"):
        first.prove(lambda: 1 / 0)
    assert "division" in other._mailbox.read("anatomy", 0, until=0.0).facts["why"]


@pytest.mark.parametrize(("free", "enough"), [(2.0, True), (1.99, False)])
def test_weights_are_gathered_where_they_take_half_of_the_free_memory(
    monkeypatch, pair, free, enough
):
    first, other = _sharded(pair)
    other._mailbox.mark("answer", gathered.READY)
    size = sum(4 * one.numel() for one in first._module.parameters())
    monkeypatch.setattr(gathered, "_free_memory", lambda _: int(free * size))
    why = gathered._hindrance(first._module, first._mailbox)
    assert why == "" if enough else "GB are free" in why


def test_an_anatomy_goes_to_other_processes_and_back():
    import leadline as ll

    torch.manual_seed(0)
    model = PlainGPT(["", ""])
    anatomy = ll.anatomy_of(model, torch.randint(97, (2, 8)))
    there = gathered.anatomy_from_facts(gathered.anatomy_facts(anatomy))
    assert there.stacks == anatomy.stacks


@pytest.mark.parametrize(
    ("sharding", "word"), [("tensor", "parallelize_module"), ("foreign", "FSDP1")]
)
def test_what_cannot_be_proved_is_refused_with_what_to_do(pair, sharding, word):
    pair[0].sharding = sharding
    with pytest.raises(AnatomyError, match=word):
        pair[0].prove(_never)


def test_a_model_that_is_sharded_later_is_noticed(monkeypatch, pair):
    monkeypatch.setattr(ranks, "sharding_of", lambda _: "fsdp")
    pair[0].look_again()
    assert pair[0].sharding == "foreign"
    assert any("after leadline.watch" in note for note in pair[0]._fence.notes)


def test_a_process_alone_has_nobody_to_wait_for():
    alone = Ranks(torch.nn.Linear(2, 2), Fence(quiet=True))
    assert (alone.main, alone.several, alone.sharded) == (True, False, False)
    assert alone.join(1, part := _part(), SITES) is part
    assert alone.prove(lambda: ANATOMY) is ANATOMY
    assert alone.every_of_first(3) == 3
    alone.leave()
