"""Decoders whose MLP is a mixture of experts."""

from __future__ import annotations

from leadline.testing.zoo._specimen import LATENT, Specimen, decoder, describe

__all__ = ["EXPERTS"]

EXPERTS: tuple[Specimen, ...] = (
    decoder("mixtral", "pre moe"),
    decoder("qwen2_moe", "pre moe"),
    decoder("qwen3_moe", "pre moe"),
    decoder("olmoe", "pre moe"),
    decoder("phimoe", "pre moe"),
    decoder("gpt_oss", "pre moe"),
    decoder("granitemoe", "pre moe gain", residual_multiplier=0.22),
    decoder("deepseek_v2", "pre moe", n_group=1, topk_group=1, **LATENT),
    decoder("deepseek_v3", "pre moe", n_group=1, topk_group=1, first_k_dense_replace=1, **LATENT),
    decoder("glm4_moe", "pre moe", n_group=1, topk_group=1, first_k_dense_replace=1),
    decoder("ernie4_5_moe", "pre moe"),
    decoder("jetmoe", "pre moe", kv_channels=16),
    decoder("llama4_text", "pre moe", intermediate_size_mlp=96),
    decoder(
        "dbrx",
        "pre moe",
        max_seq_len=64,
        attn_config={"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0},
        ffn_config={"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2},
    ),
    decoder("flex_olmo", "output moe"),
    decoder("afmoe", "sandwich moe", num_dense_layers=1),
    decoder("kolibri1", "sandwich moe"),
    decoder(
        "gemma4_text-moe",
        "sandwich moe layer-scale",
        "gemma4_text",
        vocab_size_per_layer_input=99,
        hidden_size_per_layer_input=0,
        enable_moe_block=True,
        top_k_experts=2,
    ),
    decoder(
        "dots1", "pre moe", n_group=1, topk_group=1, first_k_dense_replace=1, n_shared_experts=1
    ),
    decoder("zaya", "pre moe layer-scale", num_experts_per_tok=1, router_hidden_size=16),
    describe(
        "muse_spark_text",
        "decoder",
        "sandwich moe gain",
        head="AutoModel",
        settings={"moe_hidden_size": 32},
    ),
)
