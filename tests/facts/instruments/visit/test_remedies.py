"""Remedies applied to a copy and measured again: the finding is gone, and the model stays as it was."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import nn

import leadline as ll
from leadline.instruments.visit.remedies.apply import apply_remedy, preview_remedy, prove_remedy
from leadline.instruments.visit.remedies.edit import EditError
from leadline.reading.diagnosis.diagnosis import Diagnosis
from leadline.record import Finding
from tests.synthetic_blocks import FAULTS, plain_gpt

transformers = pytest.importorskip("transformers")
IDS = torch.randint(0, 48, (2, 24), generator=torch.Generator().manual_seed(1))


def gpt2(**more: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=96, n_embd=64, n_layer=5, n_head=4, n_positions=64,
                                     bos_token_id=0, eos_token_id=0, **more)  # fmt: skip
    return transformers.GPT2LMHeadModel(config).eval()


def llama() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=96, hidden_size=64, intermediate_size=128, num_hidden_layers=5,
        num_attention_heads=4, max_position_embeddings=64,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def named(model: nn.Module, end: str) -> list[nn.Parameter]:
    return [parameter for name, parameter in model.named_parameters() if name.endswith(end)]


def scale(parameters: list[nn.Parameter], factor: float) -> None:
    for parameter in parameters:
        parameter.mul_(factor)


def matrices(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.ndim > 1]


def untie(model: Any) -> None:
    model.lm_head.weight = nn.Parameter(torch.randn(96, 64) * 0.02)


def share(model: Any) -> None:
    model.model.layers[3] = model.model.layers[1]


def without(law: str) -> Callable[[], nn.Module]:
    """A plain GPT whose second layer has a fault of code."""
    return lambda: plain_gpt(FAULTS[law][0], (2,), depth=5).eval()


def adapt(model: Any) -> None:
    """Low-rank factors beside the queries, all of them zero: neither can begin to learn."""

    class Adapted(nn.Module):
        def __init__(self, inner: nn.Linear) -> None:
            super().__init__()
            self.inner = inner
            self.lora_A, self.lora_B = (nn.Linear(a, b, bias=False) for a, b in ((64, 4), (4, 64)))

        def forward(self, stream: torch.Tensor) -> torch.Tensor:
            return self.inner(stream) + self.lora_B(self.lora_A(stream))

    for layer in model.model.layers[2:]:
        layer.self_attn.q_proj = Adapted(layer.self_attn.q_proj)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora" in name)
        if "lora" in name:
            parameter.zero_()


Sick = tuple[Callable[[], Any], Callable[[Any], object]]
SICK: Mapping[str, Sick] = {
    "W01": (gpt2, lambda m: m.transformer.h[3].mlp.c_proj.weight.zero_()),
    "W02": (gpt2, lambda m: m.transformer.h[2].attn.c_attn.weight.mul_(100)),
    "W04": (gpt2, untie),
    "W09": (llama, lambda m: m.model.rotary_emb.inv_freq.mul_(100)),
    "I01": (gpt2, lambda m: scale(matrices(m), 10)),
    "I02": (llama, lambda m: scale(matrices(m), 0.1)),
    "I03": (gpt2, lambda m: scale(named(m, "c_proj.weight"), 10**0.5)),
    "I04": (llama, lambda m: m.model.embed_tokens.weight.mul_(8)),
    "I05": (llama, lambda m: m.lm_head.weight.mul_(30)),
    "N03": (llama, lambda m: [p.add_(1) for p in named(m, "norm.weight")]),
    "N04": (gpt2, lambda m: m.transformer.h[1].ln_2.weight.zero_()),
    "N05": (gpt2, lambda m: setattr(m.transformer.h[1].ln_1, "eps", 0.01)),
    "N06": (llama, lambda m: m.model.layers[2].input_layernorm.weight.mul_(8)),
    "S02": (llama, share),
    "S05": (gpt2, lambda m: m.transformer.h[2].requires_grad_(False)),
    "T01": (gpt2, lambda m: m.train()),
    "T02": (llama, adapt),
    "R01": (without("mlp skip missing"), lambda m: m),
    "R02": (without("mlp skip doubled"), lambda m: m),
    "N01": (without("mlp bare"), lambda m: m),
}


def set_every_eps(model: Any) -> None:
    for name, module in model.named_modules():
        if "norm" in name:
            module.variance_epsilon = 0.1


def make_one_layer_of_all(model: Any) -> None:
    for at in range(1, len(model.transformer.h)):
        model.transformer.h[at] = model.transformer.h[0]


EVERYWHERE: Mapping[str, Sick] = {
    "N05": (llama, set_every_eps),
    "S02": (gpt2, make_one_layer_of_all),
}


@pytest.mark.parametrize("code", EVERYWHERE)
def test_a_remedy_reaches_every_layer_that_is_ill(code: str) -> None:
    host, change = EVERYWHERE[code]
    model = host()
    change(model)
    before = diagnosed(model)
    proof = prove_remedy(model, before, finding_of(before, code), diagnosed)
    assert proof.gone
    assert not proof.new


def sick_model(code: str) -> Any:
    host, change = SICK[code]
    model = host()
    with torch.no_grad():
        change(model)
    return model


def diagnosed(model: nn.Module) -> Diagnosis:
    return ll.diagnose(model, IDS)


def finding_of(diagnosis: Diagnosis, code: str) -> Finding:
    return next(finding for finding in diagnosis.findings if finding.code == code)


def hooks_of(model: nn.Module) -> list[str]:
    return [
        f"{path}.{name}"
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if name.endswith("_hooks") and value
    ]


@pytest.mark.slow
@pytest.mark.parametrize("code", SICK)
def test_after_the_remedy_the_finding_is_gone_and_nothing_new_is_found(code: str) -> None:
    model = sick_model(code)
    weights, mode = copy.deepcopy(model.state_dict()), model.training
    trainable = [parameter.requires_grad for parameter in model.parameters()]
    before = diagnosed(model)
    proof = prove_remedy(model, before, finding_of(before, code), diagnosed)
    assert proof.gone
    assert proof.new == ()
    assert code not in {finding.code for finding in proof.after.findings}
    # Nothing of it happened to the model that was handed over.
    assert all(torch.equal(weights[key], value) for key, value in model.state_dict().items())
    assert [parameter.requires_grad for parameter in model.parameters()] == trainable
    assert model.training == mode and hooks_of(model) == []
    assert finding_of(diagnosed(model), code).verdict == finding_of(before, code).verdict


def test_a_remedy_of_one_tensor_helps_though_another_of_the_same_layer_is_ill_too() -> None:
    model = gpt2()
    block = model.transformer.h[3]
    with torch.no_grad():
        scale([block.attn.c_proj.weight, block.mlp.c_proj.weight], 60.0)
    before = diagnosed(model)
    first, second = (one for one in before.findings if one.code == "W02")
    assert first.layers == second.layers
    proof = prove_remedy(model, before, first, diagnosed)
    assert proof.gone and proof.helps and proof.new == ()
    assert [one.verdict for one in proof.after.findings if one.code == "W02"] == [second.verdict]
    sentence = proof.screen().text().partition("\n")[0]
    assert sentence.startswith(f"The remedy helps: W02 {first.name} of ")
    assert first.remedy["edit"]["parameter"] in sentence


@pytest.mark.parametrize("code", ["W09", "N03", "N05"])
def test_a_remedy_brings_back_what_the_healthy_model_computes(code: str) -> None:
    model, healthy = sick_model(code), SICK[code][0]()
    mended = apply_remedy(model, finding_of(diagnosed(model), code))
    with torch.no_grad():
        assert not torch.allclose(model(IDS).logits, healthy(IDS).logits, atol=1e-4)
        assert torch.allclose(mended(IDS).logits, healthy(IDS).logits, atol=1e-5)


def test_a_scale_that_is_a_plain_number_comes_back_from_the_configuration() -> None:
    config = transformers.M2M100Config(
        vocab_size=96, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64, scale_embedding=True,
    )  # fmt: skip
    model = transformers.M2M100ForConditionalGeneration(config).eval()
    model.model.decoder.embed_tokens.embed_scale = 1.0
    edit = {"edit": "copy-buffer", "buffer": "model.decoder.embed_tokens.embed_scale"}
    mended: Any = apply_remedy(model, hand_made(edit))
    assert mended.model.decoder.embed_tokens.embed_scale == pytest.approx(32**0.5)
    assert model.model.decoder.embed_tokens.embed_scale == 1.0


def hand_made(edit: dict[str, Any], words: str = "Load it again.") -> Finding:
    remedy = {"words": words, "safe": False, "edit": edit}
    return Finding("A fault.", code="Z09", name="hand-made", details={"remedy": remedy})


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        ({"edit": "scale-tensor", "parameter": "h.9.weight", "factor": 2.0}, "'h.9.weight'"),
        ({"edit": "copy-tensor", "parameter": "lm_head.weight", "source": "q"}, "'q'"),
        ({"edit": "set-attribute", "module": "lm_head", "attribute": "eps", "value": 1}, "'eps'"),
        ({"edit": "set-attribute", "module": "tail", "attribute": "eps", "value": 1}, "'tail'"),
        ({"edit": "copy-buffer", "buffer": "transformer.frequencies"}, "'frequencies'"),
        ({"edit": "transpose-tensor", "parameter": "lm_head.weight"}, "no square matrix"),
        ({"edit": "scale-tensor", "tensor": "lm_head.weight"}, "does not fit the edit"),
    ],
)
def test_an_edit_that_cannot_be_made_is_a_sentence(edit: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EditError, match=sentence) as caught:
        apply_remedy(gpt2(), hand_made(edit))
    assert str(caught.value).endswith(".")


def test_constants_of_a_model_without_a_configuration_cannot_be_computed_again() -> None:
    model = plain_gpt(depth=2)
    with pytest.raises(EditError, match="cannot be computed again: PlainGPT has no configuration"):
        apply_remedy(model, hand_made({"edit": "copy-buffer", "buffer": "frequencies"}))


def test_a_remedy_without_an_edit_says_what_to_do_by_hand() -> None:
    finding = hand_made({}, words="Write `x +` before the MLP.")
    for act in (preview_remedy, lambda one: apply_remedy(gpt2(), one)):
        with pytest.raises(EditError, match="by hand: Write `x \\+` before the MLP"):
            act(finding)


def test_a_preview_names_the_edit_its_values_and_whether_it_is_safe() -> None:
    model = sick_model("N05")
    lines = preview_remedy(finding_of(diagnosed(model), "N05")).splitlines()
    assert lines[0].startswith("N05 norm-eps-large: set-eps (")
    assert "  modules: ['transformer.h.1.ln_1']" in lines
    # The other norms of the model have the eps that the remedy restores.
    assert f"  value: {model.transformer.h[0].ln_1.eps}" in lines
    assert model.transformer.h[1].ln_1.eps == 0.01
