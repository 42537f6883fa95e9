"""Healthy controls are built, run, and are healthy in the sense that is claimed."""

import pytest
import torch

from leadline.errors import UnknownName
from leadline.testing.faults import control, control_names, controls
from leadline.testing.zoo import ZOO

KINDS = ("connection", "placement", "norm", "init", "mlp", "recipe", "design", "inputs", "tuning")
SAMPLE = [
    name
    for kind in KINDS
    for name in [one for one in control_names() if one.startswith(f"{kind}/")][::3]
    if "trained-gpt2" not in name and "trained-llama" not in name  # these have to be trained first
]
SAMPLE += ["default/bloom", "default/mixtral", "default/bart", "default/dinov2", "lively/gpt2"]


def check(name):
    one = control(name)
    model = one.build(2)
    inputs = one.inputs(model, 3)
    tensors = inputs if isinstance(inputs, dict) else inputs.tensors
    assert not model.training
    with torch.no_grad():
        output = model(**tensors)
    first = output if isinstance(output, torch.Tensor) else output[0]
    assert torch.isfinite(first).all()
    assert any(p.requires_grad for p in model.parameters())
    frozen = any(not p.requires_grad for p in model.parameters())
    assert frozen <= ("parameters-frozen" in one.notes)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_control_runs(name):
    check(name)


@pytest.mark.slow
def test_every_control_runs():
    for name in control_names():
        check(name)


def test_every_connection_and_placement_is_a_control_unless_it_leaves_something_out():
    from leadline.parts.recipe import PARTS

    for kind in ("connection", "placement", "norm", "init", "mlp"):
        names = {name.partition("/")[2] for name in control_names() if name.startswith(f"{kind}/")}
        missing = set(PARTS[kind].names()) - names
        assert missing <= {"none", "gelu_tanh"}  # no skip, no norm, and the default MLP


def test_controls_of_the_zoo_are_as_transformers_draws_them_or_redrawn():
    """A norm of the plain one has the gain 1 throughout; that of the lively one has not."""
    plain, lively = (control(f"{kind}/stablelm").build(0) for kind in ("default", "lively"))
    gains = [m.model.layers[0].input_layernorm.weight.detach() for m in (plain, lively)]
    assert torch.equal(gains[0], torch.ones(64))
    assert float(gains[1].std()) > 0.05
    assert all(name.partition("/")[2] in ZOO for name in control_names() if "default/" in name)


def test_adapters_at_the_start_leave_the_model_as_it_was_and_can_learn():
    one = control("tuning/lora-at-start-llama")
    model, plain = one.build(0), control("host/llama").build(0)
    inputs = one.inputs(model, 1).tensors
    output = model(**inputs).logits
    torch.testing.assert_close(output, plain(**inputs).logits)
    output.pow(2).mean().backward()
    grads = {
        name: float(p.grad.abs().max()) for name, p in model.named_parameters() if p.requires_grad
    }
    assert all("lora" in name for name in grads)
    assert min(value for name, value in grads.items() if "lora_B" in name) > 0
    assert {value for name, value in grads.items() if "lora_A" in name} == {0.0}


def test_zero_initialised_designs_start_as_the_identity():
    for name in ("design/zero-output-llama", "design/zero-gain-gpt2"):
        one = control(name)
        model = one.build(0)
        inputs = one.inputs(model, 1).tensors
        body = model.get_submodule("model" if "llama" in name else "transformer")
        blocks = body.layers if "llama" in name else body.h
        seen = []
        hooks = [
            blocks[0].register_forward_pre_hook(lambda _m, x, seen=seen: seen.append(x[0])),
            blocks[-1].register_forward_hook(lambda _m, _x, y, seen=seen: seen.append(y)),
        ]
        with torch.no_grad():
            model(**inputs)
        for hook in hooks:
            hook.remove()
        assert torch.equal(seen[0], seen[1])


def test_padded_batches_hide_their_padding():
    for name in ("inputs/padded-batch-gpt2", "inputs/left-padded-llama"):
        one = control(name)
        inputs = one.inputs(one.build(0), 1)
        assert inputs["attention_mask"].sum(1).tolist() == [24, 20, 16, 12]
        last = inputs["attention_mask"][:, -1].tolist()
        assert last == ([1, 0, 0, 0] if "padded-batch" in name else [1, 1, 1, 1])
        assert (inputs["input_ids"][inputs["attention_mask"] == 0] == 0).all()


def test_controls_can_be_asked_for_by_side_and_by_name():
    assert len(controls("tuning")) + len(controls("held-out")) == len(controls())
    with pytest.raises(UnknownName, match="connection/rezero"):
        control("connection/rezro")
