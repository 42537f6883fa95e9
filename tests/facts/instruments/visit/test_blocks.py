"""Faults of code inside blocks are named with layer and sublayer; designs that look alike are not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from leadline.anatomy import TOLERANCE
from leadline.instruments.visit.visit import visit
from leadline.parts import Recipe, Transformer
from leadline.reading.diagnosis.diagnosis import Diagnosis, ask_rules, diagnose_record
from tests.synthetic_blocks import (
    DEEPNORM_ON_BRANCH,
    FAULTS,
    HEALTHY,
    ODD_LAYERS,
    VOCABULARY,
    plain_gpt,
)

MINE = ("R", "N01", "N02", "D04", "X01", "X03")


def ids(examples: int = 2, tokens: int = 24) -> Tensor:
    return torch.randint(
        0, VOCABULARY, (examples, tokens), generator=torch.Generator().manual_seed(1)
    )


def diagnosed(model: nn.Module, inputs: Any = None, **options: Any) -> Diagnosis:
    record = visit(
        model,
        ids() if inputs is None else inputs,
        twin=False,
        checks=("blocks", "design"),
        **options,
    )
    return ask_rules(record, select=MINE)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_one_layer_is_named_with_layer_and_sublayer(name: str) -> None:
    law, code, sublayer = FAULTS[name]
    diagnosis = diagnosed(plain_gpt(law, (4,)))
    (finding,) = diagnosis.findings
    assert (finding.code, finding.stack, finding.layers, finding.sublayer) == (
        code, "decoder", (4,), sublayer,
    )  # fmt: skip
    assert finding.parameter is not None and finding.parameter.startswith("h.3.")
    assert finding.evidence and finding.cause and finding.remedy["words"]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_all_layers_is_one_finding(name: str) -> None:
    law, code, sublayer = FAULTS[name]
    (finding,) = diagnosed(plain_gpt(law, depth=3)).findings
    assert (finding.code, finding.layers, finding.sublayer) == (code, (1, 2, 3), sublayer)


@pytest.mark.parametrize("name", ODD_LAYERS)
def test_one_layer_unlike_the_others_is_named(name: str) -> None:
    law, code, sublayer = ODD_LAYERS[name]
    (finding,) = diagnosed(plain_gpt(law, (3,))).findings
    assert (finding.code, finding.layers, finding.sublayer) == (code, (3,), sublayer)


@pytest.mark.parametrize("name", HEALTHY)
def test_a_design_that_all_layers_share_is_no_fault(name: str) -> None:
    assert diagnosed(plain_gpt(HEALTHY[name])).findings == ()


def test_deepnorm_with_alpha_on_the_branch_is_named() -> None:
    (finding,) = diagnosed(plain_gpt(DEEPNORM_ON_BRANCH)).findings
    assert finding.code == "R06" and finding.stack == "decoder"
    assert finding.evidence[0]["value"] == pytest.approx(12**0.25, rel=1e-6)
    # For another depth the same number is no constant of DeepNorm.
    assert diagnosed(plain_gpt(DEEPNORM_ON_BRANCH, depth=4)).findings == ()


def test_both_skips_missing_name_both_branches() -> None:
    def law(b: Any, x: Tensor) -> Tensor:
        return b.m(b.a(x))

    findings = diagnosed(plain_gpt(law, (2,))).findings
    assert [(f.code, f.layers) for f in findings] == [("R01", (2,)), ("R01", (2,))]
    assert {f.sublayer for f in findings} == {"attention", "mlp"}


def test_the_answer_does_not_depend_on_training_mode_and_names_no_eval() -> None:
    law, *_ = FAULTS["mlp skip missing"]
    model = plain_gpt(law, (4,)).train()
    diagnosis = diagnosed(model)
    assert model.training
    text = str(diagnosis)
    assert "`x +` is missing" in text and "h.3.mlp" in text and "eval()" not in text
    refusal = diagnosis.record.provenance["visit"]["refusal"]
    assert "skip connection is missing" in refusal and "eval()" not in refusal


def test_a_model_that_adds_the_stream_around_its_blocks_is_healthy() -> None:
    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.inner = plain_gpt(lambda b, x: b.m(b.a(x)), depth=4)

        def forward(self, idx: Tensor) -> Tensor:
            x = self.inner.wte(idx)
            for block in self.inner.h:
                x = x + block(x)
            return self.inner.lm_head(self.inner.ln_f(x))

    assert not [f for f in diagnosed(Around()).findings if f.code in ("R01", "R02")]


def test_a_stream_that_is_added_again_around_blocks_is_doubled() -> None:
    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = plain_gpt(depth=4)

        def forward(self, idx: Tensor) -> Tensor:
            x = self.inner.wte(idx)
            for block in self.inner.h:
                x = x + block(x)
            return self.inner.lm_head(self.inner.ln_f(x))

    (finding,) = diagnosed(Again()).findings
    assert finding.code == "R02" and finding.layers == (1, 2, 3)


def test_a_final_norm_that_is_not_called_is_missed() -> None:
    model = plain_gpt(depth=3)
    model.ln_f = nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]
    (finding,) = diagnosed(model).findings
    assert (finding.code, finding.severity, finding.layers) == ("N01", "warning", ())


def test_a_norm_replaced_by_an_identity_is_missing() -> None:
    model = plain_gpt()
    model.h[1].ln_2 = nn.Identity()  # pyright: ignore[reportArgumentType, reportIndexIssue]
    (finding,) = diagnosed(model).findings
    assert (finding.code, finding.layers, finding.sublayer) == ("N01", (2,), "mlp")


@pytest.mark.parametrize(("role", "code"), [("mlp", "mlp"), ("attn", "attention")])
def test_a_write_that_is_zero_among_others_is_dead(role: str, code: str) -> None:
    model = plain_gpt()
    with torch.no_grad():
        for parameter in model.h[4].get_submodule(f"{role}.c_proj").parameters():
            parameter.zero_()
    (finding,) = diagnosed(model).findings
    assert (finding.code, finding.layers, finding.sublayer) == ("D04", (5,), code)


def test_writes_that_are_zero_in_all_layers_are_a_design() -> None:
    model = plain_gpt()
    with torch.no_grad():
        for block in model.h:
            for parameter in block.get_submodule("mlp.c_proj").parameters():
                parameter.zero_()
    assert diagnosed(model).findings == ()


# --- Hugging Face blocks ---------------------------------------------------------------------------


def _gpt2(depth: int = 4) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=depth, n_embd=32, n_head=2, vocab_size=VOCABULARY, n_positions=64
    )
    return transformers.GPT2LMHeadModel(config).eval()


def _llama(depth: int = 4) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        num_hidden_layers=depth, hidden_size=32, num_attention_heads=2, num_key_value_heads=2,
        intermediate_size=64, vocab_size=VOCABULARY, max_position_embeddings=64,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def _patched(block: nn.Module, law: Callable[..., Tensor]) -> None:
    block.forward = partial(law, block)  # pyright: ignore[reportAttributeAccessIssue]


def _gpt2_mlp_missing(block: Any, x: Tensor, *_: Any, **kwargs: Any) -> Tensor:
    x = x + block.attn(block.ln_1(x), attention_mask=kwargs.get("attention_mask"))[0]
    return block.mlp(block.ln_2(x))


def _llama_law(fault: str) -> Callable[..., Tensor]:
    def law(block: Any, hidden_states: Tensor, **kwargs: Any) -> Tensor:
        x = hidden_states
        h = x if fault == "bare" else block.input_layernorm(x)
        a = block.self_attn(hidden_states=h, **kwargs)[0]
        x = a if fault == "attention" else x + a
        if fault == "normed":
            h = block.post_attention_layernorm(x)
            return h + block.mlp(h)
        return x + block.mlp(block.post_attention_layernorm(x))

    return law


def test_a_gpt2_block_without_its_last_skip_is_named() -> None:
    model = _gpt2()
    _patched(model.get_submodule("transformer.h.2"), _gpt2_mlp_missing)
    (finding,) = diagnosed(model).findings
    assert (finding.code, finding.stack, finding.layers, finding.sublayer) == (
        "R01", "decoder", (3,), "mlp",
    )  # fmt: skip
    assert finding.parameter == "transformer.h.2.mlp"


@pytest.mark.parametrize(
    ("fault", "code", "sublayer"),
    [("attention", "R01", "attention"), ("normed", "R03", "mlp"), ("bare", "N01", "attention")],
)
def test_a_llama_layer_with_a_fault_is_named(fault: str, code: str, sublayer: str) -> None:
    model = _llama()
    _patched(model.get_submodule("model.layers.1"), _llama_law(fault))
    findings = diagnosed(model).findings
    assert [(f.code, f.layers, f.sublayer) for f in findings] == [(code, (2,), sublayer)]


def test_a_family_that_does_not_do_what_it_does_elsewhere_is_named() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        num_hidden_layers=3, hidden_size=32, num_attention_heads=2, intermediate_size=64,
        vocab_size=VOCABULARY,
    )  # fmt: skip
    assert diagnosed(transformers.BertForMaskedLM(config).eval()).findings == ()
    model = _gpt2()
    assert diagnosed(model).findings == ()
    model.config.model_type = "llama"  # pyright: ignore[reportAttributeAccessIssue]
    (finding,) = diagnosed(model).findings
    assert finding.code == "X03" and "rmsnorm" in finding.verdict


# --- our own Transformer ---------------------------------------------------------------------------


def _ours(**fields: Any) -> Transformer:
    recipe = Recipe(depth=5, width=32, heads=2, vocabulary=VOCABULARY, context=64)
    return Transformer(recipe.but(**fields), seed=0).eval()


@pytest.mark.parametrize(
    "fields",
    [
        {"placement": "mix"},
        {"placement": "parallel"},
        {"placement": "sandwich"},
        {"placement": "none"},
        {"placement": "post", "connection": "deepnorm"},
        {"connection": "rezero"},
        {"connection": "layerscale"},
        {"connection": "skipinit"},
        {"connection": "hyper"},
        {"connection": "manifold_hyper"},
        {"connection": "weighted"},
        {"connection": "highway"},
        {"connection": "gtrxl"},
    ],
    ids=str,
)
def test_designs_of_our_own_are_healthy(fields: dict[str, str]) -> None:
    assert diagnosed(_ours(**fields)).findings == ()


# --- what is still measured ------------------------------------------------------------------------


def test_what_does_not_balance_is_still_measured() -> None:
    law, *_ = FAULTS["mlp skip missing"]
    model, inputs = plain_gpt(law, (4,)), ids()
    record = visit(model, inputs, twin=False)
    with torch.no_grad():
        streams = [model.wte(inputs) + model.wpe(torch.arange(inputs.shape[1]))]
        for block in model.h:
            streams.append(block(streams[-1]))
    norms = [float(x.norm(dim=-1).mean()) for x in streams]
    measured = {
        reading.site.layer: reading.value
        for reading in record.select("stream.norm", statistic="mean")
        if reading.site.sublayer is None
    }
    assert [measured[layer] for layer in range(7)] == pytest.approx(norms, rel=1e-5)
    updates = {reading.site.layer for reading in record.select("update.norm")}
    assert updates == {1, 2, 3, 5, 6}
    assert {reading.site.layer for reading in record.select("gradient.stream")} == set(range(7))
    anatomy = record.provenance["anatomy"]
    assert [(one["layer"], one["eps"] > TOLERANCE) for one in anatomy["balance_missed"]] == [
        (4, True)
    ]
    assert anatomy["balance_judged"] == 5 and anatomy["balance_eps"] <= TOLERANCE
    assert any("Layer 4 of the decoder did not balance" in one for one in anatomy["remarks"])
    refused = record.provenance["coverage"]["refused"]
    assert any("layer 4 of the decoder" in one["what"] for one in refused)
    # The record alone is enough to diagnose.
    assert (
        next(f.code for f in diagnose_record(record).findings if f.severity == "serious") == "R01"
    )


def test_a_stack_in_which_nothing_balances_is_measured_between_its_blocks() -> None:
    law, *_ = FAULTS["attention skip missing"]
    record = visit(plain_gpt(law, depth=3), ids(), twin=False)
    layers = {reading.site.layer for reading in record.select("stream.norm")}
    assert layers == {0, 1, 2, 3} and "update.norm" not in record.quantities
    assert record.provenance["anatomy"]["stacks"]["decoder"]["causal"] is True
    assert len(record.provenance["anatomy"]["balance_missed"]) == 3
