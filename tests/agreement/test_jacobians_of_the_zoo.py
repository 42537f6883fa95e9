"""One block of every Hugging Face specimen: its Jacobian, judged by differences, or a refusal."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import leadline
from leadline.anatomy import untouched
from leadline.anatomy.stretch.stretch import Stretches
from leadline.errors import LeadlineError
from leadline.instruments.passes.running import call
from leadline.models.inputs import as_inputs
from leadline.testing.zoo import ZOO

FEW = [
    "gpt2",
    "llama",
    "gptj",
    "gemma3_text",
    "mixtral",
    "deepseek_v4",
    "mamba",
    "albert",
    "t5",
    "swin",
    "whisper",
    "clip",
]
STEPS = (1e-3, 1e-4, 1e-5)
"""Of the stream's size: a step may be too long for a router, or too short for float32."""
REFUSED = {
    "flaubert": "is no module of its own",
    "gemma3n_text": "is not its input plus outputs of its modules",
    "squeezebert": "the features stand before the places",
    "timesformer": "is not its input plus outputs of its modules",
    "xlm": "is no module of its own",
}
"""Refused at layer 1; from layer 2 on XLM and Flaubert have their Jacobians."""


def built(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ZOO[name].build(0).eval()
        return model, as_inputs(ZOO[name].inputs(model, 1), model)


def judged(name, layer=1):
    model, batch = built(name)
    anatomy = leadline.anatomy_of(model, batch)
    for stack in anatomy.stacks:
        found = leadline.jacobian(
            model,
            batch,
            layer=layer,
            k=1,
            probes=4,
            tolerance=1e-3,
            vectors=True,
            stack=stack.name,
            anatomy=anatomy,
        ).jacobian
        assert (found.values > 0).all() and np.isfinite(found.values).all()
        assert (found.norm > 0).all() and (found.distance > 0).all()
        assert (found.branch >= found.distance - 4 * found.distance_error).all()
        # ProphetNet's decoder holds two streams of tokens, one behind the other.
        if stack.causal is not None and found.causal is not None and name != "prophetnet":
            assert found.causal is stack.causal, stack.name
        with untouched(model), torch.no_grad():
            f, x = Stretches(model, stack, lambda: call(model, batch)).function(layer - 1, layer)
            v = torch.from_numpy(found.right[0]).to(x.dtype)
            size = x.square().sum((1, 2), keepdim=True).sqrt()
            expected = torch.from_numpy(found.values[:, :1, None] * found.left[0])
            apart = [
                _apart((f(x + h * size * v) - f(x - h * size * v)) / (2 * h * size), expected)
                for h in STEPS
            ]
        assert min(apart) < 0.05, (stack.name, apart)


def _apart(one, other):
    """The relative difference of the worst example."""
    sizes = [t.double().square().sum((1, 2)).sqrt() for t in (one - other, other)]
    return float((sizes[0] / sizes[1]).max())


@pytest.mark.parametrize("name", FEW)
def test_a_block_moves_as_its_strongest_path_says(name):
    judged(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(ZOO) - set(FEW) - set(REFUSED)))
def test_every_other_block_moves_as_its_strongest_path_says(name):
    judged(name)


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_block_of_its_own_is_refused_in_a_sentence(name):
    model, batch = built(name)
    with pytest.raises(LeadlineError, match=REFUSED[name]):
        leadline.jacobian(model, batch, layer=1)


@pytest.mark.parametrize("name", ["xlm", "flaubert"])
def test_layers_without_a_module_have_jacobians_from_the_second_on(name):
    judged(name, layer=2)


def test_a_model_that_carries_more_than_the_stream_has_no_exponents():
    model, batch = built("zaya")
    with pytest.raises(LeadlineError, match="not the product of those of its blocks"):
        leadline.lyapunov(model, batch, k=2)


def test_one_of_several_stacks_must_be_named():
    model, batch = built("t5")
    with pytest.raises(LeadlineError, match="2 stacks \\(encoder, decoder\\)"):
        leadline.jacobian(model, batch, layer=1)
    decoder = leadline.jacobian(model, batch, layer=1, stack="decoder", k=1).jacobian
    assert "cross-attention" in decoder.remarks[0] and decoder.causal
    assert leadline.lyapunov(model, batch, stack="encoder", k=2).lyapunov.exponents.shape == (2, 2)
