"""Trained models followed: the residuals of Hugging Face's own hidden states, and parts switched off."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import leadline as ll
from leadline.experiments.rank_collapse.switched_off import SWITCHES, switched_off
from tests.agreement.test_paths_real_models import MINILM, SMOLLM2, loaded

pytestmark = pytest.mark.real_model


def hidden_residuals(model: Any, ids: torch.Tensor) -> list[float]:
    """Of every hidden state but the last, which transformers norms."""
    with torch.no_grad():
        states = model.double().eval()(input_ids=ids, output_hidden_states=True).hidden_states
    return [float((x[0] - x[0].mean(0)).norm()) for x in states]


@pytest.mark.parametrize(
    ("path", "layers", "digits"),
    # The RMSNorm of transformers computes in float32 whatever the stream is.
    [(MINILM, 6, 1e-13), (SMOLLM2, 30, 1e-5)],
)
def test_residuals_are_those_of_the_hidden_states_in_float64(path, layers, digits):
    model = loaded(path).model
    ours = ll.Transformer.from_hf(model).double()  # so that the embedding is not rounded
    ids = torch.randint(5, 20000, (1, 12), generator=torch.Generator().manual_seed(0))
    found = ll.collapse(ours, ids).collapse
    assert found.depth == layers
    theirs = hidden_residuals(model, ids)
    known = layers + 1 if ours.norm is None else layers
    assert 10 ** found.log10_residual[:known] == pytest.approx(theirs[:known], rel=digits)


def test_without_its_skips_a_trained_encoder_collapses_doubly_exponentially():
    outcome = switched_off({"minilm": lambda: loaded(MINILM)}, tokens=16)
    last = {one.name: one.values for one in outcome.lines if not one.faint}
    assert list(last) == list(SWITCHES)
    assert last["as trained"][-1] > -0.5 and last["MLP off"][-1] > -1
    off = np.array(last["skip and MLP off"])
    assert off[-1] < -25
    assert off[-1] / off[-2] == pytest.approx(3.0, abs=0.2)
    floor = next(one for one in outcome.lines if one.name == "skip off, in float32")
    assert -8 < floor.values[-1] < -5


def test_a_causal_model_without_skips_collapses_only_exponentially():
    outcome = switched_off({"smollm2": lambda: loaded(SMOLLM2)}, tokens=16)
    off = next(one for one in outcome.lines if one.name == "skip and MLP off").values
    assert -20 < off[-1] < -4
    steps = np.diff(off[10:])
    assert steps.mean() == pytest.approx(-0.3, abs=0.15)
