"""Decoders with several residual streams: hyper-connections and their kin."""

from __future__ import annotations

from leadline.testing.zoo._specimen import INDEXER, LATENT, Specimen, decoder, describe

__all__ = ["LANES"]

LANES: tuple[Specimen, ...] = (
    decoder(
        "gemma3n_text",
        "sandwich lanes",
        vocab_size_per_layer_input=99,
        hidden_size_per_layer_input=8,
        num_kv_shared_layers=0,
        laurel_rank=8,
        num_hidden_layers=4,
        intermediate_size=[96] * 4,
        layer_types=["sliding_attention", "full_attention"] * 2,
        activation_sparsity_pattern=[0.0] * 4,
    ),
    decoder(
        "deepseek_v4",
        "pre moe lanes",
        hc_mult=4,
        q_lora_rank=24,
        o_groups=2,
        o_lora_rank=16,
        num_key_value_heads=1,
        partial_rotary_factor=0.5,
        compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
        **INDEXER,
    ),
    decoder("hy_v4", "pre moe lanes", **LATENT, **INDEXER),
    decoder(
        "qwen4_exp_text",
        "pre moe lanes hybrid recurrent",
        num_hidden_layers=4,
        hc_lowrank=8,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        indexer_n_heads=2,
        indexer_kv_heads=1,
        indexer_head_dim=16,
        indexer_budget=8,
        indexer_compress_ratio=2,
    ),
    describe(
        "glm5_next_text",
        "decoder",
        "pre moe lanes hybrid recurrent",
        head="AutoModel",
        settings={
            **LATENT,
            **INDEXER,
            "qk_rope_head_dim": 0,
            "index_kpool": 2,
            "num_hidden_layers": 4,
            "linear_head_dim": 8,
            "linear_num_heads": 4,
        },
    ),
)
