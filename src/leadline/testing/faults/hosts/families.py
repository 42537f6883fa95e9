"""The families of the hosts and their sizes: width 64, six to eight layers, a vocabulary of 200.

FAMILIES    host -> model type, class, settings, layout, kind, traits
RECIPES     host -> fields of a recipe, layout, traits
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["FAMILIES", "RECIPES", "VOCABULARY"]

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

FAMILIES: Mapping[str, tuple[str, str, Mapping[str, Any], str, str, str]] = {
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

RECIPES: Mapping[str, tuple[Mapping[str, Any], str, str]] = {
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
