"""Parts and halves that are out of scale, tokens that enter equal, gains that are stored less one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from leadline.lab import pair
from leadline.reading.diagnosis.diagnosis import diagnose_record
from leadline.record import Finding, Quantity, Reading, Record, Site
from tests.visits import gpt2, language, visited

CHECKS = ["norms", "output", "structure", "weights"]


def named(model: Any, *codes: str, inputs: Any = None) -> list[Finding]:
    record = visited(model, inputs, checks=CHECKS)
    return list(diagnose_record(record, select=codes).findings)


def test_w02_one_of_three_fused_matrices_that_is_small_is_a_part_out_of_scale() -> None:
    model = gpt2(6, width=64)
    with torch.no_grad():
        model.transformer.h[2].attn.c_attn.weight[:, 64:128].div_(30)
    (finding,) = named(model, "W02")
    assert (finding.layers, finding.sublayer) == ((3,), "attention")
    # A third of the norms is 30 times smaller: log 30 times the deviation of a share of 1/3.
    expected = torch.tensor(30.0).log() * (1 / 3 * 2 / 3) ** 0.5
    assert finding.evidence[0]["value"] == pytest.approx(float(expected), rel=0.05)


@pytest.mark.parametrize("fresh", [True, False])
def test_w02_of_two_halves_the_one_that_is_far_from_its_twin_is_odd(fresh: bool) -> None:
    model: Any = gpt2(6) if fresh else pair.pre()[0].eval()
    blocks = model.transformer.h if fresh else model.blocks
    with torch.no_grad():
        for block in blocks[3:]:
            mlp = block.mlp.c_proj if fresh else block.mlp.branch.down
            mlp.weight.mul_(1e-3)
    found = named(model, "W02", inputs=None if fresh else language())
    assert sorted(one.layers for one in found) == [(4,), (5,), (6,)]


def test_w07_rows_that_rounding_made_zero_are_not_a_second_fault() -> None:
    model = gpt2(4, width=64)
    with torch.no_grad():
        for block in model.transformer.h:
            weight = block.mlp.c_fc.weight
            weight[:, :4].mul_(0.01)  # units that training has left small
            step = weight.abs().max() / 3
            weight.copy_((weight / step).round() * step)
    assert {one.code for one in named(model, "W01", "W07")} == {"W07"}


def test_d05_one_vector_in_all_rows_of_a_trained_embedding_makes_tokens_enter_equal() -> None:
    model: Any = pair.pre()[0].eval()
    assert named(model, "D05", "O02", inputs=language()) == []
    table = next(m for m in model.modules() if isinstance(m, torch.nn.Embedding)).weight
    with torch.no_grad():
        table.add_(
            50
            * table.std()
            * torch.randn(table.shape[1], generator=torch.Generator().manual_seed(0))
        )
    (finding,) = named(model, "D05", "O01", "O02", inputs=language())
    assert finding.code == "D05" and "when they enter" in finding.verdict
    assert finding.evidence[0]["value"] < 0.05


def equal_tokens(*residuals: float) -> Finding:
    """What D05 says of these relative residuals by layer."""
    record = Record()
    name = "tokens.relative_residual"
    record.describe(Quantity(name, name, "r", "r", lives_on="stream", headline="mean"))
    record.append(
        Reading(name, Site("encoder", at), "mean", value) for at, value in enumerate(residuals)
    )
    record.note("anatomy", {"stacks": {"encoder": {"depth": len(residuals) - 1}}, "layers": []})
    record.note("visit", {"twin": {"built": False}})
    (finding,) = diagnose_record(record, select=["D05"]).findings
    return finding


def test_d05_names_the_one_layer_that_makes_tokens_equal_and_all_where_depth_does() -> None:
    assert equal_tokens(0.9, 0.9, 1e-5, 1e-5, 1e-5).layers == (2,)
    assert equal_tokens(0.9, 0.3, 0.1, 0.029, 0.01).layers == (3, 4)


@pytest.mark.parametrize(
    ("residuals", "words"),
    [
        ((0.9, 0.3, 0.1, 0.029, 0.01), "3 on they differ by at most 0.029 of their size, after layer 4 by 0.01, "),
        ((0.9, 0.9, 1e-5, 2e-5), "2 on they differ by at most 2e-05 of their size, "),
    ],
)  # fmt: skip
def test_d05_says_how_much_tokens_differ_at_most_from_its_layer_on(residuals, words) -> None:
    verdict = equal_tokens(*residuals).verdict
    assert verdict.endswith(f"from layer {words}and by 0.9 when they enter.")


def test_i05_a_gain_that_is_stored_less_one_counts_with_its_one() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.Gemma2Config(
        vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=4, head_dim=8,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64, sliding_window=32,
    )  # fmt: skip
    model = transformers.Gemma2ForCausalLM(config).eval()
    assert named(model, "I05") == []
    with torch.no_grad():
        model.model.norm.weight.fill_(29.0)
    (finding,) = named(model, "I05")
    assert finding.parameter == "model.norm.weight"
    assert finding.evidence[0]["value"] == pytest.approx(30.0)


def test_w10_explains_what_does_not_balance_in_other_layers() -> None:
    from leadline.reading.diagnosis.diagnosis import rank
    from leadline.reading.diagnosis.rule import RULES

    rules = [one for _, one in RULES.items() if one.code in ("W10", "R01")]
    by_code = {one.code: one for one in rules}
    broken = by_code["W10"].finding("a weight is NaN", stack="decoder", layers=[4])
    missing = by_code["R01"].finding("no skip", stack="decoder", layers=[1, 2, 3])
    kept, explained = rank([missing, broken], rules)
    assert kept == [broken] and [code for code, _ in explained] == ["W10"]
