"""Gives the configuration of a Hugging Face model other sizes, whatever it calls them."""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = ["Sizes", "changed_sizes", "settings_of_size"]

# Names that configurations have for their sizes.
_WIDTH = "hidden_size n_embd d_model emb_dim dim embedding_size"
_DEPTH = """num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers
num_decoder_layers"""
_HEADS = """num_attention_heads n_head n_heads num_heads attention_heads encoder_attention_heads
decoder_attention_heads"""
_INNER = "intermediate_size encoder_ffn_dim decoder_ffn_dim ffn_dim d_ff hidden_dim d_inner dff"


Sizes = tuple[int, int, int]
"""Depth, width and heads."""


def settings_of_size(config: Any, sizes: Sizes) -> dict[str, Any]:
    """The settings of a configuration, with other sizes."""
    names = {field.name for field in dataclasses.fields(config)}
    left_out = {"layer_types", "architectures", "dtype"}
    settings = {k: v for k, v in config.to_diff_dict().items() if k in names - left_out}
    return settings | changed_sizes(config, sizes)


def changed_sizes(config: Any, sizes: Sizes) -> dict[str, Any]:
    """Only the settings that have to change for a configuration to have these sizes."""
    depth, width, heads = sizes
    names = {field.name for field in dataclasses.fields(config)}
    settings: dict[str, Any] = {}
    values = {_WIDTH: width, _DEPTH: depth, _HEADS: heads, _INNER: 2 * width}
    for words, value in values.items():
        for name in words.split():
            if name in names and isinstance(getattr(config, name), int):
                settings[name] = value
    groups = getattr(config, "num_key_value_heads", None)
    if "num_key_value_heads" in names and groups:
        is_full = groups == config.num_attention_heads
        settings["num_key_value_heads"] = heads if is_full else heads // 2
    if "head_dim" in names and getattr(config, "head_dim", None):
        settings["head_dim"] = width // heads
    # Families that spell out the scale of their logits have that of their large models.
    scales = {
        "query_pre_attn_scalar": width // heads,
        "attention_multiplier": (width / heads) ** -0.5,
    }
    settings |= {name: value for name, value in scales.items() if name in names}
    return settings
