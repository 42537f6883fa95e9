"""Every specimen of the zoo builds, runs forward and backward, and is not degenerate."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from leadline.testing.zoo import KINDS, TRAITS, ZOO, specimens

pytest.importorskip("transformers")


def _main_output(output):
    for name in ("logits", "last_hidden_state", "logits_per_image"):
        value = getattr(output, name, None)
        if value is not None:
            return value
    raise AssertionError(f"no main output among {list(output)}")


@pytest.mark.parametrize("name", list(ZOO))
def test_specimen_runs_forward_and_backward_with_finite_numbers(name):
    specimen = ZOO[name]
    model = specimen.build(0)
    batch = specimen.inputs(model, 1)
    with torch.no_grad():
        before = _main_output(model(**batch))
    with FlopCounterMode(display=False) as counter:
        output = _main_output(model(**batch))
        cotangent = torch.randn(output.shape, generator=torch.Generator().manual_seed(2))
        (output * cotangent).sum().backward()

    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert not model.training
    assert torch.isfinite(output).all()
    # Attention without gradients may take another kernel, so equal up to rounding only.
    torch.testing.assert_close(output, before, rtol=0, atol=1e-4 * float(before.abs().max()))
    assert output.std() > 1e-3
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert any(gradient.abs().max() > 0 for gradient in gradients if gradient.numel())
    # Some hundredths of a second on most machines.
    assert counter.get_total_flops() < 200e6
    assert sum(p.numel() for p in model.parameters()) < 1_000_000


@pytest.mark.parametrize("name", list(ZOO))
def test_specimen_has_no_constant_parameter(name):
    model = ZOO[name].build(0)
    constant = [
        key
        for key, parameter in model.named_parameters()
        if parameter.numel() > 1 and bool((parameter == parameter.flatten()[0]).all())
    ]
    assert constant == []


@pytest.mark.parametrize("name", ["gpt2", "bert", "t5", "mixtral", "deepseek_v4", "wav2vec2"])
def test_specimen_is_a_function_of_its_seeds(name):
    specimen = ZOO[name]
    state = torch.random.get_rng_state()
    one, same, other = specimen.build(3), specimen.build(3), specimen.build(4)
    assert torch.equal(torch.random.get_rng_state(), state)

    pairs = zip(one.parameters(), same.parameters(), strict=True)
    assert all(torch.equal(left, right) for left, right in pairs)
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    assert any(not torch.equal(left, right) for left, right in pairs)

    batch, again, fresh = (specimen.inputs(one, seed) for seed in (5, 5, 6))
    assert all(torch.equal(batch[key], again[key]) for key in batch)
    assert all(not torch.equal(batch[key], fresh[key]) for key in batch)
    with torch.no_grad():
        left, right = _main_output(one(**batch)), _main_output(same(**batch))
    assert torch.equal(left, right)


@pytest.mark.parametrize("name", [s.name for s in specimens(trait="moe")])
def test_specimen_with_experts_contains_experts(name):
    model = ZOO[name].build(0)
    assert any("expert" in key for key, _ in model.named_parameters())


def test_zoo_is_large_and_varied():
    assert len(ZOO) >= 75
    assert {specimen.kind for specimen in ZOO.values()} == set(KINDS)
    at_least = {
        "parallel": 3,
        "post": 3,
        "sandwich": 3,
        "output": 2,
        "moe": 2,
        "lanes": 1,
        "shared": 1,
        "gain": 1,
        "layer-scale": 1,
        "hybrid": 1,
    }
    counts = {trait: len(specimens(trait=trait)) for trait in TRAITS}
    assert all(counts[trait] >= number for trait, number in at_least.items()), counts
    assert all(counts.values()), counts


def test_specimens_can_be_chosen_by_kind_and_trait():
    chosen = {specimen.name for specimen in specimens(kind="decoder", trait="output")}
    assert {"olmo2", "olmo3", "exaone4"} <= chosen
    assert "swinv2" not in chosen
