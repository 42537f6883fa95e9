"""Every wild fault builds, has a thread and an answer, and shows what its cause says.

What a cause says is checked from outside, on outputs and gradients alone, in the sick model and in
the repaired one; which thread it comes from does not matter here.
"""

import re
from functools import cache

import pytest
import torch

from leadline.testing.faults.wild import HALVES, wild_faults

FAULTS = {fault.name: fault for fault in wild_faults()}
THREAD = re.compile(r"[\w.-]+/[\w.-]+#\d+|https://\S+")
CAUSE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")


def named_by(*causes, among=1):
    """The faults that have one of the causes among their best answers."""
    chosen = [name for name, fault in FAULTS.items() if {*causes} & {*fault.causes[:among]}]
    return pytest.mark.parametrize("name", chosen)


every_fault = pytest.mark.parametrize("name", FAULTS)


@cache
def built(name):
    model, inputs, answer = FAULTS[name].build()
    return model, FAULTS[name].healthy(), inputs, answer


def run(model, inputs):
    output = model(**inputs) if isinstance(inputs, dict) else model(inputs)
    return output if isinstance(output, torch.Tensor) else output.logits


def changed(ids, where):
    other = ids.clone()
    other[where] = (other[where] + 1) % 120
    return other


def moved(model, before, after):
    """Which entries of the output, [example, token], a change of the inputs moves."""
    with torch.no_grad():
        return (run(model, before) - run(model, after)).abs().amax(-1) > 0


def gradients(model, inputs):
    """Gradients of all parameters, None where there is none; the sum of squares is the loss."""
    model.zero_grad(set_to_none=True)
    with torch.random.fork_rng(devices=[]):
        run(model, inputs).float().pow(2).sum().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def idle(model, inputs):
    """Trainable parameters whose gradient is missing or zero throughout."""
    grads = gradients(model, inputs)
    trainable = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    return {name for name in trainable if grads[name] is None or not grads[name].any()}


def test_the_halves_are_as_large_as_promised_and_share_no_thread():
    threads = {half: [fault.thread for fault in wild_faults(half)] for half in HALVES}
    assert all(len(half) >= 16 for half in threads.values())
    assert len(set(threads["seen"] + threads["sealed"])) == len(FAULTS)
    assert len(wild_faults()) == len(FAULTS)


def test_a_half_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="no half 'best'"):
        wild_faults("best")


@every_fault
def test_a_fault_says_where_it_comes_from_and_what_was_wrong(name):
    fault = FAULTS[name]
    assert THREAD.fullmatch(fault.thread)
    assert fault.trouble.endswith(".") and len(fault.trouble) > 30
    assert all(CAUSE.fullmatch(cause) for cause in fault.causes)
    assert fault.answer.causes == frozenset(fault.causes)
    assert fault.sublayer in (None, "attention", "mlp")


@every_fault
def test_a_sick_model_runs_and_its_repair_changes_the_output(name):
    sick, healthy, inputs, _ = built(name)
    fault = FAULTS[name]
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        wrong, right = run(sick, inputs), run(healthy, inputs)
    assert wrong.isfinite().all() == fault.finite
    assert right.isfinite().all()
    assert wrong.equal(right) == (not fault.repair_changes_output)
    assert not sick.training and not healthy.training


@every_fault
def test_a_fault_is_the_same_every_time(name):
    again = FAULTS[name].build()[0].state_dict()
    assert all(torch.equal(value, again[key]) for key, value in built(name)[0].state_dict().items())


@every_fault
def test_what_a_user_gives_is_known(name):
    means = FAULTS[name].means()
    assert set(means) <= {"intended", "reference"}
    if "reference" in means:
        assert isinstance(means["reference"], torch.nn.Module)


@every_fault
def test_a_parameter_that_an_answer_names_is_there(name):
    sick, _, _, answer = built(name)
    if answer.parameter is not None:
        assert answer.parameter in sick.state_dict() | dict(sick.named_buffers())


@named_by("future-leaks", among=2)
def test_the_future_reaches_the_past_only_in_the_sick_model(name):
    sick, healthy, ids, _ = built(name)
    other = changed(ids, (slice(None), -1))
    assert moved(sick, ids, other)[:, :-1].any()
    assert not moved(healthy, ids, other)[:, :-1].any()


@named_by("examples-mixed")
def test_one_example_moves_others_only_in_the_sick_model(name):
    sick, healthy, ids, _ = built(name)
    other = changed(ids, (0, 0))
    assert moved(sick, ids, other)[1:].any()
    assert not moved(healthy, ids, other)[1:].any()


@named_by("random-in-evaluation")
def test_two_passes_differ_only_in_the_sick_model(name):
    sick, healthy, ids, _ = built(name)
    assert moved(sick, ids, ids).any()
    assert not moved(healthy, ids, ids).any()


@named_by("positions-unused")
def test_the_first_block_does_not_tell_the_order_of_earlier_tokens(name):
    """Beyond the first block a causal mask tells the order by itself."""
    sick, healthy, ids, _ = built(name)
    swapped = ids.clone()
    swapped[:, :2] = ids[:, :2].flip(1)

    def after_first_block(model, inputs):
        states = []
        hook = model.blocks[0].register_forward_hook(lambda *call: states.append(call[-1]))
        with torch.no_grad():
            run(model, inputs)
        hook.remove()
        return states[0][:, -1]

    for model, blind in ((sick, True), (healthy, False)):
        first, second = after_first_block(model, ids), after_first_block(model, swapped)
        assert torch.allclose(first, second, rtol=0, atol=1e-6) == blind


@named_by("parameters-unused")
def test_parameters_are_idle_only_in_the_sick_model(name):
    sick, healthy, inputs, _ = built(name)
    grads = gradients(sick, inputs)
    assert any(grad is None for grad in grads.values())
    assert all(grad is not None for grad in gradients(healthy, inputs).values())


@named_by("gradient-cut", "adapter-cannot-learn")
def test_more_parameters_get_no_gradient_in_the_sick_model(name):
    sick, healthy, inputs, _ = built(name)
    assert idle(sick, inputs) > idle(healthy, inputs)


@named_by("modules-shared")
def test_a_repaired_model_has_more_parameters_than_the_one_that_shares(name):
    sick, healthy, _, _ = built(name)
    count = [sum(p.numel() for p in model.parameters()) for model in (sick, healthy)]
    assert count[0] < count[1]


@named_by("parameters-unregistered")
def test_a_leaf_of_the_graph_is_no_parameter_of_the_sick_model(name):
    sick, healthy, ids, _ = built(name)
    blocks = [parameter for block in sick.blocks for parameter in block.parameters()]
    assert blocks and not {id(p) for p in blocks} & {id(p) for p in sick.parameters()}
    gradients(sick, ids)
    assert all(parameter.grad is not None for parameter in blocks)
    assert len(list(healthy.parameters())) == len(list(sick.parameters())) + len(blocks)
