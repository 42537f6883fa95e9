"""How a specimen of the zoo is described, built tiny and fed.

A specimen is a Hugging Face model type with random weights: two to four blocks, width 64 or less,
a vocabulary of about a hundred tokens. A freshly initialised model is a poor witness: norm weights
are one, biases are zero, matrices have a standard deviation of 0.02, so a wrong reading of the
model can agree with the right one. `enliven` therefore redraws what is degenerate:

    constant parameter c != 0          c (1 + 0.1 z)
    constant parameter 0               0.1 z
    matrix with standard deviation s   rescaled to 1 / sqrt(fan in), embeddings to 1/2

with z standard normal. Buffers are left alone, but for Gemma 4's `layer_scalar`, which is a learned
number.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

__all__ = [
    "INDEXER",
    "KINDS",
    "LATENT",
    "SIZES",
    "TRAITS",
    "Specimen",
    "decoder",
    "describe",
    "enliven",
    "noise",
    "random_features",
    "random_ids",
]

KINDS = ("decoder", "encoder", "encoder-decoder", "vision", "audio", "multimodal")

TRAITS = {
    "pre": "a norm before the branch, none after the addition",
    "post": "a norm after the addition",
    "sandwich": "a norm before the branch and another on its output",
    "output": "a norm on the branch's output only",
    "parallel": "two branches read the same stream and are added together",
    "moe": "mixture of experts",
    "lanes": "several residual streams",
    "shared": "one block's weights are used at several depths",
    "gain": "a fixed number multiplies updates or the stream",
    "layer-scale": "a learned vector or number multiplies updates or the stream",
    "hybrid": "blocks of different kinds in one stack",
    "recurrent": "state space, linear attention or another recurrence mixes tokens",
    "convolution": "a convolution mixes tokens",
    "fourier": "a Fourier transform mixes tokens",
    "macaron": "half of an MLP before attention, half after",
    "bottleneck": "narrow inner width with its own norms",
    "stages": "the width or the number of tokens changes between stages",
    "nested": "loops of blocks inside loops",
}

# Sizes that most configurations know under one of these names. A configuration takes those that it
# has; what is special about a model type stands beside its name.
SIZES: Mapping[str, Any] = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "emb_dim", "dim", "embedding_size"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 3),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("encoder_num_hidden_layers", "decoder_num_hidden_layers"), 2),
    **dict.fromkeys(("encoder_num_attention_heads", "decoder_num_attention_heads"), 4),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "ffn_dim"), 96),
    **dict.fromkeys(("d_ff", "hidden_dim", "d_inner"), 96),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 64),
    "num_key_value_heads": 2,
    "num_experts_per_tok": 2,
    "head_dim": 16,
    "vocab_size": 99,
    "type_vocab_size": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
    "sliding_window": 8,
    "image_size": 16,
    "patch_size": 4,
}

# Multi-head latent attention, and the indexer that picks tokens for it.
LATENT: dict[str, Any] = {
    "q_lora_rank": 24,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "num_key_value_heads": 4,
}
INDEXER: dict[str, Any] = {"index_topk": 8, "index_head_dim": 16, "index_n_heads": 2}

_HEADS = {
    "decoder": "AutoModelForCausalLM",
    "encoder": "AutoModelForMaskedLM",
    "encoder-decoder": "AutoModelForSeq2SeqLM",
    "vision": "AutoModelForImageClassification",
    "audio": "AutoModel",
    "multimodal": "AutoModel",
}


@dataclass(frozen=True)
class Specimen:
    """One model type of the zoo: `build(seed)` gives the model, `inputs(model, seed)` a batch."""

    name: str
    kind: str
    traits: frozenset[str]
    build: Callable[[int], nn.Module]
    inputs: Callable[[nn.Module, int], dict[str, Tensor]]


def describe(
    name: str,
    kind: str,
    traits: str,
    *,
    settings: Mapping[str, Any] | None = None,
    model_type: str | None = None,
    head: str | None = None,
    inputs: Callable[[nn.Module, int], dict[str, Tensor]] | None = None,
) -> Specimen:
    """A specimen from its model type, its traits (words) and the settings that make it tiny."""
    chosen = frozenset(traits.split())
    if kind not in KINDS or not chosen <= TRAITS.keys():
        raise ValueError(f"Specimen {name!r}: unknown kind {kind!r} or traits {sorted(chosen)}.")

    def build(seed: int) -> nn.Module:
        return _build(model_type or name, head or _HEADS[kind], settings or {}, seed)

    return Specimen(name, kind, chosen, build, inputs or random_ids)


def decoder(name: str, traits: str, model_type: str | None = None, **settings: Any) -> Specimen:
    """A causal language model."""
    return describe(name, "decoder", traits, settings=settings, model_type=model_type)


def _build(model_type: str, head: str, settings: Mapping[str, Any], seed: int) -> nn.Module:
    import transformers

    config_class = transformers.CONFIG_MAPPING[model_type]
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        # Some modelling files warn while they are imported: they still use torch.jit.script.
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        config = config_class(**_tiny(config_class, settings))
        model_class = getattr(transformers, head)
        model = model_class.from_config(config) if head.startswith("Auto") else model_class(config)
    enliven(model, seed)
    return model.eval()


def _tiny(config_class: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Fill the sizes into a configuration; a special setting wins, then a name, then an alias."""
    names = {field.name for field in fields(config_class)}
    aliases: Mapping[str, str] = config_class.attribute_map
    unknown = settings.keys() - names - aliases.keys()
    if unknown:
        raise ValueError(f"{config_class.__name__} has no field {sorted(unknown)}.")
    by_alias = {aliases[key]: value for key, value in SIZES.items() if key in aliases}
    by_name = {key: value for key, value in SIZES.items() if key in names}
    chosen = {aliases.get(key, key): value for key, value in settings.items()}
    return {**by_alias, **by_name, **chosen}


@torch.no_grad()
def enliven(model: nn.Module, seed: int) -> None:
    """Redraw degenerate parameters in place, as the module docstring says."""
    generator = torch.Generator().manual_seed(seed + 1)
    for module in model.modules():
        learned = [b for name, b in module.named_buffers(recurse=False) if name == "layer_scalar"]
        for parameter in [*module.parameters(recurse=False), *learned]:
            if not parameter.is_floating_point() or parameter.numel() == 0:
                continue
            noise = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
            first = parameter.flatten()[0].item()
            if bool((parameter == first).all()):
                parameter.copy_(first * (1 + 0.1 * noise) if first else 0.1 * noise)
            elif parameter.ndim >= 2 and parameter.std() < 0.06:
                parameter.mul_(_target_deviation(module, parameter) / parameter.std())


def _target_deviation(module: nn.Module, parameter: Tensor) -> float:
    if isinstance(module, nn.Embedding):
        return 0.5
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return math.prod(parameter.shape[1:]) ** -0.5
    return parameter.shape[-1] ** -0.5


def random_ids(model: nn.Module, seed: int) -> dict[str, Tensor]:
    """Two examples of twelve tokens; the decoder of an encoder-decoder gets ten of its own."""
    generator = torch.Generator().manual_seed(seed)
    config: Any = model.config
    vocabulary = config.get_text_config().vocab_size

    def draw(length: int) -> Tensor:
        return torch.randint(5, vocabulary, (2, length), generator=generator)

    if config.is_encoder_decoder:
        return {"input_ids": draw(12), "decoder_input_ids": draw(10)}
    return {"input_ids": draw(12)}


def noise(name: str, *shape: int) -> Callable[[nn.Module, int], dict[str, Tensor]]:
    """A feeder that gives two examples of Gaussian noise under one name."""
    return lambda _model, seed: {name: random_features(seed, *shape)}


def random_features(seed: int, *shape: int) -> Tensor:
    """Two examples of Gaussian noise: pixels, samples or features."""
    return torch.randn(2, *shape, generator=torch.Generator().manual_seed(seed))
