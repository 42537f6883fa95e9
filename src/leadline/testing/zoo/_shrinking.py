"""Any configuration of transformers made small, by rules that know fields and not model types.

1. A field of a known name takes the small size, where what it holds is a larger number or nothing.
   A zero, a flag or a list says something else and stays.
2. Lists are shortened to what two blocks allow: depths to 2, indices of layers to 0 and 1.
3. The sections of a rotary embedding with several axes are scaled to half of a head.
4. Latent attention has as many heads of keys as of queries.
5. Nested configurations are made small in the same way.

What a model type needs besides is said beside its name, and wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from leadline.testing.zoo._specimen import INDEXER, LATENT, SIZES

__all__ = ["small"]

_HALF_HEAD = 8


def _each(value: Any, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), value)


_SMALL: Mapping[str, Any] = {
    **SIZES,
    **LATENT,
    **INDEXER,
    "num_key_value_heads": 2,
    **_each(
        2,
        "depth num_blocks encoder_depth resampler_depth decoder_num_layers num_encoder_layers "
        "encoder_num_layers num_global_layers pred_num_hidden_layers",
    ),
    **_each(
        4,
        "decoder_num_attention_heads attention_heads num_encoder_attention_heads "
        "num_decoder_attention_heads pred_num_attention_heads moe_num_experts num_query_tokens "
        "num_frames",
    ),
    **_each(
        64,
        "embed_dim embedding_dim encoder_hidden_size decoder_hidden_size out_hidden_size "
        "text_hidden_size vision_hidden_size output_hidden_size encoder_hidden_dim "
        "decoder_hidden_dim projector_hidden_size output_dim pooler_output_size pred_hidden_size "
        "word_embed_proj_dim max_source_positions max_target_positions num_position_embeddings",
    ),
    **_each(
        96,
        "mlp_dim encoder_intermediate_size decoder_intermediate_size dim_feedforward "
        "ffn_hidden_size n_inner dff",
    ),
    **_each(32, "projection_dim projection_size codebook_size"),
    **_each(16, "num_mel_bins d_kv d_head attention_head_dim"),
    **_each(6, "num_queries num_object_queries"),
    **_each(1, "n_group topk_group first_k_dense_replace mamba_n_groups"),
    **_each(8, "linear_key_head_dim linear_value_head_dim mamba_n_heads mamba_d_state"),
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
    "temporal_patch_size": 2,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "mamba_d_head": 16,
    "mamba_chunk_size": 4,
    "vocab_size_per_layer_input": 99,
    "hidden_size_per_layer_input": 8,
    "max_2d_position_embeddings": 1024,
    # Tokens that stand for something, all of them inside the vocabulary of 99.
    **_each(90, "image_token_id image_token_index"),
    **_each(91, "video_token_id video_token_index"),
    **_each(92, "audio_token_id audio_token_index"),
    **_each(93, "vision_start_token_id image_start_token_id boi_token_id boi_token_index"),
    **_each(94, "vision_end_token_id image_end_token_id eoi_token_id eoi_token_index"),
    "audio_bos_token_id": 95,
    "audio_eos_token_id": 96,
}
_DEPTHS = frozenset({"depths", "num_blocks", "stage_num_blocks", "blocks_per_stage"})
_INDICES = ("indexes", "indices", "layer_ids", "target_layers", "extract_layers", "hook_ids")


def small(config_class: Any, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The arguments of a configuration class that make its model small, with `settings` in them."""
    settings = settings or {}
    names = {field.name for field in fields(config_class)}
    aliases: Mapping[str, str] = config_class.attribute_map
    nested = set(getattr(config_class, "sub_configs", None) or ())
    default = vars(config_class())
    arguments: dict[str, Any] = {}
    for name, size in _SMALL.items():
        if name in aliases and _shrinks(default.get(aliases[name]), name, size):
            arguments[aliases[name]] = size
    for name, size in _SMALL.items():
        if name in names - nested and _shrinks(default.get(name), name, size):
            arguments[name] = size
    for name in names - nested:
        shorter = _shorter(name, default.get(name))
        if shorter is not None:
            arguments[name] = shorter
    if "kv_lora_rank" in names and "num_key_value_heads" in arguments:
        arguments["num_key_value_heads"] = arguments.get("num_attention_heads", 4)
    for name in nested:
        part = default.get(name)
        if part is not None and not isinstance(part, Mapping):
            kind = {"model_type": part.model_type} if part.model_type else {}
            arguments[name] = {**small(type(part), settings.get(name)), **kind}
    special = {name: value for name, value in settings.items() if name not in nested}
    return arguments | {aliases.get(name, name): value for name, value in special.items()}


def _shrinks(value: Any, name: str, size: Any) -> bool:
    """Whether a field that holds `value` takes the small size."""
    if isinstance(value, bool | list | tuple | dict):
        return False
    if name.endswith(("token_id", "token_index", "max_position_embeddings")):
        return True
    if isinstance(value, int) and isinstance(size, int):
        return value >= size and value != 0
    return True


def _shorter(name: str, value: Any) -> Any:
    """What a list or the parameters of a rotary embedding become; None where they stay."""
    if isinstance(value, dict) and name in ("rope_parameters", "rope_scaling"):
        return _sections(value)
    if not isinstance(value, list | tuple) or not value:
        return None
    if name in _DEPTHS:
        return [min(depth, 2) for depth in value]
    if name == "image_size":
        return [16, 16]
    if name == "conv_dim":
        return [32] * len(value)
    are_indices = all(isinstance(item, int) and not isinstance(item, bool) for item in value)
    if are_indices and any(word in name for word in _INDICES) and max(value) > 1:
        return [0, 1][: len(value)]
    return None


def _sections(parameters: Mapping[str, Any]) -> dict[str, Any] | None:
    changed: dict[str, Any] = {}
    for name, value in parameters.items():
        if isinstance(value, Mapping) and (inner := _sections(value)) is not None:
            changed[name] = inner
        elif name == "mrope_section":
            sections = [part * _HALF_HEAD // sum(value) for part in value]
            sections[-1] += _HALF_HEAD - sum(sections)
            changed[name] = sections
    return {**parameters, **changed} if changed else None
