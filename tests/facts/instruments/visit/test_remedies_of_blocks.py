"""Remedies of skips, factors and norms: applied to a copy, the finding is gone and the stream is mended."""

from __future__ import annotations

import copy

import pytest
import torch

from leadline.instruments.visit.remedies.apply import apply_remedy
from leadline.instruments.visit.visit import visit
from leadline.reading.diagnosis.diagnosis import diagnose_record
from leadline.record import Finding
from tests.synthetic_blocks import FAULTS, ODD_LAYERS, PlainGPT, plain_gpt

MENDED = (
    "mlp skip missing",
    "attention skip missing",
    "attention skip doubled",
    "mlp skip doubled",
    "update doubled",
    "attention bare",
    "mlp bare",
    "half",
)


def findings_of(model: PlainGPT) -> tuple[Finding, ...]:
    record = visit(model, torch.arange(48).view(2, 24), twin=False, checks=("blocks", "design"))
    return diagnose_record(record, select=("R", "N01", "N02")).findings


@pytest.mark.parametrize("name", MENDED)
def test_a_remedy_makes_the_model_compute_what_the_healthy_one_does(name: str) -> None:
    law, *_ = (FAULTS | ODD_LAYERS)[name]
    sick, healthy = plain_gpt(law, (2,), depth=4), plain_gpt(depth=4)
    weights = copy.deepcopy(sick.state_dict())
    (finding,) = findings_of(sick)
    mended = apply_remedy(sick, finding)
    ids = torch.arange(48).view(2, 24)
    with torch.no_grad():
        # Both were drawn from one seed, so the healthy model is the answer.
        assert torch.allclose(mended(ids), healthy(ids), atol=1e-5)
        assert not torch.allclose(sick(ids), healthy(ids), atol=1e-3)
    assert all(torch.equal(weights[key], value) for key, value in sick.state_dict().items())
    assert findings_of(mended) == ()  # pyright: ignore[reportArgumentType]


def test_a_remedy_of_all_layers_mends_all() -> None:
    law, *_ = FAULTS["mlp skip missing"]
    sick, healthy = plain_gpt(law, depth=3), plain_gpt(depth=3)
    (finding,) = findings_of(sick)
    ids = torch.arange(48).view(2, 24)
    with torch.no_grad():
        assert torch.allclose(apply_remedy(sick, finding)(ids), healthy(ids), atol=1e-5)
