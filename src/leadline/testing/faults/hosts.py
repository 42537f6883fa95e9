"""The hosts: small models of many families, as they are initialised, and a few trained ones.

Width 64, six to eight layers, so that every layer has neighbours, and a vocabulary of 200; the
weights are those that the library itself draws. Trained hosts predict bytes of Python's standard
library and get text of it that they were not trained on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from leadline.errors import UnknownName, require
from leadline.testing.faults.hf_layouts import HF_LAYOUTS
from leadline.testing.faults.host import Host
from leadline.testing.faults.layout import Layout
from leadline.testing.faults.own_layouts import OWN_LAYOUTS
from leadline.testing.faults.split import HOSTS as NAMES

if TYPE_CHECKING:
    from torch import nn

    from leadline.models.inputs import Inputs

__all__ = ["all_hosts", "build_hf", "build_recipe", "drawn_inputs", "host", "text_inputs"]

EXAMPLES, TOKENS = 4, 24
BYTES = 64
VOCABULARY = 200

_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "intermediate_size": 160,
    "max_position_embeddings": 160,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_DROPPED = {
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
_GROUPED = {**_SIZES, "num_key_value_heads": 2}
_LEARNED = {
    "vocab_size": VOCABULARY,
    "n_positions": 160,
    "n_embd": 64,
    "n_layer": 8,
    "n_head": 4,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

# Model type, class, settings, layout, kind, traits.
_FAMILIES: Mapping[str, tuple[str, str, Mapping[str, Any], str, str, str]] = {
    "gpt2": ("gpt2", "GPT2LMHeadModel", _LEARNED, "gpt2", "decoder", "tied dropout"),
    "opt": (
        "opt",
        "OPTForCausalLM",
        {
            **_SIZES,
            "ffn_dim": 256,
            "num_hidden_layers": 6,
            "word_embed_proj_dim": 64,
        },
        "opt",
        "decoder",
        "tied",
    ),
    "llama": ("llama", "LlamaForCausalLM", _GROUPED, "llama", "decoder", "rotary"),
    "mistral": ("mistral", "MistralForCausalLM", _GROUPED, "llama", "decoder", "rotary"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM", _GROUPED, "llama", "decoder", "rotary"),
    "qwen3": (
        "qwen3",
        "Qwen3ForCausalLM",
        {**_GROUPED, "head_dim": 16, "num_hidden_layers": 7},
        "llama",
        "decoder",
        "rotary qk-norm",
    ),
    "starcoder2": (
        "starcoder2",
        "Starcoder2ForCausalLM",
        {**_GROUPED, "num_hidden_layers": 7},
        "starcoder2",
        "decoder",
        "rotary tied",
    ),
    "granite": (
        "granite",
        "GraniteForCausalLM",
        {**_GROUPED, "residual_multiplier": 0.22, "attention_multiplier": 0.25},
        "granite",
        "decoder",
        "rotary",
    ),
    "olmo2": ("olmo2", "Olmo2ForCausalLM", _GROUPED, "olmo2", "decoder", "rotary qk-norm"),
    "gemma2": (
        "gemma2",
        "Gemma2ForCausalLM",
        {**_GROUPED, "head_dim": 16, "query_pre_attn_scalar": 16, "num_hidden_layers": 8},
        "gemma",
        "decoder",
        "rotary tied",
    ),
    "gemma3": (
        "gemma3_text",
        "Gemma3ForCausalLM",
        {**_GROUPED, "head_dim": 16, "query_pre_attn_scalar": 16, "num_hidden_layers": 6},
        "gemma",
        "decoder",
        "rotary tied qk-norm",
    ),
    "gpt_neox": ("gpt_neox", "GPTNeoXForCausalLM", _SIZES, "gpt_neox", "decoder", "rotary"),
    "phi": ("phi", "PhiForCausalLM", _SIZES, "phi", "decoder", "rotary"),
    "bert": ("bert", "BertForMaskedLM", _SIZES, "bert", "encoder", "tied dropout"),
    "roberta": (
        "roberta",
        "RobertaForMaskedLM",
        {**_SIZES, "num_hidden_layers": 7},
        "roberta",
        "encoder",
        "tied dropout",
    ),
    "t5": (
        "t5",
        "T5ForConditionalGeneration",
        {
            "vocab_size": VOCABULARY,
            "d_model": 64,
            "d_kv": 16,
            "d_ff": 160,
            "num_layers": 6,
            "num_decoder_layers": 6,
            "num_heads": 4,
            "pad_token_id": 0,
            "decoder_start_token_id": 0,
        },
        "t5",
        "encoder-decoder",
        "tied dropout",
    ),
    "vit": (
        "vit",
        "ViTForImageClassification",
        {
            "hidden_size": 64,
            "num_hidden_layers": 6,
            "num_attention_heads": 4,
            "intermediate_size": 160,
            "image_size": 16,
            "patch_size": 4,
            "num_labels": 10,
        },
        "vit",
        "vision",
        "",
    ),
}

_RECIPES: Mapping[str, tuple[Mapping[str, Any], str, str]] = {
    "recipe-pre": ({"depth": 8}, "recipe-pre", "plain-residual"),
    "recipe-post": ({"placement": "post", "depth": 6}, "recipe-post", "plain-residual"),
    "recipe-llama": (
        {
            "norm": "rmsnorm",
            "mlp": "swiglu",
            "positions": "rotary",
            "attention": "multihead(bias=false, groups=2)",
        },
        "recipe-llama",
        "plain-residual rotary",
    ),
    "recipe-sandwich": (
        {"placement": "sandwich", "norm": "rmsnorm"},
        "recipe-sandwich",
        "plain-residual",
    ),
    "recipe-deepnorm": ({"connection": "deepnorm", "placement": "post"}, "recipe-post", "deepnorm"),
    "recipe-deepnorm-12": (
        {"connection": "deepnorm", "placement": "post", "depth": 12, "mlp": "relu"},
        "recipe-post",
        "deepnorm",
    ),
    "recipe-layerscale": ({"connection": "layerscale"}, "recipe-pre", "layerscale"),
    "recipe-layerscale-rms": (
        {"connection": "layerscale", "norm": "rmsnorm", "depth": 8},
        "recipe-pre",
        "layerscale",
    ),
    "recipe-hyper": ({"connection": "hyper"}, "recipe-pre", "lanes"),
    "recipe-hyper-static": (
        {"connection": "hyper(dynamic=false, lanes=2)", "depth": 8},
        "recipe-pre",
        "lanes",
    ),
}


def drawn_inputs(model: nn.Module, seed: int) -> Inputs:
    """Random inputs of the kind that the model takes: four examples of 24 tokens."""
    from leadline.models.inputs import random_inputs

    return random_inputs(model, examples=EXAMPLES, length=TOKENS, seed=seed)


@functools.cache
def _standard_library(length: int) -> Any:
    from leadline.lab.tasks.stdlib import StandardLibrary

    return StandardLibrary(length=length)


def text_inputs(
    model: nn.Module, seed: int, *, name: str = "input_ids", masked: bool = False
) -> Inputs:
    """Four windows of 64 bytes that no trained host has seen.

    A masked model gets 16 windows of 16 bytes, as it was trained on, with some bytes hidden.
    """
    import torch

    from leadline.models.inputs import Inputs

    length, examples = (16, 4 * EXAMPLES) if masked else (BYTES, EXAMPLES)
    windows = _standard_library(length).validation(256).ids
    generator = torch.Generator().manual_seed(seed)
    ids = windows[torch.randperm(len(windows), generator=generator)[:examples]]
    preview = bytes(ids[0].tolist()).decode(errors="replace")[:60]
    if not masked:
        return Inputs({name: ids}, kind="text", preview=preview, made=True)
    from leadline.testing.faults.trained import MASK, hide

    hidden, labels = hide(ids, generator)
    return Inputs(
        {name: hidden}, kind="text", preview=preview, labels=labels, mask_token_id=MASK, made=True
    )


def build_hf(family: str, seed: int, **settings: Any) -> nn.Module:
    """A host of Hugging Face as its own class initialises it; `settings` change its configuration."""
    import torch

    transformers = require("transformers", extra="hf")
    model_type, class_name, sizes, *_ = _FAMILIES[family]
    config = transformers.CONFIG_MAPPING[model_type](**{**sizes, **settings})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return getattr(transformers, class_name)(config).eval()


def build_recipe(fields: Mapping[str, Any], seed: int) -> nn.Module:
    """A Transformer of parts: width 64, 4 heads, 6 layers unless the fields say otherwise."""
    from leadline.parts import Transformer

    sizes = {"depth": 6, "width": 64, "heads": 4, "vocabulary": VOCABULARY, "context": 160}
    return Transformer(seed=seed, **{**sizes, **fields}).eval()


def _build_nano(name: str, seed: int) -> nn.Module:
    import torch

    from leadline.testing.faults import plain

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if name == "nano-gpt":
            return plain.NanoGpt(plain.NanoGptConfig()).eval()
        return plain.NanoLlama(plain.NanoLlamaConfig()).eval()


def _build_pair(name: str, _seed: int) -> nn.Module:
    from leadline.lab import pair

    model, _ = pair.pre() if name == "pre" else pair.post()
    return model.eval()


def _build_trained(name: str, _seed: int) -> nn.Module:
    from leadline.testing.faults.trained import trained_model

    return trained_model(name)


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _hf_host(name: str) -> Host:
    _, _, _, layout, kind, traits = _FAMILIES[name]
    return Host(
        name,
        kind,
        functools.partial(build_hf, name),
        drawn_inputs,
        HF_LAYOUTS[layout],
        traits=_set(traits) | {"config", "plain-residual"},
    )


def _recipe_host(name: str) -> Host:
    fields, layout, traits = _RECIPES[name]
    build = functools.partial(build_recipe, fields)
    return Host(
        name, "decoder", build, drawn_inputs, OWN_LAYOUTS[layout], traits=_set(traits) | {"recipe"}
    )


def _nano_host(name: str) -> Host:
    traits = _set("plain-residual" + (" tied dropout" if name == "nano-gpt" else " rotary"))
    build = functools.partial(_build_nano, name)
    return Host(name, "decoder", build, drawn_inputs, OWN_LAYOUTS[name], traits=traits)


def _pair_host(name: str) -> Host:
    placement = name.removeprefix("trained-pair-")
    return Host(
        name,
        "decoder",
        functools.partial(_build_pair, placement),
        text_inputs,
        OWN_LAYOUTS[f"recipe-{placement}"],
        trained=True,
        traits=_set("plain-residual recipe"),
    )


def _trained_host(name: str) -> Host:
    family = name.removeprefix("trained-")
    untrained = host(family)
    inputs: Callable[[nn.Module, int], Inputs] = text_inputs
    if family == "bert":
        inputs = functools.partial(text_inputs, masked=True)
    elif family == "nano-gpt":
        inputs = functools.partial(text_inputs, name="idx")
    layout: Layout = untrained.layout
    # Qwen's small models tie their head, and so does this one.
    tied = {"tied"} if family == "qwen3" else set[str]()
    return Host(
        name,
        untrained.kind,
        functools.partial(_build_trained, family),
        inputs,
        layout,
        trained=True,
        traits=untrained.traits | tied,
    )


@functools.cache
def host(name: str) -> Host:
    """The host of this name."""
    if name in _FAMILIES:
        return _hf_host(name)
    if name in _RECIPES:
        return _recipe_host(name)
    if name in OWN_LAYOUTS:
        return _nano_host(name)
    if name.startswith("trained-pair-"):
        return _pair_host(name)
    if name in NAMES["trained_learned"] + NAMES["trained_rotary"] + NAMES["trained_other"]:
        return _trained_host(name)
    raise UnknownName("host", name, [one for names in NAMES.values() for one in names])


def all_hosts() -> list[Host]:
    """Every host, in the order of the split's strata."""
    return [host(name) for names in NAMES.values() for name in names]
