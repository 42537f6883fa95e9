"""Decoders with attention and one dense MLP per block: causal language models."""

from __future__ import annotations

from leadline.testing.zoo._specimen import LATENT, Specimen, decoder

__all__ = ["DECODERS"]

DECODERS: tuple[Specimen, ...] = (
    # One norm before each branch.
    decoder("gpt2", "pre"),
    decoder("gpt_bigcode", "pre"),
    decoder("gpt_neo", "pre", num_layers=4, attention_types=[[["global", "local"], 2]]),
    decoder("bloom", "pre"),
    decoder("mpt", "pre"),
    decoder("opt", "pre", word_embed_proj_dim=64),
    decoder("xglm", "pre", attention_heads=4, num_layers=3),
    decoder("biogpt", "pre"),
    decoder("ctrl", "pre", dff=96),
    decoder("llama", "pre"),
    decoder("mistral", "pre"),
    decoder("ministral", "pre"),
    decoder("qwen2", "pre"),
    decoder("qwen3", "pre"),
    decoder("gemma", "pre"),
    decoder("phi3", "pre"),
    decoder("olmo", "pre"),
    decoder("starcoder2", "pre"),
    decoder("nemotron", "pre"),
    decoder("persimmon", "pre"),
    decoder("stablelm", "pre"),
    decoder("smollm3", "pre"),
    decoder("bitnet", "pre"),
    decoder("apertus", "pre"),
    decoder("arcee", "pre"),
    decoder("glm", "pre"),
    decoder("ernie4_5", "pre"),
    decoder("helium", "pre"),
    decoder("hunyuan_v1_dense", "pre"),
    decoder("seed_oss", "pre"),
    decoder("diffllama", "pre"),
    decoder("nanochat", "pre"),
    decoder("modernbert-decoder", "pre"),
    decoder("roberta-prelayernorm", "pre", is_decoder=True),
    decoder("gpt_neox-sequential", "pre", "gpt_neox", use_parallel_residual=False),
    decoder("falcon-sequential", "pre", "falcon", parallel_attn=False, multi_query=False),
    # Blocks inside two nested loops.
    decoder("hrm_text", "pre nested"),
    # A number, fixed or learned, on the update or on the stream.
    decoder("granite", "pre gain", residual_multiplier=0.22),
    decoder("minicpm3", "pre gain", **LATENT),
    decoder("doge", "pre layer-scale"),
    # Norm after the addition.
    decoder("openai-gpt", "post"),
    decoder("opt-post", "post", "opt", do_layer_norm_before=False, word_embed_proj_dim=64),
    decoder("xlnet", "post", d_head=16),
    # Attention and MLP side by side.
    decoder("gptj", "pre parallel", rotary_dim=8),
    decoder("codegen", "pre parallel", rotary_dim=8),
    decoder("gpt_neox", "pre parallel"),
    decoder("phi", "pre parallel"),
    decoder("cohere", "pre parallel"),
    decoder("cohere2", "pre parallel"),
    decoder("falcon", "pre parallel"),
    decoder("falcon-new", "pre parallel", "falcon", new_decoder_architecture=True),
    decoder("stablelm-parallel", "pre parallel", "stablelm", use_parallel_residual=True),
    # Norms on both sides of the branch.
    decoder("gemma2", "sandwich"),
    decoder("gemma3_text", "sandwich"),
    decoder("glm4", "sandwich"),
    decoder("hyperclovax", "sandwich gain", use_post_norm=True, residual_multiplier=0.5),
    decoder("beam", "sandwich gain"),
    decoder(
        "gemma4_text",
        "sandwich layer-scale",
        vocab_size_per_layer_input=99,
        hidden_size_per_layer_input=8,
    ),
    # Norm on the branch's output only.
    decoder("olmo2", "output"),
    decoder("olmo3", "output"),
    decoder("exaone4", "output"),
)
