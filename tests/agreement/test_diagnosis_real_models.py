"""Two trained models are healthy: SmolLM2-135M and MiniLM. `make models` fetches them."""

from __future__ import annotations

import pytest
import torch

import leadline
from tests.agreement.test_paths_real_models import MINILM, SMOLLM2, TEXT, loaded

pytestmark = pytest.mark.real_model


def largest_and_median(module, ids):
    """Of the stream after every block: its largest value over its median magnitude, by hand."""
    blocks = module.model.layers if hasattr(module, "model") else module.encoder.layer
    shares = []

    def keep(_module, _arguments, output):
        stream = (output[0] if isinstance(output, tuple) else output).detach().abs()
        shares.append(float(stream.max() / stream.median()))

    handles = [block.register_forward_hook(keep) for block in blocks]
    try:
        with torch.no_grad():
            module(ids)
    finally:
        for handle in handles:
            handle.remove()
    return shares


def test_smollm2_is_healthy_and_its_massive_activations_and_sinks_are_noted():
    model = loaded(SMOLLM2)
    diagnosis = leadline.diagnose(model, TEXT)
    assert [f.verdict for f in diagnosis.findings if f.severity == "serious"] == []
    notes = {finding.name: finding for finding in diagnosis.findings}
    assert {"massive-activations", "attention-sinks"} <= set(notes)
    assert notes["massive-activations"].severity == notes["attention-sinks"].severity == "note"
    ids = torch.tensor([model.tokenizer.encode(TEXT)])
    shares = largest_and_median(model.model, ids)
    layers = {at for at, share in enumerate(shares, start=1) if share > 1000}
    assert set(notes["massive-activations"].layers) <= layers
    # Sun et al. 2024: the stream is massive in the middle of the depth, at the first token.
    assert {15, 20, 25} <= set(notes["massive-activations"].layers)
    assert "at token 1," in notes["massive-activations"].verdict
    # Xiao et al. 2023: the first key gets most of the weight in most layers, not in the first ones.
    assert len(notes["attention-sinks"].layers) > 10
    assert not {1, 2} & set(notes["attention-sinks"].layers)


def test_minilm_has_nothing_serious():
    diagnosis = leadline.diagnose(loaded(MINILM), TEXT)
    assert [f.verdict for f in diagnosis.findings if f.severity == "serious"] == []
