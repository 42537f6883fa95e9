"""Every rule about weights, norms, initialisation and structure: a sick model that it names, and healthy ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from leadline.instruments.visit.diagnose import diagnose
from leadline.reading.diagnosis.diagnosis import Diagnosis

transformers = pytest.importorskip("transformers")
CHECKED = ["W", "I", "N03", "N04", "N05", "N06", "S01", "S02", "S04", "S05", "T02"]


def _gpt2(**more: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=96, n_embd=64, n_layer=5, n_head=4, n_positions=64,
                                     bos_token_id=0, eos_token_id=0, **more)  # fmt: skip
    return transformers.GPT2LMHeadModel(config).eval()


def _llama(**more: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=96, hidden_size=64, intermediate_size=128, num_hidden_layers=5,
        num_attention_heads=4, max_position_embeddings=64, **more,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def _diagnosed(model: Any) -> Diagnosis:
    ids = torch.randint(0, 96, (2, 24), generator=torch.Generator().manual_seed(1))
    return diagnose(model, ids, select=CHECKED)


def _matrices(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.ndim > 1]


def _scale(parameters: list[nn.Parameter], factor: float) -> None:
    for parameter in parameters:
        parameter.mul_(factor)


def _named(model: Any, end: str) -> list[nn.Parameter]:
    return [parameter for name, parameter in model.named_parameters() if name.endswith(end)]


def _quantise(model: Any) -> None:
    for parameter in _matrices(model.transformer.h[2]):
        step = parameter.abs().amax(1, keepdim=True) / 127
        parameter.copy_((parameter / step).round() * step)


def _thin(model: Any) -> None:
    weight = model.model.layers[1].mlp.up_proj.weight
    left, values, right = torch.linalg.svd(weight, full_matrices=False)
    weight.copy_(left[:, :4] * values[:4] @ right[:4])


def _untie(model: Any) -> None:
    model.lm_head.weight = nn.Parameter(torch.randn(96, 64) * 0.02)


def _clone(model: Any) -> None:
    model.model.layers[3].load_state_dict(model.model.layers[2].state_dict())


def _break(model: Any) -> None:
    model.model.layers[1].mlp.up_proj.weight[3, 4] = float("nan")


def _zero_head(model: Any) -> None:
    model.model.layers[2].self_attn.v_proj.weight[16:32] = 0


def _set_eps(model: Any) -> None:
    model.transformer.h[1].ln_1.eps = 0.01


def _skip_norm(model: Any) -> None:
    model.model.layers[1].post_attention_layernorm.forward = lambda stream: stream


def _spare_module(model: Any) -> None:
    model.transformer.h[2].second_mlp = nn.Linear(64, 64)


def _repeat_layer(model: Any) -> None:
    model.model.layers[3] = model.model.layers[1]


def _share_mlp(model: Any) -> None:
    model.transformer.h[3].mlp = model.transformer.h[2].mlp


def _detach_input(model: Any) -> None:
    block = model.transformer.h[2]
    forward = block.forward
    block.forward = lambda stream, *rest, **named: forward(stream.detach(), *rest, **named)


def _detach_update(model: Any) -> None:
    mlp = model.model.layers[2].mlp
    forward = mlp.forward
    mlp.forward = lambda stream: forward(stream).detach()


def _freeze(model: Any) -> None:
    model.transformer.h[2].requires_grad_(False)


class _Adapted(nn.Module):
    """A linear map with low-rank factors beside it."""

    def __init__(self, inner: nn.Linear, *, add: bool = True) -> None:
        super().__init__()
        self.inner, self.add = inner, add
        self.lora_A = nn.Linear(64, 4, bias=False)
        self.lora_B = nn.Linear(4, inner.out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        update = self.lora_B(self.lora_A(stream))
        return self.inner(stream) + update if self.add else self.inner(stream)


def _adapt(model: Any, *, add: bool = True, zero: bool = False) -> None:
    for layer in model.model.layers:
        layer.self_attn.q_proj = _Adapted(layer.self_attn.q_proj, add=add)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora" in name)
        if zero and "lora" in name:
            parameter.zero_()


ALL = (1, 2, 3, 4, 5)
Change = Callable[[Any], object]
SICK: list[tuple[str, Callable[..., Any], Change, tuple[int, ...]]] = [
    ("W01", _gpt2, lambda m: m.transformer.h[3].mlp.c_proj.weight.zero_(), (4,)),
    ("W01", _llama, _zero_head, (3,)),
    ("W01", _llama, lambda m: m.lm_head.weight.zero_(), ()),
    ("W02", _gpt2, lambda m: m.transformer.h[2].attn.c_attn.weight.mul_(100), (3,)),
    ("W02", _gpt2, lambda m: _scale(_matrices(m.transformer.h[1]), 10), (2,)),
    ("W02", _gpt2, lambda m: m.transformer.h[1].mlp.c_fc.bias.fill_(50.0), (2,)),
    ("W02", _llama, lambda m: m.model.layers[4].mlp.down_proj.weight.div_(30), (5,)),
    ("W03", _llama, _clone, (3, 4)),
    ("W04", _gpt2, _untie, ()),
    ("W07", _gpt2, _quantise, (3,)),
    ("W08", _llama, _thin, (2,)),
    ("W09", _llama, lambda m: m.model.rotary_emb.inv_freq.mul_(100), ()),
    ("W10", _llama, _break, (2,)),
    ("I01", _gpt2, lambda m: _scale(_matrices(m), 10), ()),
    ("I01", lambda: _gpt2(initializer_range=0.2), lambda m: m, ()),
    ("I02", _llama, lambda m: _scale(_matrices(m), 0.1), ()),
    ("I03", _gpt2, lambda m: _scale(_named(m, "c_proj.weight"), 10**0.5), ALL),
    ("I04", _llama, lambda m: m.model.embed_tokens.weight.mul_(8), ()),
    ("I05", _llama, lambda m: m.lm_head.weight.mul_(30), ()),
    ("I05", _llama, lambda m: m.model.norm.weight.mul_(30), ()),
    ("N03", _llama, lambda m: [p.add_(1) for p in _named(m, "norm.weight")], ALL),
    ("N04", _gpt2, lambda m: m.transformer.h[1].ln_2.weight.zero_(), (2,)),
    ("N04", _gpt2, lambda m: [p.normal_(0, 0.02) for p in _named(m, "ln_1.weight")], ALL),
    ("N05", _gpt2, _set_eps, (2,)),
    ("N06", _llama, lambda m: m.model.layers[2].input_layernorm.weight.mul_(8), (3,)),
    ("S01", _llama, _skip_norm, (2,)),
    ("S01", _gpt2, _spare_module, (3,)),
    ("S02", _llama, _repeat_layer, (2, 4)),
    ("S02", _gpt2, _share_mlp, (3, 4)),
    ("S04", _gpt2, _detach_input, (3,)),
    ("S04", _llama, _detach_update, (3,)),
    ("S05", _gpt2, _freeze, (3,)),
    ("T02", _llama, lambda m: _adapt(m, zero=True), ALL),
    ("T02", _llama, lambda m: _adapt(m, add=False), ALL),
]


@pytest.mark.parametrize(
    ("code", "host", "change", "layers"), SICK, ids=[f"{i}-{one[0]}" for i, one in enumerate(SICK)]
)
def test_a_fault_is_named_first_with_its_layers(
    code: str, host: Callable[..., Any], change: Change, layers: tuple[int, ...]
) -> None:
    model = host()
    with torch.no_grad():
        change(model)
    first = _diagnosed(model).findings[0]
    assert (first.code, first.layers) == (code, layers)


def _grow(model: Any) -> None:
    _scale(_matrices(model), 6)
    for gain in _named(model, "norm.weight"):
        gain.add_(0.1 * torch.randn(64))


HEALTHY: dict[str, tuple[Callable[..., Any], Change]] = {
    "fresh, tied": (_gpt2, lambda m: m),
    "fresh, rotary": (_llama, lambda m: m),
    "fresh adapters": (_llama, _adapt),
    "trained gains": (_llama, lambda m: [p.add_(0.3 * torch.randn(64)) for p in _named(m, "norm.weight")]),
    "trained gains, and matrices that have all grown": (_llama, _grow),
    "smaller spread by a little": (_gpt2, lambda m: _scale(_matrices(m), 0.7)),
    "tied on purpose": (lambda: _llama(tie_word_embeddings=True), lambda m: m),
    "not tied on purpose": (lambda: _gpt2(tie_word_embeddings=False), lambda m: m),
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_model_gets_no_warning(name: str) -> None:
    host, change = HEALTHY[name]
    model = host()
    with torch.no_grad():
        change(model)
    assert [f for f in _diagnosed(model).findings if f.severity != "note"] == []


@pytest.mark.parametrize("name", ["albert", "gemma2", "mixtral", "zamba2", "t5", "vit", "mamba2"])
def test_sharing_zeros_and_spare_parameters_by_design_are_healthy(name: str) -> None:
    from leadline.testing.zoo import ZOO

    model = ZOO[name].build(0)
    found = diagnose(model, ZOO[name].inputs(model, 0), select=CHECKED).findings
    assert [f for f in found if f.severity != "note"] == []


def test_a_redrawn_matrix_of_a_trained_model_is_foreign() -> None:
    from leadline.lab.pair import pre

    model, _ = pre()
    text = b"def main():\n    for name in sorted(os.listdir(path)):\n        print(name)\n" * 2
    ids = torch.tensor(list(text[:128]))[None]
    assert diagnose(model, ids, select=CHECKED).healthy
    weight = model.get_parameter("blocks.2.attention.branch.qkv.weight")
    with torch.no_grad():
        weight.copy_(
            torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)) * weight.std()
        )
    first = diagnose(model, ids, select=CHECKED).findings[0]
    assert (first.code, first.layers, first.sublayer) == ("W05", (3,), "attention")
