"""Five sick models that a new user would bring; what the rules about depth and output say of them."""

from __future__ import annotations

import torch

import leadline
from leadline.lab import pair
from leadline.reading.diagnosis.diagnosis import diagnose_record
from tests.visits import findings, gpt2, language, visited


def test_writes_of_an_init_of_0_2_overwhelm_the_embedding_beside_the_usual_draw() -> None:
    large = visited(gpt2(6, spread=0.2))
    usual = visited(gpt2(6))

    def first_share(record) -> float:
        rows = record.select("update.ratio", statistic="mean")
        return max(r.value for r in rows if r.site.layer == 1)

    # Its twin is drawn with the same spread, so no rule of depth may compare with that.
    assert first_share(large) > 1 > 0.5 > first_share(usual)
    assert findings(large, "D01", "D02", "D03") == {}


def test_a_zeroed_mlp_is_a_dead_weight_of_layer_5() -> None:
    model = gpt2(8)
    model.transformer.h[4].mlp.c_proj.weight.data.zero_()
    diagnosis = diagnose_record(visited(model))
    assert [(one.code, one.layers, one.sublayer) for one in diagnosis.findings] == [
        ("W01", (5,), "mlp")
    ]
    assert diagnosis.findings[0].parameter == "transformer.h.4.mlp.c_proj.weight"


def test_qkv_times_100_is_a_jump_of_the_stream_at_layer_3() -> None:
    model = gpt2(8, width=64)
    model.transformer.h[2].attn.c_attn.weight.data.mul_(100)
    finding = findings(visited(model), "D")["D03"]
    assert (finding.layers, finding.sublayer) == ((3,), "attention")


def test_24_post_norm_layers_make_tokens_equal() -> None:
    model = leadline.Transformer(
        depth=24, width=64, heads=4, seed=0, placement="post", init="xavier"
    )
    found = findings(visited(model.eval()), "D")
    assert found["D05"].layers[-1] == 24
    assert "warm" in found["D09"].remedy["words"].lower()


def test_a_trained_model_whose_tokens_became_equal() -> None:
    model, _ = pair.pre()
    with torch.no_grad():
        model.blocks[3].mlp.branch.down.bias.add_(150.0)
        model.blocks[3].mlp.branch.down.bias[::2].mul_(-1)
    record = visited(model.eval(), language())
    finding = findings(record, "D05")["D05"]
    assert finding.layers == (4,)  # the layer whose bias does it, and not those that follow
    assert finding.evidence[1]["what"].startswith("1 minus the mean cosine")
    assert finding.evidence[1]["value"] < 0.001
