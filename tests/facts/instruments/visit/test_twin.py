"""The twin of a model: built from its configuration, with the same tensors and other values."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn

import leadline
from leadline.instruments.visit.twin import NoTwin, build_twin
from leadline.instruments.visit.visit import visit
from tests.synthetic_blocks import plain_gpt
from tests.visits import gpt2


@dataclass
class Config:
    width: int = 8


class Configured(nn.Module):
    """A plain module that is built from its configuration alone."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.layer = nn.Linear(config.width, config.width)


class Grown(Configured):
    """One that gets a parameter after it was built."""


@pytest.mark.parametrize(
    "model",
    [gpt2(2), leadline.Transformer(depth=2, width=16, heads=2, seed=0), Configured(Config())],
    ids=lambda model: type(model).__name__,
)
def test_a_twin_has_the_same_tensors_with_other_values(model: nn.Module) -> None:
    state = torch.random.get_rng_state()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    twin, again, other = (build_twin(model, seed) for seed in (1, 1, 2))
    assert type(twin) is type(model) and not twin.training
    mine, theirs = dict(model.named_parameters()), dict(twin.named_parameters())
    assert {n: p.shape for n, p in mine.items()} == {n: p.shape for n, p in theirs.items()}
    matrices = [name for name, parameter in mine.items() if parameter.ndim > 1]
    assert not any(torch.equal(mine[name], theirs[name]) for name in matrices)
    # The seed decides, and neither the model nor the generator of the caller moves.
    for name, value in again.named_parameters():
        assert torch.equal(value, theirs[name])
    assert not all(torch.equal(p, theirs[n]) for n, p in other.named_parameters())
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_the_type_of_numbers_is_that_of_the_model() -> None:
    twin = build_twin(gpt2(2).to(torch.bfloat16))
    assert {parameter.dtype for parameter in twin.parameters()} == {torch.bfloat16}


def test_a_model_without_configuration_has_no_twin_and_the_record_says_so() -> None:
    model = plain_gpt(depth=2)
    with pytest.raises(NoTwin, match="PlainGPT has no configuration to build it from"):
        build_twin(model)
    ids = torch.arange(24).view(2, 12)
    facts = visit(model, ids, checks=()).provenance["visit"]
    assert facts["twin"]["built"] is False
    assert "no twin: PlainGPT has no configuration" in facts["could_not"]["twin"]
    facts = visit(model, ids, checks=(), twin=lambda: plain_gpt(depth=2)).provenance["visit"]
    assert facts["twin"] == {"built": True}


def test_a_twin_with_other_parameters_is_none() -> None:
    model = Grown(Config())
    model.extra = nn.Linear(2, 2)
    with pytest.raises(NoTwin, match="has other parameters than this model"):
        build_twin(model)


def test_a_model_whose_loss_carries_no_gradient_is_measured_without_it() -> None:
    model = gpt2(2)
    norm = model.transformer.ln_f
    forward = norm.forward
    norm.forward = lambda stream: forward(stream).detach()
    model.lm_head.requires_grad_(False)
    record = visit(model, torch.arange(48).view(2, 24), checks=(), twin=False)
    assert "gradient" in record.provenance["visit"]["no_gradients"]
    assert "stream.norm" in record.quantities and "gradient.stream" not in record.quantities
