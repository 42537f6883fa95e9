"""The fresh families and recipes and their sizes: depth 4 to 16, width 48 to 128.

Both tables have the columns of those in `leadline.testing.faults.hosts.families`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["FRESH_FAMILIES", "FRESH_RECIPES"]


def _sizes(width: int, depth: int, heads: int, *, groups: int = 0, **more: Any) -> dict[str, Any]:
    sizes = {
        "vocab_size": 160 + width,
        "hidden_size": width,
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "intermediate_size": 5 * width // 2,
        "max_position_embeddings": 192,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return sizes | ({"num_key_value_heads": groups} if groups else {}) | more


def _pictures(width: int, depth: int, heads: int) -> dict[str, Any]:
    sizes = _sizes(width, depth, heads)
    keep = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    return {key: sizes[key] for key in keep} | {"image_size": 24, "patch_size": 4, "num_labels": 7}


def _t5(width: int, depth: int, heads: int, words: str) -> dict[str, Any]:
    return {
        "vocab_size": 160 + width,
        "d_model": width,
        "d_kv": width // heads,
        "d_ff": 3 * width,
        "num_layers": depth,
        "num_decoder_layers": depth - 1,
        "num_heads": heads,
        "feed_forward_proj": words,
        "pad_token_id": 0,
        "decoder_start_token_id": 0,
    }


Family = tuple[str, str, Mapping[str, Any], str, str, str]


def _decoder(family: str, cls: str, layout: str, traits: str, sizes: dict[str, Any]) -> Family:
    return family, f"{cls}ForCausalLM", sizes, layout, "decoder", traits


FRESH_FAMILIES: Mapping[str, Family] = {
    "biogpt": _decoder("biogpt", "BioGpt", "biogpt", "tied mlp-bias", _sizes(72, 7, 6)),
    "xglm": _decoder(
        "xglm",
        "XGLM",
        "xglm",
        "tied mlp-bias other-range",
        {
            "vocab_size": 230,
            "d_model": 80,
            "num_layers": 9,
            "attention_heads": 5,
            "ffn_dim": 200,
            "max_position_embeddings": 192,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "smollm3": _decoder(
        "smollm3",
        "SmolLM3",
        "llama",
        "rotary grouped",
        _sizes(96, 8, 6, groups=3, tie_word_embeddings=False, use_sliding_window=False),
    ),
    "seed_oss": _decoder(
        "seed_oss",
        "SeedOss",
        "llama",
        "rotary grouped attention-bias",
        _sizes(80, 7, 4, groups=2, head_dim=20),
    ),
    "arcee": _decoder(
        "arcee", "Arcee", "ungated", "rotary", _sizes(112, 5, 7, groups=7, head_dim=16)
    ),
    "ernie4_5": _decoder(
        "ernie4_5",
        "Ernie4_5",
        "llama",
        "rotary",
        _sizes(48, 10, 4, groups=2, head_dim=12, tie_word_embeddings=False),
    ),
    "hunyuan_v1_dense": _decoder(
        "hunyuan_v1_dense",
        "HunYuanDenseV1",
        "llama",
        "rotary qk-norm",
        _sizes(64, 9, 8, groups=4, head_dim=8),
    ),
    "nemotron": _decoder(
        "nemotron", "Nemotron", "nemotron", "rotary", _sizes(96, 6, 8, groups=2, head_dim=12)
    ),
    "stablelm": _decoder("stablelm", "StableLm", "stablelm", "rotary", _sizes(80, 11, 5, groups=5)),
    "helium": _decoder(
        "helium", "Helium", "llama", "rotary", _sizes(80, 5, 5, groups=5, head_dim=16)
    ),
    "phi3": _decoder("phi3", "Phi3", "phi3", "rotary", _sizes(96, 7, 6, groups=2)),
    "glm": _decoder("glm", "Glm", "glm", "rotary", _sizes(64, 10, 4, groups=2, head_dim=16)),
    "gemma": _decoder(
        "gemma", "Gemma", "gemma-pre", "rotary tied", _sizes(80, 6, 5, groups=1, head_dim=16)
    ),
    "vaultgemma": _decoder(
        "vaultgemma",
        "VaultGemma",
        "vaultgemma",
        "rotary tied",
        _sizes(96, 8, 6, groups=6, head_dim=16, query_pre_attn_scalar=16),
    ),
    "olmo3": _decoder("olmo3", "Olmo3", "olmo2", "rotary qk-norm", _sizes(96, 8, 6, groups=2)),
    "exaone4": _decoder(
        "exaone4",
        "Exaone4",
        "olmo2",
        "rotary qk-norm",
        _sizes(64, 12, 4, groups=4, head_dim=16, sliding_window=64),
    ),
    "glm4": _decoder("glm4", "Glm4", "glm4", "rotary", _sizes(80, 9, 5, groups=5, head_dim=16)),
    "cohere": _decoder(
        "cohere",
        "Cohere",
        "cohere",
        "rotary",
        _sizes(72, 7, 6, groups=3, logit_scale=1.0, tie_word_embeddings=False),
    ),
    "stablelm-parallel": _decoder(
        "stablelm",
        "StableLm",
        "stablelm-parallel",
        "rotary",
        _sizes(96, 6, 6, groups=3, use_parallel_residual=True),
    ),
    "gpt_bigcode": _decoder(
        "gpt_bigcode",
        "GPTBigCode",
        "gpt_bigcode",
        "tied dropout mlp-bias",
        {
            "vocab_size": 240,
            "n_positions": 192,
            "n_embd": 96,
            "n_layer": 10,
            "n_head": 6,
            "multi_query": False,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "camembert": (
        "camembert",
        "CamembertForMaskedLM",
        _sizes(96, 5, 6),
        "camembert",
        "encoder",
        "tied dropout mlp-bias",
    ),
    "electra": (
        "electra",
        "ElectraForMaskedLM",
        _sizes(80, 8, 5, embedding_size=80),
        "electra",
        "encoder",
        "tied dropout mlp-bias",
    ),
    "mt5": (
        "mt5",
        "MT5ForConditionalGeneration",
        _t5(80, 5, 5, "relu"),
        "t5",
        "encoder-decoder",
        "tied dropout other-range",
    ),
    "t5-gated": (
        "t5",
        "T5ForConditionalGeneration",
        _t5(96, 7, 6, "gated-gelu"),
        "t5-gated",
        "encoder-decoder",
        "tied dropout other-range",
    ),
    "deit": (
        "deit",
        "DeiTForImageClassification",
        _pictures(96, 7, 6),
        "deit",
        "vision",
        "mlp-bias",
    ),
    "ijepa": (
        "ijepa",
        "IJepaForImageClassification",
        _pictures(72, 9, 4),
        "ijepa",
        "vision",
        "mlp-bias",
    ),
}


def _recipe(depth: int, width: int, heads: int, **fields: Any) -> dict[str, Any]:
    return {"depth": depth, "width": width, "heads": heads, "vocabulary": 160 + width, **fields}


_ROTARY: dict[str, Any] = {"norm": "rmsnorm", "positions": "rotary"}

FRESH_RECIPES: Mapping[str, tuple[Mapping[str, Any], str, str]] = {
    "recipe-pre-4": (_recipe(4, 128, 8, mlp="relu"), "recipe-pre", "plain-residual"),
    "recipe-pre-16": (_recipe(16, 48, 3, norm="rmsnorm"), "recipe-pre", "plain-residual"),
    "recipe-post-5": (
        _recipe(5, 96, 6, placement="post", mlp="relu"),
        "recipe-post",
        "plain-residual",
    ),
    "recipe-post-10": (
        _recipe(10, 80, 5, placement="post", norm="rmsnorm"),
        "recipe-post",
        "plain-residual",
    ),
    "recipe-rotary-7": (
        _recipe(7, 96, 4, mlp="geglu", attention="multihead(bias=false)", **_ROTARY),
        "recipe-llama",
        "plain-residual rotary",
    ),
    "recipe-rotary-12": (
        _recipe(12, 72, 6, mlp="swiglu", attention="multihead(bias=false, groups=3)", **_ROTARY),
        "recipe-llama",
        "plain-residual rotary grouped",
    ),
    "recipe-sandwich-9": (
        _recipe(9, 80, 4, placement="sandwich"),
        "recipe-sandwich",
        "plain-residual",
    ),
    "recipe-deepnorm-8": (
        _recipe(8, 96, 6, connection="deepnorm", placement="post"),
        "recipe-post",
        "deepnorm",
    ),
    "recipe-deepnorm-16": (
        _recipe(16, 56, 4, connection="deepnorm", placement="post", norm="rmsnorm"),
        "recipe-post",
        "deepnorm",
    ),
    "recipe-layerscale-5": (
        _recipe(5, 112, 7, connection="layerscale", mlp="relu"),
        "recipe-pre",
        "layerscale",
    ),
    "recipe-layerscale-12": (
        _recipe(12, 64, 2, connection="layerscale"),
        "recipe-pre",
        "layerscale",
    ),
    "recipe-hyper-5": (
        _recipe(5, 96, 6, connection="hyper(lanes=3)"),
        "recipe-pre",
        "lanes",
    ),
    "recipe-hyper-9": (
        _recipe(9, 72, 4, connection="hyper(dynamic=false)", norm="rmsnorm"),
        "recipe-pre",
        "lanes",
    ),
}
